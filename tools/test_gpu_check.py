"""Tests of tools/gpu_check.py and its parts. None needs a GPU; those that need PyTorch are skipped without it."""

import contextlib
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import gpu_check
from gpu import (
    bundle, checkpoints, correctness, findings, flops, goals, graphs, measured, page, report, safetensors, sanitizer, speed, sweeps,
    tables, times, workloads,
)
from gpu.work import STOPPED, Done, Failed, OutOfTime, Part, Work

try:
    import torch
except ImportError:
    torch = None

TOOLS = Path(gpu_check.__file__).resolve().parent


def done(code, output="", errors=""):
    return Done(code, output, errors, 1.0)


class Folder(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def work(self, planish="/bin/false", **more):
        scratch = self.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        work = Work(Path(planish), self.folder, self.folder, scratch, "cpu", "cuda", "cuda-baseline", True)
        self.addCleanup(work.log.file.close)
        for name, value in more.items():
            setattr(work, name, value)
        return work

    def program(self, name, text):
        """A program that is a shell script."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path


class Files(Folder):
    def test_a_file_of_tensors_reads_as_it_was_written(self):
        file = self.folder / "ids.safetensors"
        safetensors.write_ids(file, {"input_ids": [[1, 2, 3], [4, 5, -6]]})
        (entry,), start = safetensors.read_header(file)
        self.assertEqual((entry.name, entry.dtype, entry.shape, start % 64), ("input_ids", "I64", (2, 3), 0))
        data = file.read_bytes()[start + entry.begin : start + entry.end]
        self.assertEqual(struct.unpack("<6q", data), (1, 2, 3, 4, 5, -6))

    def test_bytes_must_fit_the_shape(self):
        with self.assertRaisesRegex(ValueError, "x has 3 bytes, and its shape takes 4"):
            safetensors.write_floats(self.folder / "x", {"x": ((2,), b"abc")}, "F16")

    def test_checkpoints_have_the_published_numbers_of_weights(self):
        counts = {name: checkpoints.elements(checkpoints.tensors(of)) for name, of in checkpoints.CONFIGS.items()}
        self.assertEqual([counts["bert-base"], counts["gpt2"], counts["llama-1.1b"]], [109_482_240, 124_439_808, 1_100_048_384])

    def test_a_checkpoint_is_whole_and_the_same_each_time(self):
        config = checkpoints.SMALL["llama-1.1b"]
        for name in ("a", "b"):
            checkpoints.write(self.folder / name, config, period=1009)
        one, other = ((self.folder / name / "model.safetensors").read_bytes() for name in ("a", "b"))
        self.assertEqual(one, other)
        entries, start = safetensors.read_header(self.folder / "a" / "model.safetensors")
        self.assertEqual(len(one), start + entries[-1].end)
        self.assertEqual([entry.name for entry in entries], [tensor.name for tensor in checkpoints.tensors(config)])
        self.assertEqual(json.loads((self.folder / "a" / "config.json").read_text()), config)

    def test_random_numbers_are_around_their_mean_in_both_types(self):
        full, half = (checkpoints.block(1.0, dtype, 3, 500) for dtype in ("F32", "BF16"))
        numbers = struct.unpack("<500f", full)
        self.assertAlmostEqual(sum(numbers) / 500, 1.0, delta=0.01)
        # The upper half of a float32 is the number as bfloat16.
        widened = struct.unpack("<500f", b"".join(b"\0\0" + bytes(half[i : i + 2]) for i in range(0, 1000, 2)))
        self.assertTrue(all(abs(a - b) <= 2**-7 for a, b in zip(numbers, widened)))

    def test_fields_of_onnx_are_protobuf(self):
        self.assertEqual(graphs.field(1, 150), b"\x08\x96\x01")
        self.assertEqual(graphs.field(2, "testing"), b"\x12\x07testing")
        self.assertEqual(len(graphs.varint(graphs.LAST)), 10)
        graphs.attention(self.folder / "attention.onnx", 2, 8)
        self.assertIn(b"Softmax", (self.folder / "attention.onnx").read_bytes())


class Counts(unittest.TestCase):
    def test_operations_of_bert(self):
        config = checkpoints.bert(hidden=4, layers=3, heads=2, inner=8, vocabulary=10, positions=16)
        # For each layer four products of [4, 4] and two of [4, 8] for 10 tokens, and two of 2 x 5 x 5 pairs.
        self.assertEqual(flops.forward(config, 2, 5), 3 * (2 * 10 * (4 * 16 + 2 * 32) + 4 * 2 * 25 * 4) + 2 * 2 * 16)

    def test_operations_of_gpt2_count_causal_pairs_and_the_head(self):
        config = checkpoints.gpt2(hidden=4, layers=1, heads=2, inner=8, vocabulary=10, positions=16)
        pairs = sum(range(1, 6))
        self.assertEqual(flops.forward(config, 1, 5), 2 * 5 * (64 + 64) + 2 * 2 * pairs * 4 + 2 * 5 * 4 * 10)

    def test_bert_base_is_as_large_as_known(self):
        # 85 million weights in layers, so 170 million operations a token, and attention.
        self.assertAlmostEqual(flops.forward(checkpoints.CONFIGS["bert-base"], 1, 128) / 22.35e9, 1.0, delta=0.01)

    def test_a_step_reads_all_weights_but_the_table_of_the_embedding(self):
        config = checkpoints.CONFIGS["llama-1.1b"]
        read = flops.step_bytes(config, 127, 2)
        self.assertEqual(read["weights"], 2 * (1_100_048_384 - 31_999 * 2048))
        self.assertEqual(read["cache"], 2 * 2 * 22 * 4 * 64 * 128)


class Running(Folder):
    def test_a_command_that_takes_too_long_is_stopped_with_its_children(self):
        work = self.work()
        start = time.monotonic()
        ended = work.run(["/bin/sh", "-c", "echo begun; sleep 60 & wait"], 0.5)
        self.assertLess(time.monotonic() - start, 20)
        self.assertEqual((ended.code, ended.output), (STOPPED, "begun\n"))
        self.assertIn("begun", (self.folder / "log.txt").read_text())

    def test_a_missing_program_is_a_failure_and_no_exception(self):
        self.assertEqual(self.work().run([self.folder / "nothing"], 1).code, 127)

    def test_what_fails_is_a_problem_and_what_is_late_is_not(self):
        def fail(kind, text):
            raise kind(text)

        part = Part(time.monotonic() + 100)
        self.assertEqual(part.verdict(), "passed")
        part.attempt("a", fail, OutOfTime, "a: not run")
        self.assertEqual((part.verdict(), part.notes), ("incomplete", ["a: not run"]))
        part.attempt("b", fail, Failed, "wrong")
        part.attempt("c", fail, KeyError, "x")
        self.assertEqual((part.verdict(), part.problems), ("failed", ["b: wrong", "c: KeyError: 'x'"]))
        ended = Part(time.monotonic())
        ended.attempt("d", fail, Failed, "stopped")
        self.assertEqual((ended.verdict(), ended.notes), ("incomplete", ["d: stopped"]))
        with self.assertRaisesRegex(OutOfTime, "bench: not run, no time was left"):
            ended.limit(5, "bench")

    def test_the_last_lines_say_why(self):
        self.assertEqual(done(3, "table", "a\n\nb\nc\n").why(), "exited with 3: a / b / c")
        self.assertEqual(done(1, "only this\n").why(), "exited with 1: only this")


class Correctness(Folder):
    def test_goldens_are_verified_on_both_runtimes_in_each_precision(self):
        for name in ("bert", "llama", "not-a-model"):
            (self.folder / "goldens" / name).mkdir(parents=True)
        for name in ("bert", "llama"):
            (self.folder / "goldens" / name / "config.json").write_text("{}")
        planish = self.program(
            "planish",
            'case "$*" in\n'
            '  compile*) mkdir -p "$4"; touch "$4/planish.json";;\n'
            '  *llama-fp16*baseline*) echo "y: too far" >&2; exit 3;;\n'
            '  verify*) echo \'{"cases": [{"max_rel": 0.25, "cosine": 0.5}, {"max_rel": 0.5, "cosine": 1}]}\';;\n'
            "esac",
        )
        part = Part(time.monotonic() + 60)
        correctness.goldens(self.work(planish), part)
        cases = part.data["cases"]
        self.assertEqual(len(cases), 2 * 3 * 2)
        self.assertEqual(part.problems, ["llama fp16 on cuda-baseline: exited with 3: y: too far"])
        self.assertEqual({(case["max_rel"], case["cosine"]) for case in cases if case["verdict"] == "ok"}, {(0.5, 0.5)})

    def test_cases_without_time_are_not_failures(self):
        (self.folder / "goldens" / "bert").mkdir(parents=True)
        (self.folder / "goldens" / "bert" / "config.json").write_text("{}")
        part = Part(time.monotonic())
        correctness.goldens(self.work(), part)
        self.assertEqual((part.verdict(), part.problems), ("incomplete", []))
        self.assertIn("6 of 6 cases were not run", part.notes[0])

    def test_kernels_that_disagree_fail(self):
        planish = self.program(
            "planish", 'case "$3" in cuda) echo "the kernels agree in 7 cases";; *) echo "error: norms: off" >&2; exit 1;; esac'
        )
        part = Part(time.monotonic() + 60)
        correctness.kernels(self.work(planish), part)
        self.assertEqual(part.data["runtimes"]["cuda"]["summary"], "the kernels agree in 7 cases")
        self.assertEqual(part.problems, ["cuda-baseline: exited with 1: error: norms: off"])

    def test_reports_of_the_sanitizer(self):
        clean = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
        self.assertEqual(sanitizer.sanitized(done(0, clean)), {"verdict": "ok"})
        race = "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n"
        self.assertEqual(sanitizer.sanitized(done(99, race)), {"verdict": "failed", "why": "2 errors"})
        wrong = (
            "========= Invalid __global__ read of size 4 bytes\n=========     at flash(float *, int)+0x130\n"
            "========= ERROR SUMMARY: 1 error\n"
        )
        self.assertEqual(sanitizer.sanitized(done(99, wrong))["why"], "1 errors, in flash")
        self.assertEqual(sanitizer.sanitized(done(STOPPED))["verdict"], "stopped")
        self.assertEqual(sanitizer.sanitized(done(1, "", "Device not supported"))["verdict"], "failed")


def device_cell(**more):
    metric = {"median": 0.25, "p90": 0.3}
    cell = {
        "model": {"id": "bert-base-fp16"}, "backend": "cuda", "shape": {"batch": 32, "seq": 128}, "warnings": [],
        "device": {"gpu_compute": metric, "enqueue": metric, "cuda_graph": True}, "latency_ms": {"p50": 0.5, "n": 60},
        "accuracy": {"cos": 1.0, "max_rel": 0.001},
    }
    return {**cell, **more}


class Bench(Folder):
    def test_the_time_of_the_device_counts_where_there_is_one(self):
        artifacts = {"fp16": Path("/somewhere/bert-base-fp16")}
        cell = speed.cell_of(device_cell(), artifacts)
        self.assertEqual((cell["artifact"], cell["ms"], cell["clock"], cell["cuda_graph"]), ("fp16", 0.25, "device", True))
        cell = speed.cell_of(device_cell(device=None), artifacts)
        self.assertEqual((cell["ms"], cell["clock"]), (0.5, "host"))
        cell = speed.cell_of(device_cell(device=None, latency_ms=None, failure="y: off"), artifacts)
        self.assertEqual((cell.get("ms"), cell["failure"]), (None, "y: off"))

    def test_a_wrong_cell_is_a_problem_and_the_others_are_kept(self):
        document = {"cells": [device_cell(), device_cell(backend="cuda-baseline", device=None, latency_ms=None, failure="off")]}
        (self.folder / "cells.json").write_text(json.dumps(document))
        # The document is written to the last argument.
        planish = self.program("planish", f'for last; do :; done; cp {self.folder}/cells.json "$last"; exit 3')
        part = Part(time.monotonic() + 60)
        cells = speed.bench(self.work(planish), part, {"fp16": Path("/x/bert-base-fp16")}, Path("/x/bert"), [32], [128])
        self.assertEqual([cell.get("ms") for cell in cells], [0.25, None])
        self.assertEqual(part.problems, ["fp16 on cuda-baseline, 32 x 128: off"])

    def test_what_a_job_said_before_it_was_stopped_is_kept(self):
        python = self.program("python", 'echo \'{"who": "torch eager", "ms": 1}\'; sleep 60')
        part = Part(time.monotonic() + 100)
        lines = speed.python_job(self.work(python=str(python)), part, "torch_jobs", 5.0, kind="forward")
        self.assertEqual(lines, [{"who": "torch eager", "ms": 1}])
        self.assertEqual(part.verdict(), "incomplete")

    def test_contestants_that_fail_are_notes(self):
        part = Part(time.monotonic() + 100)
        speed.add_lines(part, [{"who": "torch eager", "past": 8, "failure": "no memory"}, {"onnxruntime": "1.2"}])
        self.assertEqual((part.verdict(), part.notes), ("passed", ["torch eager (8): no memory"]))
        self.assertEqual(part.data["onnxruntime"], "1.2")


def part_of(data, **more):
    return {"verdict": "passed", "seconds": 1.0, "problems": [], "notes": [], "data": data, **more}


def document(**more):
    """A document of a check; the figures are made up."""

    def cell(who, ms, model="bert-base", precision="fp16", batch=32, seq=128, **rest):
        return {"model": model, "precision": precision, "batch": batch, "seq": seq, "who": who, "ms": ms, **rest}

    gpu = {
        "name": "A GPU", "driver_version": "580.1", "memory_total": "100 MiB", "compute_cap": "9.0",
        "clocks_max_sm": "1980 MHz", "power_limit": "700 W",
    }
    environment = {
        "gpu": gpu, "cuda_of_driver": "13.0", "planish": "planish 0.1.0", "torch": {"version": "2.0"},
        "machine": {"processor": "P", "cores": 2, "system": "S"}, "libraries": {"libnvrtc.so": "/x/libnvrtc.so.13"},
        "runtimes": [{"name": "cuda", "available": True}],
    }
    prompt = {"model": "gpt2", "run": "prompt"}
    cells = [
        cell("cuda", 2.0, cuda_graph=True, clock="device"), cell("cuda-baseline", 5.0, cuda_graph=False, clock="device"),
        cell("torch.compile reduce-overhead", 3.0), cell("torch.compile max-autotune-no-cudagraphs", 1.0),
        cell("torch eager", 6.0), cell("cuda", 0.4, batch=1), cell("cuda-baseline", 0.5, batch=1),
        cell("cuda", 4.0, **prompt), cell("cuda", 0.1, model="gpt2", run="step"), cell("torch eager", 8.0, model="gpt2"),
    ]
    decode = {"config": checkpoints.CONFIGS["llama-1.1b"], "precision": "bf16", "cells": [
        {"who": "cuda", "past": 128, "ms": 1.0}, {"who": "torch eager", "past": 128, "ms": 3.0}]}
    head = {"batch": 32, "seq": 128, "hidden": 768, "rows": [50257, 50304], "cells": [
        {"who": "cuda", "precision": "fp16", "form": "off", "ms": 2.0}, {"who": "torch", "precision": "fp16", "rows": 50304, "ms": 1.5}]}
    attention = {"batch": 1, "heads": 16, "size": 64, "precision": "fp16", "shape": [32, 512], "width": 1024, "cells": [
        {"who": "torch SDPA flash", "length": 512, "ms": 0.5, "peak_bytes": 2**21}, {"who": "cuda", "length": 512, "ms": 0.4, "peak_bytes": None}],
        "rows": [{"who": "cuda", "what": "softmax", "ms": 0.1}]}
    padding = {"model": "bert-base", "precision": "fp16", "cells": [
        cell("cuda", 2.0), cell("cuda-baseline", 5.0), cell("cuda", 1.1, padding=2048), cell("cuda-baseline", 5.5, padding=2048)]}
    peaks = {"fp16": {"tflop_s": 700.0, "size": 8192}, "copy": {"gb_s": 4000.0}}
    parts = {"environment": part_of(environment), "peaks": part_of(peaks), "bench": part_of({"cells": cells})}
    parts.update(padding=part_of(padding), decode=part_of(decode), head=part_of(head), attention=part_of(attention))
    base = {"schema": 1, "started": "2026-11-22T00:00:00+00:00", "trial": False, "parts": parts}
    return {**base, "runtimes": {"fused": "cuda", "baseline": "cuda-baseline"}, **more}


class Report(Folder):
    def test_goals_are_held_against_figures(self):
        said, reached = goals.over_baseline(document())
        self.assertEqual((said, reached), ("**1.25x (bert-base 1 x 128)**, 2.50x (bert-base 32 x 128)", False))
        # The better of two modes counts.
        self.assertEqual(goals.over_compiled(document()), ("**0.50x (bert-base fp16 32 x 128)**", False))
        self.assertEqual(goals.latency(document()), ("0.400 ms (fp16)", True))
        share = flops.forward(checkpoints.CONFIGS["bert-base"], 32, 128) / 2e-3 / 700e12
        self.assertEqual(goals.peak_share(document()), (f"{100 * share:.2f} % (fp16)", True))
        self.assertEqual(goals.bandwidth(document())[1], False)

    def test_what_was_not_measured_is_not_claimed(self):
        empty = document(parts={"environment": document()["parts"]["environment"]})
        self.assertEqual([goal(empty)[1] for _, goal in goals.GOALS], [None] * len(goals.GOALS))
        self.assertEqual(goals.table(empty).count("| not measured |"), len(goals.GOALS))
        without_peaks = document()
        del without_peaks["parts"]["peaks"]
        self.assertEqual(goals.peak_share(without_peaks)[1], None)

    def test_tables_have_the_figures_with_their_ratios(self):
        text = report.text(document())
        row = "| bert-base fp16 | 32 x 128 | 2.00 | 51.1 | 5.00 (2.50) | 6.00 (3.00) | 1.00 (0.50) max-autotune-no-cudagraphs |"
        self.assertIn(row, text)
        # A step is not taken for a prompt.
        self.assertIn("| gpt2 fp16 | 32 x 128 | 4.00 |", text)
        self.assertIn("both replay one CUDA graph", text)
        self.assertIn("| 512 | 0.400 | 0.500, 2 |", text)
        self.assertIn("| 32 x 128 | 0 % | 2.00 | 5.00 | 1.00 |", text)
        self.assertIn("| 32 x 128 | 50 % | 1.10 | 5.50 | 0.55 |", text)
        self.assertIn("| fp16 | torch, the product alone | - | 1.50 |  |", text)
        self.assertIn("A GPU (100 MiB, compute capability 9.0", text)
        self.assertIn("2026-11-22", text)

    def test_problems_are_in_the_table_of_parts(self):
        kernels = part_of({"runtimes": {"cuda": {"summary": "7 cases"}}}, problems=["cuda-baseline: a | b"], verdict="failed")
        of = document()
        of["parts"]["kernels"] = kernels
        self.assertIn("| kernels | **failed** | 1 | cuda: 7 cases; **cuda-baseline: a \\| b** |", report.text(of))

    def test_several_checks_become_one(self):
        other = document()
        other["parts"] = {"environment": other["parts"]["environment"], "peaks": part_of({"copy": {"gb_s": 1.0}})}
        both = report.merged([document(), other])
        self.assertEqual(both["parts"]["peaks"]["data"], {"copy": {"gb_s": 1.0}})
        self.assertIn("bench", both["parts"])
        other["parts"]["environment"] = part_of({**other["parts"]["environment"]["data"], "planish": "planish 0.2.0"})
        with self.assertRaisesRegex(ValueError, "not of the same machine and program: planish is"):
            report.merged([document(), other])

    def test_a_page_changes_between_its_marks_only(self):
        page = self.folder / "page.md"
        page.write_text(f"before\n{report.MARKS[0]}\nold\n{report.MARKS[1]}\nafter\n")
        report.write(page, document())
        text = page.read_text()
        self.assertTrue(text.startswith("before\n") and text.endswith("after\n") and "old" not in text)
        without = document()
        without["parts"]["environment"]["data"]["gpu"] = None
        report.write(page, without)
        self.assertEqual(page.read_text(), f"before\n{report.MARKS[0]}\n{report.NOT_RUN}\n{report.MARKS[1]}\nafter\n")
        with self.assertRaisesRegex(ValueError, "a trial"):
            report.write(page, document(trial=True))
        page.write_text("nothing")
        with self.assertRaisesRegex(ValueError, "the page has no"):
            report.write(page, document())

    def test_the_page_of_the_repository_has_the_marks(self):
        page = (TOOLS.parent / "docs" / "gpu.md").read_text()
        self.assertIn(report.MARKS[1], report.replaced(page, "x"))

    def test_numbers_have_three_digits(self):
        self.assertEqual([tables.number(n) for n in (0.01234, 0.1234, 1.234, 12.34, 123.4)], ["0.0123", "0.123", "1.23", "12.3", "123"])


class Script(Folder):
    def test_wrong_arguments_are_refused(self):
        for argv in (["planish"], ["planish", "--out", "x", "--only", "nothing"], ["planish", "--out", "x", "--only", ","]):
            with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                gpu_check.parse(argv)

    def test_a_part_that_fails_does_not_stop_the_others(self):
        planish = self.program("planish", "exit 1")
        words = [str(planish), "--out", str(self.folder / "out"), "--small", "--device", "cpu", "--only", "kernels,peaks"]
        # The Python of the test may have no PyTorch: then that part fails, too.
        command = [sys.executable, str(TOOLS / "gpu_check.py"), *words, "--minutes", "1", "--python", "/bin/false"]
        ended = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertIn("failed: environment, kernels, peaks", ended.stderr)
        found = json.loads((self.folder / "out" / "check.json").read_text())
        self.assertEqual([part["verdict"] for part in found["parts"].values()], ["failed"] * 3)
        self.assertTrue(found["trial"])
        again = subprocess.run(
            [sys.executable, str(TOOLS / "gpu_check.py"), "--render", str(self.folder / "out" / "check.json")],
            capture_output=True, text=True,
        )
        self.assertEqual((again.returncode, again.stdout), (0, ended.stdout))

    def test_without_a_gpu_nothing_else_is_run(self):
        work = self.work("/bin/true", device="cuda")
        part = Part(time.monotonic() + 60)
        work.environment["PATH"] = str(self.folder)
        work.python = "/bin/false"
        correctness.environment(work, part)
        self.assertNotIn("gpu", part.data)
        self.assertIn("nvidia-smi exited with 127", part.problems[0])

    def test_a_bundle_runs_elsewhere(self):
        (self.folder / "goldens" / "bert").mkdir(parents=True)
        for name in ("config.json", "model.safetensors", "io.safetensors"):
            (self.folder / "goldens" / "bert" / name).write_text("x")
        planish = self.program("planish", "exit 0")
        said = bundle.write(self.folder / "bundle", planish, self.folder, TOOLS)
        self.assertIn("MiB", said)
        found = {str(path.relative_to(self.folder / "bundle")) for path in (self.folder / "bundle").rglob("*") if path.is_file()}
        golden = {"fixtures/goldens/bert/config.json", "fixtures/goldens/bert/model.safetensors"}
        self.assertTrue(golden | {"planish", "tools/gpu_check.py", "tools/gpu/work.py"} <= found)
        self.assertFalse([name for name in found if "io.safetensors" in name or "__pycache__" in name])
        script = self.folder / "bundle" / "tools" / "gpu_check.py"
        subprocess.run([sys.executable, str(script), "--help"], check=True, capture_output=True)
        with self.assertRaisesRegex(ValueError, "is there already"):
            bundle.write(self.folder / "bundle", planish, self.folder, TOOLS)


def with_parts(**parts):
    """A document of a GPU whose parts have these data."""
    found = {name: {"verdict": "passed", "seconds": 1.0, "problems": [], "notes": [], "data": data} for name, data in parts.items()}
    runtimes = {"fused": "cuda", "baseline": "cuda-baseline"}
    return {"started": "2026-01-02T03:04:05+00:00", "trial": False, "runtimes": runtimes, "parts": found}


class WithoutPyTorch(Folder):
    def test_what_needs_it_is_a_note(self):
        python = self.program("python", "echo False")
        work, part = self.work(python=str(python)), Part(time.monotonic() + 60)
        job = lambda: speed.python_job(work, part, "torch_jobs", 5.0, kind="head")
        self.assertEqual([part.attempt("PyTorch", job) for _ in range(2)], [None, None])
        self.assertEqual((part.problems, part.notes), ([], ["PyTorch is not installed: nothing is compared with it"]))


class Findings(Folder):
    def test_the_sanitizer_leaves_the_others_as_they_were(self):
        (self.folder / "bin").mkdir()
        program = self.folder / "bin" / sanitizer.SANITIZER
        program.write_text("#!/bin/sh\nexit 0\n")
        program.chmod(0o755)
        work, part = self.work("/bin/true"), Part(time.monotonic() + 60)
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{program.parent}:{before}"
        try:
            sanitizer.sanitize(work, part)
        finally:
            os.environ["PATH"] = before
        self.assertEqual(work.environment, {})
        self.assertTrue(part.data["runs"])

    def test_a_page_without_the_parts_of_a_table_is_written(self):
        document = with_parts(torch={"cells": [{"who": "torch eager", "past": 8, "ms": 1.0, "of": "decode"}]}, peaks={"copy": {"gb_s": 1.0}})
        self.assertIn("What to mend", page.text(document))

    def test_launches_of_a_node_make_one_row(self):
        node = lambda name, operator, kernel, ms: {"name": name, "operator": operator, "provider": kernel, "total_ms": ms}
        nodes = [
            node("h", "fused_linear", "cublasLt", 2.0), node("h", "fused_linear", "elementwise_rows", 1.0),
            node("d", "linear", "cublasLt", 4.0), node("outputs", "copy", "copy", 0.5), node("outputs", "copy", "copy", 0.5),
        ]
        plan = [
            {"operator": "linear", "kernels": ["cublasLt"], "launches": 1, "predicted_us": 1000.0},
            {"operator": "fused_linear", "kernels": ["cublasLt", "elementwise_rows"], "launches": 2, "predicted_us": 2900.0},
        ]
        rows = times.joined(nodes, plan)
        self.assertEqual([(row["operator"], row["ms"], row["found"]) for row in rows], [("linear", 4.0, 1), ("fused_linear", 3.0, 1), ("copy", 1.0, 2)])
        case = {"model": "bert", "precision": "fp16", "batch": 1, "seq": 8, "past": 0, "ms": 8.0, "predicted_ms": 4.0, "run_ms": 8.1, "launches": 5, "rows": rows}
        self.assertEqual([row["operator"] for row in times.slow(case)], ["linear"])
        document = with_parts(times={"gpu": "h100", "cases": [case]})
        (found,) = findings.slow_kernels(document)
        self.assertEqual(found.text, "linear (cublasLt) takes 4.0 times the prediction, 50 % of bert fp16 1 x 8")
        self.assertIn("| linear | cublasLt | 1 |", measured.times(document))

    def test_a_choice_that_another_form_beats_is_named(self):
        cell = lambda form, ms, seq=512: {"what": "heads of 64", "seq": seq, "form": form, "ms": ms, "who": "cuda"}
        cells = [cell("own", 1.0), cell("small tiles", 0.8), cell("own", 1.0, 1024), cell("small tiles", 0.95, 1024)]
        document = with_parts(limits={"cells": cells})
        (found,) = findings.wrong_choices(document)
        self.assertEqual(found.text, "heads of 64, 1 x 512 tokens: `small tiles` is 1.25 times as fast as the planner's choice")
        self.assertIn("**small tiles**", measured.limits(document))
        self.assertEqual(len(sweeps.choices(cells)), 2)

    def test_the_page_says_what_to_mend_first(self):
        document = with_parts(kernels={})
        document["parts"]["kernels"]["problems"] = ["cuda: row_norm <of> f16 is `wrong`"]
        page.write(self.folder, document)
        text = (self.folder / "gpu.html").read_text()
        self.assertIn("row_norm &lt;of&gt; f16 is <code>wrong</code>", text)
        self.assertLess(text.index("1 findings"), text.index("What was checked"))
        self.assertNotIn("Nothing: every part", text)
        self.assertIn("Nothing: every part", page.text(with_parts(kernels={})))

    def test_tables_become_html(self):
        rows = [["a", "b|c"], ["**1**", "x < y"]]
        given = page.converted("### Title\n\nWords of `code`.\n\n" + tables.markdown(rows))
        for part in ("<h3>Title</h3>", "<p>Words of <code>code</code>.</p>", "<th>b|c</th>", '<strong class="bad">1</strong>', "x &lt; y"):
            self.assertIn(part, given)

    def test_others_are_in_the_tables_of_what_they_are_held_against(self):
        document = with_parts(bench={"cells": [{"who": "cuda"}]}, torch={"cells": [{"who": "torch eager", "of": "bench"}, {"who": "x", "of": "decode"}]})
        self.assertEqual([cell["who"] for cell in tables.cells_of(document, "bench")], ["cuda", "torch eager"])

    def test_the_inputs_of_a_step_are_those_of_a_cache(self):
        config = checkpoints.SMALL["llama-1.1b"]
        file = self.folder / "step.safetensors"
        workloads.step_inputs(file, config, 5)
        entries, _ = safetensors.read_header(file)
        shapes = {entry.name: (entry.dtype, entry.shape) for entry in entries}
        self.assertEqual(shapes["past_key_values.1.value"], ("BF16", (1, 2, 5, 16)))
        self.assertEqual(shapes["attention_mask"], ("I64", (1, 6)))
        self.assertEqual(len(shapes), 3 + 2 * config["num_hidden_layers"])


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Modules(Folder):
    def test_modules_take_all_tensors_of_their_checkpoints(self):
        from gpu import models

        for name in ("bert-base", "gpt2", "llama-1.1b"):
            checkpoints.write(self.folder / name, checkpoints.SMALL[name], period=1009)
            module = models.load(self.folder / name, torch.float32, "cpu")
            weights = sum(weight.numel() for weight in module.state_dict().values())
            self.assertEqual(weights, checkpoints.elements(checkpoints.tensors(checkpoints.SMALL[name])))

    def test_both_forms_of_attention_agree(self):
        from gpu import models

        for name in ("bert-base", "gpt2"):
            checkpoints.write(self.folder / name, checkpoints.SMALL[name], period=1009)
            module = models.load(self.folder / name, torch.float32, "cpu")
            tokens = torch.randint(0, 100, (2, 9))
            given = {"input_ids": tokens, "token_type_ids": torch.zeros_like(tokens)}
            outputs = []
            for how in ("written", "sdpa"):
                module.how = how
                outputs.append(module(*(given[name] for name in module.inputs))[0])
            torch.testing.assert_close(*outputs)

    def test_a_step_gives_what_the_prompt_gives(self):
        from gpu import models

        checkpoints.write(self.folder, checkpoints.SMALL["llama-1.1b"], period=1009)
        module = models.load(self.folder, torch.float32, "cpu")
        tokens = torch.randint(0, 100, (1, 7))
        prompt = module(tokens, *module.angles(0, 7), module.cache(1, 7), 0)
        cache = module.cache(1, 7)
        module(tokens[:, :6], *module.angles(0, 6), cache, 0)
        step = module(tokens[:, 6:], *module.angles(6, 1), cache, 6)
        torch.testing.assert_close(step, prompt[:, 6:], atol=1e-5, rtol=1e-4)


if __name__ == "__main__":
    unittest.main()
