#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds what the docs say of the example: five lines make a program data parallel."""

import difflib
import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def code(path: str):
    """The lines of a file without comments."""
    lines = (ROOT / path).read_text().splitlines()
    return [re.sub(r"\s*//.*", "", line) for line in lines if not line.startswith("//")]


class Example(unittest.TestCase):
    def setUp(self):
        self.before = code("examples/single.cpp")
        self.after = code("examples/data_parallel.cpp")
        diff = list(difflib.ndiff(self.before, self.after))
        self.added = [line[2:].strip() for line in diff if line.startswith("+ ")]

    def test_five_lines_are_added_or_changed(self):
        self.assertEqual(len(self.added), 5, self.added)

    def test_they_are_under_sixty_lines(self):
        for name in ("single", "data_parallel", "sharded", "checkpoints"):
            lines = (ROOT / f"examples/{name}.cpp").read_text().splitlines()
            self.assertLess(len(lines), 60, name)

    def test_ten_more_lines_make_it_elastic(self):
        elastic = (ROOT / "examples/elastic.cpp").read_text().splitlines()
        plain = (ROOT / "examples/data_parallel.cpp").read_text().splitlines()
        self.assertLessEqual(len(elastic) - len(plain), 10)

    def test_the_docs_show_what_an_elastic_loop_changes(self):
        names = ("examples/data_parallel.cpp", "examples/elastic.cpp")
        before, after = ((ROOT / name).read_text().splitlines() for name in names)
        diff = "\n".join(difflib.unified_diff(before, after, *names, n=1, lineterm=""))
        self.assertIn(f"```diff\n{diff}\n```", (ROOT / "docs/api.md").read_text())

    def test_the_readme_shows_those_lines(self):
        readme = (ROOT / "README.md").read_text()
        block = re.search(r"```diff\n(.*?)```", readme, re.S).group(1)
        shown = [line[1:].strip() for line in block.splitlines() if line.startswith("+")]
        self.assertEqual(len(shown), 5)
        for line in shown:
            self.assertTrue(any(line in added for added in self.added), line)

    def test_the_tutorial_shows_those_lines(self):
        tutorial = (ROOT / "docs/tutorial.md").read_text()
        for line in self.added:
            self.assertIn(line, tutorial)


if __name__ == "__main__":
    unittest.main()
