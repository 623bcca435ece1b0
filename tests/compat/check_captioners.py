#!/usr/bin/env python3
"""Holds compiled encoders of images with decoders of texts against the transformers library, on random checkpoints.

    check_captioners.py PLANISH PICTURE [--configurations 12] [--seed 0] [--targets onnx,ort] [--only ENCODER+DECODER...]

For pairs of an encoder and a decoder it draws configurations, fills a VisionEncoderDecoderModel with random weights, saves
it as transformers does, compiles it, and runs the three graphs in ONNX Runtime: states of the encoder, logits of a text, and
logits of a step with a cache. They have to be what the saved checkpoint gives in float64, within 1e-4 of the largest value.
Then `planish generate --image PICTURE` has to give the tokens of `generate` of transformers, greedy and by beams, after
tokens that the text begins with. Exits 1 when something differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import onnxruntime
import torch
import transformers
from PIL import Image

import vision_configs
from check_encoders import fill
from vision_configs import Draw

TOLERANCE = 1e-4
NEW_TOKENS = 8
START, END, PAD = 2, 3, 1


def donut(d: Draw) -> dict:
    config = vision_configs.TYPES["swin"](d)
    return {name: value for name, value in config.items() if name != "use_absolute_embeddings"}


ENCODERS = {
    name: vision_configs.TYPES[name] for name in ("vit", "deit", "beit", "swin", "dinov2", "vit_msn", "swinv2", "dinov3_vit")
} | {"donut-swin": donut}


def special(d: Draw) -> dict:
    """Ids that all decoders know."""
    return dict(vocab_size=d.randint(40, 90), pad_token_id=PAD, bos_token_id=START, eos_token_id=END)


def of_bart(d: Draw) -> dict:
    heads = d.of(1, 2, 4)
    return special(d) | dict(
        d_model=heads * d.of(4, 8, 12), decoder_layers=d.randint(1, 3), decoder_attention_heads=heads,
        decoder_ffn_dim=d.randint(9, 40), activation_function=d.of("gelu", "relu", "silu"),
        max_position_embeddings=d.randint(24, 40), scale_embedding=d.maybe(), tie_word_embeddings=d.maybe(),
    )  # fmt: skip


def trocr(d: Draw) -> dict:
    return of_bart(d) | dict(use_learned_position_embeddings=d.maybe(), layernorm_embedding=d.maybe())


def bert(d: Draw) -> dict:
    heads = d.of(1, 2, 4)
    return special(d) | dict(
        hidden_size=heads * d.of(4, 8, 12), num_hidden_layers=d.randint(1, 3), num_attention_heads=heads,
        intermediate_size=d.randint(9, 40), hidden_act=d.of("gelu", "relu", "gelu_new"),
        max_position_embeddings=d.randint(24, 40), type_vocab_size=d.randint(1, 3), layer_norm_eps=d.of(1e-12, 1e-5, 1e-3),
    )  # fmt: skip


def gpt2(d: Draw) -> dict:
    heads = d.of(1, 2, 4)
    return special(d) | dict(
        n_embd=heads * d.of(4, 8, 12), n_layer=d.randint(1, 3), n_head=heads, n_positions=d.randint(24, 40),
        n_inner=d.of(None, 17), activation_function=d.of("gelu_new", "relu"), scale_attn_weights=d.maybe(),
        scale_attn_by_inverse_layer_idx=d.maybe(), layer_norm_epsilon=d.of(1e-5, 1e-3), tie_word_embeddings=d.maybe(),
    )  # fmt: skip


def blip(d: Draw) -> transformers.PretrainedConfig:
    heads, patch = d.of(1, 2, 4), d.of(2, 3, 4)
    image = dict(
        hidden_size=heads * d.of(4, 8, 12), num_attention_heads=heads, num_hidden_layers=d.randint(1, 3),
        intermediate_size=d.randint(9, 40), image_size=patch * d.randint(2, 4), patch_size=patch,
        hidden_act=d.of("gelu", "relu", "quick_gelu"), layer_norm_eps=d.of(1e-6, 1e-5, 1e-3),
    )  # fmt: skip
    text = {name: value for name, value in bert(d).items() if name != "type_vocab_size"} | dict(sep_token_id=END)
    config = transformers.BlipConfig(text_config=text, vision_config=image)
    config.pad_token_id = PAD
    return config


DECODERS = {
    "trocr": trocr, "mbart": of_bart, "bart": of_bart, "bert": bert, "roberta": bert, "xlm-roberta": bert, "gpt2": gpt2,
}  # fmt: skip

# Each encoder with one decoder, and each decoder with two encoders.
PAIRS = [(encoder, "trocr") for encoder in ENCODERS]
PAIRS += [("blip", "blip")]
PAIRS += [(encoder, decoder) for encoder in ("vit", "donut-swin") for decoder in DECODERS if decoder != "trocr"]


def pair(size: int | list[int]) -> list[int]:
    return size if isinstance(size, list) else [size, size]


def model_of(d: Draw, encoder: str, decoder: str) -> transformers.PreTrainedModel:
    if encoder == "blip":
        model = transformers.BlipForConditionalGeneration(blip(d)).eval()
        fill(model, torch.Generator().manual_seed(d.getrandbits(32)))
        return model
    of_images = ENCODERS[encoder](d) | dict(num_channels=3)
    config = lambda name, values: transformers.AutoConfig.for_model(name, **values)
    of_images = config(encoder, of_images)
    text = config(decoder, DECODERS[decoder](d) | dict(is_decoder=True, add_cross_attention=True))
    if decoder == "trocr" and d.maybe():
        text.cross_attention_hidden_size = of_images.hidden_size
    both = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(of_images, text)
    both.decoder_start_token_id, both.pad_token_id, both.eos_token_id = START, PAD, END
    model = transformers.VisionEncoderDecoderModel(both).eval()
    generator = torch.Generator().manual_seed(d.getrandbits(32))
    fill(model, generator)
    return model


def load(source: Path) -> transformers.PreTrainedModel:
    """The saved model in float64."""
    kind = json.loads(Path(source, "config.json").read_text())["architectures"][0]
    model = getattr(transformers, kind).from_pretrained(source).double().eval()
    for module in model.modules():
        # transformers 5.24 has no numbers for these when it has loaded a model.
        if type(module).__name__ == "TrOCRSinusoidalPositionalEmbedding":
            module.weights = module.get_embedding(*module.weights.shape, module.padding_idx).double()
    return model


class Refused(Exception):
    """planish refuses the configuration; the message is its own."""


def parts(model: transformers.PreTrainedModel) -> list:
    """The configurations of images and of text."""
    if hasattr(model, "text_decoder"):
        return [model.config.vision_config, model.config.text_config]
    return [model.config.encoder, model.config.decoder]


def compare(what: str, got: np.ndarray, want: np.ndarray) -> None:
    if got.shape != want.shape:
        raise AssertionError(f"{what}: {got.shape}, expected {want.shape}")
    error = np.abs(got - want).max() / max(1.0, np.abs(want).max())
    if not error <= TOLERANCE:
        raise AssertionError(f"{what}: differs by {error:.1e}")


def run(session: onnxruntime.InferenceSession, feeds: dict) -> dict:
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, {i.name: feeds[i.name] for i in session.get_inputs()})))


def check_graphs(d: Draw, model: transformers.PreTrainedModel, folder: Path) -> None:
    session = lambda name: onnxruntime.InferenceSession(str(folder / f"{name}.onnx"), providers=["CPUExecutionProvider"])
    numbers = np.random.default_rng(d.getrandbits(32))
    of_images, text = parts(model)
    shape = [2, 3, *pair(of_images.image_size)]
    pixels = numbers.normal(size=shape).astype(np.float32)
    ids = numbers.integers(4, text.vocab_size, [2, 7])
    with torch.no_grad():
        # Without a mask: padding is a token as others are.
        pixel_values = torch.tensor(pixels, dtype=torch.float64)
        if hasattr(model, "text_decoder"):
            hidden = model.vision_model(pixel_values=pixel_values).last_hidden_state
            logits = model.text_decoder(input_ids=torch.tensor(ids), encoder_hidden_states=hidden).logits
        else:
            want = model(pixel_values=pixel_values, decoder_input_ids=torch.tensor(ids))
            hidden, logits = want.encoder_last_hidden_state, want.logits
    states = run(session("encoder_model"), dict(pixel_values=pixels))
    if list(states) != ["last_hidden_state"]:
        raise AssertionError(f"the encoder gives {list(states)}")
    states = states["last_hidden_state"]
    compare("states", states, hidden.numpy())
    first = run(session("decoder_model"), dict(input_ids=ids[:, :5], encoder_hidden_states=states))
    compare("logits", first["logits"], logits[:, :5].numpy())
    past = {name.replace("present", "past_key_values"): t for name, t in first.items() if name != "logits"}
    step = run(session("decoder_with_past_model"), past | dict(input_ids=ids[:, 5:]))
    compare("logits of a step", step["logits"], logits[:, 5:].numpy())


def check_texts(args, d: Draw, model: transformers.PreTrainedModel, folder: Path, processor) -> int:
    pixels = processor(Image.open(args.picture).convert("RGB"), return_tensors="pt").pixel_values.double()
    prompt = [d.randint(4, 30) for _ in range(3)]
    same = 0
    is_blip = hasattr(model, "text_decoder")
    begins = d.of([START], [START, *prompt], *([] if is_blip else [prompt]))
    for beams in (1, 3):
        command = [args.planish, "generate", folder, "--image", args.picture, "--json", "--max-new-tokens", NEW_TOKENS]
        command += ["--ids", ",".join(map(str, begins)), *(["--beams", beams] if beams > 1 else [])]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise AssertionError(f"generate: {done.stderr.strip()[-300:]}")
        got = json.loads(done.stdout)["ids"]
        with torch.no_grad():
            # BLIP leaves out the last token, which ends a prompt.
            given = dict(input_ids=torch.tensor([[*begins, END]])) if is_blip else dict(decoder_input_ids=torch.tensor([begins]))
            want = model.generate(pixels, **given, max_new_tokens=NEW_TOKENS, num_beams=beams, do_sample=False)[0].tolist()
        own = len(begins) + (0 if begins[0] == START or "donut" in parts(model)[0].model_type else 1)
        want = want[own:]
        if got != want:
            raise AssertionError(f"generate, {beams} beams, after {begins}: {got}, expected {want}")
        same += 1
    return same


def check(args, seed: int, encoder: str, decoder: str) -> int:
    d = Draw(seed)
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "model")
        model = model_of(d, encoder, decoder)
        model.save_pretrained(source)
        height, width = pair(parts(model)[0].image_size)
        processor = transformers.ViTImageProcessor(size=dict(height=height, width=width))
        processor.save_pretrained(source)
        model = load(source)
        same = 0
        for target in args.targets.split(","):
            folder = Path(scratch, target)
            command = [args.planish, "compile", str(source), "-o", str(folder), "--target", target]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if done.returncode == 1 and "config.json" in done.stderr:
                raise Refused(done.stderr.strip()[-200:])
            if done.returncode:
                raise AssertionError(f"compile: {done.stderr.strip()[-400:]}")
            check_graphs(d, model, folder)
        same += check_texts(args, d, model, folder, processor)
        return same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish")
    parser.add_argument("picture")
    parser.add_argument("--configurations", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--targets", default="onnx,ort")
    parser.add_argument("--only", nargs="*", default=[])
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    bad = 0
    for encoder, decoder in PAIRS:
        name = f"{encoder}+{decoder}"
        if args.only and not {name, encoder, decoder} & set(args.only):
            continue
        passed = texts = 0
        for number in range(args.configurations):
            try:
                texts += check(args, 1000 * args.seed + number, encoder, decoder)
                passed += 1
            except Refused as e:
                print(f"refused {name} {number}: {e}", flush=True)
            except AssertionError as e:
                print(f"FAIL {name} {number}: {e}", flush=True)
                bad += 1
        print(f"{name}: {passed} of {args.configurations} configurations, {texts} texts", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
