#!/usr/bin/env python3
"""Holds the files of Whisper and Moonshine of random configurations against the transformers library.

    check_speech_decoders.py PLANISH [--configurations 16] [--seed 0] [--targets onnx,ort]

For each configuration it makes a checkpoint with random weights, compiles it, and runs the encoder, the decoder of the first tokens
and the one with a cache on two recordings, those of Moonshine padded. What comes out has to be what the library computes in float64
from the saved checkpoint, within 1e-4 of the largest value. Every fourth Whisper is a classifier of recordings.
"""

import argparse
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnxruntime
import torch
import transformers


def whisper(d):
    size = d.choice([1, 2, 3]) * d.choice([4, 6, 8])
    divisors = [n for n in range(1, 7) if size % n == 0]
    config = dict(
        vocab_size=d.randint(20, 90), num_mel_bins=d.choice([8, 80, 128]), d_model=size, encoder_layers=d.randint(1, 3),
        decoder_layers=d.randint(1, 3), encoder_attention_heads=d.choice(divisors), decoder_attention_heads=d.choice(divisors),
        encoder_ffn_dim=d.randint(9, 40), decoder_ffn_dim=d.randint(9, 40), max_source_positions=d.randint(1, 20),
        max_target_positions=d.randint(12, 40), activation_function=d.choice(["gelu", "relu", "gelu_new", "silu"]),
        scale_embedding=d.random() < 0.5, tie_word_embeddings=d.random() < 0.8, use_weighted_layer_sum=d.random() < 0.5,
        classifier_proj_size=d.randint(3, 20), num_labels=d.randint(2, 5), pad_token_id=3, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=4,
    )  # fmt: skip
    head = d.choice(["ForConditionalGeneration"] * 3 + ["ForAudioClassification"])
    return f"Whisper{head}", config


def moonshine(d):
    heads = d.choice([1, 2, 3])
    size = d.choice([4, 8, 10, 20])
    part = d.choice([0.5, 1.0, 0.9]) if size > 4 else d.choice([0.5, 1.0])
    config = dict(
        vocab_size=d.randint(20, 90), hidden_size=heads * size, intermediate_size=d.randint(9, 40),
        encoder_num_hidden_layers=d.randint(1, 3), decoder_num_hidden_layers=d.randint(1, 3), encoder_num_attention_heads=heads,
        decoder_num_attention_heads=heads, encoder_hidden_act=d.choice(["gelu", "relu"]), decoder_hidden_act=d.choice(["silu", "gelu"]),
        attention_bias=d.random() < 0.5, max_position_embeddings=40, pad_token_id=3, eos_token_id=2, decoder_start_token_id=1,
        pad_head_dim_to_multiple_of=d.choice([None, 8]), tie_word_embeddings=d.random() < 0.8,
        rope_parameters=dict(rope_type="default", rope_theta=d.choice([100.0, 10000.0]), partial_rotary_factor=part),
    )  # fmt: skip
    if int(size * part) % 2:
        config["rope_parameters"]["partial_rotary_factor"] = 1.0
    return "MoonshineForConditionalGeneration", config


def sounds(config, d):
    numbers = np.random.default_rng(d.randrange(1 << 30))
    if "num_mel_bins" in config:
        return {"input_features": numbers.normal(size=[2, config["num_mel_bins"], 2 * config["max_source_positions"]]).astype(np.float32)}
    samples = d.randint(1500, 4000)
    mask = np.ones([2, samples], np.int64)
    mask[1, d.randint(1000, samples) :] = 0
    return {"input_values": (numbers.normal(size=[2, samples]) * mask).astype(np.float32), "attention_mask": mask}


def run(folder, name, offered):
    session = onnxruntime.InferenceSession(str(folder / f"{name}.onnx"))
    feeds = {i.name: offered[i.name] for i in session.get_inputs()}
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))


def difference(found, expected, keep=None):
    assert found.shape == expected.shape, (found.shape, expected.shape)
    if keep is not None:
        found, expected = found[keep], expected[keep]
    return float(np.abs(found - expected).max() / max(1.0, np.abs(expected).max()))


def trial(planish, targets, make, seed, folder):
    d = random.Random(seed)
    torch.manual_seed(seed)
    name, config = make(d)
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**config)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.15)
    model.tie_weights()
    model.save_pretrained(folder / "model")
    model = kind.from_pretrained(folder / "model", attn_implementation="eager").double().eval()
    sound = sounds(config, d)
    tensors = {key: torch.tensor(value).double() if value.dtype == np.float32 else torch.tensor(value) for key, value in sound.items()}
    ids = np.array([[d.randrange(3, config["vocab_size"]) for _ in range(6)] for _ in range(2)])
    is_generator = name.endswith("Generation")
    with torch.no_grad():
        out = model(**tensors, **({"decoder_input_ids": torch.tensor(ids)} if is_generator else {}))
    worst = 0.0
    for target in targets:
        out_folder = folder / target
        words = [planish, "compile", folder / "model", "-o", out_folder, "--target", target, "-q"]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
        if done.returncode:
            return name, config, done.stderr.strip()
        logits = out.logits.numpy()
        if not is_generator:
            worst = max(worst, difference(run(out_folder, "model", sound)["logits"], logits))
            continue
        states = run(out_folder, "encoder_model", sound)["last_hidden_state"]
        mask = sound.get("attention_mask")
        keep = None if mask is None else mask[:, ::384][:, : states.shape[1]].astype(bool)
        worst = max(worst, difference(states, out.encoder_last_hidden_state.numpy(), keep))
        offered = {"encoder_hidden_states": states, "input_ids": ids, "encoder_attention_mask": mask}
        worst = max(worst, difference(run(out_folder, "decoder_model", offered)["logits"], logits))
        first = run(out_folder, "decoder_model", offered | {"input_ids": ids[:, :4]})
        cache = {key.replace("present", "past_key_values"): value for key, value in first.items() if key.startswith("present")}
        step = run(out_folder, "decoder_with_past_model", offered | cache | {"input_ids": ids[:, 4:]})
        worst = max(worst, difference(step["logits"], logits[:, 4:]))
    return name, config, None if worst <= 1e-4 else f"difference {worst:.1e}", worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish")
    parser.add_argument("--configurations", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", default="onnx,ort")
    a = parser.parse_args()
    failed = 0
    for make in (whisper, moonshine):
        worst = 0.0
        for n in range(a.configurations):
            with tempfile.TemporaryDirectory() as scratch:
                name, config, why, *found = trial(a.planish, a.targets.split(","), make, a.seed + n, Path(scratch))
            worst = max([worst, *found])
            if why:
                failed += 1
                print(f"{name} {config}: {why}")
        print(f"{make.__name__}: {a.configurations} configurations, worst difference {worst:.1e}")
    print(f"{failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
