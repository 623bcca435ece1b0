"""Small ONNX graphs of one operator, written with the standard library alone.

The bytes are those of protobuf messages of onnx.proto: a field is its number and kind, then its value.
"""

import struct
from array import array
from pathlib import Path
from typing import List, Sequence, Tuple, Union

FLOAT, INT64 = 1, 7
Attribute = Union[int, float, Sequence[int]]


def varint(number: int) -> bytes:
    out = bytearray()
    while True:
        number, low = number >> 7, number & 0x7F
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def field(number: int, value: Union[int, bytes, str]) -> bytes:
    """A field that is an integer, or bytes with their length in front."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        return field(1, name) + varint(2 << 3 | 5) + struct.pack("<f", value) + field(20, 1)
    if isinstance(value, int):
        return field(1, name) + field(3, value) + field(20, 2)
    return field(1, name) + b"".join(field(8, one) for one in value) + field(20, 7)


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Attribute) -> bytes:
    data = b"".join(field(1, name) for name in inputs) + b"".join(field(2, name) for name in outputs)
    data += field(3, outputs[0]) + field(4, operator)
    return data + b"".join(field(5, attribute(name, value)) for name, value in attributes.items())


def port(name: str, shape: Sequence[Union[int, str]]) -> bytes:
    """An input or output of floats; a dimension that is a text is open."""
    dims = b"".join(field(1, field(1, d) if isinstance(d, int) else field(2, d)) for d in shape)
    return field(1, name) + field(2, field(1, field(1, FLOAT) + field(2, dims)))


def weight(name: str, values: Sequence[float]) -> bytes:
    return field(1, len(values)) + field(2, FLOAT) + field(8, name) + field(9, array("f", values).tobytes())


def numbers(name: str, values: Sequence[int]) -> bytes:
    return field(1, len(values)) + field(2, INT64) + field(8, name) + field(9, array("q", values).tobytes())


def model(nodes: List[bytes], inputs: List[bytes], outputs: List[bytes], weights: List[bytes], opset: int) -> bytes:
    graph = b"".join(field(1, one) for one in nodes) + field(2, "graph") + b"".join(field(5, one) for one in weights)
    graph += b"".join(field(11, one) for one in inputs) + b"".join(field(12, one) for one in outputs)
    return field(1, 10) + field(2, "gpu_check") + field(7, graph) + field(8, field(1, "") + field(2, opset))


TOKENS = ("batch_size", "sequence_length")
# -1 in 64 bits.
LAST = 2**64 - 1


def attention(path: Path, heads: int, size: int) -> None:
    """Attention of queries, keys and values [batch, tokens, heads x size] without a mask, as exporters write it: planish
    makes one operator of it."""
    width = heads * size
    orders = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
    nodes = []
    for name, order in orders.items():
        nodes += [node("Reshape", [name, "apart"], [f"{name}4"]), node("Transpose", [f"{name}4"], [f"{name}t"], perm=order)]
    nodes += [
        node("MatMul", ["qt", "kt"], ["products"]), node("Mul", ["products", "scale"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=LAST), node("MatMul", ["shares", "vt"], ["ot"]),
        node("Transpose", ["ot"], ["o4"], perm=[0, 2, 1, 3]), node("Reshape", ["o4", "together"], ["y"]),
    ]
    weights = [numbers("apart", [0, 0, heads, size]), numbers("together", [0, 0, width]), weight("scale", [size**-0.5])]
    inputs = [port(name, (*TOKENS, width)) for name in orders]
    path.write_bytes(model(nodes, inputs, [port("y", (*TOKENS, width))], weights, 20))


def layer_norm(path: Path, width: int) -> None:
    """The norm of a sum, as transformers have it after each layer."""
    nodes = [node("Add", ["x", "r"], ["s"]), node("LayerNormalization", ["s", "w", "b"], ["y"], axis=LAST, epsilon=1e-5)]
    weights = [weight("w", [1 + 0.01 * (i % 7) for i in range(width)]), weight("b", [0.01 * (i % 5) for i in range(width)])]
    inputs = [port(name, (*TOKENS, width)) for name in "xr"]
    path.write_bytes(model(nodes, inputs, [port("y", (*TOKENS, width))], weights, 20))


def softmax(path: Path, width: int) -> None:
    """Softmax along rows, as a graph of single operators writes it, which planish makes one operator."""
    nodes = [node("Softmax", ["x"], ["y"], axis=LAST)]
    path.write_bytes(model(nodes, [port("x", (*TOKENS, width))], [port("y", (*TOKENS, width))], [], 20))


def shapes_of(name: str) -> Tuple[str, ...]:
    """The inputs of a graph by its name."""
    return {"attention": ("q", "k", "v"), "layer-norm": ("x", "r"), "softmax": ("x",)}[name]
