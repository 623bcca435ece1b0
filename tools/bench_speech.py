#!/usr/bin/env python3
"""Measures `planish transcribe` next to the transformers library and CTranslate2, on models of Whisper's sizes with random weights.

    bench_speech.py PLANISH FOLDER [--sizes tiny,base] [--seconds 300] [--tokens 64] [--only planish,transformers,ctranslate2]

It makes the models in FOLDER, and a recording of noise. Random weights say nothing and never end: each program is told to write so many
tokens for each window of 30 s, without timestamps, on the same windows, so that the work is the same. Printed are the seconds, the
real-time factor (seconds of work for a second of sound) and the peak memory of the process. `--hours 3` measures the memory of planish on
a long recording too.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import wave
from pathlib import Path

SIZES = {"tiny": (384, 4, 6), "base": (512, 6, 8), "small": (768, 12, 12)}
VOCABULARY = 51865


def record(path, seconds):
    import numpy as np

    source = np.random.default_rng(0)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        for _ in range(0, seconds, 10):
            file.writeframes((source.normal(0, 0.1, 160000) * 32767).clip(-32768, 32767).astype("<i2").tobytes())


def make(folder, size, tokens):
    import torch
    from tokenizers import Tokenizer, models
    from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

    hidden, layers, heads = SIZES[size]
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=VOCABULARY, d_model=hidden, encoder_layers=layers, decoder_layers=layers, encoder_attention_heads=heads,
        decoder_attention_heads=heads, encoder_ffn_dim=4 * hidden, decoder_ffn_dim=4 * hidden,
        decoder_start_token_id=50258, eos_token_id=50257, bos_token_id=50257, pad_token_id=50257,
    )
    model = WhisperForConditionalGeneration(config)
    g = model.generation_config
    # No timestamps, no end: each window gets as many tokens as it may.
    g.suppress_tokens, g.begin_suppress_tokens = [50257], None
    g.forced_decoder_ids, g.max_new_tokens, g.max_length = None, tokens, None
    model.save_pretrained(folder)
    WhisperFeatureExtractor(feature_size=80).save_pretrained(folder)
    Tokenizer(models.WordLevel({f"w{n}": n for n in range(VOCABULARY)}, unk_token="w0")).save(str(folder / "tokenizer.json"))


def windows(recording):
    import numpy as np

    with wave.open(str(recording)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
    return [samples[at : at + 480000] for at in range(0, len(samples), 480000)]


def with_transformers(folder, recording, tokens, threads):
    import torch
    from transformers import WhisperFeatureExtractor, WhisperForConditionalGeneration

    torch.set_num_threads(threads)
    model = WhisperForConditionalGeneration.from_pretrained(folder).eval()
    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    begun = time.perf_counter()
    count = 0
    for samples in windows(recording):
        features = extractor(samples, sampling_rate=16000, return_tensors="pt").input_features
        with torch.no_grad():
            count += model.generate(features, max_new_tokens=tokens, do_sample=False).shape[-1] - 1
    return time.perf_counter() - begun, count


def with_ctranslate2(folder, recording, tokens, threads, compute_type="float32"):
    import ctranslate2
    import numpy as np
    from transformers import WhisperFeatureExtractor

    model = ctranslate2.models.Whisper(str(folder) + "-ct2", device="cpu", intra_threads=threads, compute_type=compute_type)
    extractor = WhisperFeatureExtractor.from_pretrained(folder)
    begun = time.perf_counter()
    count = 0
    for samples in windows(recording):
        features = extractor(samples, sampling_rate=16000, return_tensors="np").input_features
        view = ctranslate2.StorageView.from_array(np.ascontiguousarray(features))
        # It writes half of max_length at most.
        result = model.generate(view, [[50258, 50363]], beam_size=1, max_length=2 * tokens, suppress_tokens=[50257], suppress_blank=False)
        count += len(result[0].sequences_ids[0])
    return time.perf_counter() - begun, count


def with_ctranslate2_int8(folder, recording, tokens, threads):
    return with_ctranslate2(folder, recording, tokens, threads, "int8")


def convert(folder):
    """The same weights as CTranslate2 has them; its converter reads a tokenizer of Whisper's, which there is none of here."""
    import ctranslate2.converters.transformers as converters
    import transformers

    loader = converters._MODEL_LOADERS["WhisperConfig"]
    model = transformers.WhisperForConditionalGeneration.from_pretrained(folder)
    spec = loader.get_model_spec(model)
    words = [f"w{n}" for n in range(VOCABULARY)]
    words[50257], words[50258], words[50363] = "<|endoftext|>", "<|startoftranscript|>", "<|notimestamps|>"
    words[50362], words[50257] = "<|nocaptions|>", "<|endoftext|>"
    spec.register_vocabulary(words)
    spec.config.suppress_ids, spec.config.suppress_ids_begin, spec.config.lang_ids = [], [], []
    spec.config.alignment_heads = [[0, 0]]
    spec.validate()
    out = Path(str(folder) + "-ct2")
    out.mkdir(exist_ok=True)
    spec.optimize(quantization=None)
    spec.save(str(out))


def apart(function, *arguments):
    """Runs a measurement in a process of its own: seconds, tokens, peak memory in MB."""
    words = [sys.executable, "-W", "ignore", __file__, "--worker", function, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1:]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def planish(binary, artifact, recording, threads, *more):
    words = [binary, "transcribe", str(artifact), str(recording), "--json", "--temperature", "0", "--threads", str(threads), *more]
    for key in ("compression_ratio_threshold", "logprob_threshold", "no_speech_threshold"):
        words += ["--set", f"{key}=none"]
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        done = subprocess.Popen(words, stdout=output, stderr=errors)
        _, status, usage = os.wait4(done.pid, 0)
        done.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        out, err = output.read(), errors.read()
    if done.returncode:
        return {"error": err.decode()[-300:]}
    made = json.loads(out)
    count = sum(len(segment["tokens"]) for segment in made["recordings"][0]["segments"])
    return {"seconds": made["seconds"], "tokens": count, "megabytes": usage.ru_maxrss / 1024}


def main():
    if sys.argv[1:2] == ["--make"]:
        make(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
        return
    if sys.argv[1:2] == ["--convert"]:
        convert(sys.argv[2])
        return
    if sys.argv[1:2] == ["--worker"]:
        _, _, function, folder, recording, tokens, threads = sys.argv
        seconds, count = globals()[function](folder, recording, int(tokens), int(threads))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps({"seconds": seconds, "tokens": count, "megabytes": usage.ru_maxrss / 1024}))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default="tiny,base")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="planish,planish-int8,transformers,ctranslate2,ctranslate2-int8")
    parser.add_argument("--hours", type=int, default=0)
    a = parser.parse_args()
    a.folder.mkdir(parents=True, exist_ok=True)
    recording = a.folder / f"{a.seconds}.wav"
    record(recording, a.seconds)
    print(f"{a.seconds} s of sound, {a.tokens} tokens a window, {a.threads} threads")
    print("| model | program | seconds | real-time factor | tokens | peak memory MB |\n|---|---|---|---|---|---|")

    def row(size, program, made):
        if "error" in made:
            print(f"| {size} | {program} | failed: {made['error']} |", flush=True)
            return
        seconds = made["seconds"]
        print(f"| {size} | {program} | {seconds:.1f} | {seconds / a.seconds:.4f} | {made['tokens']} | {made['megabytes']:.0f} |", flush=True)

    for size in a.sizes.split(","):
        folder = a.folder / size
        if not folder.exists():
            folder.mkdir()
            # Not in this process: a child's peak counts that of the process that it is forked from.
            subprocess.run([sys.executable, __file__, "--make", folder, size, str(a.tokens)], check=True)
        for program in a.only.split(","):
            if program.startswith("planish"):
                artifact = a.folder / f"{size}-{program}"
                more = ["--int8"] if program.endswith("int8") else ["--int4"] if program.endswith("int4") else []
                subprocess.run([a.planish, "compile", folder, "-o", artifact, "--target", "ort", "--force", "-q", *more], check=True)
                row(size, program, planish(a.planish, artifact, recording, a.threads))
            else:
                if program.startswith("ctranslate2") and not Path(str(folder) + "-ct2").exists():
                    subprocess.run([sys.executable, __file__, "--convert", folder], check=True)
                row(size, program, apart(f"with_{program.replace('-', '_')}", folder, recording, a.tokens, a.threads))
    if a.hours:
        long = a.folder / f"{a.hours}h.wav"
        record(long, a.hours * 3600)
        a.seconds = a.hours * 3600
        row("tiny", f"planish, {a.hours} h", planish(a.planish, a.folder / "tiny-planish", long, a.threads, "--set", "max_new_tokens=1"))


if __name__ == "__main__":
    main()
