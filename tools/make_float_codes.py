#!/usr/bin/env python3
"""Writes the checkpoints of fixtures/quantized whose codes are floating-point numbers, and GGUF types besides those of gguf-llama.

Each folder has a checkpoint and `reference.safetensors`: its dequantized weights in float32, by their names in the graph. Needs
torch, numpy, safetensors, transformers and gguf:

    python3 tools/make_float_codes.py fixtures/quantized

The reference of MXFP4 is what the transformers library makes of it (convert_moe_packed_tensors), and that of GGUF types what
the package gguf does. FP8 is written here: the reference is codes times scales.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

HIDDEN, HEADS, HEAD, INNER, VOCAB, EXPERTS = 32, 2, 16, 64, 48, 2
SIZES = {
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "head_dim": HEAD,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "max_position_embeddings": 64,
    "num_attention_heads": HEADS,
    "num_hidden_layers": 1,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "vocab_size": VOCAB,
}
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "mlp_bias": False, **SIZES}
QWEN3_MOE = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "decoder_sparse_step": 1,
             "mlp_only_layers": [], "moe_intermediate_size": 48, "norm_topk_prob": True, "num_experts": EXPERTS,
             "num_experts_per_tok": 1, **SIZES}
GPT_OSS = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "layer_types": ["full_attention"],
           "num_experts_per_tok": 1, "num_local_experts": EXPERTS, "sliding_window": 4, "swiglu_limit": 7.0,
           "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
           **{key: value for key, value in SIZES.items() if key != "rope_theta"}}
LAYER = "model.layers.0."
ATTENTION = {"self_attn.q_proj": (HEADS * HEAD, HIDDEN), "self_attn.k_proj": (HEAD, HIDDEN),
             "self_attn.v_proj": (HEAD, HIDDEN), "self_attn.o_proj": (HIDDEN, HEADS * HEAD)}
random = torch.Generator().manual_seed(11)


def floats(*shape, mean=0.0, deviation=0.3):
    return torch.randn(*shape, generator=random) * deviation + mean


def integers(limit, *shape):
    return torch.randint(0, limit, shape, generator=random, dtype=torch.uint8)


def others():
    """The tensors that are not quantized."""
    norm = lambda: floats(HIDDEN, mean=1.0, deviation=0.1).half()
    return {"model.embed_tokens.weight": floats(VOCAB, HIDDEN).half(), "lm_head.weight": floats(VOCAB, HIDDEN).half(),
            "model.norm.weight": norm(), LAYER + "input_layernorm.weight": norm(),
            LAYER + "post_attention_layernorm.weight": norm()}


def write(folder, config, quantization, plain, tensors, reference):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": quantization}, indent=2) + "\n")
    save_file({**plain, **tensors}, folder / "model.safetensors")
    both = {**{name: t.float() for name, t in plain.items()}, **reference}
    save_file({name: t.contiguous() for name, t in both.items()}, folder / "reference.safetensors")


def float8(shape, scales, dtype=torch.float8_e4m3fn):
    """Codes, and what they stand for by scales of the shape of the weight."""
    codes = (floats(*shape) * 100).to(dtype)
    return codes, codes.float() * scales.float()


def scale(shape, block, dtype=torch.float32):
    """Scales, and the same for each element: of blocks, or of outputs where the size of inputs is None."""
    rows, columns = (block[0] or shape[0]), (block[1] or shape[1])
    count = (-(-shape[0] // rows), -(-shape[1] // columns))
    scales = (torch.rand(*count, generator=random) * 0.01 + 0.001).to(dtype)
    wide = scales.float().repeat_interleave(rows, 0).repeat_interleave(columns, 1)[:shape[0], :shape[1]]
    return scales, wide


def fp8(folder, config, quantization, linear, ending, block, dtype=torch.float32, more=None, whole=False):
    plain, tensors, reference = others(), {}, {}
    if config["model_type"] == "qwen3_moe":
        plain[LAYER + "mlp.gate.weight"] = floats(EXPERTS, HIDDEN).half()
        plain |= {LAYER + f"self_attn.{x}_norm.weight": floats(HEAD, mean=1.0).half() for x in "qk"}
    for name, shape in linear.items():
        scales, wide = scale(shape, block, dtype)
        codes, reference[f"{LAYER}{name}.weight"] = float8(shape, wide)
        tensors[f"{LAYER}{name}.weight"] = codes
        tensors[f"{LAYER}{name}.{ending}"] = scales.reshape(()) if whole else scales
        tensors |= {f"{LAYER}{name}.{key}": value.clone() for key, value in (more or {}).items()}
    for part, own in [("gate", "gate_proj"), ("up", "up_proj"), ("down", "down_proj")]:
        if config["model_type"] == "qwen3_moe":
            each = [reference.pop(f"{LAYER}mlp.experts.{expert}.{own}.weight") for expert in range(EXPERTS)]
            reference[f"{LAYER}mlp.experts.{part}"] = torch.stack(each)
    write(folder, config, quantization, plain, tensors, reference)


def compressed(strategy, **more):
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False, "strategy": strategy,
               "observer": "minmax", **more}
    return {"quant_method": "compressed-tensors", "format": "float-quantized", "quantization_status": "compressed",
            "ignore": ["lm_head"], "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


def mxfp4(folder):
    plain, tensors, reference = others(), {}, {}
    for name, (outputs, inputs) in ATTENTION.items():
        plain[f"{LAYER}{name}.weight"] = floats(outputs, inputs)
    attention, inner = LAYER + "self_attn.", 32
    plain |= {LAYER + "mlp.router.weight": floats(EXPERTS, HIDDEN), LAYER + "mlp.router.bias": floats(EXPERTS),
              attention + "sinks": floats(HEADS)}
    biases = {LAYER + "mlp.experts.gate_up_proj_bias": floats(EXPERTS, 2 * inner),
              LAYER + "mlp.experts.down_proj_bias": floats(EXPERTS, HIDDEN)}
    for name, outputs, inputs in [("gate_up_proj", 2 * inner, HIDDEN), ("down_proj", HIDDEN, inner)]:
        blocks = integers(256, EXPERTS, outputs, inputs // 32, 16)
        scales = integers(8, EXPERTS, outputs, inputs // 32) + 118
        tensors |= {f"{LAYER}mlp.experts.{name}_blocks": blocks, f"{LAYER}mlp.experts.{name}_scales": scales}
        whole = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).transpose(1, 2)
        parts = {"gate": whole[:, 0::2], "up": whole[:, 1::2]} if name == "gate_up_proj" else {"down": whole}
        reference |= {f"{LAYER}mlp.experts.{part}": weight for part, weight in parts.items()}
    config = {**GPT_OSS, "intermediate_size": inner}
    skip = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    write(folder, config, {"quant_method": "mxfp4", "modules_to_not_convert": skip}, plain, {**tensors, **biases}, reference)


# The places of half-precision numbers in blocks whose codes are random here; the package quantizes to the other types.
HALVES = {"Q2_K": (80, 82), "Q3_K": (108,), "IQ4_XS": (0,), "IQ4_NL": (0,), "MXFP4": ()}


def gguf_types(folder):
    """A Llama of 256 features whose tensors have the types that gguf-llama does not have."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = 256
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    for add, value in [(writer.add_context_length, 64), (writer.add_embedding_length, hidden), (writer.add_block_count, 1),
                       (writer.add_feed_forward_length, 32), (writer.add_head_count, HEADS), (writer.add_head_count_kv, 1),
                       (writer.add_key_length, HEAD), (writer.add_value_length, HEAD), (writer.add_rope_freq_base, 1e4),
                       (writer.add_layer_norm_rms_eps, 1e-5)]:
        add(value)
    reference, numbers = {}, np.random.default_rng(3)

    def add(name, kind, shape, into):
        kind = gguf.GGMLQuantizationType[kind]
        if kind.name == "F32":
            writer.add_tensor(name, floats(*shape).numpy())
            return
        if kind.name in HALVES:
            elements, size = gguf.GGML_QUANT_SIZES[kind]
            packed = numbers.integers(0, 256, (shape[0], shape[1] // elements, size)).astype(np.uint8)
            for at in HALVES[kind.name]:
                half = numbers.uniform(1e-3, 1e-2, packed.shape[:2]).astype(np.float16)
                packed[..., at:at + 2] = half[..., None].view(np.uint8)
            if kind.name == "MXFP4":
                packed[..., 0] = packed[..., 0] % 8 + 118
            packed = packed.reshape(shape[0], -1)
        else:
            packed = gguf.quantize(floats(*shape).numpy(), kind)
        writer.add_tensor(name, packed, raw_dtype=kind)
        reference[into] = torch.from_numpy(gguf.dequantize(packed, kind).reshape(shape))

    block = "blk.0."
    add("token_embd.weight", "Q2_K", (VOCAB, hidden), "model.embed_tokens.weight")
    add("output.weight", "Q3_K", (VOCAB, hidden), "lm_head.weight")
    for name in ["output_norm.weight", block + "attn_norm.weight", block + "ffn_norm.weight"]:
        add(name, "F32", (hidden,), None)
    for name, rows in [("attn_q", HEADS * HEAD), ("attn_k", HEAD)]:
        add(f"{block}{name}.weight", "F32", (rows, hidden), None)
    add(block + "attn_v.weight", "IQ4_XS", (HEAD, hidden), LAYER + "self_attn.v_proj.weight")
    add(block + "attn_output.weight", "Q5_0", (hidden, HEADS * HEAD), LAYER + "self_attn.o_proj.weight")
    add(block + "ffn_gate.weight", "IQ4_NL", (32, hidden), LAYER + "mlp.gate_proj.weight")
    add(block + "ffn_up.weight", "MXFP4", (32, hidden), LAYER + "mlp.up_proj.weight")
    add(block + "ffn_down.weight", "Q5_1", (hidden, 32), LAYER + "mlp.down_proj.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(reference, folder / "reference.safetensors")


def main():
    out = Path(sys.argv[1])
    dense = {**ATTENTION, "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN), "mlp.down_proj": (HIDDEN, INNER)}
    inner = QWEN3_MOE["moe_intermediate_size"]
    experts = {f"mlp.experts.{expert}.{name}": shape for expert in range(EXPERTS) for name, shape in
               [("gate_proj", (inner, HIDDEN)), ("up_proj", (inner, HIDDEN)), ("down_proj", (HIDDEN, inner))]}
    blocks = lambda rows, columns: {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
                                    "weight_block_size": [rows, columns]}
    # Blocks that do not divide the sizes.
    fp8(out / "fp8-blocks", LLAMA, blocks(16, 24), dense, "weight_scale_inv", (16, 24))
    fp8(out / "fp8-experts", QWEN3_MOE, {**blocks(16, 16), "scale_fmt": "ue8m0"}, {**ATTENTION, **experts}, "weight_scale_inv",
        (16, 16), torch.float8_e8m0fnu)
    fp8(out / "fp8-tensor", LLAMA, {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}, dense,
        "weight_scale", (None, None), more={"input_scale": torch.tensor(0.5)}, whole=True)
    channel, block = compressed("channel"), compressed("block", block_structure=[16, 8])
    fp8(out / "compressed-tensors-fp8", LLAMA, channel, dense, "weight_scale", (1, None), torch.bfloat16)
    fp8(out / "compressed-tensors-fp8-blocks", LLAMA, block, dense, "weight_scale", (16, 8))
    mxfp4(out / "mxfp4")
    gguf_types(out / "gguf-types")


main()
