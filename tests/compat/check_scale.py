#!/usr/bin/env python3
"""Runs the scripts of docs/scale.md, and compares their tables with the table of one run.

    check_scale.py PLANISH MODEL DATA

The program for Ray runs as it is, on a local Ray of two cores with tasks of one core. The tasks of the Slurm array run one
after the other, with the variables that Slurm sets. Needs Ray.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
SHARDS = 4


def script(language, having):
    """The block of docs/scale.md in a language that has a text."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", DOCS.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if having in block]
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("planish", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    arguments = parser.parse_args()
    planish, model, data = (path.resolve() for path in (arguments.planish, arguments.model, arguments.data))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole, of_ray, of_slurm = (folder / table for table in ("whole.json", "ray.json", "slurm.json"))
        environment = os.environ | {
            "PATH": f"{planish.parent}{os.pathsep}{os.environ['PATH']}",
            "RAY_USAGE_STATS_ENABLED": "0",
            # Ray writes the token of its cluster into the home.
            "HOME": name,
            # A cluster of this machine, of two cores.
            "RAY_OVERRIDE_RESOURCES": '{"CPU": 2}',
        }
        environment.pop("RAY_ADDRESS", None)

        def run(command, **more):
            done = subprocess.run(command, env=environment | more, text=True, stdout=subprocess.PIPE, check=False)
            if done.returncode:
                sys.exit(f"{command[:3]} failed with {done.returncode}: {done.stdout}")
            return done.stdout

        run([planish, "calibrate", model, "--data", data, "--output", whole])

        program = folder / "calibrate_ray.py"
        program.write_text(script("python", "import ray"))
        output = run([sys.executable, program, model, data, of_ray, "--shards", str(SHARDS), "--threads", "1"])
        workers = set(re.findall(r"^shard \d+ of \d+: .*, process (\d+)$", output, re.MULTILINE))
        if len(workers) != 2:
            sys.exit(f"{len(workers)} workers ran the shards, not 2: {output}")

        batch = folder / "calibrate.sbatch"
        batch.write_text(script("bash", "#SBATCH"))
        for task in range(1, SHARDS + 1):
            of_task = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": str(SHARDS), "SLURM_CPUS_PER_TASK": "1"}
            run(["bash", batch], MODEL=str(model), DATA=str(data), TABLES=name, **of_task)
        (merge,) = re.findall(r"'(planish calibrate --merge .*)'", script("bash", "--wrap"))
        run(["bash", "-c", merge.replace("/table.json", "/slurm.json")], TABLES=name)

        for kind, table in (("Ray", of_ray), ("Slurm", of_slurm)):
            if table.read_bytes() != whole.read_bytes():
                sys.exit(f"the table of {SHARDS} shards by {kind} differs from that of one run")
        print(f"{SHARDS} shards by Ray on {len(workers)} workers, and by the Slurm script: the table of one run")


if __name__ == "__main__":
    main()
