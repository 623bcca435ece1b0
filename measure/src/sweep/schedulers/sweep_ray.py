"""Runs the jobs of a planish sweep on a Ray cluster, a task for each job: python sweep_ray.py

planish, the plan and its models and data are at the same paths on all nodes. The output folder is on the machine that this
program runs on: the results of tasks come back to it. Jobs that are done are not run again, so the program goes on where it
stopped.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import ray

PLAN = @PLAN@
OUTPUT = @OUTPUT@
THREADS = @THREADS@  # the processor cores of a task
RETRIES = 3  # how often a task is run again whose node is lost, or that asks for it
TRY_AGAIN = 75  # the exit code that asks for it


class TryAgain(Exception):
    """A job may be done when it is run again."""


@ray.remote(num_cpus=THREADS, max_retries=RETRIES, retry_exceptions=[TryAgain])
def run(job, jobs):
    """Runs a job of the list. Returns the bytes of its result."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "jobs.json").write_text(jobs)
        command = ["planish", "sweep", PLAN, "-o", folder, "--job", job]
        done = subprocess.run(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        result = Path(folder) / "results" / f"{job}.json"
        if done.returncode == TRY_AGAIN:
            raise TryAgain(done.stderr)
        if not result.exists():
            raise RuntimeError(done.stderr)
        return result.read_bytes()


def write(path, content):
    """Writes a file whole, or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    os.replace(draft, path)


def main():
    results = Path(OUTPUT) / "results"
    results.mkdir(parents=True, exist_ok=True)
    listing = subprocess.run(["planish", "sweep", "list", OUTPUT, "--json"], stdout=subprocess.PIPE, check=True)
    jobs = (Path(OUTPUT) / "jobs.json").read_text()
    ray.init()
    shared = ray.put(jobs)
    wanted = [job["id"] for job in json.loads(listing.stdout) if job["state"] not in ("done", "failed")]
    pending = {run.remote(job, shared): job for job in wanted}
    while pending:
        (ended,), _ = ray.wait(list(pending))
        job = pending.pop(ended)
        try:
            write(results / f"{job}.json", ray.get(ended))
        except ray.exceptions.RayError as error:
            print(f"{job}: {error}", file=sys.stderr)
    sys.exit(subprocess.run(["planish", "sweep", "merge", OUTPUT]).returncode)


if __name__ == "__main__":
    main()
