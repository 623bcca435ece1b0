#!/usr/bin/env python3
"""Steps and first tokens of a decoder with weights of 4 bits, next to onnxruntime-genai under the same conditions.

    tools/bench_decoding.py PLANISH --ours NAME=ARTIFACT... --theirs FOLDER [--threads 1,2] [--busy 0,1,2] [--rounds 9]

Both have the same number of threads, poll for work equally long (POLLING microseconds), run the ONNX Runtime that they come
with, and have generated once before anything counts. The models stay loaded, one process each, and take turns within each round:
a prompt of 128 tokens, then 24 new ones. The order within a round is random. A ratio is the median of the ratios of each round.
With --busy N, N other processes compute all the time. `free choice` is planish without `spin`: idle threads poll only if all cores
are free. The last table has fresh processes: the time to load the model, and to the first token after that.
--minutes bounds the time: rounds that do not fit are left out, and the table says how many there were.
Needs the Python environment of tools/weights/requirements.txt.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, NamedTuple

PEERS = Path(__file__).resolve().parent / "weights" / "peers.py"
PEER = "onnxruntime-genai"
FREE_CHOICE = "free choice"
PROMPT, NEW, POLLING = 128, 24, 100
# What `generate --set` takes, so that each text has NEW tokens.
SETTINGS = "ignore_eos,generation_config=false"
VOCABULARY = 32000


class Times(NamedTuple):
    """Seconds: to the first token, and of a step."""

    first: float
    step: float


def prompt(number: int) -> List[int]:
    """Ids of a prompt that has nothing in common with those of other numbers: nothing of it is in a cache."""
    return [3 + number % 1000, *(3 + 7 * at % 1000 for at in range(1, PROMPT))]


class Worker:
    """A process that has loaded a model. It reads a prompt on each line and answers with the times."""

    def __init__(self, command: List[object]):
        words = [str(word) for word in command]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line: str) -> object:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"{self.process.args} ended with {self.process.wait()}")
        return json.loads(answer)

    def generated(self, number: int) -> Times:
        return Times(*self.ask(json.dumps(prompt(number))))

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


class Ours(Worker):
    """A conversation of which each message stands alone."""

    def __init__(self, planish: Path, artifact: Path, threads: int, free_choice: bool = False):
        command = [planish, "generate", artifact, "--chat", "--json", "--set", SETTINGS, "--greedy"]
        super().__init__([*command, "--max-new-tokens", NEW, *how(threads, free_choice)])

    def generated(self, number: int) -> Times:
        speed = self.ask(" ".join(f"w{id}" for id in prompt(number)))["speed"]
        assert speed["prompt_tokens"] == PROMPT and speed["cached_tokens"] == 0, speed
        first = speed["first_token_s"]
        return Times(first, (speed["total_s"] - first) / (NEW - 1))


def how(threads: int, free_choice: bool = False) -> List[object]:
    """The options of planish for so many threads."""
    return ["--threads", threads, *([] if free_choice else ["--runtime-option", f"spin={POLLING}"])]


def prepared(artifact: Path) -> Path:
    """Gives an artifact a tokenizer whose words are ids, and a template that takes the last message as it is."""
    vocabulary = {f"w{id}": id for id in range(VOCABULARY)}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"},
    }
    (artifact / "tokenizer.json").write_text(json.dumps(tokenizer))
    (artifact / "chat_template.jinja").write_text("{{ messages[-1].content }}")
    return artifact


def configured(folder: Path, threads: int) -> Path:
    """Links to a model of onnxruntime-genai, with a configuration that says how its threads work."""
    out = folder.with_name(f"{folder.name}-{threads}-threads")
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    for file in folder.iterdir():
        if file.name != "genai_config.json":
            os.link(file, out / file.name)
    config = json.loads((folder / "genai_config.json").read_text())
    options = config["model"]["decoder"]["session_options"]
    options["intra_op_num_threads"] = threads
    options["session.intra_op.allow_spinning"] = "1"
    options["session.intra_op.spin_duration_us"] = str(POLLING)
    (out / "genai_config.json").write_text(json.dumps(config))
    return out


class Bench:
    def __init__(self, planish: Path, ours: Dict[str, Path], theirs: Path, minutes: float):
        self.planish, self.theirs = planish, theirs
        self.ours = {name: prepared(artifact) for name, artifact in ours.items()}
        self.end = time.monotonic() + 60 * minutes
        self.random = random.Random(7)
        self.number = 0

    def workers(self, threads: int) -> Dict[str, Worker]:
        workers: Dict[str, Worker] = {name: Ours(self.planish, folder, threads) for name, folder in self.ours.items()}
        last = list(self.ours)[-1]
        workers[f"{last}, {FREE_CHOICE}"] = Ours(self.planish, self.ours[last], threads, free_choice=True)
        workers[PEER] = Worker([sys.executable, PEERS, "serve", configured(self.theirs, threads), NEW])
        return workers

    def next(self) -> int:
        self.number += 1
        return self.number

    def condition(self, threads: int, busy: int, rounds: int, share: float) -> Dict[str, List[Times]]:
        """Rounds of all contestants, for a share of the time that is left at most."""
        end = time.monotonic() + share * (self.end - time.monotonic())
        load = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
        try:
            time.sleep(0.5)
            workers = self.workers(threads)
            for worker in workers.values():
                worker.generated(self.next())
            found: Dict[str, List[Times]] = {name: [] for name in workers}
            while len(found[PEER]) < rounds and (not found[PEER] or time.monotonic() < end):
                for name in self.random.sample(list(workers), len(workers)):
                    found[name].append(workers[name].generated(self.next()))
            for worker in workers.values():
                worker.end()
        finally:
            for process in load:
                process.kill()
        return found

    def fresh(self, threads: int, rounds: int) -> Dict[str, List[Times]]:
        """Loading, and the first token, of fresh processes in turns."""
        folder = configured(self.theirs, threads)
        found: Dict[str, List[Times]] = {name: [] for name in [*self.ours, PEER]}
        for _ in range(rounds):
            if found[PEER] and time.monotonic() > self.end:
                break
            for name in self.random.sample(list(found), len(found)):
                ids = prompt(self.next())
                if name == PEER:
                    out = output([sys.executable, PEERS, "fresh", folder, json.dumps(ids)])
                    found[name].append(Times(*json.loads(out)))
                    continue
                command = [self.planish, "generate", self.ours[name], "--ids", ",".join(map(str, ids)), "--json"]
                more = ["--max-new-tokens", 1, "--set", "generation_config=false", *how(threads)]
                speed = json.loads(output([*command, *more]))["speed"]
                found[name].append(Times(speed["loading_s"], speed["first_token_s"]))
        return found


def output(command: List[object]) -> str:
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def header(*cells: str) -> None:
    print()
    row(*cells)
    print("|" + "---|" * len(cells), flush=True)


def ratios(own: List[Times], peer: List[Times]) -> Times:
    """Medians of the ratios of each round: the peer's time to the first token by which ours is divided, and the same of steps."""
    pairs = list(zip(own, peer))
    return Times(statistics.median(o.first / p.first for o, p in pairs), statistics.median(p.step / o.step for o, p in pairs))


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown processor")


def compare(bench: Bench, threads: List[int], busy: List[int], rounds: int) -> Dict[tuple, Times]:
    """Prints the tables. Returns the ratios by threads, busy processes and name."""
    print(f"{processor()}, {len(os.sched_getaffinity(0))} cores. A prompt of {PROMPT} tokens, {NEW} new ones.")
    print(f"Both sides: equal threads, which poll for up to {POLLING} us; one generation before the first round.")
    header("threads", "busy", "", "rounds", "first token, s", "to the peer's", "a step, ms", "times as fast as the peer")
    found = {}
    cells = [(count, load) for load in busy for count in threads]
    for at, (count, load) in enumerate(cells):
        # Fresh processes come last, and take a sixth.
        times = bench.condition(count, load, rounds, share=1 / (len(cells) - at + 1))
        for name, own in times.items():
            ratio = found[count, load, name] = ratios(own, times[PEER])
            first, step = (statistics.median(column) for column in zip(*own))
            figures = (f"{first:.2f}", f"{ratio.first:.2f}", f"{1e3 * step:.1f}", f"{ratio.step:.2f}")
            row(count, load, name, len(own), *figures)
    header("threads", "", "fresh processes", "load, s", "first token, s", "both", "to the peer's")
    times = bench.fresh(max(threads), rounds)
    for name, own in times.items():
        load, first = (statistics.median(column) for column in zip(*own))
        both = [sum(one) for one in own]
        ratio = statistics.median(o / sum(p) for o, p in zip(both, times[PEER]))
        row(max(threads), name, len(own), f"{load:.2f}", f"{first:.2f}", f"{statistics.median(both):.2f}", f"{ratio:.2f}")
    return found


def numbers(text: str) -> List[int]:
    return [int(number) for number in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("--ours", action="append", required=True, metavar="NAME=ARTIFACT", help="an artifact; may be given several times")
    parser.add_argument("--theirs", type=Path, required=True, metavar="FOLDER", help="a model of onnxruntime-genai's builder")
    parser.add_argument("--threads", type=numbers, default=[1, 2])
    parser.add_argument("--busy", type=numbers, default=[0, 1, 2], help="processes that compute beside")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--minutes", type=float, default=12, help="for all of it")
    args = parser.parse_args()
    ours = {name: Path(folder) for name, folder in (one.split("=", 1) for one in args.ours)}
    compare(Bench(args.planish.resolve(), ours, args.theirs, args.minutes), args.threads, args.busy, args.rounds)


if __name__ == "__main__":
    main()
