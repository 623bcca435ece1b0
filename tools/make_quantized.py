#!/usr/bin/env python3
"""Writes fixtures/quantized: a tiny Llama in the formats of quantized checkpoints, and what its weights stand for.

Each folder has a checkpoint and `reference.safetensors`: its dequantized weights in float32, by their names. Needs torch,
numpy, safetensors, gguf, tokenizers, sentencepiece, compressed-tensors and bitsandbytes:

    python3 tools/make_quantized.py fixtures/quantized fixtures/data/sentences.txt

The packages compressed-tensors and bitsandbytes pack and unpack their formats, and gguf those of GGUF files but the codes of
K types, which are random. GPTQ and AWQ are written here from integers, as AutoGPTQ (qlinear_cuda_old.py) and AutoAWQ
(gemm.py) pack them; the reference is what the integers stand for.
"""

import io
import json
import sys
from pathlib import Path

import bitsandbytes.functional as bnb
import gguf
import numpy as np
import sentencepiece
import torch
from compressed_tensors.compressors.naive_quantized import IntQuantizationCompressor
from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN, HEADS, KV_HEADS, HEAD, INNER, VOCAB = 32, 2, 1, 16, 64, 48
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "head_dim": HEAD,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "max_position_embeddings": 64,
    "num_attention_heads": HEADS,
    "num_hidden_layers": 1,
    "num_key_value_heads": KV_HEADS,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vocab_size": VOCAB,
}
LAYER = "model.layers.0."
LINEAR = {
    LAYER + "self_attn.q_proj": (HEADS * HEAD, HIDDEN),
    LAYER + "self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN),
    LAYER + "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN),
    LAYER + "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
    LAYER + "mlp.gate_proj": (INNER, HIDDEN),
    LAYER + "mlp.up_proj": (INNER, HIDDEN),
    LAYER + "mlp.down_proj": (HIDDEN, INNER),
}
random = np.random.default_rng(7)


def floats(*shape):
    return random.normal(0, 0.3, shape).astype(np.float32)


def others(hidden):
    """The tensors that are not quantized."""
    norm = lambda: (1 + random.normal(0, 0.1, hidden)).astype(np.float16)
    return {
        "model.embed_tokens.weight": floats(VOCAB, hidden).astype(np.float16),
        "lm_head.weight": floats(VOCAB, hidden).astype(np.float16),
        "model.norm.weight": norm(),
        LAYER + "input_layernorm.weight": norm(),
        LAYER + "post_attention_layernorm.weight": norm(),
    }


def write(folder, quantization, tensors, reference, config=CONFIG):
    folder.mkdir(parents=True, exist_ok=True)
    config = {**config, "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    plain = others(config["hidden_size"])
    torch_tensors = {name: torch.from_numpy(np.ascontiguousarray(t)) if isinstance(t, np.ndarray) else t.contiguous()
                     for name, t in {**plain, **tensors}.items()}
    save_torch(torch_tensors, folder / "model.safetensors")
    plain = {name: t.astype(np.float32) for name, t in plain.items()}
    save_file({**plain, **{f"{name}.weight": np.ascontiguousarray(t, np.float32) for name, t in reference.items()}},
              folder / "reference.safetensors")


def words(codes, axis, bits, order=None):
    """Codes packed along an axis into 32-bit integers, from the lowest bits on."""
    codes = np.moveaxis(codes.astype(np.uint32), axis, -1)
    per_word = 32 // bits
    codes = codes.reshape(*codes.shape[:-1], -1, per_word)[..., order or range(per_word)]
    packed = np.bitwise_or.reduce(codes << (bits * np.arange(per_word, dtype=np.uint32)), axis=-1)
    return np.ascontiguousarray(np.moveaxis(packed, -1, axis)).view(np.int32)


def integers(shape, bits, group):
    """Codes [in, out], zero points and scales [groups, out], of float16."""
    outputs, inputs = shape
    codes = random.integers(0, 2**bits, (inputs, outputs))
    zeros = random.integers(0, 2**bits, (inputs // group, outputs))
    scales = random.uniform(0.01, 0.1, (inputs // group, outputs)).astype(np.float16)
    return codes, zeros, scales


def gptq(folder, bits, group, act_order=False, v2=False):
    tensors, reference = {}, {}
    for name, shape in LINEAR.items():
        size = shape[1] if group == -1 else group
        codes, zeros, scales = integers(shape, bits, size)
        index = np.arange(shape[1]) // size
        if act_order:
            index = random.permutation(index)
        tensors[f"{name}.qweight"] = words(codes, 0, bits)
        tensors[f"{name}.qzeros"] = words(zeros if v2 else (zeros - 1) % 2**bits, 1, bits)
        tensors[f"{name}.scales"] = scales
        tensors[f"{name}.g_idx"] = index.astype(np.int32)
        reference[name] = ((codes - zeros[index]) * scales.astype(np.float32)[index]).T
    write(folder, {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order, "sym": False,
                   "checkpoint_format": "gptq_v2" if v2 else "gptq"}, tensors, reference)


def awq(folder):
    tensors, reference = {}, {}
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    for name, shape in LINEAR.items():
        codes, zeros, scales = integers(shape, 4, 16)
        tensors[f"{name}.qweight"] = words(codes, 1, 4, order)
        tensors[f"{name}.qzeros"] = words(zeros, 1, 4, order)
        tensors[f"{name}.scales"] = scales
        index = np.arange(shape[1]) // 16
        reference[name] = ((codes - zeros[index]) * scales.astype(np.float32)[index]).T
    write(folder, {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm", "zero_point": True},
          tensors, reference)


def compressed_tensors(folder, compressor, layout, arguments, symmetric):
    tensors, reference = {}, {}
    args = QuantizationArgs(symmetric=symmetric, type="int", **arguments)
    scheme = QuantizationScheme(targets=["Linear"], weights=args)
    low, high = -(2 ** (args.num_bits - 1)), 2 ** (args.num_bits - 1) - 1
    for name, shape in LINEAR.items():
        groups = shape[1] // arguments.get("group_size", shape[1])
        state = {"weight": torch.from_numpy(floats(*shape)), "weight_scale": torch.from_numpy(
            random.uniform(0.02, 0.1, (shape[0], groups)).astype(np.float32))}
        if not symmetric:
            zeros = random.integers(low, high + 1, (shape[0], groups)).astype(np.int8)
            state["weight_zero_point"] = torch.from_numpy(zeros)
        state = compressor.compress(state, scheme)
        tensors |= {f"{name}.{key}": tensor for key, tensor in state.items()}
        reference[name] = compressor.decompress(state, scheme)["weight"].numpy()
    config = {"quant_method": "compressed-tensors", "format": layout, "quantization_status": "compressed",
              "ignore": ["lm_head"], "config_groups": {"group_0": json.loads(scheme.model_dump_json())}}
    write(folder, config, tensors, reference)


def bitsandbytes(folder, kind, nested):
    """Rows have a whole number of blocks: bitsandbytes' kernel for processors takes the scale of the first of others."""
    tensors, reference = {}, {}
    wide = lambda size: 64 if size == HIDDEN else size
    for name, shape in LINEAR.items():
        shape = tuple(map(wide, shape))
        codes, state = bnb.quantize_4bit(torch.from_numpy(floats(*shape)), blocksize=64, quant_type=kind,
                                         compress_statistics=nested)
        tensors[f"{name}.weight"] = codes
        tensors |= {f"{name}.weight.{key}": tensor for key, tensor in state.as_dict(packed=True).items()}
        reference[name] = bnb.dequantize_4bit(codes, state).numpy()
    write(folder, {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind,
                   "bnb_4bit_use_double_quant": nested, "bnb_4bit_quant_storage": "uint8",
                   "bnb_4bit_compute_dtype": "float32"}, tensors, reference,
          {**CONFIG, "hidden_size": 64, "num_attention_heads": 4})


# The byte of the whole scale of a block of a K type, and of its minimum.
K_SCALES = {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208, None)}


def ggml(kind, shape):
    """A tensor of a type: its bytes, and the numbers that they stand for."""
    kind = gguf.GGMLQuantizationType[kind]
    if kind.name not in K_SCALES:
        packed = gguf.quantize(floats(*shape), kind)
        return packed, gguf.dequantize(packed, kind)
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (shape[0], shape[1] // elements, size)).astype(np.uint8)
    for at in K_SCALES[kind.name]:
        if at is not None:
            scale = random.uniform(1e-4, 1e-3, blocks.shape[:2]).astype(np.float16)
            blocks[..., at:at + 2] = scale[..., None].view(np.uint8)
    packed = blocks.reshape(shape[0], -1)
    return packed, gguf.dequantize(packed, kind)


def unpermuted(weight, heads):
    """The rows of queries and keys as the transformers library has them: halves, not pairs, of each head."""
    rows = weight.shape[0] // heads // 2
    return weight.reshape(heads, rows, 2, -1).swapaxes(1, 2).reshape(weight.shape)


def gguf_llama(folder, sentences):
    """A Llama whose tensors have many types, with a tokenizer of sentencepiece."""
    folder.mkdir(parents=True, exist_ok=True)
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=stream, model_type="bpe", vocab_size=340, byte_fallback=True,
        character_coverage=1.0, normalization_rule_name="identity", remove_extra_whitespaces=False, minloglevel=2)
    processor = sentencepiece.SentencePieceProcessor(model_proto=stream.getvalue())
    vocabulary, hidden, inner = processor.vocab_size(), 256, 32
    path = folder / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("Tiny Llama")
    writer.add_vocab_size(vocabulary)
    writer.add_context_length(64)
    writer.add_embedding_length(hidden)
    writer.add_block_count(1)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    pieces = [processor.id_to_piece(i) for i in range(vocabulary)]
    kinds = [gguf.TokenType.UNKNOWN if processor.is_unknown(i) else gguf.TokenType.CONTROL if processor.is_control(i)
             else gguf.TokenType.BYTE if processor.is_byte(i) else gguf.TokenType.NORMAL for i in range(vocabulary)]
    writer.add_token_list(pieces)
    writer.add_token_scores([processor.get_score(i) for i in range(vocabulary)])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_chat_template("{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}")
    reference = {}

    def add(name, kind, shape, into, change=lambda weight: weight):
        packed, numbers = ggml(kind, shape)
        kind = gguf.GGMLQuantizationType[kind]
        typed = {"F32": np.float32, "F16": np.float16}.get(kind.name)
        writer.add_tensor(name, packed.view(typed).reshape(shape) if typed else packed, raw_dtype=None if typed else kind)
        reference[into] = np.ascontiguousarray(change(numbers.reshape(shape)))

    block = "blk.0."
    add("token_embd.weight", "Q6_K", (vocabulary, hidden), "model.embed_tokens.weight")
    add("output.weight", "Q8_0", (vocabulary, hidden), "lm_head.weight")
    add("output_norm.weight", "F32", (hidden,), "model.norm.weight")
    add(block + "attn_norm.weight", "F32", (hidden,), LAYER + "input_layernorm.weight")
    add(block + "ffn_norm.weight", "F32", (hidden,), LAYER + "post_attention_layernorm.weight")
    add(block + "attn_q.weight", "Q4_K", (HEADS * HEAD, hidden), LAYER + "self_attn.q_proj.weight",
        lambda weight: unpermuted(weight, HEADS))
    add(block + "attn_k.weight", "Q5_K", (KV_HEADS * HEAD, hidden), LAYER + "self_attn.k_proj.weight",
        lambda weight: unpermuted(weight, KV_HEADS))
    add(block + "attn_v.weight", "Q6_K", (KV_HEADS * HEAD, hidden), LAYER + "self_attn.v_proj.weight")
    add(block + "attn_output.weight", "BF16", (hidden, HEADS * HEAD), LAYER + "self_attn.o_proj.weight")
    add(block + "ffn_gate.weight", "Q4_0", (inner, hidden), LAYER + "mlp.gate_proj.weight")
    add(block + "ffn_up.weight", "Q4_1", (inner, hidden), LAYER + "mlp.up_proj.weight")
    add(block + "ffn_down.weight", "F16", (hidden, inner), LAYER + "mlp.down_proj.weight")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    save_file(reference, folder / "reference.safetensors")
    texts = ["The quick brown fox", " two  spaces", "naïve 日本 🙂", sentences[3], "a\nb\tc", ""]
    expected = {text: [1] + processor.encode(text) for text in texts}
    (folder / "tokens.json").write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n")


SPLITS = {
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def gguf_vocabulary(folder, sentences, pre):
    """A file with a byte-level tokenizer; the smallest model around it."""
    from tokenizers import Regex
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    if pre in SPLITS:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(SPLITS[pre]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(sentences, trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|end|>"], show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    writer = gguf.GGUFWriter(folder / f"{pre}.gguf", "qwen2")
    for add, value in [(writer.add_context_length, 32), (writer.add_embedding_length, 8), (writer.add_block_count, 1),
                       (writer.add_feed_forward_length, 8), (writer.add_head_count, 1), (writer.add_head_count_kv, 1),
                       (writer.add_layer_norm_rms_eps, 1e-6), (writer.add_rope_freq_base, 10000.0),
                       (writer.add_tokenizer_model, "gpt2"), (writer.add_tokenizer_pre, pre), (writer.add_token_list, tokens),
                       (writer.add_token_types, [gguf.TokenType.CONTROL if t == "<|end|>" else gguf.TokenType.NORMAL for t in tokens]),
                       (writer.add_token_merges, [" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"]]),
                       (writer.add_eos_token_id, 0), (writer.add_add_bos_token, False)]:
        add(value)
    writer.add_tensor("token_embd.weight", floats(len(tokens), 8).astype(np.float16))
    for name, shape in [("output_norm.weight", (8,)), ("blk.0.attn_norm.weight", (8,)), ("blk.0.ffn_norm.weight", (8,)),
                        ("blk.0.attn_q.weight", (8, 8)), ("blk.0.attn_k.weight", (8, 8)), ("blk.0.attn_v.weight", (8, 8)),
                        ("blk.0.attn_q.bias", (8,)), ("blk.0.attn_k.bias", (8,)), ("blk.0.attn_v.bias", (8,)),
                        ("blk.0.attn_output.weight", (8, 8)), ("blk.0.ffn_gate.weight", (8, 8)),
                        ("blk.0.ffn_up.weight", (8, 8)), ("blk.0.ffn_down.weight", (8, 8))]:
        writer.add_tensor(name, floats(*shape))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    texts = ["The quick brown fox's 12345 jumps!", "  indented\n\n\tlines", "naïve 日本 🙂", sentences[7], "a<|end|>b"]
    (folder / f"{pre}.json").write_text(
        json.dumps({text: tokenizer.encode(text).ids for text in texts}, indent=1, ensure_ascii=False) + "\n")


def main():
    out, sentences = Path(sys.argv[1]), Path(sys.argv[2]).read_text().splitlines()
    gptq(out / "gptq", 4, 16)
    gptq(out / "gptq-2bits-rows", 2, -1)
    gptq(out / "gptq-8bits-v2", 8, 32, v2=True)
    gptq(out / "gptq-act-order", 4, 8, act_order=True)
    awq(out / "awq")
    group = {"num_bits": 4, "strategy": "group", "group_size": 16}
    compressed_tensors(out / "compressed-tensors", PackedQuantizationCompressor, "pack-quantized", group, True)
    compressed_tensors(out / "compressed-tensors-zero-points", PackedQuantizationCompressor, "pack-quantized", group, False)
    channel = {"num_bits": 8, "strategy": "channel"}
    compressed_tensors(out / "compressed-tensors-8bits", PackedQuantizationCompressor, "pack-quantized", channel, True)
    compressed_tensors(out / "compressed-tensors-int8", IntQuantizationCompressor, "int-quantized", channel, False)
    bitsandbytes(out / "bitsandbytes-nf4", "nf4", False)
    bitsandbytes(out / "bitsandbytes-fp4-nested", "fp4", True)
    gguf_llama(out / "gguf-llama", sentences)
    for pre in ["gpt-2", "llama-bpe", "qwen2"]:
        gguf_vocabulary(out / "gguf-vocabularies", sentences, pre)


main()
