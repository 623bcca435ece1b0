#!/usr/bin/env python3
"""Holds what onnxruntime-genai generates of recordings with a Whisper against `planish transcribe`: the same ids.

    check_genai_speech.py PLANISH fixtures/speech [--seeds 0:3]

For each seed it makes a Whisper of random weights and a recording, and runs `PLANISH compile --package genai` for each target, and in
float16. The library reads the recording, makes the features by audio_processor_config.json, and generates; `PLANISH transcribe` runs the
same artifact, and that of the usual package. Exits 1 where ids differ, or a text has fewer than 5.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import onnxruntime_genai

import small_whisper
from cases import Mismatch, compiled

# How many ids are compared at least.
LEAST = 5
PROMPT = "<|startoftranscript|><|en|><|transcribe|>"
FORMS = {"onnx": ("--target", "onnx"), "ort": ("--target", "ort"), "float16": ("--target", "ort", "--fp16")}


def generated(folder: Path, recording: Path) -> list[int]:
    """The ids of the library, without the prompt and the token that ends the text."""
    model = onnxruntime_genai.Model(str(folder))
    inputs = model.create_multimodal_processor()([PROMPT], audios=onnxruntime_genai.Audios.open(str(recording)))
    params = onnxruntime_genai.GeneratorParams(model)
    params.set_search_options(do_sample=False)
    generator = onnxruntime_genai.Generator(model, params)
    generator.set_inputs(inputs)
    while not generator.is_done():
        generator.generate_next_token()
    ids = [int(id) for id in generator.get_sequence(0)][3:]
    return ids[:-1] if ids[-1:] == [small_whisper.END] else ids


def transcribed(planish: Path, folder: Path, recording: Path) -> list[int]:
    """The ids of planish."""
    command = [planish, "transcribe", folder, recording, "--json", "--temperature", "0", "--language", "en", "--set", "no_speech_threshold=none"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [id for segment in json.loads(done.stdout)["recordings"][0]["segments"] for id in segment["tokens"]]


def check(planish: Path, source: Path, scratch: Path, seed: int) -> str:
    model, recording = scratch / "model", scratch / "a.wav"
    small_whisper.write(source, model, seed)
    small_whisper.record(recording, seed)
    counts = []
    for name, words in FORMS.items():
        folder = compiled(planish, model, scratch / name, "--package", "genai", *words)
        found = {
            "onnxruntime-genai": generated(folder, recording),
            "planish": transcribed(planish, folder, recording),
            "planish, the usual package": transcribed(planish, compiled(planish, model, scratch / f"{name}-usual", *words), recording),
        }
        if len({tuple(ids) for ids in found.values()}) != 1 or len(found["planish"]) < LEAST:
            raise Mismatch(f"{name}: {found}")
        counts.append(f"{len(found['planish'])} ids of {name}")
    return ", ".join(counts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("planish", type=Path, help="the binary")
    parser.add_argument("source", type=Path, help="fixtures/speech")
    parser.add_argument("--seeds", default="0:3", help="a range FROM:TO")
    args = parser.parse_args()
    failed = 0
    for seed in range(*map(int, args.seeds.split(":"))):
        with tempfile.TemporaryDirectory() as scratch:
            try:
                print(f"ok    genai      whisper, seed {seed}: {check(args.planish, args.source, Path(scratch), seed)}", flush=True)
            # Whatever a library raises is a failure of this seed, not the end of the others.
            except Exception as e:
                failed += 1
                print(f"FAIL  genai      whisper, seed {seed}: {type(e).__name__}: {e}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
