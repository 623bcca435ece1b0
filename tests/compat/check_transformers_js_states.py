#!/usr/bin/env python3
"""Holds decoders with states of a fixed size against stored text in Transformers.js, which finds states by their names.

    check_transformers_js_states.py PLANISH MODULES CASE...

MODULES is a folder with the package @huggingface/transformers in node_modules, and a CASE a decoder's checkpoint with an io.safetensors in it.
`PLANISH compile CASE --package transformers-js` compiles it, AutoModelForCausalLM continues `in.prompt`, and its ids must be those of
`out.greedy`. Kinds of layers have the names that published checkpoints give them: the library knows no others. Exits 1 when a case fails.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from cases import Case, Mismatch, check_all, same_ids

# Kinds of layers as transformers 5.23 writes them, and as published checkpoints of these types have them.
PUBLISHED = {"linear_attention": "mamba", "full_attention": "attention"}
TYPES = ("granitemoehybrid", "nemotron_h")

GENERATE = """
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
const [modules, root, name, ids, length] = process.argv.slice(1);
const entry = createRequire(`${modules}/package.json`).resolve("@huggingface/transformers");
const { env, AutoModelForCausalLM, Tensor } = await import(pathToFileURL(entry));
env.allowRemoteModels = false;
env.localModelPath = `${root}/`;
const model = await AutoModelForCausalLM.from_pretrained(name, { dtype: "fp32" });
const prompt = JSON.parse(ids).map(BigInt);
const tensor = (values) => new Tensor("int64", BigInt64Array.from(values), [1, values.length]);
const settings = { max_length: Number(length), min_length: Number(length), do_sample: false, eos_token_id: null };
const found = await model.generate({ inputs: tensor(prompt), attention_mask: tensor(prompt.map(() => 1n)), ...settings });
console.log(JSON.stringify(Array.from(found.data, Number)));
"""


def as_published(model: Path, folder: Path) -> Path:
    """A copy of a checkpoint with the names of kinds of layers that published ones have."""
    shutil.copytree(model, folder)
    text = (model / "config.json").read_text()
    if json.loads(text)["model_type"] in TYPES:
        for new, old in PUBLISHED.items():
            text = text.replace(f'"{new}"', f'"{old}"')
    (folder / "config.json").write_text(text)
    return folder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("modules", type=Path, help="a folder with node_modules")
    parser.add_argument("cases", nargs="+", metavar="CASE", type=Case)
    args = parser.parse_args()

    def check(case: Case, scratch: Path) -> str:
        inputs, expected = case.tensors()
        prompt, greedy = inputs["prompt"][0], expected["greedy"][0]
        case.model = as_published(case.model, scratch / "published")
        artifact = case.compile(args.planish, scratch / case.name, "--package", "transformers-js", "--target", "onnx")
        words = [args.modules.resolve(), scratch, artifact.name, json.dumps(prompt.tolist()), str(len(greedy))]
        done = subprocess.run(["node", "--input-type=module", "-e", GENERATE, *words], capture_output=True, text=True)
        if done.returncode != 0:
            raise Mismatch(done.stderr.strip()[-2500:])
        same_ids("generate", json.loads(done.stdout), greedy)
        return f"ids equal: {len(greedy) - len(prompt)} new tokens"

    return check_all(args.cases, "states", check)


if __name__ == "__main__":
    sys.exit(main())
