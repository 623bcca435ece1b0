#!/usr/bin/env python3
"""Holds `planish generate --image` against the processors and the greedy search of the transformers library.

    check_images_in_prompts.py PLANISH PICTURE... [--targets onnx,ort] [--seed 0]

Each model is small and random: LLaVA, Idefics3 (tiles), Gemma 3, PaliGemma and the Qwen models that see, with a tokenizer of words and a processor as transformers
saves them. Prompts with places of one picture and of several, as texts and through the chat template, have to give the ids of
transformers. Exits 1 when they do not.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from PIL import Image
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from check_encoders import fill

SPECIAL = [
    "<pad>", "<bos>", "<eos>", "<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>", "<start_of_image>",
    "<end_of_image>", *[f"<row_{r}_col_{c}>" for r in range(1, 7) for c in range(1, 7)],
]  # fmt: skip
WORDS = ["what", "is", "this", "that", "and", "User", "Assistant", ":", "\n", *[f"w{n}" for n in range(30)]]
IMAGE = SPECIAL.index("<image>")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ message['role'] | capitalize }} : {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE{% else %} {{ part['text'] }} {% endif %}{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}Assistant :{% endif %}"
)
TEXT = dict(
    vocab_size=len(SPECIAL) + len(WORDS), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, max_position_embeddings=2048, pad_token_id=0, bos_token_id=1, eos_token_id=2,
)  # fmt: skip
TOWER = dict(hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, image_size=32, patch_size=8)


def tokenizer(bos: bool, **named: str) -> PreTrainedTokenizerFast:
    """Words, of which those between marks are special, and lines."""
    own = Tokenizer(models.WordLevel({word: n for n, word in enumerate(SPECIAL + WORDS)}, unk_token="w0"))
    own.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in SPECIAL])
    spaces = pre_tokenizers.Split(" ", "removed")
    own.pre_tokenizer = pre_tokenizers.Sequence([spaces, pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Punctuation("isolated")])
    if bos:
        own.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=own, pad_token="<pad>", bos_token="<bos>", eos_token="<eos>", extra_special_tokens=named)


def llava() -> tuple:
    config = transformers.LlavaConfig(
        text_config=dict(TEXT, model_type="llama"), vision_config=dict(TOWER, model_type="clip_vision_model"), image_token_index=IMAGE,
        image_seq_length=16,
    )
    images = transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    processor = transformers.LlavaProcessor(
        images, tokenizer(True), patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=TEMPLATE.replace("IMAGE", "<image>"),
    )  # fmt: skip
    return transformers.LlavaForConditionalGeneration(config), processor, "<image>"


def idefics3() -> tuple:
    config = transformers.Idefics3Config(
        text_config=dict(TEXT, model_type="llama"), vision_config=TOWER, image_token_id=IMAGE, scale_factor=2, pad_token_id=0
    )
    images = transformers.Idefics3ImageProcessorPil(size={"longest_edge": 96}, max_image_size={"longest_edge": 32})
    processor = transformers.Idefics3Processor(
        images, tokenizer(True), image_seq_len=4, chat_template=TEMPLATE.replace("IMAGE", "<image>")
    )
    return transformers.Idefics3ForConditionalGeneration(config), processor, "<image>"


def gemma3() -> tuple:
    named = dict(image_token="<image>", boi_token="<start_of_image>", eoi_token="<end_of_image>")
    frame = [SPECIAL.index(named["boi_token"]), SPECIAL.index(named["eoi_token"])]
    config = transformers.Gemma3Config(
        text_config=dict(TEXT, sliding_window=9, layer_types=["sliding_attention", "full_attention"], query_pre_attn_scalar=8),
        vision_config=dict(TOWER, model_type="siglip_vision_model"), image_token_index=IMAGE, mm_tokens_per_image=4,
        boi_token_index=frame[0], eoi_token_index=frame[1],
    )  # fmt: skip
    images = transformers.Gemma3ImageProcessorPil(size={"height": 32, "width": 32})
    processor = transformers.Gemma3Processor(
        images, tokenizer(True, **named), image_seq_length=4, chat_template=TEMPLATE.replace("IMAGE", "<start_of_image>")
    )
    return transformers.Gemma3ForConditionalGeneration(config), processor, "<start_of_image>"


def paligemma() -> tuple:
    config = transformers.PaliGemmaConfig(
        text_config=dict(TEXT, model_type="gemma"), vision_config=dict(TOWER, model_type="siglip_vision_model", vision_use_head=False),
        image_token_index=IMAGE, projection_dim=32, hidden_size=32,
    )  # fmt: skip
    images = transformers.SiglipImageProcessorPil(size={"height": 32, "width": 32})
    images.image_seq_length = 16
    named = dict(image_token="<image>")
    return transformers.PaliGemmaForConditionalGeneration(config), transformers.PaliGemmaProcessor(images, tokenizer(False, **named)), "<image>"


class Pads:
    """What `Qwen2VLProcessor` of transformers does of images and texts, without the videos for which it needs torchvision."""

    def __init__(self, image_processor: transformers.Qwen2VLImageProcessorPil, own: PreTrainedTokenizerFast):
        self.image_processor, self.tokenizer = image_processor, own
        self.chat_template = own.chat_template = TEMPLATE.replace("IMAGE", "<start_of_image><image><end_of_image>")

    def __call__(self, images: list, text: str, **_: object) -> dict:
        seen = self.image_processor(images=images[0], return_tensors="pt")
        for grid in seen["image_grid_thw"]:
            text = text.replace("<image>", "<place>" * (int(grid.prod()) // self.image_processor.merge_size**2), 1)
        ids = self.tokenizer(text.replace("<place>", "<image>"), return_tensors="pt")["input_ids"]
        return dict(input_ids=ids, attention_mask=torch.ones_like(ids), mm_token_type_ids=(ids == IMAGE).int(), **seen)

    def apply_chat_template(self, *given: object, **more: object) -> str:
        return self.tokenizer.apply_chat_template(*given, tokenize=False, **more)

    def save_pretrained(self, folder: Path) -> None:
        self.tokenizer.save_pretrained(folder)


def qwen(name: str, tower: dict, **text: object) -> tuple:
    """A Qwen model that sees, of images of any shape."""
    sections = dict(mrope_section=[2, 1, 1], rope_type="default", rope_theta=1000.0)
    ids = dict(image_token_id=IMAGE, video_token_id=4, vision_start_token_id=7, vision_end_token_id=8)
    config = transformers.CONFIG_MAPPING[name](
        text_config=dict(TEXT, rope_parameters=sections) | text, **ids,
        vision_config=dict(depth=3, num_heads=2, patch_size=4, spatial_merge_size=2, temporal_patch_size=2) | tower,
    )  # fmt: skip
    images = transformers.Qwen2VLImageProcessorPil(
        size={"shortest_edge": 16 * 16, "longest_edge": 40 * 56}, patch_size=4, merge_size=2, temporal_patch_size=2
    )
    return getattr(transformers, type(config).__name__.removesuffix("Config") + "ForConditionalGeneration")(config), Pads(images, tokenizer(False)), "<image>"


def qwen2_vl() -> tuple:
    return qwen("qwen2_vl", dict(embed_dim=16, mlp_ratio=2, hidden_size=32))


def qwen2_5_vl() -> tuple:
    return qwen("qwen2_5_vl", dict(hidden_size=16, intermediate_size=24, out_hidden_size=32, window_size=16, fullatt_block_indexes=[1]))


def qwen3_vl() -> tuple:
    return qwen("qwen3_vl", dict(
        hidden_size=16, intermediate_size=24, out_hidden_size=32, num_position_embeddings=16, deepstack_visual_indexes=[0, 2],
    ), head_dim=8)  # fmt: skip


MODELS = dict(llava=llava, idefics3=idefics3, gemma3=gemma3, paligemma=paligemma, qwen2_vl=qwen2_vl, qwen2_5_vl=qwen2_5_vl, qwen3_vl=qwen3_vl)
NEW_TOKENS = 12


def wanted(model: torch.nn.Module, inputs: dict) -> list[int]:
    count = inputs["input_ids"].shape[1]
    floats = {name: t.double() if t.is_floating_point() else t for name, t in inputs.items() if name != "labels"}
    with torch.no_grad():
        ids = model.generate(**floats, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False)
    return ids[0, count:].tolist()


def check(args: argparse.Namespace, name: str, scratch: Path) -> int:
    model, processor, place = MODELS[name]()
    fill(model, torch.Generator().manual_seed(args.seed))
    model = model.eval()
    folder = scratch / name
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    # The image processor in a file of its own, as published checkpoints have it.
    processor.image_processor.save_pretrained(folder)
    model = type(model).from_pretrained(folder).double()
    pictures = [[path] for path in args.pictures] + [args.pictures[:2], args.pictures[-3:]]
    failed = 0
    for target in args.targets.split(","):
        out = scratch / f"{name}-{target}"
        subprocess.run([args.planish, "compile", folder, "-o", out, "--target", target], check=True, capture_output=True)
        for files in pictures:
            images = [Image.open(path).convert("RGB") for path in files]
            text = " and ".join([place] * len(files)) + " what is this"
            options = [option for path in files for option in ("--image", path)]
            cases = [(text, options, processor(images=[images], text=text, return_tensors="pt"))]
            if processor.chat_template is not None and name != "paligemma":
                content = [dict(type="image")] * len(files) + [dict(type="text", text="what is that")]
                chat = processor.apply_chat_template([dict(role="user", content=content)], add_generation_prompt=True)
                chosen = processor(images=[images], text=chat, return_tensors="pt", add_special_tokens=False)
                cases.append(("what is that", [*options, "--chat"], chosen))
            for prompt, more, inputs in cases:
                command = [args.planish, "generate", out, "--prompt", prompt, *more, "--json", "--ignore-eos", "--greedy"]
                done = subprocess.run([*command, "--max-new-tokens", str(NEW_TOKENS)], capture_output=True, text=True)
                want = wanted(model, inputs)
                got = json.loads(done.stdout) if done.returncode == 0 else dict(ids=done.stderr.strip()[-400:], speed={})
                tokens = [got["speed"].get("prompt_tokens"), inputs["input_ids"].shape[1]]
                if got["ids"] != want or tokens[0] != tokens[1]:
                    failed += 1
                    print(f"FAIL {name} {target} {[Path(f).name for f in files]} {more[-1]}: {tokens} {got['ids']}, expected {want}")
    print(f"{name}: {'as transformers' if not failed else f'{failed} differ'}")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("planish", type=Path)
    parser.add_argument("pictures", nargs="+")
    parser.add_argument("--targets", default="onnx,ort")
    parser.add_argument("--only", nargs="*", default=list(MODELS))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        return int(any([check(args, name, Path(scratch)) for name in args.only]))


if __name__ == "__main__":
    sys.exit(main())
