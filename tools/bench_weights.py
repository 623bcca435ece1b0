#!/usr/bin/env python3
"""Weights of 4 and 8 bits of planish next to its peers: accuracy, size, the cost of compiling, and the speed of generation.

    tools/bench_weights.py PLANISH --language-model DIR --held-back FILE --encoder DIR --decoder DIR [--part PART]...

The peers are onnxruntime-genai's model builder and ONNX Runtime's own tool for INT4 (its range, and HQQ). The language model is
compared by perplexity on the text FILE, whose first 60 pieces of 900 characters calibrate; the encoder by the cosine of
embeddings and the neighbours kept on fixtures/data/sentences.txt, calibrated on lines of a license; the decoder by time, memory
and size of INT4, and by first tokens and steps as tools/bench_decoding.py measures them, with a thread for each core on both sides.
Prints tables, and exits with 1 where a limit of the table is missed.
Runs in the environment of tools/weights/requirements.txt; the process itself uses the standard library only.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, NamedTuple

import bench_decoding
from quantization import texts

SCRIPTS = Path(__file__).resolve().parent / "weights"
PIECE, CALIBRATION = 900, 60
WINDOW, WINDOWS = 512, 64
PARTS = ("language-model", "encoder", "decoder")
PEER = bench_decoding.PEER
LIKE_PEER = "planish, with the bits of the peer: the head has 4, the table is float32"
# The arguments of `planish compile` for each method; {data} stands for the calibration texts.
METHODS = {
    "nearest": "--recipe weight-method=nearest",
    "mse": "",
    "mse, zero points": "--recipe zero-points=true",
    "hqq": "--recipe weight-method=hqq",
    "awq": "--recipe weight-method=awq --calibrate {data}",
    "gptq": "--recipe weight-method=gptq --calibrate {data}",
}
SETTINGS = {
    **{
        f"INT4, {name}, blocks of {block}": f"--int4 --recipe block-size={block} {arguments}"
        for block in (32, 128)
        for name, arguments in METHODS.items()
    },
    "INT4, gptq, zero points, blocks of 32": "--int4 --recipe zero-points=true --recipe weight-method=gptq --calibrate {data}",
    "INT4, gptq, blocks of 32, float inputs": "--int4 --recipe weight-method=gptq --calibrate {data} --recipe accuracy-level=float",
    **{f"INT8, mse, blocks of {block}": f"--int8-weights --recipe block-size={block}" for block in (32, 128)},
    "INT8, mse, blocks of 32, float inputs": "--int8-weights --recipe accuracy-level=float",
}


class Cost(NamedTuple):
    """What a process took, by the kernel's account."""

    seconds: float
    peak_mb: float


def run(command: List[object], **more: object) -> Cost:
    """Runs a command; its output appears only where it fails."""
    words = [str(word) for word in command]
    start = time.perf_counter()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(words)}\nexited with {process.returncode}:\n{output.decode(errors='replace')}")
    return Cost(time.perf_counter() - start, usage.ru_maxrss * 1024 / 1e6)


def read(command: List[object]) -> str:
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def row(*cells: object) -> None:
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def header(*cells: str) -> None:
    print()
    row(*cells)
    print("|" + "---|" * len(cells), flush=True)


def megabytes(graph: Path) -> float:
    """Of a graph with the files of weights beside it."""
    return sum(file.stat().st_size for file in graph.parent.glob(f"{graph.name}*")) / 1e6


class Bench:
    def __init__(self, args: argparse.Namespace, scratch: Path):
        self.args, self.scratch = args, scratch
        self.missed: List[str] = []

    def limit(self, holds: bool, what: str) -> None:
        if not holds:
            self.missed.append(what)

    def compile(self, model: Path, name: str, arguments: str, data: Path) -> Path:
        folder = self.scratch / re.sub(r"\W+", "-", name)
        words = [data if word == "{data}" else word for word in arguments.split()]
        run([self.args.planish, "compile", model, "-o", folder, "--force", *words])
        return folder

    def peer(self, *words: object) -> Cost:
        return run([sys.executable, SCRIPTS / "peers.py", *words])

    def builder(self, checkpoint: Path, out: Path, precision: str = "int4") -> Cost:
        """onnxruntime-genai's graph of a checkpoint."""
        words = ["-i", checkpoint, "-o", out, "-p", precision, "-e", "cpu", "-c", self.scratch / "cache"]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
        return run([sys.executable, "-m", "onnxruntime_genai.models.builder", *words], env=environment)

    def with_tokenizer(self, checkpoint: Path) -> Path:
        """A folder of links to a checkpoint, with the tokenizer of the language model: the builder asks for one."""
        folder = self.scratch / "with-tokenizer"
        folder.mkdir()
        tokenizer = [file for file in self.args.language_model.iterdir() if file.name.startswith("tokenizer")]
        for file in {file.name: file for file in [*tokenizer, *checkpoint.iterdir()]}.values():
            (folder / file.name).symlink_to(file.resolve())
        return folder

    def pieces(self) -> Path:
        text = self.args.held_back.read_text(encoding="utf-8")
        if len(text) < 2 * PIECE * CALIBRATION:
            sys.exit(f"{self.args.held_back} has {len(text)} characters; {2 * PIECE * CALIBRATION} are needed")
        lines = [{"text": text[at : at + PIECE]} for at in range(0, PIECE * CALIBRATION, PIECE)]
        data = self.scratch / "calibration.jsonl"
        data.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        (self.scratch / "evaluation.txt").write_text(text[PIECE * CALIBRATION :], encoding="utf-8")
        return data

    def language_model(self) -> None:
        model, data = self.args.language_model, self.pieces()
        plain = self.compile(model, "float32", "--target onnx", data) / "model.onnx"
        graphs: Dict[str, Path] = {"float32": plain}
        for name, arguments in SETTINGS.items():
            graphs[f"planish {name}"] = self.compile(model, name, arguments, data) / "model.onnx"
        self.builder(model, self.scratch / "genai")
        graphs["onnxruntime-genai INT4, blocks of 32"] = self.scratch / "genai" / "model.onnx"
        # The tool takes products by MatMul, which this graph has.
        self.builder(model, self.scratch / "genai-float32", "fp32")
        for block in (32, 128):
            for kind, name in (("ort", "range"), ("hqq", "HQQ")):
                out = self.scratch / f"{kind}-{block}.onnx"
                self.peer(kind, self.scratch / "genai-float32" / "model.onnx", out, block)
                graphs[f"ONNX Runtime's tool INT4, {name}, blocks of {block}"] = out
        command = [sys.executable, SCRIPTS / "perplexity.py", model / "tokenizer.json", self.scratch / "evaluation.txt", WINDOW, WINDOWS]
        found = json.loads(read([*command, *graphs.values()]))
        figures = dict(zip(graphs, found["graphs"]))
        header("", "MB", "perplexity", "ratio to float32", "divergence", "same best token, %")
        for name, of in figures.items():
            ratio = of["perplexity"] / figures["float32"]["perplexity"]
            cells = (f"{of['perplexity']:.2f}", f"{ratio:.4f}", f"{of['divergence']:.2e}", f"{100 * of['agreement']:.2f}")
            row(name, f"{megabytes(graphs[name]):.2f}", *cells)
        print(f"\n{found['positions']} tokens of {self.args.held_back.name}, in windows of {WINDOW}.")
        gptq, nearest = (figures[f"planish INT4, {method}, blocks of 32"] for method in ("gptq", "nearest"))
        ratio = gptq["perplexity"] / figures["float32"]["perplexity"]
        self.limit(ratio <= 1.03, "perplexity of INT4 by gptq: at most 1.03 times that of float32")
        self.limit(gptq["divergence"] <= nearest["divergence"], "divergence of gptq: at most that of nearest")

    def encoder(self) -> None:
        sentences = Path(__file__).resolve().parent.parent / "fixtures" / "data" / "sentences.txt"
        texts.write(self.scratch / "texts")
        data = self.scratch / "texts" / "calibration.jsonl"
        header("", "MB", "cosine", "neighbours kept, %")
        found = {}
        for name, arguments in SETTINGS.items():
            folder = self.compile(self.args.encoder, name, arguments, data)
            report = json.loads(read([self.args.planish, "evaluate", folder, "--data", sentences, "--json"]))["embeddings"]
            found[name] = (report["mean_cosine"], report["neighbours_kept"])
            row(name, f"{megabytes(folder / 'model.onnx'):.1f}", f"{found[name][0]:.5f}", f"{found[name][1]:.1f}")
        cosine, kept = found["INT8, mse, blocks of 32, float inputs"]
        self.limit(cosine >= 0.9997 and kept >= 98.5, "INT8 with float inputs: cosine 0.9997 and 98.5 % of the neighbours")

    def decoder(self) -> None:
        checkpoint = self.args.decoder
        header("INT4, blocks of 32", "seconds", "peak MB", "MB")
        folders = {name: self.scratch / folder for name, folder in (("planish", "ours"), (LIKE_PEER, "same"), (PEER, "theirs"))}
        command = [self.args.planish, "compile", checkpoint, "--int4", "--recipe", "cache=in-place", "-o"]
        costs = {
            "planish": run([*command, folders["planish"]]),
            LIKE_PEER: run([*command, folders[LIKE_PEER], "--keep", "@head=int4", "--keep", "@table=float"]),
            PEER: self.builder(self.with_tokenizer(checkpoint), folders[PEER]),
        }
        sizes = {name: megabytes(folder / "model.onnx") for name, folder in folders.items()}
        for name, cost in costs.items():
            row(name, f"{cost.seconds:.1f}", f"{cost.peak_mb:.0f}", f"{sizes[name]:.1f}")
        self.limit(abs(sizes[LIKE_PEER] / sizes[PEER] - 1) <= 0.02, "size of the same bits: within 2 % of the peer's")
        print()
        ours = {name: folders[name] for name in ("planish", LIKE_PEER)}
        threads = len(os.sched_getaffinity(0))
        bench = bench_decoding.Bench(self.args.planish, ours, folders[PEER], minutes=self.args.minutes)
        ratios = bench_decoding.compare(bench, [threads], [0], self.args.rounds)
        for name in ours:
            ratio = ratios[threads, 0, name]
            self.limit(ratio.step >= 1.25, f"steps of {name}: at least 1.25 times as fast as the peer's")
            self.limit(ratio.first <= 0.7, f"time to first token of {name}: at most 0.7 of the peer's")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("--language-model", type=Path, required=True, metavar="DIR", help="a trained checkpoint with a tokenizer")
    parser.add_argument("--held-back", type=Path, required=True, metavar="FILE", help="text that it was not trained on")
    parser.add_argument("--encoder", type=Path, required=True, metavar="DIR", help="a checkpoint of sentence embeddings")
    parser.add_argument("--decoder", type=Path, required=True, metavar="DIR", help="a checkpoint of a large decoder")
    parser.add_argument("--part", action="append", choices=PARTS, help="measure this alone; may be given several times")
    parser.add_argument("--rounds", type=int, default=9, help="of generation")
    parser.add_argument("--minutes", type=float, default=5, help="for the rounds of generation")
    parser.add_argument("--scratch", type=Path, default=Path(".bench/weights"), help="where models are written; emptied first")
    args = parser.parse_args()
    args.planish = args.planish.resolve()
    shutil.rmtree(args.scratch, ignore_errors=True)
    args.scratch.mkdir(parents=True)
    bench = Bench(args, args.scratch.resolve())
    parts = {"language-model": bench.language_model, "encoder": bench.encoder, "decoder": bench.decoder}
    for name in args.part or PARTS:
        parts[name]()
    for what in bench.missed:
        print(f"missed: {what}", file=sys.stderr)
    return int(bool(bench.missed))


if __name__ == "__main__":
    sys.exit(main())
