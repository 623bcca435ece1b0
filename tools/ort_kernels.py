#!/usr/bin/env python3
"""Writes fixtures/ort/cpu_kernels.csv: the element types for which ONNX Runtime's CPU provider has
kernels at opset 17 or when they came, for the operators that planish emits. Run it with the Python package
onnxruntime 1.32.0:

    tools/ort_kernels.py > fixtures/ort/cpu_kernels.csv
"""

import onnxruntime.capi.onnxruntime_pybind11_state as ort

# Operators, and the type constraint that says what they compute in.
OPERATORS = {
    "Add": "T", "Sub": "T", "Mul": "T", "Div": "T", "Pow": "T", "Min": "T", "Max": "T", "Equal": "T", "Less": "T",
    "Greater": "T", "And": "T", "Or": "T", "Not": "T", "Neg": "T", "Abs": "T", "Exp": "T", "Sqrt": "T", "Cos": "T", "Sin": "T", "Erf": "T",
    "Tanh": "T", "Sigmoid": "T", "Relu": "T", "Where": "T", "Cast": "T1", "Reshape": "T", "Transpose": "T",
    "Slice": "T", "Split": "T", "Concat": "T", "Expand": "T", "Gather": "T", "ReduceSum": "T", "ReduceMean": "T",
    "ReduceMax": "T", "CumSum": "T", "Range": "T", "Gemm": "T", "MatMul": "T", "Softmax": "T",
    "LayerNormalization": "T", "RMSNormalization": "T", "Gelu": "T", "Attention": "T1", "Floor": "T", "Ceil": "T", "Log": "T",
    "IsNaN": "T1", "LessOrEqual": "T", "GreaterOrEqual": "T", "ReduceMin": "T", "Identity": "V",
    "Conv": "T", "TopK": "T", "ArgMax": "T",
}  # fmt: skip
DTYPES = {
    "bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "float16": "f16",
    "bfloat16": "bf16", "float": "f32", "double": "f64",
}  # fmt: skip

# Opsets that operators came with, where that was after 17.
FIRST = {"Gelu": 20, "RMSNormalization": 23, "Attention": 23}

kernels = [k for k in ort.get_all_opkernel_def() if k.provider == "CPUExecutionProvider" and k.domain == ""]
print("operator,dtypes")
for operator, constraint in OPERATORS.items():
    first = FIRST.get(operator, 17)
    found = set()
    for kernel in kernels:
        low, high = kernel.version_range
        if kernel.op_name == operator and low <= first <= high:
            found |= {t.removeprefix("tensor(").removesuffix(")") for t in kernel.type_constraints[constraint]}
    print(f"{operator},{' '.join(ours for theirs, ours in DTYPES.items() if theirs in found)}")
