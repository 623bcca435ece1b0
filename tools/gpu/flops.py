"""How much work a model is: operations of matrix products, and bytes that a step reads.

An operation is a multiplication or an addition, so a product of [m, k] and [k, n] has 2 m k n. Only matrix products count:
those of linear layers, the two of attention, and the head over the vocabulary without padding. Norms, softmax and
activations do not. Causal attention counts the pairs of tokens that take part, n (n + 1) / 2 of n tokens, not n^2.
"""

from typing import Dict

from . import checkpoints

FORMULA = (
    "FLOPs are those of matrix products alone, 2 m k n each. With T = batch x n tokens, hidden size h, inner size i, "
    "l layers and vocabulary V, BERT has l (2 T (4 h^2 + 2 h i) + 4 batch n^2 h) + 2 batch h^2, and GPT-2 "
    "l (2 T (4 h^2 + 2 h i) + 2 batch n (n + 1) h) + 2 T h V: causal attention counts the pairs that take part, and "
    "the vocabulary has no padding. MFU = FLOPs / time / measured peak."
)


def forward(config: Dict, batch: int, length: int) -> int:
    """The operations of a run on `batch` rows of `length` tokens."""
    tokens = batch * length
    if config["model_type"] == "bert":
        hidden, inner, layers = config["hidden_size"], config["intermediate_size"], config["num_hidden_layers"]
        layer = 2 * tokens * (4 * hidden**2 + 2 * hidden * inner) + 4 * batch * length**2 * hidden
        return layers * layer + 2 * batch * hidden**2
    hidden, inner, layers = config["n_embd"], config["n_inner"], config["n_layer"]
    layer = 2 * tokens * (4 * hidden**2 + 2 * hidden * inner) + 2 * batch * length * (length + 1) * hidden
    return layers * layer + 2 * tokens * hidden * config["vocab_size"]


def step_bytes(config: Dict, past: int, size: int) -> Dict[str, int]:
    """The bytes that one step of a Llama with one row reads: all weights except the table of the embedding, of which it
    takes one row, and the keys and values of all tokens with its own."""
    weights = checkpoints.elements(checkpoints.llama_tensors(config))
    weights -= (config["vocab_size"] - 1) * config["hidden_size"]
    keys = config["num_key_value_heads"] * config["head_dim"] * 2 * config["num_hidden_layers"] * (past + 1)
    return {"weights": weights * size, "cache": keys * size}
