# SPDX-License-Identifier: Apache-2.0
"""No order of a pipeline takes more than 100 lines: it says whose turn it is, nothing else.

An order is a function that step/generators/turns.h declares; counted are all lines of the file
that defines it. As a program of its own, prints them: generator_size_test.py --print
"""

import re
import sys
import tempfile
import unittest
from pathlib import Path

GENERATORS = Path(__file__).resolve().parents[2] / "src" / "cohort" / "step" / "generators"
MOST = 100

_ORDER = re.compile(r"^std::vector<Turn> (\w+)\(const PipePlace& here\)", re.MULTILINE)


def order_lines(folder):
    """Lines of the file of each order, by its name."""
    names = _ORDER.findall((folder / "turns.h").read_text())
    lines = {}
    for name in names:
        files = [file for file in sorted(folder.glob("*.cpp"))
                 if name in _ORDER.findall(file.read_text())]
        if len(files) != 1:
            raise ValueError(f"{name} is defined in {len(files)} files")
        lines[name] = len(files[0].read_text().splitlines())
    return lines


class GeneratorSizeTest(unittest.TestCase):
    def test_no_order_takes_more_than_it_may(self):
        lines = order_lines(GENERATORS)
        self.assertEqual(set(lines), {"gpipe", "one_forward_one_backward", "interleaved",
                                      "zero_bubble"})
        for name, count in lines.items():
            self.assertLessEqual(count, MOST, f"lines of {name}")

    def test_all_lines_of_the_file_count(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            head = "std::vector<Turn> long_one(const PipePlace& here)"
            (folder / "turns.h").write_text(head + ";\n")
            (folder / "long.cpp").write_text("//\n" * MOST + head + " { return {}; }\n")
            self.assertEqual(order_lines(folder), {"long_one": MOST + 1})

    def test_an_order_that_nobody_defines_is_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "turns.h").write_text(
                "std::vector<Turn> lost(const PipePlace& here);\n")
            self.assertRaises(ValueError, order_lines, Path(folder))


if __name__ == "__main__":
    if sys.argv[1:] == ["--print"]:
        for order, count in order_lines(GENERATORS).items():
            print(order, count)
    else:
        unittest.main()
