"""What check_report.py finds on pages that are wrong."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from typing import List

import check_report

PLOT = """<svg class="plot" viewBox="0 0 300 100" width="300" height="100"><title>plot</title>{marks}{texts}</svg>"""
MARK = """<rect class="mark" x="10" y="10" width="20" height="20"><title>mark</title></rect>"""


def problems(body: str) -> List[str]:
    """What is wrong with a page that has this between its tags."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(f"<!doctype html><html><head><title>page</title><meta name='viewport' content='width=device-width'></head><body style='background: #fff'>{body}</body></html>")
        with contextlib.redirect_stdout(io.StringIO()):
            return check_report.check(check_report.chromium(), page, Path(folder) / "shots")


@unittest.skipUnless(check_report.chromium(), "Chromium is not there")
class Pages(unittest.TestCase):
    def test_a_good_page_has_no_problems(self) -> None:
        self.assertEqual(problems("<p>text</p>" + PLOT.format(marks=MARK, texts="<text x='40' y='50'>a</text>")), [])

    def test_what_is_wrong_is_found(self) -> None:
        texts = "".join(f"<text x='{x}' y='50'>{text}</text>" for x, text in ((100, "under"), (102, "over"), (290, "beyond")))
        outside = MARK.replace('x="10"', 'x="290"').replace(">mark<", ">outside<")
        empty = MARK.replace('width="20"', 'width="0"')
        body = (
            "<script>console.error('an error'); document.write('<p>written</p>')</script><img src='https://example.invalid/a.png'>"
            "<p style='color: #aaa' class='pale'>pale</p><div style='width: 2000px'>wide</div>"
            + PLOT.format(marks=MARK + outside + empty, texts=texts)
            + PLOT.format(marks="", texts="")
        )
        found = "\n".join(problems(body))
        for expected in (
            "1280-light: console: ", "390-dark: console: ", "request: https://example.invalid/a.png", "p.pale: contrast 2.32",
            "390-light: the page is 2008 px wide, the screen 390", '"under" is on "over"', 'the text "beyond" is beyond the edge', "an empty mark",
            'the mark "outside" is beyond the edge', "plot: no marks", "1280: the page looks different without scripts",
        ):  # fmt: skip
            self.assertIn(expected, found)

    def test_a_page_without_plots_is_wrong(self) -> None:
        self.assertIn("1280-light: no plot is shown", problems("<p>text</p>"))


if __name__ == "__main__":
    unittest.main()
