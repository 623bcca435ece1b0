"""ONNX graphs with random weights that are no transformers: a convolutional network and an LSTM for texts."""

from pathlib import Path

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17


class Builder:
    """Nodes and weights of a graph."""

    def __init__(self, seed: int):
        self.random = numpy.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def weight(self, name, *shape):
        """Normal numbers whose scale keeps the magnitude of results."""
        scale = numpy.sqrt(2.0 / numpy.prod(shape[1:])) if len(shape) > 1 else 0.02
        self.weights.append(numpy_helper.from_array((self.random.normal(0, scale, shape)).astype(numpy.float32), name))
        return name

    def node(self, op, inputs, name, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def save(self, path: Path, inputs, output):
        declared = helper.make_tensor_value_info(output, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, path.stem, inputs, [declared], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
        onnx.save(model, path)


def cnn(path: Path):
    """A residual network of the size of ResNet-18: 11M parameters, of which 0.5M are in the head."""
    build = Builder(1)
    build.node("Conv", ["image", build.weight("stem", 64, 3, 7, 7)], "x0", strides=[2, 2], pads=[3, 3, 3, 3])
    build.node("Relu", ["x0"], "x1")
    at = build.node("MaxPool", ["x1"], "x2", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    channels = 64
    for stage, width in enumerate([64, 128, 256, 512]):
        for block in range(2):
            name, stride = f"s{stage}b{block}", 2 if stage and not block else 1
            first = build.weight(f"{name}.first", width, channels, 3, 3)
            build.node("Conv", [at, first], f"{name}.c1", strides=[stride, stride], pads=[1, 1, 1, 1])
            build.node("Relu", [f"{name}.c1"], f"{name}.r1")
            second = build.weight(f"{name}.second", width, width, 3, 3)
            build.node("Conv", [f"{name}.r1", second], f"{name}.c2", pads=[1, 1, 1, 1])
            if channels != width:
                short = build.weight(f"{name}.short", width, channels, 1, 1)
                at = build.node("Conv", [at, short], f"{name}.down", strides=[stride, stride])
            build.node("Add", [f"{name}.c2", at], f"{name}.sum")
            at, channels = build.node("Relu", [f"{name}.sum"], f"{name}.out"), width
    build.node("GlobalAveragePool", [at], "pooled")
    build.node("Flatten", ["pooled"], "features")
    build.node("Gemm", ["features", build.weight("head", 1000, 512), build.weight("bias", 1000)], "scores", transB=1)
    build.save(path, [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, 224, 224])], "scores")


def lstm(path: Path):
    """A table of 20 000 words, two bidirectional LSTM of 256 features, and a head of 20 classes."""
    build = Builder(2)
    at, size = build.node("Gather", [build.weight("words", 20000, 256), "tokens"], "x"), 256
    for layer in range(2):
        weights = [build.weight(f"l{layer}.{kind}", 2, 1024, n) for kind, n in (("w", size), ("r", 256))]
        build.node("LSTM", [at, *weights, build.weight(f"l{layer}.b", 2, 2048)], f"l{layer}", hidden_size=256, direction="bidirectional")
        build.node("Transpose", [f"l{layer}"], f"l{layer}.t", perm=[0, 2, 1, 3])
        build.weights.append(numpy_helper.from_array(numpy.array([0, 0, 512]), f"l{layer}.shape"))
        at, size = build.node("Reshape", [f"l{layer}.t", f"l{layer}.shape"], f"l{layer}.out"), 512
    build.node("ReduceMean", [at], "mean", axes=[0], keepdims=0)
    build.node("Gemm", ["mean", build.weight("head", 20, 512), build.weight("bias", 20)], "scores", transB=1)
    build.save(path, [helper.make_tensor_value_info("tokens", TensorProto.INT64, ["time", "batch"])], "scores")


GRAPHS = {"cnn": cnn, "lstm": lstm}
