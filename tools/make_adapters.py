#!/usr/bin/env python3
"""Writes adapters of low rank for goldens, and what peft and transformers compute with them in float64.

    make_adapters.py GOLDENS OUT

OUT/llama, and OUT/llama-dora with magnitudes, get adapter_config.json and adapter_model.safetensors as peft saves them for GOLDENS/llama, and io.safetensors with
`in.input_ids`, `in.attention_mask`, `in.position_ids` and `out.logits`. Needs torch, transformers==5.24.0, peft==0.21.2 and
safetensors. The same versions give the same bytes: seeds are fixed.
"""

import argparse
import json
from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM


def plain() -> LoraConfig:
    return LoraConfig(
        r=3, lora_alpha=5, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM", use_rslora=True,
        rank_pattern={"down_proj": 2}, alpha_pattern={"v_proj": 2},
    )  # fmt: skip


def with_magnitudes() -> LoraConfig:
    modules = ["q_proj", "down_proj", "embed_tokens"]
    return LoraConfig(r=2, lora_alpha=3, target_modules=modules, task_type="CAUSAL_LM", use_dora=True)


def write(golden: Path, folder: Path, config: LoraConfig) -> None:
    torch.manual_seed(1)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(golden), config)
    for name, weight in model.named_parameters():
        if "magnitude" in name:
            weight.data *= 0.5 + torch.rand_like(weight)
        elif "lora_" in name:
            weight.data = 0.3 * torch.randn_like(weight)
    model.save_pretrained(folder)
    # The name of the model, not the place where it was.
    path = folder / "adapter_config.json"
    said = json.loads(path.read_text())
    said |= {"base_model_name_or_path": golden.name, "target_modules": sorted(said["target_modules"])}
    path.write_text(json.dumps(said, indent=2, sort_keys=True) + "\n")
    (folder / "README.md").unlink(missing_ok=True)
    summed = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(golden), folder).merge_and_unload().double()
    ids = torch.randint(3, summed.config.vocab_size, (2, 9))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "position_ids": torch.arange(9).repeat(2, 1)}
    with torch.no_grad():
        logits = summed(**inputs).logits.float()
    io = {f"in.{name}": value.contiguous() for name, value in inputs.items()} | {"out.logits": logits.contiguous()}
    save_file(io, folder / "io.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("goldens", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    for name, config in {"llama": plain(), "llama-dora": with_magnitudes()}.items():
        write(args.goldens / "llama", args.out / name, config)


if __name__ == "__main__":
    main()
