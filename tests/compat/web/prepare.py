#!/usr/bin/env python3
"""Compiles models with `--variants` for Transformers.js, and writes what planish makes with each variant.

    prepare.py PLANISH MINILM GOLDENS TEXTS FOLDER

FOLDER/models has the artifacts: MiniLM, and tiny models of random weights (GOLDENS) that classify, continue and rewrite texts, to which this
script gives a tokenizer of the words of TEXTS. FOLDER/wanted.json has for each task what planish makes of some texts with each variant. These
numbers are of artifacts that have the variant alone, whose graphs have to be those of the artifact with all.
"""

import filecmp
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

VARIANTS = ["fp32", "fp16", "q8", "q4", "q4f16"]
SENTENCES = ["A cat sleeps on the sofa.", "A kitten naps on the couch.", "The train to Hamburg leaves at noon."]
NEW_TOKENS = 12
# What writes texts multiplies weights of 4 bits with floats: native ONNX Runtime otherwise rounds the other factor to 8 bits, which
# onnxruntime-web does not, and a text of a model of random weights is another one after the smallest difference.
FLOATS = ["--recipe", "accuracy-level=float"]
# The golden, its special tokens in the order of their ids, that which ends a text, and options.
TINY = {
    "classifier": ("bert-classify", ["<pad>", "<unk>"], {}, []),
    "writer": ("llama", ["<pad>", "<s>", "</s>", "<unk>"], {"eos_token": "</s>"}, FLOATS),
    "rewriter": ("t5", ["<pad>", "</s>", "<unk>"], {"eos_token": "</s>"}, FLOATS),
}


def words(texts: Path) -> list[str]:
    """The words of a text, each once."""
    return list(dict.fromkeys(re.findall(r"[a-z]{2,}", texts.read_text().lower())))


def write_tokenizer(folder: Path, special: list[str], named: dict, known: list[str]) -> None:
    """A tokenizer whose tokens are words."""
    size = json.loads((folder / "config.json").read_text())["vocab_size"]
    vocabulary = {word: id for id, word in enumerate([*special, *known][:size])}
    added = [
        dict(id=id, content=word, special=True, normalized=False, single_word=False, lstrip=False, rstrip=False) for id, word in enumerate(special)
    ]
    tokenizer = dict(
        version="1.0", truncation=None, padding=None, added_tokens=added, normalizer=dict(type="Lowercase"), pre_tokenizer=dict(type="WhitespaceSplit"),
        post_processor=None, decoder=None, model=dict(type="WordLevel", vocab=vocabulary, unk_token="<unk>"),
    )  # fmt: skip
    settings = dict(tokenizer_class="PreTrainedTokenizerFast", unk_token="<unk>", pad_token="<pad>") | named
    for name, content in (("tokenizer.json", tokenizer), ("tokenizer_config.json", settings)):
        (folder / name).write_text(json.dumps(content))


class Models:
    def __init__(self, planish: str, folder: Path) -> None:
        self.planish, self.folder = planish, folder

    def run(self, *words: object) -> str:
        return subprocess.run([self.planish, *map(str, words)], check=True, stdout=subprocess.PIPE, text=True).stdout

    def compile(self, name: str, checkpoint: Path, options: list[str]) -> None:
        """Compiles all variants into one artifact, and each into one of its own."""
        whole, usual = self.folder / "models" / name, ["--package", "transformers-js", "--force", *options]
        self.run("compile", checkpoint, "-o", whole, *usual, "--variants", ",".join(VARIANTS))
        for variant in VARIANTS:
            alone = self.alone(name, variant)
            self.run("compile", checkpoint, "-o", alone, *usual, "--variants", variant)
            for graph in (alone / "onnx").iterdir():
                if not filecmp.cmp(graph, whole / "onnx" / graph.name, shallow=False):
                    raise SystemExit(f"{name}: onnx/{graph.name} of all variants is another than that of {variant} alone")

    def alone(self, name: str, variant: str) -> Path:
        return self.folder / "alone" / f"{name}-{variant}"

    def lines(self, command: str, name: str, variant: str, texts: list[str]) -> list[dict]:
        """What a command writes of each text."""
        data, out = self.folder / "texts.jsonl", self.folder / "out.jsonl"
        data.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        self.run(command, self.alone(name, variant), "--data", data, "-o", out)
        return [json.loads(line) for line in out.read_text().splitlines()]

    def task(self, model: str, texts: list[str], of_variant) -> dict:
        return dict(model=model, texts=texts, variants={variant: of_variant(variant) for variant in VARIANTS})


def main() -> None:
    planish, minilm, goldens, texts, folder = sys.argv[1], *map(Path, sys.argv[2:])
    known = words(texts)
    models = Models(planish, folder)
    models.compile("minilm", minilm, [])
    for name, (golden, special, named, options) in TINY.items():
        checkpoint = folder / "checkpoints" / name
        shutil.rmtree(checkpoint, ignore_errors=True)
        shutil.copytree(goldens / golden, checkpoint)
        write_tokenizer(checkpoint, special, named, known)
        models.compile(name, checkpoint, options)
    prompts = [" ".join(known[at : at + 4]) for at in (0, 30, 60)]

    def embedded(variant: str) -> list:
        return [line["embedding"] for line in models.lines("embed", "minilm", variant, SENTENCES)]

    def classified(variant: str) -> list:
        return [line["scores"] for line in models.lines("predict", "classifier", variant, prompts)]

    def written(name: str):
        def of(variant: str) -> list:
            options = ["--max-new-tokens", NEW_TOKENS, "--json"]
            lines = [models.run("generate", models.alone(name, variant), "--prompt", prompt, *options) for prompt in prompts]
            return [json.loads(line)["text"].strip() for line in lines]

        return of

    wanted = {
        "feature-extraction": models.task("minilm", SENTENCES, embedded),
        "text-classification": models.task("classifier", prompts, classified),
        "text-generation": models.task("writer", prompts, written("writer")) | dict(new_tokens=NEW_TOKENS),
        "text2text-generation": models.task("rewriter", prompts, written("rewriter")) | dict(new_tokens=NEW_TOKENS),
    }
    (folder / "wanted.json").write_text(json.dumps(wanted))


if __name__ == "__main__":
    main()
