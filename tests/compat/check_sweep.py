#!/usr/bin/env python3
"""Runs a sweep of 200 jobs on a local Ray cluster of two nodes, of which one is killed in the middle.

    check_sweep.py PLANISH GOLDENS

The program is the one that `planish sweep --for ray` prints. A command in front of planish logs when each job begins and ends,
and on which node. Checked: each job has a result; no job ran twice but those that ran on the node when it was killed; and the
tables are those of one process, byte for byte. The YAML for Kubernetes is checked against its schema. Needs Ray.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import kubernetes_validate
import yaml
from sweeps import check_tables

JOBS = 200
MODELS = 25
FORMS = [
    {"name": "f32"},
    {"name": "fp16", "options": ["--fp16"]},
    {"name": "onnx", "options": ["--target", "onnx"]},
    {"name": "opset21", "options": ["--opset", "21"]},
    {"name": "opset22", "options": ["--opset", "22"]},
    {"name": "onnx-fp16", "options": ["--target", "onnx", "--fp16"]},
    {"name": "int8-weights", "options": ["--int8-weights"]},
    {"name": "int4", "options": ["--int4"]},
]

# Logs the beginning and the end of a job with the node, which has its name in the environment.
LOGGED = """#!/bin/bash
case "$1 $*" in
  "sweep "*--job*) ;;
  *) exec {planish} "$@" ;;
esac
job="${{@: -1}}"
node="${{SWEEP_NODE:-none}}"
echo "begin $job $node" >> {log}
{planish} "$@"
code=$?
echo "end $job $node" >> {log}
exit $code
"""


def run(command, environment, **more):
    done = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    if done.returncode:
        sys.exit(f"{command} failed with {done.returncode}: {done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def plan(goldens, folder):
    """Writes a plan of 200 jobs: encoders of the goldens in several forms."""
    encoders = [
        config.parent
        for config in sorted(goldens.glob("*/config.json"))
        if json.loads(config.read_text()).get("architectures", [""])[0].endswith(("Model", "ForMaskedLM"))
    ]
    (folder / "goldens").symlink_to(goldens.resolve())
    models = [{"name": model.name, "path": f"goldens/{model.name}"} for model in encoders[:MODELS]]
    path = folder / "plan.json"
    path.write_text(json.dumps({"schema": 1, "models": models, "forms": FORMS}))
    return path


def start(node, port, environment):
    """Starts a node of Ray of two cores in a group of processes of its own."""
    where = ["--head", f"--port={port}"] if node == "head" else [f"--address=127.0.0.1:{port}"]
    command = [Path(sys.executable).parent / "ray", "start", *where, "--num-cpus=2", "--block", "--disable-usage-stats",
               "--include-dashboard=false", "--object-store-memory=100000000"]
    command = command if node == "head" else [word for word in command if not str(word).startswith("--include-dashboard")]
    return subprocess.Popen(
        command, env=environment | {"SWEEP_NODE": node}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )


def kill(node):
    """Kills a node and all of its workers at once."""
    try:
        os.killpg(node.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
            if int(fields[3]) == node.pid:  # of its session
                os.kill(int(path.parent.name), signal.SIGKILL)
        except (OSError, IndexError):
            pass


def events(log):
    return [tuple(line.split()) for line in log.read_text().splitlines()] if log.exists() else []


def kubernetes(planish, path, out, environment):
    """Checks the YAML against the schema of Kubernetes."""
    text = run([planish, "sweep", path, "-o", out, "--for", "kubernetes"], environment)
    version = kubernetes_validate.latest_version()
    job = yaml.safe_load(text)
    kubernetes_validate.validate(job, version, strict=True)
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["backoffLimitPerIndex"]) == ("Indexed", JOBS, 3), spec
    spec["completions"] = "many"
    try:
        kubernetes_validate.validate(job, version, strict=True)
    except kubernetes_validate.ValidationError:
        return version
    sys.exit("the schema of Kubernetes lets a wrong document pass")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("planish", type=Path)
    parser.add_argument("goldens", type=Path)
    arguments = parser.parse_args()
    planish, goldens = arguments.planish.resolve(), arguments.goldens.resolve()

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        log, bin_folder = folder / "log", folder / "bin"
        bin_folder.mkdir()
        (bin_folder / "planish").write_text(LOGGED.format(planish=planish, log=log))
        (bin_folder / "planish").chmod(0o755)
        environment = os.environ | {
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "HOME": name,
            "RAY_USAGE_STATS_ENABLED": "0",
            # A node that is killed is noticed after seconds, not half a minute.
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "1000",
            "RAY_health_check_failure_threshold": "3",
        }
        path = plan(goldens, folder)
        alone, of_ray = folder / "alone", folder / "ray"
        begin = time.monotonic()
        done = subprocess.run([planish, "sweep", path, "-o", alone, "-q"], env=environment, text=True, capture_output=True)
        took = time.monotonic() - begin
        jobs = json.loads((alone / "jobs.json").read_text())["jobs"]
        assert len(jobs) == JOBS, len(jobs)
        rows = json.loads((alone / "table.json").read_text())["rows"]
        states = Counter(row["status"] for row in rows)
        print(f"one process: {JOBS} jobs in {took:.1f} s, {dict(states)}, exit code {done.returncode}")
        version = kubernetes(planish, path, folder / "kubernetes", environment)
        print(f"the YAML is valid by the schema of Kubernetes {version}")

        program = folder / "sweep_ray.py"
        program.write_text(run([planish, "sweep", path, "-o", of_ray, "--for", "ray"], environment))
        port = 6391
        head = start("head", port, environment)
        time.sleep(8)
        second = start("second", port, environment)
        time.sleep(8)
        try:
            begin = time.monotonic()
            driver = subprocess.Popen(
                [sys.executable, program], env=environment | {"RAY_ADDRESS": f"127.0.0.1:{port}"},
                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )
            while len([of for of in events(log) if of[0] == "end"]) < JOBS // 3:
                if driver.poll() is not None:
                    sys.exit(f"the program ended early: {driver.communicate()[0][-3000:]}")
                time.sleep(0.05)
            kill(second)
            before = events(log)
            output, _ = driver.communicate(timeout=500)
            took = time.monotonic() - begin
        finally:
            kill(second)
            kill(head)

        if driver.returncode != done.returncode:
            sys.exit(f"the program ended with {driver.returncode}, one process with {done.returncode}: {output[-3000:]}")
        began = Counter(of[1] for of in events(log) if of[0] == "begin")
        if set(began) != {job["id"] for job in jobs}:
            sys.exit(f"{JOBS - len(began)} jobs never began")
        of_second = [of for of in before if of[2] == "second"]
        ended = Counter(of[1] for of in of_second if of[0] == "end")
        lost = {of[1] for of in of_second if of[0] == "begin"} - set(ended)
        twice = {job for job, count in began.items() if count > 1}
        # A result that was on its way when the node was killed is lost too: at most one for each core.
        on_its_way = {of[1] for of in [of for of in of_second if of[0] == "end"][-2:]}
        if not of_second or not twice <= lost | on_its_way:
            sys.exit(f"jobs ran twice that were not lost: {sorted(twice - lost)}; lost: {sorted(lost)}")
        check_tables(alone, of_ray, "Ray")
        print(
            f"Ray, two nodes of two cores, one killed after {len([of for of in before if of[0] == 'end'])} jobs: {JOBS} jobs in {took:.1f} s; "
            f"{len(ended)} jobs had ended on the killed node and {len(lost)} were running there; {len(twice)} jobs ran twice; "
            "the tables are those of one process, byte for byte"
        )


if __name__ == "__main__":
    main()
