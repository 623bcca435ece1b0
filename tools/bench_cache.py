#!/usr/bin/env python3
"""A step of a decoder by the length of its cache: appended to in place, next to one that is copied.

    tools/bench_cache.py COPY.onnx IN_PLACE.onnx [--cells 1x16,1x128,1x960] [--rounds 25] [--threads 2] [--most 1.10]

Both graphs are of one model, by `planish compile --recipe cache=copy` and `--recipe cache=in-place`. A cell is rows x tokens in the
cache; one more token of each row is read. Inputs and outputs are bound. The graph that appends in place has one buffer for
the past and the result, with room for 64 tokens more than the longest cell. The copy runs twice: its second column is the
control. The sessions and the cells take turns, so that a slow moment of the machine hits all of them; a figure is the median of the rounds in
milliseconds, and a ratio that of the copy's time to the other's in the same round. With one thread the figures are those of
the processor's time instead, for machines that are not idle. Fails if a step of the first graph in place takes more than
`--most` times as long with the longest cache of one row as with the shortest, if that is given.
"""

import argparse
import sys
import time

import numpy as np
import onnxruntime

NAMES = ("copy", "again", "in place")


def load(path, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # As planish loads its graphs.
    return onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"], disabled_optimizers=["SkipLayerNormFusion"]
    )


class Step:
    """One token for each row after a cache."""

    def __init__(self, session, in_place, rows, past, room):
        self.session, self.binding, self.kept = session, session.io_binding(), []
        random = np.random.default_rng(0)
        given = {
            "input_ids": random.integers(0, 1000, (rows, 1)),
            "attention_mask": np.ones((rows, past + 1), np.int64),
            "position_ids": np.full((rows, 1), past, np.int64),
        }
        for port in session.get_inputs():
            if port.name in given:
                self.bind(port.name, given[port.name])
                continue
            heads, size = port.shape[1], port.shape[3]
            cache = random.standard_normal((rows, heads, past, size), dtype=np.float32)
            output = port.name.replace("past_key_values", "present")
            if in_place:
                cache = np.concatenate([cache, np.zeros((rows, heads, room - past, size), np.float32)], axis=2)
                self.binding.bind_ortvalue_output(output, self.bind(port.name, cache))
            else:
                self.bind(port.name, cache)
                self.binding.bind_output(output)
        self.binding.bind_output("logits")
        self.run()

    def bind(self, name, array):
        value = onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
        self.kept.append(value)
        self.binding.bind_ortvalue_input(name, value)
        return value

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def logits(self):
        self.run()
        return next(v.numpy() for v in self.binding.get_outputs() if len(v.shape()) == 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("copy")
    parser.add_argument("in_place")
    parser.add_argument("--cells", default="1x16,1x128,1x512,1x960")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--most", type=float)
    args = parser.parse_args()
    cells = [tuple(map(int, cell.split("x"))) for cell in args.cells.split(",")]
    room = max(past for _, past in cells) + 64
    sessions = [load(args.copy, args.threads)] * 2 + [load(args.in_place, args.threads)]
    clock = time.thread_time if args.threads == 1 else time.perf_counter

    steps = []
    for rows, past in cells:
        cell = [Step(session, name == "in place", rows, past, room) for name, session in zip(NAMES, sessions)]
        first, _, last = (step.logits() for step in cell)
        error = np.abs(first - last).max() / np.abs(first).max()
        if not error < 1e-4:
            sys.exit(f"{rows} x {past}: the logits differ by {error:.1e} of the largest")
        steps.append(cell)

    def timed(step):
        start = clock()
        step.run()
        return (clock() - start) * 1e3

    times = np.array([[[timed(step) for step in cell] for cell in steps] for _ in range(args.rounds)])
    print("rows x past  " + "  ".join(f"{name:>9}" for name in NAMES) + "  ratios")
    for at, (rows, past) in enumerate(cells):
        ratios = np.median(times[:, at, :1] / times[:, at, 1:], axis=0)
        figures = "  ".join(f"{median:9.2f}" for median in np.median(times[:, at], axis=0))
        print(f"{rows:4} x {past:4}  {figures}  " + "  ".join(f"{ratio:.2f}" for ratio in ratios))
    ones = sorted((past, at) for at, (rows, past) in enumerate(cells) if rows == 1)
    if len(ones) > 1:
        (short, a), (long, b) = ones[0], ones[-1]
        for name, ratio in zip(NAMES, np.median(times[:, b] / times[:, a], axis=0)):
            print(f"{name}: a step at {long} takes {ratio:.3f} of one at {short}")
        if args.most and ratio > args.most:
            sys.exit(f"more than {args.most}")


if __name__ == "__main__":
    main()
