#!/usr/bin/env python3
"""Holds the text that the pipeline of Transformers.js makes of a recording against that of the transformers library.

    check_transformers_js_speech.py PLANISH MODULES GOLDEN WHISPER

MODULES is a folder with the package @huggingface/transformers in node_modules, GOLDEN a checkpoint of CTC with a vocabulary of 31 tokens. The
check gives the checkpoint the files of a tokenizer and of a feature extractor, compiles it, and runs the pipeline
automatic-speech-recognition on 3,000 samples. WHISPER is fixtures/speech, of which it makes three Whispers for windows of 30 s, compiles
them with `--package transformers-js`, and runs the pipeline on a recording of 2.5 s. Exits 1 when the texts differ.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, Wav2Vec2CTCTokenizer, WhisperFeatureExtractor, WhisperForConditionalGeneration

import small_whisper

TOKENS = ["<pad>", "<s>", "</s>", "<unk>", "|", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
SPECIAL = dict(pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>", word_delimiter_token="|")
EXTRACTOR = dict(
    feature_extractor_type="Wav2Vec2FeatureExtractor", do_normalize=True, feature_size=1, padding_value=0.0,
    return_attention_mask=False, sampling_rate=16000,
)  # fmt: skip
PIPELINE = """
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
const [modules, root, name, dtype, options] = process.argv.slice(1);
const entry = createRequire(`${modules}/package.json`).resolve("@huggingface/transformers");
const { env, pipeline } = await import(pathToFileURL(entry));
env.allowRemoteModels = false;
env.localModelPath = `${root}/`;
const recognize = await pipeline("automatic-speech-recognition", name, JSON.parse(dtype));
const samples = Float32Array.from(JSON.parse(readFileSync(`${root}/samples.json`, "utf8")));
console.log(JSON.stringify((await recognize(samples, JSON.parse(options))).text));
"""


def write_files(folder: Path) -> None:
    """The tokenizer, as the converter of Transformers.js writes it too, and the feature extractor."""
    vocabulary = {token: id for id, token in enumerate(TOKENS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.decoder = decoders.CTC(pad_token="<pad>", word_delimiter_token="|", cleanup=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"vocab.json": vocabulary, "tokenizer_config.json": SPECIAL | dict(tokenizer_class="Wav2Vec2CTCTokenizer")}
    for name, content in (settings | {"preprocessor_config.json": EXTRACTOR}).items():
        (folder / name).write_text(json.dumps(content))


def pipeline(modules: Path, artifact: Path, samples: np.ndarray, loading: dict, asked: dict) -> str:
    """The text of the pipeline."""
    (artifact.parent / "samples.json").write_text(json.dumps(samples.tolist()))
    words = [modules.resolve(), artifact.parent, artifact.name, json.dumps(loading), json.dumps(asked)]
    command = ["node", "--input-type=module", "-e", PIPELINE, *words]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def passes(what: str, got: str, wanted: str) -> bool:
    """Prints a line about a text; whether it is as expected."""
    passed = got == wanted and len(wanted) > 0
    print(f"Transformers.js: {what}, a text of {len(got)} characters{'' if passed else f', {got!r}, expected {wanted!r}: FAILED'}")
    return passed


def whisper(planish: Path, modules: Path, source: Path, seed: int) -> bool:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        checkpoint, out = root / "checkpoint", root / "artifact"
        small_whisper.write(source, checkpoint, seed)
        samples = small_whisper.record(root / "a.wav", seed)
        command = [planish, "compile", checkpoint, "-o", out, "--target", "onnx", "--package", "transformers-js"]
        subprocess.run(command, check=True, capture_output=True)
        model = WhisperForConditionalGeneration.from_pretrained(checkpoint).eval()
        features = WhisperFeatureExtractor.from_pretrained(checkpoint)(samples, sampling_rate=16000, return_tensors="pt").input_features
        ids = model.generate(features, language="en", task="transcribe")[0].tolist()
        wanted = PreTrainedTokenizerFast.from_pretrained(checkpoint).decode(ids, skip_special_tokens=True)
        got = pipeline(modules, out, samples, {"dtype": "fp32"}, {"language": "en", "task": "transcribe"})
    return passes(f"Whisper of seed {seed}", got, wanted)


def main() -> int:
    planish, modules, golden, source = map(Path, sys.argv[1:])
    passed = [whisper(planish, modules, source, seed) for seed in range(3)]
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        checkpoint, out = root / "checkpoint", root / "artifact"
        checkpoint.mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copyfile(golden / name, checkpoint / name)
        write_files(checkpoint)
        subprocess.run([planish, "compile", checkpoint, "-o", out, "--target", "onnx"], check=True, capture_output=True)
        time = np.arange(3000)
        samples = (np.sin(0.0007 * time**2) * np.sin(0.05 * time)).astype(np.float32)
        normal = (samples - samples.mean()) / np.sqrt(samples.var() + 1e-7)
        (logits,) = onnxruntime.InferenceSession(out / "model.onnx").run(None, {"input_values": normal[None]})
        wanted = Wav2Vec2CTCTokenizer.from_pretrained(checkpoint).decode(logits[0].argmax(-1).tolist())
        got = pipeline(modules, out, samples, {"dtype": "fp32", "subfolder": ""}, {})
    return 0 if all([*passed, passes("CTC", got, wanted)]) else 1


if __name__ == "__main__":
    sys.exit(main())
