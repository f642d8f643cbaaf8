# SPDX-License-Identifier: Apache-2.0
"""A name leads to one place: no two files of the library, the program and the recipes have one
basename, and no two rooms have a class or struct of one name, in headers or in sources.

Whoever looks for `transfers.h` or `Transfers` finds one of them and need not ask which is meant.
Headers that stand in for those of others (stand_in/) keep the names of those.
"""

import sys
import tempfile
import unittest
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "tools"), str(Path(__file__).parent)]
import class_size_test  # noqa: E402
import cpp_text  # noqa: E402

FOLDERS = ("include", "src/cohort", "cli", "recipes")
# A public header and the header of the room behind it, which includes it.
COUNTERPARTS = {
    "checkpoint.h": ("include/cohort", "src/cohort/checkpoint"),
    "error.h": ("include/cohort", "src/cohort/core"),
    "trainer.h": ("include/cohort", "src/cohort/train"),
}


def files(root):
    for path in cpp_text.sources(root, FOLDERS):
        if "stand_in" not in path.parts:
            yield path


def in_several(places):
    """What lies in several folders, and in which."""
    return {name: tuple(sorted(folders)) for name, folders in sorted(places.items())
            if len(folders) > 1}


def shared_basenames(root):
    places = defaultdict(set)
    for path in files(root):
        places[path.name].add(path.parent.relative_to(root).as_posix())
    return in_several(places)


def is_for_tests(path):
    return path.stem.startswith("testing_") or path.stem.endswith(("_test", "_bench"))


def shared_classes(root):
    places = defaultdict(set)
    for path in files(root):
        if not is_for_tests(path):
            for found in class_size_test.classes(path.read_text()):
                if "::" not in found.name:
                    places[found.name].add(path.parent.relative_to(root).as_posix())
    return in_several(places)


class Names(unittest.TestCase):
    def test_a_basename_lies_in_one_folder(self):
        self.assertEqual(shared_basenames(ROOT), COUNTERPARTS)

    def test_a_class_is_of_one_room(self):
        self.assertEqual(shared_classes(ROOT), {})

    def test_both_are_noticed(self):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in (("src/cohort/comm/a.h", "struct A { int x; };\nclass B {};\n"),
                               ("src/cohort/comm/gloo/b.h", "class A {};\nclass B;\n"),
                               ("cli/a.h", "struct C { class B { int x; }; };\n"),
                               ("src/cohort/comm/gloo/stand_in/b.h", "class C {};\n"),
                               ("src/cohort/step/d.h", "struct D { int x; };\n"),
                               ("src/cohort/engine/e.cpp", "namespace {\nclass D {};\n}\n"),
                               ("src/cohort/engine/e_test.cpp", "struct A {};\n")):
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            self.assertEqual(shared_basenames(root), {"a.h": ("cli", "src/cohort/comm")})
            self.assertEqual(shared_classes(root),
                             {"A": ("src/cohort/comm", "src/cohort/comm/gloo"),
                              "D": ("src/cohort/engine", "src/cohort/step")})


if __name__ == "__main__":
    unittest.main()
