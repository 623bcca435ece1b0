#!/usr/bin/env python3
"""Writes fixtures/ort/cpu_kernels.csv: the element types for which ONNX Runtime's CPU provider has
kernels at opset 17 or when they came, for the operators of ONNX. Run it with the Python package
onnxruntime 1.32.0:

    tools/ort_kernels.py > fixtures/ort/cpu_kernels.csv
"""

import onnxruntime.capi.onnxruntime_pybind11_state as ort

DTYPES = {
    "bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64", "float16": "f16",
    "bfloat16": "bf16", "float": "f32", "double": "f64",
}  # fmt: skip

# The opset that tables of kernels are for.
OPSET = 17


def subject(schema):
    """The type constraint that says what an operator computes in: `T`, or that of the first operand."""
    constraints = [constraint.type_param_str for constraint in schema.type_constraints]
    return "T" if "T" in constraints else next((i.typeStr for i in schema.inputs if i.typeStr in constraints), None)


# For each operator, the schema that is in force at the opset, or the first one where it came later.
schemas = {}
for schema in sorted(ort.get_all_operator_schema(), key=lambda schema: schema.since_version):
    if schema.domain == "" and (schema.since_version <= OPSET or schema.name not in schemas):
        schemas[schema.name] = schema

kernels = [k for k in ort.get_all_opkernel_def() if k.provider == "CPUExecutionProvider" and k.domain == ""]
print("operator,dtypes")
for operator, schema in sorted(schemas.items()):
    constraint, at = subject(schema), max(OPSET, schema.since_version)
    found = set()
    for kernel in kernels:
        low, high = kernel.version_range
        if kernel.op_name == operator and low <= at <= high:
            types = kernel.type_constraints.get(constraint, [])
            found |= {t.removeprefix("tensor(").removesuffix(")") for t in types}
    dtypes = " ".join(ours for theirs, ours in DTYPES.items() if theirs in found)
    if dtypes:
        print(f"{operator},{dtypes}")
