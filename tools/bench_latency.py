#!/usr/bin/env python3
"""Latency of encoder ONNX files on ONNX Runtime's CPU provider, as its Python users load them.

    tools/bench_latency.py 1x128,8x128,1x512 BASE.onnx OTHER.onnx... [--rounds 15] [--threads 2]

Every file is a session of its own with default options; the sessions take turns, each round in another
order, with idle threads asleep, so that drift and neighbours hit all alike. Prints, for each file and
shape, the median latency and the median over rounds of the ratio to the first file of the same round:
above 1 is faster. Needs the Python packages onnxruntime and numpy.
"""

import argparse
import random
import statistics
import time

import numpy
import onnxruntime


def open_session(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def make_inputs(session, batch, sequence):
    """Ids of frequent tokens, a full mask, one segment."""
    tokens = numpy.random.default_rng(7).integers(1000, 20000, (batch, sequence))
    known = {
        "input_ids": tokens,
        "attention_mask": numpy.ones_like(tokens),
        "token_type_ids": numpy.zeros_like(tokens),
    }
    return {i.name: known[i.name].astype(numpy.int64) for i in session.get_inputs()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shapes", help="BATCHxSEQUENCE,...")
    parser.add_argument("files", nargs="+", metavar="file")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()

    sessions = [open_session(path, args.threads) for path in args.files]
    for shape in args.shapes.split(","):
        batch, sequence = map(int, shape.split("x"))
        inputs = [make_inputs(session, batch, sequence) for session in sessions]
        for session, feeds in zip(sessions, inputs):
            session.run(None, feeds)
        rounds = []
        for _ in range(args.rounds):
            seconds = [0.0] * len(sessions)
            for k in random.sample(range(len(sessions)), len(sessions)):
                start = time.perf_counter()
                sessions[k].run(None, inputs[k])
                seconds[k] = time.perf_counter() - start
            rounds.append(seconds)
        for k, path in enumerate(args.files):
            median = statistics.median(row[k] for row in rounds) * 1e3
            ratio = statistics.median(row[0] / row[k] for row in rounds)
            print(f"{shape:>8}  {median:9.2f} ms  {ratio:5.2f}x  {path}", flush=True)


if __name__ == "__main__":
    main()
