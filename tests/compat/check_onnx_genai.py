#!/usr/bin/env python3
"""Holds artifacts for onnxruntime-genai against stored text in onnx-genai, the runtime in Rust by the author of mobius, which loads the same
folders.

    check_onnx_genai.py PLANISH CASE...

A CASE is a decoder's checkpoint with an io.safetensors in it, or MODEL:IO to name the two. The checkpoint gets a tokenizer whose words are
numbers, `PLANISH compile MODEL --package genai` compiles it for each target, and the library continues `in.prompt`: its ids must be those of
`out.greedy`. What that library is known not to run must fail as KNOWN says. Exits 1 when a case fails.
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

import onnx_genai

from cases import Case, as_known, check_all, same_ids

TARGETS = ("onnx", "ort")

# How many new tokens are compared at least.
LEAST = 3

# Which cases fail, and what the error says. The library takes the names of keys and values for those of all layers, and shapes for those of
# states. planish refuses the last ones, for onnxruntime-genai.
KEYS = "declared kv_outputs port 'present.0.key' is not exposed by the graph"
SIZES = "onnxruntime-genai has one size for both"
KNOWN = dict.fromkeys(
    ("bamba", "falcon-mamba", "granitemoehybrid", "jamba", "lfm2", "lfm2-moe", "mamba", "mamba2", "nemotron-h", "qwen3-5",
     "qwen3-5-moe", "qwen3-next"),
    KEYS,
) | dict.fromkeys(("deepseek-v2", "deepseek-v3", "minicpm3"), SIZES) | {
    "falcon-h1": "cannot resolve decoder state from tensor shapes",
    "mpt": "this package declares no pipeline.workflow",
    "bloom": "has no longest text",
    "gemma4": "differ in the size or number of heads",
}  # fmt: skip


def with_tokenizer(model: Path, folder: Path) -> Path:
    """A copy of a checkpoint with a tokenizer of the words 0, 1, 2 ..., which stand for the ids."""
    shutil.copytree(model, folder)
    config = json.loads((model / "config.json").read_text())
    count = config.get("text_config", config)["vocab_size"]
    words = {str(id): id for id in range(count)}
    tokenizer = {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "WhitespaceSplit"}}
    tokenizer["model"] = {"type": "WordLevel", "vocab": words, "unk_token": "0"}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("cases", nargs="+", metavar="CASE", type=Case)
    args = parser.parse_args()

    def check(case: Case, scratch: Path) -> str:
        inputs, expected = case.tensors()
        prompt, greedy = inputs["prompt"][0], expected["greedy"][0]
        wanted = greedy[len(prompt) :]
        words = " ".join(map(str, prompt))
        case.model = with_tokenizer(case.model, scratch / case.name)

        def run(target: str) -> None:
            folder = case.compile(args.planish, scratch / target, "--package", "genai", "--target", target)
            engine = onnx_genai.Engine.from_dir(str(folder))
            found = engine.generate(words, max_tokens=len(wanted), temperature=0.0)
            ids, count = list(found.token_ids), len(wanted)
            # The stored texts go on where a token that ends a text has the highest score.
            ends = json.loads((folder / "genai_config.json").read_text())["model"].get("eos_token_id", [])
            if ids[-1] in (ends if isinstance(ends, list) else [ends]):
                ids.pop()
                count = max(len(ids), LEAST)
            same_ids(target, ids, wanted[:count])

        def both() -> str:
            for target in TARGETS:
                run(target)
            return f"ids equal for {' and '.join(TARGETS)}"

        return as_known(KNOWN.get(case.name), both)

    return check_all(args.cases, "onnx-genai", check)


if __name__ == "__main__":
    sys.exit(main())
