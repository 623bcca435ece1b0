#!/usr/bin/env python3
"""Holds `planish transcribe` against the transformers library's generation for long recordings: the same ids, segment by segment.

    check_transcribe.py PLANISH [--seeds 0:24]

For each seed it makes a Whisper of a random configuration with random weights, a tokenizer and a generation_config.json of random
settings (languages, tasks, suppressed tokens, thresholds, what windows are read after), and a recording of noise and tones. The
library runs in float32 with one temperature, or with several of which the last is never reached, since its draws are its own: what
the thresholds decide shows in the windows that it skips. planish compiles the model for `ort`. Texts of random models have ties that
float32 breaks by chance, so logits are scaled up. Exits 1 where ids or times differ.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import wave
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, decoders
from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

WORDS = 40
LANGUAGES = ["en", "de", "fr", "haw"]


def ids_of(rng):
    """Special tokens in the order of Whisper's: end, start, languages, tasks, and those of text before."""
    names = ["<|endoftext|>", "<|startoftranscript|>"] + [f"<|{code}|>" for code in LANGUAGES]
    names += ["<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
    return {name: WORDS + n for n, name in enumerate(names)}


def make(folder, seed):
    """A model, its settings, and what to ask for."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    special = ids_of(rng)
    seconds = rng.choice([1, 2])
    positions = seconds * 50
    first_time = WORDS + len(special)
    vocabulary = first_time + positions + 1
    heads = rng.choice([2, 4])
    config = WhisperConfig(
        vocab_size=vocabulary, num_mel_bins=rng.choice([16, 80]), d_model=32, encoder_layers=rng.choice([1, 2]),
        decoder_layers=rng.choice([1, 2, 3]), encoder_attention_heads=heads, decoder_attention_heads=heads,
        encoder_ffn_dim=48, decoder_ffn_dim=40, max_source_positions=positions,
        max_target_positions=rng.choice([24, 40, 64]), decoder_start_token_id=special["<|startoftranscript|>"],
        eos_token_id=special["<|endoftext|>"], bos_token_id=special["<|endoftext|>"],
        pad_token_id=special["<|endoftext|>"], suppress_tokens=None, begin_suppress_tokens=None,
        tie_word_embeddings=True, init_std=0.3,
    )
    model = WhisperForConditionalGeneration(config).eval()
    with torch.no_grad():
        model.model.decoder.embed_tokens.weight.normal_(0, 1.0)
        model.model.decoder.layer_norm.weight.mul_(rng.choice([0.6, 1.5]))
        # What ends a text and what cuts it come often enough.
        model.model.decoder.embed_tokens.weight[first_time:] *= rng.choice([0.8, 1.2])
    g = model.generation_config
    g.no_timestamps_token_id = special["<|notimestamps|>"]
    g.prev_sot_token_id = special["<|startofprev|>"] if rng.random() < 0.8 else None
    g.is_multilingual = rng.random() < 0.8
    if g.is_multilingual:
        g.lang_to_id = {f"<|{code}|>": special[f"<|{code}|>"] for code in LANGUAGES}
        g.task_to_id = {name: special[f"<|{name}|>"] for name in ("transcribe", "translate")}
    g.max_length = rng.choice([20, config.max_target_positions])
    g.suppress_tokens = sorted(rng.sample(range(WORDS), 3)) + [special["<|startofprev|>"], special["<|nospeech|>"]]
    g.begin_suppress_tokens = [1, special["<|endoftext|>"]]
    if rng.random() < 0.7:
        g.max_initial_timestamp_index = rng.choice([2, 10])
    if rng.random() < 0.3:
        g.repetition_penalty = 1.3
    asked = {}
    if g.is_multilingual:
        asked["task"] = rng.choice(["transcribe", "translate"])
        if rng.random() < 0.5:
            asked["language"] = rng.choice(["de", "french", "<|haw|>"])
    conditions = rng.random() < 0.6
    thresholds = {}
    if rng.random() < 0.7:
        thresholds["logprob_threshold"] = rng.choice([-1.5, -0.5, -0.1, -3.0])
        if rng.random() < 0.8:
            thresholds["no_speech_threshold"] = rng.choice([1e-6, 1e-3, 0.05])
    if rng.random() < 0.5:
        thresholds["compression_ratio_threshold"] = rng.choice([0.6, 0.9, 1.35])
    model.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=config.num_mel_bins, chunk_length=seconds).save_pretrained(folder)
    vocabulary_of = {f"w{n}": n for n in range(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary_of | special | {f"<|{n * 0.02:.2f}|>": first_time + n for n in range(positions + 1)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    return model, rng, asked, conditions, thresholds, seconds


def record(path, rng, seconds):
    """Noise, tones and silence, as 16 bit samples."""
    source = np.random.default_rng(rng.randrange(1 << 30))
    parts = []
    for _ in range(rng.choice([1, 4, 9])):
        count = int(rng.uniform(0.2, seconds * 1.2) * 16000)
        kind = rng.choice(["noise", "tone", "silence"])
        time = np.arange(count) / 16000
        part = {"noise": source.normal(0, 0.2, count), "tone": 0.5 * np.sin(2 * np.pi * rng.uniform(100, 3000) * time), "silence": np.zeros(count)}[kind]
        parts.append(part)
    samples = (np.clip(np.concatenate(parts), -1, 1) * 32767).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(samples.tobytes())
    return samples.astype(np.float32) / 32768


def reference(model, folder, samples, asked, conditions, thresholds):
    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    inputs = extractor(samples, sampling_rate=16000, return_tensors="pt", truncation=False, padding="longest")
    if len(samples) <= extractor.n_samples:
        # A recording of one window is filled up with silence, which planish does not decode after it.
        whole = extractor(samples, sampling_rate=16000, return_tensors="pt").input_features
        frames = inputs.input_features.shape[-1]
        return None if frames < 2 else (whole, frames)
    return inputs.input_features, None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish")
    parser.add_argument("--seeds", default="0:24")
    arguments = parser.parse_args()
    first, last = map(int, arguments.seeds.split(":"))
    failed, skips, windows = 0, 0, 0
    for seed in range(first, last):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch, "model")
            folder.mkdir()
            model, rng, asked, conditions, thresholds, seconds = make(folder, seed)
            samples = record(Path(scratch, "a.wav"), rng, seconds)
            features, frames = reference(model, folder, samples, asked, conditions, thresholds)
            if frames is not None:
                continue
            torch.manual_seed(0)
            result = model.generate(
                features, return_timestamps=True, return_segments=True, condition_on_prev_tokens=conditions,
                temperature=0.0, **asked, **thresholds,
            )
            expected = [(s["tokens"].tolist(), float(s["start"]), float(s["end"])) for s in result["segments"][0]]
            artifact = Path(scratch, "out")
            run = lambda *words: subprocess.run([arguments.planish, *map(str, words)], capture_output=True, text=True)
            done = run("compile", folder, "-o", artifact, "--target", "ort", "-q")
            if done.returncode:
                sys.exit(f"seed {seed}: {done.stderr}")
            words = ["transcribe", artifact, Path(scratch, "a.wav"), "--json", "--temperature", "0"]
            for key in ("task", "language"):
                words += [f"--{key}", asked[key]] if key in asked else []
            for key in ("logprob_threshold", "no_speech_threshold", "compression_ratio_threshold"):
                words += ["--set", f"{key}={thresholds.get(key, 'none')}"]
            words += ["--set", f"condition_on_prev_tokens={str(conditions).lower()}"]
            done = run(*words)
            if done.returncode:
                print(f"seed {seed}: exit {done.returncode}: {done.stderr.strip()[-300:]}")
                failed += 1
                continue
            got = [(s["tokens"], s["start"], s["end"]) for s in json.loads(done.stdout)["recordings"][0]["segments"]]
            same = len(got) == len(expected) and all(
                a[0] == b[0] and abs(a[1] - b[1]) < 1e-6 and abs(a[2] - b[2]) < 1e-6 for a, b in zip(got, expected)
            )
            windows += len({round(start, 6) for _, start, _ in got})
            print(f"seed {seed}: {len(expected)} segments, {features.shape[-1] / 100:.1f} s, {'same' if same else 'DIFFERENT'}")
            if not same:
                failed += 1
                for n, (a, b) in enumerate(zip(got, expected)):
                    if a != b:
                        print(f"  segment {n}: planish {a}\n  transformers {b}")
                        break
                else:
                    print(f"  {len(got)} segments, and {len(expected)} of transformers")
    print(f"{failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
