"""Files of tensors in the format safetensors, with the standard library alone."""

import json
import math
import struct
from array import array
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple

SIZES = {"F32": 4, "F16": 2, "BF16": 2, "I64": 8, "BOOL": 1}


class Entry(NamedTuple):
    """A tensor of a file; begin and end count bytes after the header."""

    name: str
    dtype: str
    shape: Tuple[int, ...]
    begin: int
    end: int


def layout(tensors: Iterable[Tuple[str, str, Sequence[int]]]) -> List[Entry]:
    """Where tensors of these names, types and shapes are, one after the other."""
    entries, at = [], 0
    for name, dtype, shape in tensors:
        end = at + math.prod(shape) * SIZES[dtype]
        entries.append(Entry(name, dtype, tuple(shape), at, end))
        at = end
    return entries


def header(entries: Iterable[Entry]) -> bytes:
    """The header with its length in front. What follows begins at a multiple of 64."""
    table = {e.name: {"dtype": e.dtype, "shape": list(e.shape), "data_offsets": [e.begin, e.end]} for e in entries}
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    return struct.pack("<Q", len(text)) + text


def read_header(path: Path) -> Tuple[List[Entry], int]:
    """The tensors of a file, and where their bytes begin."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        table = json.loads(file.read(length))
    table.pop("__metadata__", None)
    entries = [Entry(name, e["dtype"], tuple(e["shape"]), *e["data_offsets"]) for name, e in table.items()]
    return entries, 8 + length


def write(path: Path, tensors: Dict[str, Tuple[str, Sequence[int], bytes]]) -> None:
    """Writes tensors, given as types, shapes and bytes."""
    entries = layout((name, dtype, shape) for name, (dtype, shape, _) in tensors.items())
    with open(path, "wb") as file:
        file.write(header(entries))
        for entry, (_, _, data) in zip(entries, tensors.values()):
            if len(data) != entry.end - entry.begin:
                raise ValueError(f"{entry.name} has {len(data)} bytes, and its shape takes {entry.end - entry.begin}")
            file.write(data)


def write_ids(path: Path, tensors: Dict[str, List[List[int]]]) -> None:
    """Writes tensors of 64-bit integers with two dimensions."""
    numbers = lambda rows: array("q", [number for row in rows for number in row]).tobytes()
    write(path, {name: ("I64", (len(rows), len(rows[0])), numbers(rows)) for name, rows in tensors.items()})


def write_floats(path: Path, tensors: Dict[str, Tuple[Sequence[int], bytes]], dtype: str) -> None:
    """Writes tensors of one type, given as shapes and bytes."""
    write(path, {name: (dtype, shape, data) for name, (shape, data) in tensors.items()})
