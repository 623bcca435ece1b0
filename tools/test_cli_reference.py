"""Tests of cli_reference.py on a small help text: python3 -m unittest discover -s tools"""

import unittest

import cli_reference

HELP = {
    "": "Compiles\n\nUsage: planish <COMMAND>\n\nCommands:\n  run   Run it\n  help  Print help\n\nOptions:\n  -h\n",
    "run": "Run it\n\nOptions:\n          \n  --x <X>  " + "word " * 30 + "\n",
}
PAGE = """# Manual
<!-- help: begin -->
old
<!-- help: end -->
between
<!-- help run: begin -->
<!-- help run: end -->
after
"""


class ReferenceTest(unittest.TestCase):
    def test_sections_are_replaced_and_the_rest_stays(self):
        page = cli_reference.rewritten(PAGE, HELP.__getitem__)
        self.assertTrue(page.startswith("# Manual\n<!-- help: begin -->\n```text\nCompiles\n"))
        self.assertIn("-h\n```\n<!-- help: end -->\nbetween\n<!-- help run: begin -->\n```text\nRun it\n", page)
        self.assertTrue(page.endswith("```\n<!-- help run: end -->\nafter\n"))
        self.assertNotIn("old", page)
        self.assertEqual(cli_reference.rewritten(page, HELP.__getitem__), page)

    def test_long_lines_are_wrapped_below_their_description(self):
        page = cli_reference.rewritten(PAGE, HELP.__getitem__)
        lines = page.splitlines()
        self.assertTrue(all(len(line) <= cli_reference.WIDTH and line == line.rstrip() for line in lines))
        first = next(index for index, line in enumerate(lines) if line.startswith("  --x <X>  word word"))
        self.assertTrue(lines[first + 1].startswith(" " * 11 + "word"))
        self.assertEqual(" ".join(lines[first : first + 2]).split(), HELP["run"].splitlines()[-1].split())

    def test_each_command_has_one_section(self):
        for page in [PAGE.replace("run: begin", "run: start"), PAGE + PAGE, PAGE.replace("help run", "help walk")]:
            with self.assertRaises(SystemExit):
                cli_reference.rewritten(page, HELP.__getitem__)


if __name__ == "__main__":
    unittest.main()
