#!/usr/bin/env python3
"""Runs the code in the model cards of artifacts.

    check_card.py PLANISH MINILM WHISPER GENAI MODULES CASE...

It compiles models for each package, reads README.md of each artifact, and runs every block of code in the artifact's folder: Python in
this interpreter (Optimum, sentence-transformers, ONNX Runtime) or, for onnxruntime-genai, in GENAI, another one; JavaScript in Node,
with the package @huggingface/transformers in MODULES/node_modules; and commands of planish. MINILM is the trained MiniLM, WHISPER
fixtures/speech, and a CASE a golden. Models that have no tokenizer or processor get small ones. The libraries that a card names must
be those that are expected; of goldens, Optimum where check_optimum.py knows that it runs them. The YAML is read by huggingface_hub.
Exits 1 when a block fails.
"""

import argparse
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from huggingface_hub import ModelCard
from PIL import Image
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

import check_optimum
import small_whisper
from cases import Mismatch, compiled

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = "Anna lives in Paris and likes it . The capital of France is Who reads ? , Ben writes Once upon a time".split()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LIBRARIES = ("sentence_transformers", "optimum", "@huggingface/transformers", "onnxruntime_genai", "onnxruntime")
IMAGES = {"do_resize": True, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
          "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "resample": 2}  # fmt: skip
SOUNDS = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": True, "feature_size": 1, "padding_value": 0.0,
          "return_attention_mask": False, "sampling_rate": 16000}  # fmt: skip


def copied(case: Path, folder: Path, files: dict[str, dict]) -> Path:
    """A copy of a checkpoint with more files of JSON."""
    shutil.copytree(case, folder, ignore=shutil.ignore_patterns("io.safetensors"))
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    return folder


def words() -> dict[str, dict]:
    """The files of a tokenizer of some words."""
    made = Tokenizer(models.WordLevel({word: id for id, word in enumerate(SPECIAL + WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.add_special_tokens(SPECIAL)
    ids = [("[CLS]", 2), ("[SEP]", 3)]
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ids)
    names = dict(zip(["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"], SPECIAL))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 24, **names}
    return {"tokenizer.json": json.loads(made.to_str()), "tokenizer_config.json": settings}


def letters() -> dict[str, dict]:
    """The files of a tokenizer of letters, of GPT-2's kind."""
    vocabulary = {letter: id for id, letter in enumerate(["<|endoftext|>", "Ġ", *map(chr, range(33, 127))])}
    made = Tokenizer(models.BPE(vocabulary, []))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    end = {name: "<|endoftext|>" for name in ("bos_token", "eos_token", "unk_token")}
    return {"tokenizer.json": json.loads(made.to_str()), "tokenizer_config.json": {"tokenizer_class": "GPT2Tokenizer", **end}}


def images(size: int, of: str) -> dict[str, dict]:
    return {"preprocessor_config.json": IMAGES | {"image_processor_type": f"{of}ImageProcessor", "size": {"height": size, "width": size}}}


def recognizer() -> dict[str, dict]:
    """The files of a CTC model of letters."""
    tokens = ["<pad>", "<s>", "</s>", "<unk>", "|", *map(chr, range(65, 91))]
    vocabulary = {token: id for id, token in enumerate(tokens)}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    made.decoder = decoders.CTC(pad_token="<pad>", word_delimiter_token="|", cleanup=True)
    names = dict(pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>", word_delimiter_token="|")
    settings = {"tokenizer_class": "Wav2Vec2CTCTokenizer"} | names
    return {"tokenizer.json": json.loads(made.to_str()), "tokenizer_config.json": settings, "vocab.json": vocabulary, "preprocessor_config.json": SOUNDS}


class Runner:
    """Runs the code of cards."""

    def __init__(self, planish: Path, genai: Path, modules: Path):
        self.planish, self.genai, self.modules = (path.absolute() for path in (planish, genai, modules))

    def python(self, code: str, folder: Path) -> None:
        before = Path.cwd()
        os.chdir(folder)
        try:
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                exec(compile(code, str(folder / "README.md"), "exec"), {"__name__": "__main__"})
        finally:
            os.chdir(before)

    def command(self, words: list, folder: Path, code: str | None = None) -> None:
        path = f"{self.planish.parent}:{os.environ['PATH']}"
        done = subprocess.run(words, input=code, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=600)
        if done.returncode != 0:
            raise Mismatch(f"exited with {done.returncode}: {done.stderr.strip()[-1500:]}")

    def run(self, language: str, code: str, folder: Path) -> str:
        """Runs a block; returns the library that it is for."""
        library = next((name for name in LIBRARIES if re.search(rf"(import|from) \"?{name}\b", code)), "planish")
        try:
            match language:
                case "sh":
                    self.command(["sh", "-e"], folder, code)
                case "js":
                    link = folder / "node_modules"
                    link.exists() or link.symlink_to(self.modules / "node_modules")
                    self.command(["node", "--input-type=module", "-"], folder, code)
                case "python" if library == "onnxruntime_genai":
                    self.command([self.genai, "-"], folder, code)
                case "python":
                    self.python(code, folder)
                case _:
                    raise Mismatch(f"a block of {language}")
        # Whatever a library raises is a failure of this block.
        except Exception as error:
            raise Mismatch(f"{library}: {type(error).__name__}: {error}\n{code}") from error
        return library

    def card(self, folder: Path, front: dict[str, object], expected: set[str] | None) -> set[str]:
        """Runs all blocks of a card; returns the libraries."""
        text = (folder / "README.md").read_text()
        found = ModelCard(text).data.to_dict()
        for key, value in front.items():
            if found.get(key) != value:
                raise Mismatch(f"{key} is {found.get(key)!r}, expected {value!r}")
        Image.new("RGB", (40, 30), "teal").save(folder / "picture.png")
        small_whisper.record(folder / "recording.wav", 0)
        libraries = {self.run(language, code, folder) for language, code in BLOCK.findall(text)}
        if expected is not None and libraries != expected:
            raise Mismatch(f"code for {sorted(libraries)}, expected {sorted(expected)}")
        return libraries


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("planish", "minilm", "whisper", "genai", "modules"):
        parser.add_argument(name, type=Path)
    parser.add_argument("cases", type=Path, nargs="+")
    parser.add_argument("--only", default="", help="the names of cases to run contain this")
    arguments = parser.parse_args()
    runner = Runner(arguments.planish, arguments.genai, arguments.modules)
    goldens = {case.name: case for case in arguments.cases}
    failed = 0

    def line(name: str, check: Callable[[Path], set[str]]) -> None:
        nonlocal failed
        if arguments.only not in name:
            return
        with tempfile.TemporaryDirectory() as scratch:
            try:
                print(f"ok    card       {name:32} {', '.join(sorted(check(Path(scratch))))}", flush=True)
            except (Mismatch, OSError, subprocess.SubprocessError) as error:
                failed += 1
                print(f"FAIL  card       {name:32} {error}", flush=True)

    def case(name: str, source: Callable[[Path], Path], words: str, expected: str, **front: object) -> None:
        def check(scratch: Path) -> set[str]:
            folder = compiled(runner.planish, source(scratch / "model"), scratch / "artifact", *words.split())
            return runner.card(folder, front, set(expected.split()) | {"planish"})

        line(f"{name} {words}", check)

    js, genai, ort = "@huggingface/transformers", "onnxruntime_genai", "onnxruntime"
    minilm = lambda folder: arguments.minilm
    sentence = dict(license="apache-2.0", language="en", pipeline_tag="sentence-similarity")
    case("minilm", minilm, "", f"sentence_transformers optimum {ort}", library_name="sentence-transformers", **sentence)
    case("minilm", minilm, "--int8", f"sentence_transformers optimum {ort}", tags=["onnx", "planish", "bert", "int8"], **sentence)
    case("minilm", minilm, "--package transformers-js", f"{js} {ort}", library_name="transformers.js", **sentence)
    case("minilm", minilm, "--package triton", ort, library_name="onnxruntime")
    case("minilm", minilm, "--task feature-extraction", f"optimum {ort}", pipeline_tag="feature-extraction")

    def golden(name: str, files: dict[str, dict]) -> Callable[[Path], Path]:
        return lambda folder: copied(goldens[name], folder, files)

    for name in ("bert-classify", "bert-mlm", "distilbert-qa", "qwen3-tokens"):
        case(name, golden(name, words()), "", f"optimum {ort}")
        # It has no class for tokens of decoders.
        case(name, golden(name, words()), "--package transformers-js", ort if name == "qwen3-tokens" else f"{js} {ort}")
    case("t5", golden("t5", words()), "", f"optimum {ort}", library_name="onnxruntime", pipeline_tag="text2text-generation")
    case("t5", golden("t5", words()), "--package transformers-js", f"{js} {ort}")
    for name in ("gpt2", "llama"):
        case(name, golden(name, letters()), "", f"optimum {ort}")
        case(name, golden(name, letters()), "--package transformers-js", f"{js} {ort}")
        case(name, golden(name, letters()), "--package genai", f"{genai} {ort}", library_name="onnxruntime-genai")
    case("gpt2 without a tokenizer", golden("gpt2", {}), "--package genai", f"{genai} {ort}")
    case("llama", golden("llama", letters()), "--int4 --recipe block-size=16", f"optimum {ort}")
    for name, files in (("vit", images(16, "ViT")), ("segformer", images(32, "Segformer"))):
        case(name, golden(name, files), "", f"optimum {ort}")
        case(name, golden(name, files), "--package transformers-js", f"{js} {ort}")
    case("wav2vec2", golden("wav2vec2", recognizer()), "", f"optimum {ort}")
    case("wav2vec2", golden("wav2vec2", recognizer()), "--package transformers-js", f"{js} {ort}")

    def whisper(folder: Path) -> Path:
        small_whisper.write(arguments.whisper, folder, 0)
        return folder

    case("whisper", whisper, "", f"optimum {ort}")
    case("whisper", whisper, "--package transformers-js", f"{js} {ort}")
    case("whisper", whisper, "--package genai", f"{genai} {ort}")

    # Without tokenizers and processors: inputs of zeros and ones.
    for name, of in goldens.items():
        line(f"{name} as it is", lambda scratch: plain(runner, of, scratch))
    print(f"{failed} failed")
    return int(failed > 0)


def plain(runner: Runner, golden: Path, scratch: Path) -> set[str]:
    """Runs the card of a golden as it is, which has Optimum where that is known to run the golden."""
    libraries = runner.card(compiled(runner.planish, golden, scratch / "artifact", "--target", "onnx"), {}, None)
    runs = golden.name not in check_optimum.KNOWN
    if ("optimum" in libraries) != runs:
        raise Mismatch(f"Optimum {'runs' if runs else 'does not run'} it, and the card says otherwise")
    return libraries


if __name__ == "__main__":
    sys.exit(main())
