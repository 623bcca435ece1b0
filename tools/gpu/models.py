"""BERT, GPT-2 and Llama as plain PyTorch modules that load the checkpoints of `checkpoints`, to compare planish with.

Batches have no padding, so the modules take no mask; planish takes one and computes with it. `how` is how attention is
computed: `written` is products and a softmax, `sdpa` PyTorch's scaled_dot_product_attention.
"""

import json
from pathlib import Path
from typing import Dict, List, Tuple

import torch
from torch import nn
from torch.nn import functional

from . import safetensors

TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "BOOL": torch.bool}


def read(path: Path) -> Dict[str, torch.Tensor]:
    """All tensors of a file."""
    entries, start = safetensors.read_header(path)
    size = start + max((entry.end for entry in entries), default=0)
    data = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
    # A copy begins at an address that any type may have.
    piece = lambda entry: data[start + entry.begin : start + entry.end].clone()
    return {entry.name: piece(entry).view(TYPES[entry.dtype]).reshape(entry.shape) for entry in entries}


def attend(q, k, v, how: str, causal: bool):
    """Attention of [batch, heads, tokens, size]; heads of keys may be fewer."""
    if how == "sdpa":
        return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1])
    if q.shape[1] != k.shape[1]:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    return torch.softmax(scores, -1) @ v


class BertLayer(nn.Module):
    def __init__(self, config: Dict):
        super().__init__()
        hidden, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.query, self.key, self.value, self.output = (nn.Linear(hidden, hidden) for _ in range(4))
        self.intermediate = nn.Linear(hidden, config["intermediate_size"])
        self.down = nn.Linear(config["intermediate_size"], hidden)
        self.attention_norm, self.norm = (nn.LayerNorm(hidden, config["layer_norm_eps"]) for _ in range(2))

    def forward(self, x, how: str):
        batch, length, hidden = x.shape
        apart = lambda y: y.view(batch, length, self.heads, hidden // self.heads).transpose(1, 2)
        y = attend(apart(self.query(x)), apart(self.key(x)), apart(self.value(x)), how, causal=False)
        x = self.attention_norm(x + self.output(y.transpose(1, 2).reshape(batch, length, hidden)))
        return self.norm(x + self.down(functional.gelu(self.intermediate(x))))


class Bert(nn.Module):
    """BertModel: the hidden states, and the pooled first one."""

    inputs = ("input_ids", "token_type_ids")
    outputs = ("last_hidden_state", "pooler_output")

    def __init__(self, config: Dict, how: str):
        super().__init__()
        self.config, self.how, hidden = config, how, config["hidden_size"]
        self.words = nn.Embedding(config["vocab_size"], hidden)
        self.positions = nn.Embedding(config["max_position_embeddings"], hidden)
        self.types = nn.Embedding(config["type_vocab_size"], hidden)
        self.norm = nn.LayerNorm(hidden, config["layer_norm_eps"])
        self.layers = nn.ModuleList(BertLayer(config) for _ in range(config["num_hidden_layers"]))
        self.pooler = nn.Linear(hidden, hidden)

    def forward(self, input_ids, token_type_ids):
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.norm(self.words(input_ids) + self.types(token_type_ids) + self.positions(positions))
        for layer in self.layers:
            x = layer(x, self.how)
        return x, torch.tanh(self.pooler(x[:, 0]))

    NAMES = {
        "embeddings.word_embeddings": "words", "embeddings.position_embeddings": "positions",
        "embeddings.token_type_embeddings": "types", "embeddings.LayerNorm": "norm", "pooler.dense": "pooler",
        "encoder.layer.": "layers.", "attention.self.": "", "attention.output.dense": "output",
        "attention.output.LayerNorm": "attention_norm", "intermediate.dense": "intermediate", "output.dense": "down",
        "output.LayerNorm": "norm",
    }


class Conv1d(nn.Module):
    """A linear layer whose weight is stored as [inputs, outputs]."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(inputs, outputs)), nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Gpt2Layer(nn.Module):
    def __init__(self, config: Dict):
        super().__init__()
        hidden, inner, self.heads = config["n_embd"], config["n_inner"], config["n_head"]
        self.ln_1, self.ln_2 = (nn.LayerNorm(hidden, config["layer_norm_epsilon"]) for _ in range(2))
        self.c_attn, self.attn_proj = Conv1d(hidden, 3 * hidden), Conv1d(hidden, hidden)
        self.c_fc, self.mlp_proj = Conv1d(hidden, inner), Conv1d(inner, hidden)

    def forward(self, x, how: str):
        batch, length, hidden = x.shape
        parts = self.c_attn(self.ln_1(x)).split(hidden, -1)
        q, k, v = (y.view(batch, length, self.heads, hidden // self.heads).transpose(1, 2) for y in parts)
        y = attend(q, k, v, how, causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.mlp_proj(functional.gelu(self.c_fc(self.ln_2(x)), approximate="tanh")), k, v


class Gpt2(nn.Module):
    """GPT2LMHeadModel on a prompt: the logits of all tokens, and the keys and values of each layer."""

    inputs = ("input_ids",)
    outputs = ("logits",)

    def __init__(self, config: Dict, how: str):
        super().__init__()
        self.config, self.how = config, how
        self.wte = nn.Embedding(config["vocab_size"], config["n_embd"])
        self.wpe = nn.Embedding(config["n_positions"], config["n_embd"])
        self.layers = nn.ModuleList(Gpt2Layer(config) for _ in range(config["n_layer"]))
        self.ln_f = nn.LayerNorm(config["n_embd"], config["layer_norm_epsilon"])

    def forward(self, input_ids):
        x = self.wte(input_ids) + self.wpe(torch.arange(input_ids.shape[1], device=input_ids.device))
        cache: List[torch.Tensor] = []
        for layer in self.layers:
            x, k, v = layer(x, self.how)
            cache += [k, v]
        return (functional.linear(self.ln_f(x), self.wte.weight), *cache)

    NAMES = {"transformer.h.": "layers.", "transformer.": "", "attn.c_attn": "c_attn", "attn.c_proj": "attn_proj",
             "mlp.c_fc": "c_fc", "mlp.c_proj": "mlp_proj"}


class RmsNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.empty(size)), eps

    def forward(self, x):
        return functional.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class LlamaLayer(nn.Module):
    def __init__(self, config: Dict):
        super().__init__()
        hidden, inner, self.size = config["hidden_size"], config["intermediate_size"], config["head_dim"]
        keys = config["num_key_value_heads"] * self.size
        sizes = {"q_proj": (hidden, hidden), "k_proj": (hidden, keys), "v_proj": (hidden, keys), "o_proj": (hidden, hidden),
                 "gate_proj": (hidden, inner), "up_proj": (hidden, inner), "down_proj": (inner, hidden)}
        for name, (inputs, outputs) in sizes.items():
            setattr(self, name, nn.Linear(inputs, outputs, bias=False))
        self.input_layernorm, self.post_attention_layernorm = (RmsNorm(hidden, config["rms_norm_eps"]) for _ in range(2))

    def forward(self, x, cos, sin, keys, values, past: int, how: str):
        """`keys` and `values` [batch, heads, room, size] have `past` tokens, and get those of x after them."""
        batch, length, hidden = x.shape
        y = self.input_layernorm(x)
        apart = lambda z: z.view(batch, length, -1, self.size).transpose(1, 2)
        q, k = rotate(apart(self.q_proj(y)), cos, sin), rotate(apart(self.k_proj(y)), cos, sin)
        total = past + length
        keys[:, :, past:total], values[:, :, past:total] = k, apart(self.v_proj(y))
        y = attend(q, keys[:, :, :total], values[:, :, :total], how, causal=past == 0)
        x = x + self.o_proj(y.transpose(1, 2).reshape(batch, length, hidden))
        y = self.post_attention_layernorm(x)
        return x + self.down_proj(functional.silu(self.gate_proj(y)) * self.up_proj(y))


def rotate(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class Llama(nn.Module):
    """LlamaForCausalLM with a cache that has room for all tokens, so that a step copies no keys and values."""

    outputs = ("logits",)

    def __init__(self, config: Dict, how: str):
        super().__init__()
        self.config, self.how = config, how
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(LlamaLayer(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RmsNorm(config["hidden_size"], config["rms_norm_eps"])
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)

    def cache(self, batch: int, room: int) -> List[Tuple[torch.Tensor, torch.Tensor]]:
        weight, config = self.lm_head.weight, self.config
        shape = (batch, config["num_key_value_heads"], room, config["head_dim"])
        empty = lambda: torch.randn(shape, device=weight.device).to(weight.dtype)
        return [(empty(), empty()) for _ in self.layers]

    def angles(self, past: int, length: int):
        """Cosines and sines of the positions, in the type of the weights."""
        weight, size = self.lm_head.weight, self.config["head_dim"]
        theta = self.config["rope_parameters"]["rope_theta"]
        rates = theta ** (-torch.arange(0, size, 2, device=weight.device, dtype=torch.float32) / size)
        angles = torch.arange(past, past + length, device=weight.device, dtype=torch.float32)[:, None] * rates
        angles = torch.cat((angles, angles), -1)
        return angles.cos().to(weight.dtype), angles.sin().to(weight.dtype)

    def forward(self, input_ids, cos, sin, cache, past: int):
        x = self.embed_tokens(input_ids)
        for layer, (keys, values) in zip(self.layers, cache):
            x = layer(x, cos, sin, keys, values, past, self.how)
        return self.lm_head(self.norm(x))

    NAMES = {"model.": "", "self_attn.": "", "mlp.": ""}


KINDS = {"bert": Bert, "gpt2": Gpt2, "llama": Llama}


def renamed(name: str, names: Dict[str, str]) -> str:
    """The name of a tensor of a checkpoint as the module has it; the first part that is found is replaced, one by one."""
    for old, new in names.items():
        name = name.replace(old, new)
    return name


def load(folder: Path, dtype: torch.dtype, device: str, how: str = "sdpa") -> nn.Module:
    """The model of a checkpoint, for inference."""
    config = json.loads((folder / "config.json").read_text())
    kind = KINDS[config["model_type"]]
    with torch.device("meta"):
        module = kind(config, how)
    weights = {renamed(name, kind.NAMES): tensor for name, tensor in read(folder / "model.safetensors").items()}
    weights = {name: tensor.to(device=device, dtype=dtype) for name, tensor in weights.items()}
    module.load_state_dict(weights, assign=True, strict=True)
    return module.requires_grad_(False).eval()
