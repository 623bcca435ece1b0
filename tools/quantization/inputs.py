"""Texts as the inputs of an encoder: one text a sample, without padding."""

from pathlib import Path

import numpy

from . import texts

VOCABULARY = 20000  # the end of random ids


def of_ids(ids, names):
    """The inputs of these names for rows of ids [batch, tokens]: int64, a full mask, one segment."""
    ids = numpy.asarray(ids, dtype=numpy.int64)
    known = {"input_ids": ids, "attention_mask": numpy.ones_like(ids), "token_type_ids": numpy.zeros_like(ids)}
    return {name: known[name] for name in names}


def random(batch, sequence, names, seed=7):
    """Inputs of random ids, the same for each call."""
    return of_ids(numpy.random.default_rng(seed).integers(1000, VOCABULARY, (batch, sequence)), names)


def samples(tokenizer, path: Path, length: int, names):
    """The inputs of each text of a .jsonl file, cut at so many tokens; with `-` as the tokenizer of random ids."""
    count = len(texts.read(path))
    if tokenizer == "-":
        return [random(1, length, names, seed) for seed in range(count)]
    from tokenizers import Tokenizer

    reader = Tokenizer.from_file(tokenizer)
    reader.no_padding()
    reader.enable_truncation(length)
    return [of_ids([encoding.ids], names) for encoding in reader.encode_batch(texts.read(path))]


def onnx_inputs(path):
    """The names of the inputs of an ONNX file."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    weights = {weight.name for weight in model.graph.initializer}
    return [port.name for port in model.graph.input if port.name not in weights]
