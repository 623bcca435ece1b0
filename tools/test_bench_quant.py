"""Tests of tools/bench_quant.py and its parts. Those that need NumPy are skipped without it."""

import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

import bench_quant
from quantization import picture, report, texts

try:
    import numpy
except ImportError:
    numpy = None


class Texts(unittest.TestCase):
    def test_paragraphs_are_blocks_of_enough_words(self):
        long = " ".join(["word"] * texts.WORDS)
        self.assertEqual(texts.paragraphs(f"a title\n\n{long}\n  and   more\n \nshort"), [f"{long} and more"])

    def test_docstrings_are_those_of_modules_classes_and_functions(self):
        long = " ".join(["word"] * texts.WORDS)
        source = f'"""{long} one"""\nclass A:\n  """{long} two"""\n  def f():\n    """{long} >>> 1"""\nx = """{long} three"""\n'
        self.assertEqual(texts.docstrings(source), [f"{long} one", f"{long} two"])

    def test_choosing_depends_on_the_texts_alone(self):
        some = [f"text {n}" for n in range(20)]
        self.assertEqual(texts.choose(some, 5), texts.choose(reversed(some + some), 5))
        with self.assertRaisesRegex(ValueError, "3 texts are wanted, and there are 2"):
            texts.choose(["a", "b", "a"], 3)

    def test_joined_texts_have_enough_words(self):
        self.assertEqual(texts.joined(["a b", "c", "d"], 3, 3), ["a b c", "d a b", "c d a b"])


class Settings(unittest.TestCase):
    def test_a_line_is_a_name_and_its_arguments(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "settings.txt"
            file.write_text("# nothing\nfloat32=\nsplit 32=--int8 --recipe split-columns=32\n")
            self.assertEqual(bench_quant.read_settings(file), {"float32": "", "split 32": "--int8 --recipe split-columns=32"})
            for bad in ("no arguments\n", "a=1\na=2\n"):
                file.write_text(bad)
                with self.assertRaises(SystemExit):
                    bench_quant.read_settings(file)

    def test_the_settings_of_the_bench_can_be_read(self):
        self.assertIn("float32", bench_quant.read_settings(bench_quant.PARTS / "settings.txt"))


def figures():
    def cells(ratio):
        return {"1 x 128": {"ms": 10 / ratio, "ratio": ratio}, "8 x 128": {"ms": 80 / ratio, "ratio": ratio}}

    def of(mean):
        return {domain: {"mean": mean, "least": mean, "neighbours": 95.0} for domain in report.DOMAINS}

    return {
        "model": "tiny",
        "processor": {"name": "A Processor", "cores": 2, "instructions": ["avx2"]},
        "python": "3.11.0",
        "versions": {"onnxruntime": "1", "openvino": "2", "nncf": "3"},
        "precision": {"NNCF on OpenVINO": "bf16"},
        "load": [0.0, 0.0, 0.0],
        "priority": "nice value 0",
        "rounds": 3,
        "threads": 2,
        "texts": {"licenses": {"texts": 2, "sha256": "0123456789abcdef"}},
        "calibration": {"a": {"seconds": 1.0, "cpu_seconds": 2.0, "peak_mb": 300.0}},
        "accuracy": {"slow": of(0.999), "planish fast": of(0.99)},
        "latency": {"slow": cells(0.5), "planish fast": cells(2.0)},
    }


class Report(unittest.TestCase):
    def test_the_fastest_comes_first(self):
        rows = report.accuracy_and_speed(figures()).splitlines()
        self.assertEqual(rows[2].split(" | ")[0], "| planish fast")
        self.assertEqual(rows[3], "| slow | 0.99900 / 0.9990 / 95.0 | 0.99900 / 0.9990 / 95.0 | 20.0, 0.50 | 160.0, 0.50 |")

    def test_the_page_changes_between_its_marks_only(self):
        begin, end = report.marks("tiny")
        page = f"before\n{begin}\nold\n{end}\nafter\n"
        self.assertEqual(report.replaced(page, "tiny", "new"), f"before\n{begin}\nnew\n{end}\nafter\n")
        with self.assertRaisesRegex(ValueError, "the page has no"):
            report.replaced("nothing", "tiny", "new")

    def test_what_is_written_is_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.md"
            page.write_text("\n".join(report.marks("tiny")))
            report.write(page, figures())
            self.assertIn("| planish fast |", page.read_text())
            self.assertTrue(page.with_name("page-tiny.json").is_file())
            tree = xml.parse(page.with_name("page-tiny.svg"))
            drawn = [element for element in tree.iter() if element.tag.endswith("circle")]
            # The faster one is further right, the more accurate one further up.
            slow, fast = ({key: float(point.get(key)) for key in ("cx", "cy")} for point in drawn)
            self.assertLess(slow["cx"], fast["cx"])
            self.assertLess(slow["cy"], fast["cy"])

    def test_labels_keep_apart_and_in_order(self):
        lowest = picture.HEIGHT - picture.BOTTOM
        placed = picture.labels([100.0, 101.0, 50.0, lowest, lowest])
        self.assertEqual(placed[2], 50.0)
        ordered = sorted(placed)
        self.assertTrue(all(b - a >= picture.LINE for a, b in zip(ordered, ordered[1:])))
        self.assertLessEqual(ordered[-1], lowest)


@unittest.skipIf(numpy is None, "NumPy is not installed")
class Metrics(unittest.TestCase):
    def test_neighbours_are_those_of_all_pairs(self):
        from quantization import metrics

        rows = numpy.random.default_rng(0).normal(size=(12, 4))
        rows /= numpy.linalg.norm(rows, axis=1, keepdims=True)
        others = [[(float(rows[i] @ rows[j]), j) for j in range(12) if j != i] for i in range(12)]
        self.assertEqual(metrics.nearest(rows).tolist(), [max(row)[1] for row in others])

    def test_figures_of_a_worked_example(self):
        from quantization import metrics

        wanted = numpy.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        given = numpy.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
        # The nearest of the middle row changes from the first to the last one; that of the last one stays the middle.
        found = metrics.embeddings(wanted, given)
        self.assertAlmostEqual(found["mean"], (1 + 0.96 + 1) / 3)
        self.assertAlmostEqual(found["least"], 0.96)
        self.assertAlmostEqual(found["neighbours"], 200 / 3)


if __name__ == "__main__":
    unittest.main()
