#!/usr/bin/env python3
"""Writes the goldens of Qwen models that see in fixtures/seeing.

    seeing_goldens.py [FOLDER]

Weights are random, by a seed. `io.safetensors` has what transformers computes in float64: the logits of a prompt with the places of
two images of other shapes, id 137, its positions, and the ids of greedy search after it.
"""

import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import save_file

PLACE, NEW_TOKENS = 137, 8
TEXT = dict(
    vocab_size=139, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=128, bos_token_id=1, eos_token_id=2, pad_token_id=0,
    rope_parameters=dict(rope_type="default", rope_theta=10000.0, mrope_section=[2, 1, 1]),
)  # fmt: skip
TOWER = dict(depth=2, num_heads=2, patch_size=4, spatial_merge_size=2, temporal_patch_size=2)
MODELS = {
    "qwen2-vl": ("qwen2_vl", dict(embed_dim=16, mlp_ratio=2, hidden_size=32), {}),
    "qwen2-5-vl": (
        "qwen2_5_vl", dict(hidden_size=16, intermediate_size=24, out_hidden_size=32, window_size=16, fullatt_block_indexes=[1]), {},
    ),
    "qwen3-vl": (
        "qwen3_vl",
        dict(hidden_size=16, intermediate_size=24, out_hidden_size=32, num_position_embeddings=16, deepstack_visual_indexes=[1, 0]),
        dict(head_dim=8),
    ),
}  # fmt: skip
# Frames, rows and columns of patches.
GRID = torch.tensor([[1, 4, 6], [1, 2, 8]])


def write(folder: Path, kind: str, tower: dict, text: dict) -> None:
    torch.manual_seed(0)
    ids = dict(image_token_id=PLACE, video_token_id=136, vision_start_token_id=135, vision_end_token_id=134)
    config = transformers.CONFIG_MAPPING[kind](text_config=TEXT | text, vision_config=TOWER | tower, **ids)
    model = getattr(transformers, type(config).__name__.removesuffix("Config") + "ForConditionalGeneration")(config).eval()
    for name, weight in model.named_parameters():
        spread = 0.2 if weight.dim() == 1 else 1.3 / max(1, weight.shape[1:].numel()) ** 0.5
        weight.data.copy_(torch.randn(weight.shape) * spread + (weight.dim() == 1 and name.endswith("weight")))
    model.save_pretrained(folder)
    model = type(model).from_pretrained(folder).double()
    pixels = torch.randn(int(GRID.prod(1).sum()), 3 * 2 * 4 * 4)
    counts = (GRID.prod(1) // 4).tolist()
    prompt = torch.tensor([[1, 135, *[PLACE] * counts[0], 134, 5, 135, *[PLACE] * counts[1], 134, 6, 7]])
    given = dict(
        pixel_values=pixels.double(), image_grid_thw=GRID, mm_token_type_ids=(prompt == PLACE).int(), attention_mask=torch.ones_like(prompt)
    )
    with torch.no_grad():
        logits = model(input_ids=prompt, **given).logits
        positions = model.model.get_rope_index(prompt, given["mm_token_type_ids"], GRID)[0]
        greedy = model.generate(
            input_ids=prompt, **given, max_new_tokens=NEW_TOKENS, min_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=None
        )
    tensors = {
        "in.attention_mask": given["attention_mask"], "in.image_grid_thw": GRID, "in.input_ids": prompt.clone(), "in.pixel_values": pixels,
        "in.position_ids": positions.contiguous(), "in.prompt": prompt, "out.greedy": greedy, "out.logits": logits.float(),
    }  # fmt: skip
    save_file(tensors, folder / "io.safetensors")


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "fixtures/seeing")
    for name, (kind, tower, text) in MODELS.items():
        write(out / name, kind, tower, text)


if __name__ == "__main__":
    main()
