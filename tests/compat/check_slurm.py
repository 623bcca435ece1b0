#!/usr/bin/env python3
"""Runs a sweep as an array of a local Slurm of two nodes, of which one is killed in the middle.

    check_slurm.py PLANISH GOLDENS

Needs Debian's slurmctld, slurmd and munge, a munged that runs, and root. The script is the one that `planish sweep --for slurm` prints.
When the array has ended but for the task of the killed node, `planish sweep merge` has to name the jobs of this task and to print its
--array=, sbatch with it runs it on the other node, and the tables are those of one process byte for byte.
"""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sweeps import check_tables

TASKS = 8
MODELS = ["albert", "bert", "bert-mlm", "deberta", "electra", "esm", "mobilebert", "modernbert", "mpnet", "nomic-bert"]
FORMS = [
    {"name": "f32"},
    {"name": "fp16", "options": ["--fp16"]},
    {"name": "int8-weights", "options": ["--int8-weights"]},
    {"name": "onnx", "options": ["--target", "onnx"]},
]

CONFIGURATION = """
ClusterName=planish
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort=16817
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
AuthType=auth/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
MailProg=/bin/true
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port=17001 CPUs=1
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port=17002 CPUs=1
PartitionName=all Nodes=one,two Default=YES MaxTime=INFINITE State=UP
"""


def run(*command, code=0):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True)
    if done.returncode != code:
        sys.exit(f"{command} ended with {done.returncode}, not {code}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def wait(what, test, seconds=120):
    end = time.monotonic() + seconds
    while not test():
        if time.monotonic() > end:
            sys.exit(f"{what}: not after {seconds} s\n{run('squeue', '-r')}{run('sinfo', '-N')}")
        time.sleep(0.1)


def kill_node(folder, process):
    """Kills a node: its daemon, the task of a process of a script, and all that the task started."""
    os.kill(int((folder / "slurmd.two.pid").read_text()), signal.SIGKILL)
    rows = [line.split()[:3] for line in run("ps", "-eo", "pid,ppid,sid").splitlines()[1:]]
    by_id = {row[0]: row for row in rows}
    if process not in by_id:
        sys.exit("the task of the node ended before it was killed")
    _, script, session = by_id[process]
    step = by_id[script][1]
    for one in {row[0] for row in rows if row[2] == session} | {step} - {"1"}:
        try:
            os.kill(int(one), signal.SIGKILL)
        except ProcessLookupError:
            pass


def start():
    """Starts the controller and both nodes."""
    run("slurmctld", "-c")
    time.sleep(2)
    run("slurmd", "-N", "one")
    run("slurmd", "-N", "two")
    idle = ["one", "idle", "two", "idle"]
    wait("both nodes idle", lambda: run("sinfo", "-h", "-N", "-o", "%N %t").split() == idle)


def lose_a_node(folder, script):
    """Runs the array, and kills a node in its second task. Returns the number of the task, when all others have ended."""
    array = run("sbatch", "--parsable", "--chdir", folder, script).strip()
    wait("two tasks on node two", lambda: len([of for of in began(folder) if of[1] == "two"]) >= 2)
    lost, _, process = [of for of in began(folder) if of[1] == "two"][-1]
    kill_node(folder, process)
    wait("all other tasks end", lambda: queued() <= {lost})
    run("scancel", array)
    return lost


def run_again(folder, script, retry):
    """Runs tasks of the array again, on the node that is left."""
    run("scontrol", "update", "NodeName=two", "State=DOWN", "Reason=killed")
    wait("the lost task leaves the queue", lambda: not queued())
    run("sbatch", "--parsable", "--chdir", folder, f"--array={retry}", script)
    wait("the task runs again", lambda: not queued())


def began(folder):
    """The tasks that began: their numbers, nodes and processes."""
    log = folder / "log"
    return [line.split() for line in log.read_text().splitlines()] if log.exists() else []


def queued():
    return set(run("squeue", "-h", "-r", "-o", "%K").split())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("planish", type=Path)
    parser.add_argument("goldens", type=Path)
    arguments = parser.parse_args()
    planish, goldens = arguments.planish.resolve(), arguments.goldens.resolve()
    if subprocess.run("munge -n | unmunge", shell=True, capture_output=True).returncode:
        sys.exit("munged does not run: mkdir -p /run/munge && chown munge /run/munge && su -s /bin/sh munge -c munged")

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for part in ("state", "spool.one", "spool.two", "bin"):
            (folder / part).mkdir()
        # Slow enough to be killed in the middle; says on which node it runs.
        slow = folder / "bin" / "planish"
        logs = f'echo "$SLURM_ARRAY_TASK_ID $SLURMD_NODENAME $$" >> {folder}/log'
        slow.write_text(f'#!/bin/bash\n{logs}\nsleep 3\nexec {planish} "$@"\n')
        slow.chmod(0o755)
        configuration = folder / "slurm.conf"
        configuration.write_text(CONFIGURATION.format(host=socket.gethostname(), folder=folder))
        os.environ |= {"SLURM_CONF": str(configuration), "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        plan, alone, out = folder / "plan.json", folder / "alone", folder / "out"
        models = [{"name": model, "path": str(goldens / model)} for model in MODELS]
        plan.write_text(json.dumps({"schema": 1, "models": models, "forms": FORMS}))
        run(planish, "sweep", plan, "-o", alone)
        script = folder / "sweep.sbatch"
        script.write_text(run(planish, "sweep", plan, "-o", out, "--for", "slurm", "--tasks", TASKS))
        try:
            start()
            lost = lose_a_node(folder, script)
            text = run(planish, "sweep", "merge", out, "--tasks", TASKS, code=75)
            missing = int(re.search(r"(\d+) of \d+ jobs are not done", text)[1])
            retry = re.search(r"--array=(\S+)", text)[1]
            if retry != lost:
                sys.exit(f"the task {lost} was lost, and --array={retry} is printed: {text}")
            run_again(folder, script, retry)
            run(planish, "sweep", "merge", out, "--tasks", TASKS)
            nodes = [of[1] for of in began(folder) if of[0] == lost]
            if nodes != ["two", "one"]:
                sys.exit(f"the lost task ran on {nodes}")
            check_tables(alone, out, "Slurm")
            print(
                f"Slurm, two nodes, an array of {TASKS} tasks for {len(MODELS) * len(FORMS)} jobs: one node was killed in task {lost}, "
                f"{missing} jobs were missing, --array={retry} ran them on the other node; the tables are those of one process, "
                "byte for byte"
            )
        finally:
            for daemon in ("slurmd.one", "slurmd.two", "slurmctld"):
                try:
                    os.kill(int((folder / f"{daemon}.pid").read_text()), signal.SIGTERM)
                except (OSError, ValueError):
                    pass


if __name__ == "__main__":
    main()
