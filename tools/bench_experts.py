#!/usr/bin/env python3
"""Mixtures of experts on ONNX Runtime's CPU provider.

    tools/bench_experts.py layer [--hidden 1024] [--inner 2816] [--experts 8] [--taken 2] [--tokens 1,2,4,32,128,512]
    tools/bench_experts.py steps NAME=ARTIFACT... [--past 128]

`layer` compares forms of one mixture (SwiGLU, random weights): what planish writes (`grouped`, `gathered`, `all`), the operator MoE,
and with weights of 4 bits in blocks of 32 `grouped` with MatMulNBits, and QMoE, each at the accuracy levels 0 and 4. The error is the largest
difference from float64 on the same weights, relative to the largest result. `steps` runs one token after a cache of artifacts of decoders.

Sessions take turns of some runs, in random order, with sleeping threads. Figures are medians. Needs onnx, onnxruntime and numpy.
"""

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

BLOCK = 32
MICROSOFT = "com.microsoft"
RUNS = 5


class Layer:
    """A graph of one mixture: x [n, hidden], i [n, taken] and s [n, taken] become y [n, hidden]."""

    def __init__(self, weights, taken):
        self.weights, self.taken = weights, taken
        self.experts, self.inner, self.hidden = weights["gate"].shape
        self.nodes, self.constants, self.count = [], {}, 0

    def add(self, op, *inputs, outputs=1, domain="", **attributes):
        names = []
        for value in inputs:
            if isinstance(value, np.ndarray | np.generic):
                self.count += 1
                self.constants[f"c{self.count}"] = np.asarray(value)
                value = f"c{self.count}"
            names.append(value)
        self.count += 1
        results = [f"v{self.count}_{at}" for at in range(outputs)]
        self.nodes.append(helper.make_node(op, names, results, domain=domain, **attributes))
        return results if outputs > 1 else results[0]

    def model(self, result):
        self.nodes.append(helper.make_node("Identity", [result], ["y"]))
        floats, integers = TensorProto.FLOAT, TensorProto.INT64
        of = helper.make_tensor_value_info
        inputs = [of("x", floats, ["n", self.hidden]), of("i", integers, ["n", self.taken]), of("s", floats, ["n", self.taken])]
        constants = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(self.nodes, "layer", inputs, [of("y", floats, ["n", self.hidden])], constants)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def gated(self, gate, up):
        return self.add("Mul", self.add("Mul", gate, self.add("Sigmoid", gate)), up)

    def counted(self):
        chosen = self.add("Reshape", "i", np.array([-1]))
        equal = self.add("Equal", self.add("Unsqueeze", chosen, np.array([1])), np.arange(self.experts))
        return chosen, self.add("ReduceSum", self.add("Cast", equal, to=TensorProto.INT64), np.array([0]), keepdims=0)

    def grouped(self, level=None):
        chosen, sizes = self.counted()
        count = self.add("Reshape", self.add("Size", chosen), np.array([-1]))
        order = self.add("TopK", chosen, count, outputs=2, axis=0, largest=0)[1]
        back = self.add("TopK", order, count, outputs=2, axis=0, largest=0)[1]
        x = self.add("Gather", "x", self.add("Div", order, np.int64(self.taken)))

        def layers(parts, stacked):
            each = [self.product(part, stacked[e], level) for e, part in enumerate(parts)]
            return self.add("Concat", *each, axis=0)

        parts = self.add("Split", x, sizes, outputs=self.experts, axis=0)
        inner = self.gated(layers(parts, self.weights["gate"]), layers(parts, self.weights["up"]))
        result = layers(self.add("Split", inner, sizes, outputs=self.experts, axis=0), self.weights["down"])
        result = self.add("Reshape", self.add("Gather", result, back), np.array([-1, self.taken, self.hidden]))
        weighted = self.add("Mul", result, self.add("Unsqueeze", "s", np.array([2])))
        return self.model(self.add("ReduceSum", weighted, np.array([1]), keepdims=0))

    def product(self, x, weight, level):
        if level is None:
            return self.add("Gemm", x, weight, transB=1)
        rows, columns = weight.shape
        codes, scales, _ = quantized(weight)
        codes = codes.reshape(rows, columns // BLOCK, BLOCK // 2)
        sizes = {"K": columns, "N": rows, "bits": 4, "block_size": BLOCK}
        return self.add("MatMulNBits", x, codes, scales, domain=MICROSOFT, accuracy_level=level, **sizes)

    def all(self, weights=None, numbers=None):
        gate, up, down = weights or [self.weights[name] for name in ("gate", "up", "down")]
        x = self.add("Transpose", "x", perm=[1, 0])
        result = self.add("MatMul", down, self.gated(self.add("MatMul", gate, x), self.add("MatMul", up, x)))
        scores = self.add("Transpose", self.scattered(np.arange(self.experts) if numbers is None else numbers), perm=[1, 0])
        weighted = self.add("Mul", result, self.add("Unsqueeze", scores, np.array([1])))
        total = self.add("ReduceSum", weighted, np.array([0]), keepdims=0)
        return self.model(self.add("Transpose", total, perm=[1, 0]))

    def scattered(self, numbers):
        """Scores by token and expert, 0 for those that a token does not take."""
        equal = self.add("Equal", self.add("Unsqueeze", "i", np.array([2])), numbers)
        taken = self.add("Where", equal, self.add("Unsqueeze", "s", np.array([2])), np.float32(0))
        return self.add("ReduceSum", taken, np.array([1]), keepdims=0)

    def gathered(self):
        chosen, sizes = self.counted()
        most = self.add("Min", self.add("Reshape", self.add("Size", chosen), np.array([-1])), np.array([self.experts]))
        numbers = self.add("TopK", self.add("Cast", sizes, to=TensorProto.INT32), most, outputs=2, axis=0)[1]
        return self.all([self.add("Gather", self.weights[name], numbers) for name in ("gate", "up", "down")], numbers)

    def moe(self, level=None):
        """The operator's own softmax gives scores back whose logarithms it takes, up to their sum."""
        wide = np.stack([self.weights["gate"], self.weights["up"]], 2).reshape(self.experts, -1, self.hidden)
        router = self.add("Log", self.scattered(np.arange(self.experts)))
        settings = {"k": self.taken, "activation_type": "swiglu", "swiglu_fusion": 1, "activation_alpha": 1.0}
        settings |= {"activation_beta": 0.0, "normalize_routing_weights": 1, "domain": MICROSOFT}
        if level is None:
            result = self.add("MoE", "x", router, wide, "", self.weights["down"], **settings)
        else:
            (wide, wide_scales, _), (down, scales, _) = quantized(wide), quantized(self.weights["down"])
            settings |= {"expert_weight_bits": 4, "block_size": BLOCK, "accuracy_level": level, "weights_prepacked": 0}
            result = self.add("QMoE", "x", router, wide, wide_scales, "", down, scales, **settings)
        return self.model(self.add("Mul", result, self.add("ReduceSum", "s", np.array([1]))))


def quantized(weight):
    """Packed codes, scales, and the numbers that they stand for."""
    blocks = weight.reshape(*weight.shape[:-1], -1, BLOCK)
    scales = np.maximum(np.abs(blocks).max(-1) / 7, 1e-12).astype(np.float32)
    codes = np.clip(np.round(blocks / scales[..., None]) + 8, 0, 15).astype(np.uint8)
    numbers = ((codes.astype(np.float32) - 8) * scales[..., None]).reshape(weight.shape)
    pairs = codes.reshape(*weight.shape[:-1], -1, 2)
    return pairs[..., 0] | pairs[..., 1] << 4, scales, numbers


def expected(weights, feeds):
    result = np.zeros(feeds["x"].shape)
    for token, x in enumerate(feeds["x"].astype(np.float64)):
        for expert, score in zip(feeds["i"][token], feeds["s"][token]):
            gate = weights["gate"][expert] @ x
            result[token] += score * (weights["down"][expert] @ (gate / (1 + np.exp(-gate)) * (weights["up"][expert] @ x)))
    return result


def session(model, threads):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    source = str(model) if isinstance(model, Path) else model.SerializeToString()
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def in_turns(contestants, feeds, rounds):
    """The median milliseconds of each contestant, over feeds in turn."""
    times = {name: [] for name in contestants}
    shuffled = random.Random(7)
    for _ in range(rounds):
        for name in shuffled.sample(list(contestants), len(contestants)):
            for at in range(RUNS + 1):
                start = time.perf_counter()
                contestants[name].run(None, feeds(name, at))
                if at:
                    times[name].append(time.perf_counter() - start)
    return {name: 1000 * statistics.median(runs) for name, runs in times.items()}


def layer(args):
    rng = np.random.default_rng(0)
    sizes = {"gate": (args.inner, args.hidden), "up": (args.inner, args.hidden), "down": (args.hidden, args.inner)}
    scale = {name: np.float32(columns**-0.5) for name, (_, columns) in sizes.items()}
    weights = {n: rng.standard_normal((args.experts, *size), dtype=np.float32) * scale[n] for n, size in sizes.items()}
    new = lambda: Layer(weights, args.taken)
    models = {"all": new().all(), "gathered": new().gathered(), "grouped": new().grouped(), "MoE": new().moe()}
    for level in (0, 4):
        models[f"grouped, MatMulNBits {level}"], models[f"QMoE {level}"] = new().grouped(level), new().moe(level)
    contestants = {name: session(model, args.threads) for name, model in models.items()}
    rounded = {name: quantized(weight)[2] for name, weight in weights.items()}
    print(f"ONNX Runtime {ort.__version__}, {args.experts} experts of {args.hidden} x {args.inner}, {args.taken} taken")
    for tokens in map(int, args.tokens.split(",")):
        runs = []
        for _ in range(RUNS + 1):
            i = np.stack([rng.permutation(args.experts)[: args.taken] for _ in range(tokens)])
            s = rng.random((tokens, args.taken), dtype=np.float32)
            runs.append({"x": rng.standard_normal((tokens, args.hidden), dtype=np.float32), "i": i, "s": s})
        found = in_turns(contestants, lambda _, at: runs[at], args.rounds)
        for name, ms in found.items():
            of = rounded if "MatMulNBits" in name or "QMoE" in name else weights
            error = ""
            if tokens == 1:
                right = expected(of, runs[0])
                error = f", error {np.abs(contestants[name].run(None, runs[0])[0] - right).max() / np.abs(right).max():.1e}"
            print(f"{tokens} tokens, {name}: {ms:.2f} ms, {found['grouped'] / ms:.2f} times as fast as grouped{error}", flush=True)


def steps(args):
    contestants = dict(word.split("=", 1) for word in args.artifacts)
    contestants = {name: session(Path(folder) / "model.onnx", args.threads) for name, folder in contestants.items()}
    types = {"tensor(int64)": np.int64, "tensor(float)": np.float32, "tensor(bool)": np.bool_}
    rng = np.random.default_rng(0)

    def feed(model, at):
        values = {}
        for value in model.get_inputs():
            length = {"past_sequence_length": args.past, "past_sequence_length + sequence_length": args.past + 1}
            shape = [size if isinstance(size, int) else length.get(size, 1) for size in value.shape]
            values[value.name] = np.ones(shape, types[value.type])
            if value.type == "tensor(float)":
                values[value.name] = rng.standard_normal(shape, dtype=np.float32) * np.float32(0.1)
        # Another token takes other experts.
        values["input_ids"] += 97 * at
        if "position_ids" in values:
            values["position_ids"][:] = args.past
        return values

    runs = {name: [feed(model, at) for at in range(RUNS + 1)] for name, model in contestants.items()}
    print(f"ONNX Runtime {ort.__version__}, a step after {args.past} tokens")
    for name, ms in in_turns(contestants, lambda name, at: runs[name][at], args.rounds).items():
        print(f"{name}: {ms:.2f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["layer", "steps"])
    parser.add_argument("artifacts", nargs="*", metavar="NAME=ARTIFACT")
    for name, value in {"hidden": 1024, "inner": 2816, "experts": 8, "taken": 2, "past": 128, "threads": 2, "rounds": 8}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--tokens", default="1,2,4,32,128,512")
    args = parser.parse_args()
    layer(args) if args.what == "layer" else steps(args)


if __name__ == "__main__":
    sys.exit(main())
