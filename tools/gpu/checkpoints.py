"""Checkpoints with random weights, as Hugging Face's transformers writes them, with the standard library alone."""

import json
import random
from array import array
from pathlib import Path
from typing import Dict, List, NamedTuple, Tuple

from . import safetensors

# Weights repeat after this prime number of elements, so that no two rows of a matrix are equal.
PERIOD = 1_000_003
DEVIATION = 0.02
DTYPES = {"float32": "F32", "bfloat16": "BF16"}


class Tensor(NamedTuple):
    """A tensor of a checkpoint; its elements are spread around the mean."""

    name: str
    shape: Tuple[int, ...]
    mean: float = 0.0


def bert(hidden: int, layers: int, heads: int, inner: int, vocabulary: int, positions: int) -> Dict:
    """The configuration of a BertModel."""
    return {
        "architectures": ["BertModel"], "model_type": "bert", "dtype": "float32", "hidden_act": "gelu",
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "intermediate_size": inner,
        "vocab_size": vocabulary, "max_position_embeddings": positions, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
        "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "initializer_range": DEVIATION,
        "pad_token_id": 0, "tie_word_embeddings": True, "is_decoder": False, "use_cache": True,
    }


def gpt2(hidden: int, layers: int, heads: int, inner: int, vocabulary: int, positions: int) -> Dict:
    """The configuration of a GPT2LMHeadModel."""
    return {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "dtype": "float32", "activation_function": "gelu_new",
        "n_embd": hidden, "n_layer": layers, "n_head": heads, "n_inner": inner, "vocab_size": vocabulary,
        "n_positions": positions, "layer_norm_epsilon": 1e-5, "initializer_range": DEVIATION, "attn_pdrop": 0.1,
        "embd_pdrop": 0.1, "resid_pdrop": 0.1, "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
        "reorder_and_upcast_attn": False, "tie_word_embeddings": True, "use_cache": True,
        "bos_token_id": vocabulary - 1, "eos_token_id": vocabulary - 1, "pad_token_id": None,
    }


def llama(hidden: int, layers: int, heads: int, kv_heads: int, inner: int, vocabulary: int, positions: int) -> Dict:
    """The configuration of a LlamaForCausalLM."""
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "hidden_act": "silu",
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": hidden // heads, "intermediate_size": inner,
        "vocab_size": vocabulary, "max_position_embeddings": positions, "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "attention_bias": False, "mlp_bias": False,
        "attention_dropout": 0.0, "pretraining_tp": 1, "initializer_range": DEVIATION, "tie_word_embeddings": False,
        "use_cache": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": None,
    }


# Llama takes more positions than TinyLlama's 2048, so that a step after 2048 tokens is possible.
CONFIGS = {
    "bert-base": bert(768, 12, 12, 3072, 30522, 512),
    "gpt2": gpt2(768, 12, 12, 3072, 50257, 1024),
    "llama-1.1b": llama(2048, 22, 32, 4, 5632, 32000, 4096),
    # One layer, so that the head is most of the work.
    "gpt2-head": gpt2(768, 1, 12, 3072, 50257, 1024),
}
SMALL = {
    "bert-base": bert(64, 2, 4, 128, 131, 64),
    "gpt2": gpt2(64, 2, 4, 128, 137, 64),
    "llama-1.1b": llama(64, 2, 4, 2, 96, 139, 64),
    "gpt2-head": gpt2(64, 1, 4, 128, 137, 64),
}


def tensors(config: Dict) -> List[Tensor]:
    """The tensors of a checkpoint by its configuration."""
    return {"bert": bert_tensors, "gpt2": gpt2_tensors, "llama": llama_tensors}[config["model_type"]](config)


def norm(name: str, size: int) -> List[Tensor]:
    return [Tensor(f"{name}.weight", (size,), 1.0), Tensor(f"{name}.bias", (size,))]


def bert_tensors(config: Dict) -> List[Tensor]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]

    def linear(name: str, outputs: int, inputs: int) -> List[Tensor]:
        return [Tensor(f"{name}.weight", (outputs, inputs)), Tensor(f"{name}.bias", (outputs,))]

    rows = {"word": "vocab_size", "position": "max_position_embeddings", "token_type": "type_vocab_size"}
    all_of = [Tensor(f"embeddings.{name}_embeddings.weight", (config[key], hidden)) for name, key in rows.items()]
    all_of += norm("embeddings.LayerNorm", hidden)
    for number in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{number}"
        for name in ("query", "key", "value"):
            all_of += linear(f"{layer}.attention.self.{name}", hidden, hidden)
        all_of += linear(f"{layer}.attention.output.dense", hidden, hidden)
        all_of += norm(f"{layer}.attention.output.LayerNorm", hidden)
        all_of += linear(f"{layer}.intermediate.dense", inner, hidden)
        all_of += linear(f"{layer}.output.dense", hidden, inner)
        all_of += norm(f"{layer}.output.LayerNorm", hidden)
    return all_of + linear("pooler.dense", hidden, hidden)


def gpt2_tensors(config: Dict) -> List[Tensor]:
    hidden, inner = config["n_embd"], config["n_inner"]

    def conv1d(name: str, inputs: int, outputs: int) -> List[Tensor]:
        return [Tensor(f"{name}.weight", (inputs, outputs)), Tensor(f"{name}.bias", (outputs,))]

    all_of = [Tensor("transformer.wte.weight", (config["vocab_size"], hidden))]
    all_of.append(Tensor("transformer.wpe.weight", (config["n_positions"], hidden)))
    for number in range(config["n_layer"]):
        layer = f"transformer.h.{number}"
        all_of += norm(f"{layer}.ln_1", hidden) + conv1d(f"{layer}.attn.c_attn", hidden, 3 * hidden)
        all_of += conv1d(f"{layer}.attn.c_proj", hidden, hidden) + norm(f"{layer}.ln_2", hidden)
        all_of += conv1d(f"{layer}.mlp.c_fc", hidden, inner) + conv1d(f"{layer}.mlp.c_proj", inner, hidden)
    return all_of + norm("transformer.ln_f", hidden)


def llama_tensors(config: Dict) -> List[Tensor]:
    hidden, inner, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    keys = config["head_dim"] * config["num_key_value_heads"]
    all_of = [Tensor("model.embed_tokens.weight", (vocabulary, hidden)), Tensor("lm_head.weight", (vocabulary, hidden))]
    all_of.append(Tensor("model.norm.weight", (hidden,), 1.0))
    shapes = {
        "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (keys, hidden), "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    for number in range(config["num_hidden_layers"]):
        layer = f"model.layers.{number}"
        all_of += [Tensor(f"{layer}.{name}.weight", shape) for name, shape in shapes.items()]
        all_of += [Tensor(f"{layer}.{name}.weight", (hidden,), 1.0) for name in ("input_layernorm", "post_attention_layernorm")]
    return all_of


def elements(all_of: List[Tensor]) -> int:
    total = 0
    for tensor in all_of:
        size = 1
        for dimension in tensor.shape:
            size *= dimension
        total += size
    return total


def block(mean: float, dtype: str, seed: int, period: int = PERIOD) -> memoryview:
    """The bytes of random numbers, normally distributed; bfloat16 takes the upper halves of float32."""
    numbers = random.Random(seed)
    full = array("f", (numbers.gauss(mean, DEVIATION) for _ in range(period))).tobytes()
    if dtype == "F32":
        return memoryview(full)
    upper = bytearray(len(full) // 2)
    upper[0::2], upper[1::2] = full[2::4], full[3::4]
    return memoryview(bytes(upper))


def write(folder: Path, config: Dict, seed: int = 1, period: int = PERIOD) -> int:
    """Writes config.json and model.safetensors; returns the number of weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    all_of, dtype = tensors(config), DTYPES[config["dtype"]]
    entries = safetensors.layout((tensor.name, dtype, tensor.shape) for tensor in all_of)
    blocks = {mean: block(mean, dtype, seed, period) for mean in (0.0, 1.0)}
    at, partial = 0, folder / "model.safetensors.tmp"
    with open(partial, "wb") as file:
        file.write(safetensors.header(entries))
        for tensor, entry in zip(all_of, entries):
            data, left = blocks[tensor.mean], entry.end - entry.begin
            while left:
                piece = data[at : at + left]
                file.write(piece)
                left -= len(piece)
                at = (at + len(piece)) % len(data)
    partial.replace(folder / "model.safetensors")
    return elements(all_of)
