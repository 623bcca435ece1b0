#!/usr/bin/env python3
"""Writes fixtures/openvino/operators.csv: the operators that OpenVINO's reader of ONNX files knows, by domain and name.

    tools/openvino_operators.py > fixtures/openvino/operators.csv

Each operator of ONNX, and of ONNX Runtime's own domain, is the one node of a model that OpenVINO is given to read. The
reader names the operators that it does not know before it looks at operands. Runs in .deps/compat-openvino
(tests/compat/requirements-openvino.txt).
"""

import os
import sys

import onnx
import onnxruntime.capi.onnxruntime_pybind11_state as ort
import openvino
from onnx import TensorProto, helper

# Of each, the newest version that both packages have.
OPSET = 23
UNKNOWN = "No conversion rule found"


def is_known(domain, operator):
    """Whether the reader has a translation of an operator. It is asked in a process of its own, which some operators end."""
    child = os.fork()
    if child == 0:
        os._exit(int(is_unknown(domain, operator)))
    _, status = os.waitpid(child, 0)
    return not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == 1)


def is_unknown(domain, operator):
    info = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
    node = helper.make_node(operator, ["x"], ["y"], domain=domain)
    graph = helper.make_graph([node], "one", [info("x")], [info("y")])
    opsets = [helper.make_opsetid("", OPSET)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    model = helper.make_model(graph, opset_imports=opsets)
    try:
        openvino.Core().read_model(model.SerializeToString())
    except Exception as error:
        return UNKNOWN in str(error)
    return False


def main():
    standard = {schema.name for schema in onnx.defs.get_all_schemas() if not schema.deprecated}
    own = {schema.name for schema in ort.get_all_operator_schema() if schema.domain == "com.microsoft"}
    print("domain,operator,known")
    for domain, operators in [("", standard), ("com.microsoft", own)]:
        for operator in sorted(operators):
            print(f"{domain or 'ai.onnx'},{operator},{'yes' if is_known(domain, operator) else 'no'}")


if __name__ == "__main__":
    sys.exit(main())
