#!/usr/bin/env python3
"""What the cache of keys and values saves: generation with it and, by --set use_cache=false, without.

    tools/bench_generate.py PLANISH ARTIFACT [--tokens 100,500,1000] [--prompt 3] [--threads 0]

For each number of new tokens prints the seconds of both, without loading, and their ratio. The ids
must be the same, else it fails. Runs alternate; one of each, for they are long.
"""

import argparse
import re
import subprocess
import sys


def generate(args, tokens, more):
    """Ids as printed, and seconds."""
    command = [args.planish, "generate", args.artifact, "--ids", ",".join(["1"] * args.prompt)]
    command += ["--max-new-tokens", str(tokens), "--set", "ignore_eos", *more]
    command += ["--threads", str(args.threads)] if args.threads else []
    done = subprocess.run(command, capture_output=True, text=True)
    timed = re.search(r"^(\d+) tokens in ([\d.]+) s", done.stderr, re.MULTILINE)
    if done.returncode or not timed or int(timed[1]) != tokens:
        sys.exit(f"{' '.join(command)} exited {done.returncode}:\n{done.stderr}")
    return done.stdout, float(timed[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish")
    parser.add_argument("artifact")
    parser.add_argument("--tokens", default="100,500,1000")
    parser.add_argument("--prompt", type=int, default=3, help="tokens of the prompt")
    parser.add_argument("--threads", type=int, default=0, help="0: one a core")
    args = parser.parse_args()
    print("tokens  with cache  without  ratio")
    for tokens in map(int, args.tokens.split(",")):
        ids, cached = generate(args, tokens, [])
        others, computed = generate(args, tokens, ["--set", "use_cache=false"])
        if ids != others:
            sys.exit(f"{tokens} tokens: the ids differ:\n{ids}{others}")
        print(f"{tokens:6}  {cached:8.2f} s  {computed:5.2f} s  {computed / cached:.1f}", flush=True)


if __name__ == "__main__":
    main()
