#!/usr/bin/env python3
"""Writes onnx/src/versions.csv: the opsets at which operators of ONNX's default domain came or changed what
they take. `+` marks those that add optional operands, attributes or results only: a node written before
means the same there. Changes of nothing but element types are left out. Run it with the Python
package onnx 1.23.2:

    tools/onnx_versions.py > onnx/src/versions.csv
"""

from onnx import defs

OPTIONAL = defs.OpSchema.FormalParameterOption.Optional


def signature(schema):
    """Attributes, operands and results, each as a list of (name, what it must be, whether it may be left out)."""
    attributes = [
        (name, (str(a.type), a.default_value.SerializeToString()), not a.required) for name, a in sorted(schema.attributes.items())
    ]
    operands, results = (
        [(index, str(p.option), p.option == OPTIONAL) for index, p in enumerate(formal)] for formal in (schema.inputs, schema.outputs)
    )
    return attributes, operands, results


def change(old, new):
    """`` where nothing changed, `+` where only optional parts were added, `!` otherwise."""
    marks = set()
    for before, after in zip(old, new):
        before, after = {b[0]: b for b in before}, {a[0]: a for a in after}
        if any(after.get(name) != part for name, part in before.items()):
            return "!"
        if any(not part[2] for name, part in after.items() if name not in before):
            return "!"
        marks.add("+" if len(after) > len(before) else "")
    return "+" if "+" in marks else ""


history = {}
for schema in defs.get_all_schemas_with_history():
    if schema.domain == "":
        history.setdefault(schema.name, []).append(schema)
print("operator,opsets")
for name, schemas in sorted(history.items()):
    schemas.sort(key=lambda s: s.since_version)
    entries = [str(schemas[0].since_version)]
    for old, new in zip(schemas, schemas[1:]):
        mark = change(signature(old), signature(new))
        if mark:
            entries.append(f"{new.since_version}{mark.replace('!', '')}")
    print(f"{name},{' '.join(entries)}")
