#!/usr/bin/env python3
"""Writes fixtures/quantized/gguf-names.json: what tensors of goldens are called in GGUF files, by the package gguf.

For each golden the name of the architecture in GGUF files, and names of tensors by those of the checkpoint, with N for the number of
the layer. Experts are merged before they are named, as llama.cpp's converter merges them. Needs safetensors and gguf:

    python3 tools/gguf_names.py fixtures/goldens > fixtures/quantized/gguf-names.json
"""

import json
import re
import sys
from pathlib import Path

import gguf
from safetensors import safe_open

GOLDENS = {
    "bloom": "BLOOM", "cohere2": "COHERE2", "deepseek-v2": "DEEPSEEK2", "deepseek-v3": "DEEPSEEK2", "dots1": "DOTS1", "ernie4-5": "ERNIE4_5",
    "exaone4": "EXAONE4", "gemma3": "GEMMA3", "glm4": "GLM4", "gpt-neox": "GPTNEOX", "gpt-oss": "GPT_OSS", "granite": "GRANITE",
    "granitemoe": "GRANITE_MOE", "mixtral": "LLAMA", "olmo2": "OLMO2", "olmoe": "OLMOE", "phi3": "PHI3", "qwen2-moe": "QWEN2MOE",
    "qwen3-moe": "QWEN3MOE", "smollm3": "SMOLLM3", "stablelm": "STABLELM", "starcoder2": "STARCODER2",
}
# Tensors that the converter splits or gives an ending before it names them.
OTHER = {
    "mlp.experts.gate_up_proj": ["mlp.experts.gate_proj.weight", "mlp.experts.up_proj.weight"],
    "mlp.experts.gate_up_proj_bias": ["mlp.experts.gate_proj.bias", "mlp.experts.up_proj.bias"],
    "mlp.experts.down_proj": ["mlp.experts.down_proj.weight"],
    "mlp.experts.down_proj_bias": ["mlp.experts.down_proj.bias"],
    "self_attn.sinks": ["self_attn.sinks.weight"],
    "block_sparse_moe.input_linear.weight": ["block_sparse_moe.experts.w1.weight", "block_sparse_moe.experts.w3.weight"],
    "block_sparse_moe.output_linear.weight": ["block_sparse_moe.experts.w2.weight"],
    "mlp.gate.e_score_correction_bias": ["mlp.gate.e_score_correction.bias"],
}


def merged(name):
    """The names of what a tensor becomes, before they are those of the file."""
    name = re.sub(r"experts\.\d+\.", "experts.", name)
    for own, others in OTHER.items():
        if name.endswith(own):
            return [name.removesuffix(own) + other for other in others]
    # Of Mixtral, the converter names merged experts as those of the first layout of Llama.
    return [name]


def main():
    table = {}
    for golden, kind in GOLDENS.items():
        arch = gguf.MODEL_ARCH[kind]
        names = gguf.get_tensor_name_map(arch, 8)
        own = {}
        with safe_open(Path(sys.argv[1]) / golden / "model.safetensors", "np") as file:
            for stored in file.keys():
                for name in merged(stored):
                    # BLOOM is named without the name of the base model.
                    name_of = name.removeprefix("transformer.")
                    query = re.sub(r"model\.layers\.(\d+)\.block_sparse_moe\.experts\.", r"layers.\1.feed_forward.experts.", name_of)
                    found = names.get_name(query, try_suffixes=(".weight", ".bias"))
                    assert found, (golden, query)
                    own[re.sub(r"\.(layers|h)\.\d+", r".\1.N", name)] = re.sub(r"blk\.\d+", "blk.N", found)
        table[golden] = {"architecture": gguf.MODEL_ARCH_NAMES[arch], "names": own}
    print(json.dumps(table, indent=1, sort_keys=True))


main()
