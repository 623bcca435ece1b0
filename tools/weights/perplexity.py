#!/usr/bin/env python3
"""Perplexity of ONNX graphs of one language model, and the divergence of their predictions from those of the first graph.

    perplexity.py TOKENIZER.json TEXT LENGTH WINDOWS GRAPH.onnx...

ONNX Runtime's Python package runs the graphs on 2 threads. The first WINDOWS windows of LENGTH tokens of the text are
read, which do not overlap; the first token of a window is not predicted. Graphs may take attention_mask, position_ids, and an
empty cache, whose sizes the first graph states. Prints an object as JSON: {"positions": the number of predicted tokens,
"graphs": [...]}. Each graph has its perplexity, divergence (Kullback-Leibler, in nats), and agreement (the share of positions
with the same best token).
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import Tokenizer


def inputs_of(session, ids, cache):
    """What a graph takes for rows of ids: without padding, and with an empty cache, [rows, heads, 0, features]."""
    known = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "position_ids": np.broadcast_to(np.arange(ids.shape[1]), ids.shape),
    }
    return {port.name: known.get(port.name, cache) for port in session.get_inputs()}


def empty_cache(session):
    """Of one row, by a graph that says how many heads and features there are."""
    shapes = [port.shape for port in session.get_inputs() if port.name.startswith("past_key_values")]
    return np.zeros((1, shapes[0][1], 0, shapes[0][3]), np.float32) if shapes else None


def log_probabilities(session, ids, cache):
    """[positions, vocabulary]: of the token after each position of a window."""
    logits = session.run(["logits"], inputs_of(session, ids[None], cache))[0][0, :-1].astype(np.float64)
    logits -= logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def load(graph):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def main():
    tokenizer, text, length, count, *graphs = sys.argv[1:]
    length, count = int(length), int(count)
    ids = np.array(Tokenizer.from_file(tokenizer).encode(Path(text).read_text(encoding="utf-8")).ids, np.int64)
    windows = [ids[at : at + length] for at in range(0, len(ids) - length + 1, length)][:count]
    sessions = [load(graph) for graph in graphs]
    cache = empty_cache(sessions[0])
    surprise, divergence, agreement = np.zeros((3, len(graphs)))
    for window in windows:
        reference = None
        for at, session in enumerate(sessions):
            found = log_probabilities(session, window, cache)
            reference = found if reference is None else reference
            surprise[at] -= found[np.arange(length - 1), window[1:]].sum()
            divergence[at] += (np.exp(reference) * (reference - found)).sum()
            agreement[at] += (reference.argmax(axis=-1) == found.argmax(axis=-1)).sum()
    positions = len(windows) * (length - 1)
    figures = zip(np.exp(surprise / positions), divergence / positions, agreement / positions)
    rows = [dict(zip(("perplexity", "divergence", "agreement"), map(float, row))) for row in figures]
    json.dump({"positions": positions, "graphs": rows}, sys.stdout)


if __name__ == "__main__":
    main()
