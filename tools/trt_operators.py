#!/usr/bin/env python3
"""Says which models of one operator NVIDIA's parser and builder take, in a file of comma-separated values.

    trt_operators.py FOLDER fixtures/trt/parser.csv

FOLDER has what the test models_are_written_for_the_parser writes, OPERATOR-LINE-TYPE.onnx. Needs the wheels
tensorrt_rtx_cu13_libs and tensorrt_rtx_cu13_bindings, version 1.7.1.116, and no GPU.
"""
import pathlib
import sys

import tensorrt_rtx_bindings.tensorrt_rtx as trt


class Quiet(trt.ILogger):
    def __init__(self):
        trt.ILogger.__init__(self)

    def log(self, severity, text):
        pass


def takes(path):
    """Whether the parser and the builder take a model."""
    logger = Quiet()
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    if not trt.OnnxParser(network, logger).parse_from_file(str(path)):
        return False
    config = builder.create_builder_config()
    config.num_compute_capabilities = 1
    config.set_compute_capability(trt.ComputeCapability.SM89, 0)
    profile = builder.create_optimization_profile()
    inputs = [network.get_input(i) for i in range(network.num_inputs)]
    shapes = [tensor for tensor in inputs if tensor.is_shape_tensor]
    for tensor in shapes:
        values = [1] * (tensor.shape[0] if len(tensor.shape) else 1)
        profile.set_shape_input(tensor.name, values, values, values)
    if shapes:
        config.add_optimization_profile(profile)
    return builder.build_serialized_network(network, config) is not None


def main():
    taken = {}
    for path in sorted(pathlib.Path(sys.argv[1]).glob("*.onnx")):
        operator, dtype = path.stem.rsplit("-", 1)
        types = taken.setdefault(operator, [])
        if takes(path):
            types.append(dtype)
    # The builder writes warnings to standard output.
    lines = ["operator,types", *(f"{operator},{' '.join(types)}" for operator, types in taken.items())]
    pathlib.Path(sys.argv[2]).write_text("\n".join(lines) + "\n")


main()
