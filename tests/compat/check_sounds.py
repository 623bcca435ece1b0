"""Recordings of odd rates, channels and formats: the inputs that planish makes of them against those of the transformers library.

    python check_sounds.py PLANISH        with numpy, onnx, safetensors, torch and transformers, and ffmpeg and espeak-ng

Each of 20 recordings is given to `planish run` of graphs that negate their input, with the settings of a feature extractor beside
them. The feature extractor of the library gets the samples that planish decodes and resamples, so that its features are compared
alone; these samples are held against FFmpeg's. What the library draws at random is its middle on both sides. Whisper's features are those
that the library computes by numpy in float64, and Parakeet's are made by torch in float64: in bands with next to nothing in them
float32 has more noise than what is compared.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import wave

import numpy as np
import onnx
import torch
import transformers
from onnx import TensorProto, helper
from safetensors.numpy import load_file

TOLERANCE = 1e-4
SENTENCES = ["She had your dark suit in greasy wash water all year.", "Twenty seven bright birds, and one more.", "No."]


def recordings(folder):
    """Names of 20 files, the same each time."""
    rng = np.random.default_rng(20)
    rates = [8000, 11025, 12000, 16000, 22050, 24000, 32000, 37800, 44100, 44056, 48000, 96000]
    ways = [("wav", "pcm_s16le"), ("flac", "flac"), ("wav", "pcm_f32le"), ("wav", "pcm_s24le"), ("wav", "pcm_alaw")]
    for number in range(20):
        rate, channels = rates[number % len(rates)], [1, 2, 1, 3, 1, 6, 8][number % 7]
        source = folder / "source.wav"
        if number % 3 == 0:
            voice = ["espeak-ng", "-v", ["en", "de", "es"][number % 2], "-s", str(120 + 5 * number), "-w", str(source)]
            subprocess.run([*voice, " ".join(SENTENCES[: 1 + number % 3])], check=True)
        else:
            seconds = [0.4, 1.3, 4.0, 12.7, 35.0][number % 5]
            t = np.arange(int(rate * seconds)) / rate
            tone = np.sin(2 * np.pi * (50 + rate / 5 / seconds * t) * t) if number % 3 == 1 else 0
            noise = rng.standard_normal(len(t)) * np.exp(-t) * 0.2
            samples = ((0.5 * tone + noise) * 16000).clip(-32768, 32767).astype(np.int16)
            with wave.open(str(source), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(rate)
                file.writeframes(samples.tobytes())
        ending, codec = ways[number % len(ways)]
        channels = 1 if codec == "pcm_alaw" else channels
        path = folder / f"{number:02}.{ending}"
        to = ["-ac", str(channels), "-ar", str(rate), "-c:a", codec, str(path)]
        subprocess.run(["ffmpeg", "-v", "error", "-y", "-i", str(source), *to], check=True)
        source.unlink()
        yield path


# The feature extractor, settings, the shape of its input, and what is asked of the call.
EXTRACTORS = [
    ("Wav2Vec2", {}, ["rows", "samples"], {"padding": True}),
    ("Whisper", {"feature_size": 80}, ["rows", 80, "frames"], {}),
    ("Whisper", {"feature_size": 128}, ["rows", 128, "frames"], {}),
    ("AST", {}, ["rows", "frames", 128], {}),
    ("SeamlessM4T", {"padding_value": 1.0}, ["rows", "frames", 160], {}),
    ("Parakeet", {"feature_size": 128}, ["rows", "frames", 128], {}),
    ("Clap", {"truncation": "fusion"}, ["rows", 4, "frames", 64], {}),
    ("Clap", {"truncation": "rand_trunc"}, ["rows", 1, "frames", 64], {}),
]


def artifact(planish, folder, settings, shape):
    """An artifact that negates its input."""
    name = "input_values" if len(shape) == 2 else "input_features"
    given = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    made = helper.make_tensor_value_info("negated", TensorProto.FLOAT, shape)
    graph = helper.make_graph([helper.make_node("Neg", [name], ["negated"])], "negate", [given], [made])
    folder.mkdir()
    model = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), model)
    out = folder / "out"
    subprocess.run([planish, "compile", model, "--target", "onnx", "-o", out], check=True, capture_output=True)
    (out / "preprocessor_config.json").write_text(json.dumps(settings))
    return out


def inputs(planish, folder, path, outputs):
    done = subprocess.run([planish, "run", folder, "--inputs", path, "--outputs", outputs], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{path.name}: {done.stderr}")
    return -load_file(outputs)["negated"]


def rate_of(path):
    """The rate and the channels of a file."""
    probe = ["ffprobe", "-v", "error", "-show_entries", "stream=sample_rate,channels", "-of", "csv=p=0", str(path)]
    return list(map(int, subprocess.run(probe, check=True, capture_output=True, text=True).stdout.strip().split(",")))


def against_ffmpeg(path, samples, rate):
    """How far samples are from those that FFmpeg decodes and resamples, in dB below the loudest one."""
    own, channels = rate_of(path)
    raw = subprocess.run(["ffmpeg", "-v", "error", "-i", str(path), "-f", "f32le", "-"], check=True, capture_output=True).stdout
    mono = np.frombuffer(raw, np.float32).reshape(-1, channels).mean(1, dtype=np.float64)
    resample = ["-f", "f32le", "-ac", "1", "-ar", str(own), "-i", "-", "-af", f"aresample={rate}:filter_size=256", "-f", "f32le", "-"]
    done = subprocess.run(["ffmpeg", "-v", "error", *resample], check=True, capture_output=True, input=mono.astype(np.float32).tobytes())
    expected = np.frombuffer(done.stdout, np.float32)
    if abs(len(samples) - len(mono) * rate / own) > 1:
        sys.exit(f"{path.name}: {len(samples)} samples at {rate} Hz of {len(mono)} at {own} Hz")
    length = min(len(expected), len(samples))
    error = np.sqrt(np.mean((expected[:length] - samples[:length]) ** 2))
    return 20 * np.log10(max(error, 1e-12) / np.abs(mono).max())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish")
    planish = str(pathlib.Path(parser.parse_args().planish).resolve())
    np.random.choice = lambda of: of[len(of) // 2]
    np.random.randint = lambda low, high: (high - 1 - low) // 2
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        paths = list(recordings(folder))
        outputs = folder / "outputs.safetensors"
        plain = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": False}
        samples = {}
        for rate in [16000, 48000]:
            decoder = artifact(planish, folder / f"samples-{rate}", {**plain, "sampling_rate": rate}, ["rows", "samples"])
            samples[rate] = [inputs(planish, decoder, path, outputs)[0] for path in paths]
        levels = [against_ffmpeg(path, one, 16000) for path, one in zip(paths, samples[16000])]
        print(f"samples: {max(levels):.0f} dB at most from FFmpeg's, {np.median(levels):.0f} dB in the middle")
        failed = False
        for number, (name, settings, shape, options) in enumerate(EXTRACTORS):
            settings = {"feature_extractor_type": f"{name}FeatureExtractor", **settings}
            extractor = getattr(transformers, settings["feature_extractor_type"])(**settings)
            if name == "Whisper":
                extractor._torch_extract_fbank_features = extractor._np_extract_fbank_features
            if name == "Parakeet":
                torch.set_default_dtype(torch.float64)
                extractor.mel_filters = extractor.mel_filters.double()
                features = extractor._torch_extract_fbank_features
                extractor._torch_extract_fbank_features = lambda samples, device: features(samples.double(), device)
            own = artifact(planish, folder / f"features-{number}", settings, shape)
            worst, at = 0.0, None
            for path, one in zip(paths, samples[extractor.sampling_rate]):
                made = extractor(one, sampling_rate=extractor.sampling_rate, return_tensors="np", **options)
                expected = made["input_values"] if "input_values" in made else made["input_features"]
                got = inputs(planish, own, path, outputs)
                if got.shape != expected.shape:
                    sys.exit(f"{name} {path.name}: {got.shape}, transformers makes {expected.shape}")
                difference = float(np.abs(got - expected).max())
                if difference > worst:
                    worst, at = difference, path.name
            failed |= worst > TOLERANCE
            torch.set_default_dtype(torch.float32)
            print(f"{'MISS' if worst > TOLERANCE else 'ok'} {name} {settings}: {worst:.1e} at {at}", flush=True)
    sys.exit(int(failed))


main()
