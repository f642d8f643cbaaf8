#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/glossary.md has every noun of the code once, in order, and no other.

Words: every class and struct of the public headers is one. Classes: every other `class` that a
header of src/cohort/, cli/ or recipes/ declares outside of any other has a row with its room and
what it is, in at most 15 words. So has a struct that a header of another room names; most others
are data of one class, and may have a row. No class is in both tables, and no two classes have one
name (of structs tests/style/names_test.py says the same).

Not asked for: settings (Options) and kinds of errors (Error), which their endings explain; headers
of tests (testing_*, *_test.h); and stand-ins for headers of others (stand_in/)."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST_WORDS = 15
# Not words of ours: settings of a class, kinds of errors, what LibTorch has, numbers and ranges.
ENDINGS = ("Options", "Error", "Kind", "Range")
OTHERS = {"Error", "Linear", "Conv2d", "BatchNorm2d", "Dropout", "Module", "Optimizer", "Tensor",
          "ReduceOp", "CallOp", "Phase"}
# A declaration that ends at once is of somebody else's class, and one with :: is of a nested one.
DECLARED = r"^{}(?: \[\[\w+\]\])? ([A-Z]\w+)(?!\w|::)[^;\n]*$"


def section(title):
    """The lines of the glossary behind a heading."""
    text = (ROOT / "docs/glossary.md").read_text()
    return text.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]


def words():
    return [word.strip() for word in re.findall(r"^\| ([^|]+) \|", section("Words"), re.M)
            if word.strip() not in ("word", "---")]


def rows():
    """(class, room, what it is)"""
    return re.findall(r"^\| `(\w+)` \| ([\w/]+) \| ([^|]+) \|$", section("Classes"), re.M)


def phrase(name):
    """BlockCall -> "block call"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()


def declared(text, kinds="class"):
    return re.findall(DECLARED.format(f"(?:{kinds})"), text, re.M)


def public_classes():
    found = set()
    for header in (ROOT / "include/cohort").glob("*.h"):
        found.update(declared(header.read_text(), "class|struct"))
    return {name for name in found if not name.endswith(ENDINGS) and name not in OTHERS}


def private_headers():
    """(room, header)"""
    for folder, base in (("src/cohort", "src/cohort"), ("cli", "."), ("recipes", ".")):
        for header in sorted((ROOT / folder).rglob("*.h")):
            if header.name.startswith("testing_") or header.stem.endswith("_test"):
                continue
            if "stand_in" not in header.parts:
                yield str(header.parent.relative_to(ROOT / base)), header


def private_classes():
    """(class, room) of every class that needs a row or a word."""
    return [(name, room) for room, header in private_headers()
            for name in declared(header.read_text())
            if not name.endswith(("Options", "Error"))]


def shared_structs():
    """(struct, room) of every struct that a header of another room names."""
    headers = [(room, header.read_text()) for room, header in private_headers()]
    homes = {name: room for room, text in headers for name in declared(text, "struct")
             if not name.endswith(ENDINGS)}
    names = re.compile(r"\b[A-Z]\w+")
    return sorted({(name, homes[name]) for room, text in headers
                   for name in names.findall(re.sub(r"//.*", "", text))
                   if homes.get(name, room) != room})


class Words(unittest.TestCase):
    def test_every_public_class_is_a_word(self):
        known = set(words())
        missing = sorted(phrase(n) for n in public_classes()
                         if phrase(n) not in known and phrase(n).rstrip("s") not in known)
        self.assertEqual(missing, [], "not in docs/glossary.md")

    def test_a_word_is_there_once(self):
        found = words()
        self.assertGreater(len(found), 60)
        self.assertEqual(len(found), len(set(found)))

    def test_words_are_in_order(self):
        self.assertEqual(words(), sorted(words()))


class Classes(unittest.TestCase):
    def test_every_class_has_a_row_or_is_a_word(self):
        known = set(words())
        listed = {name for name, _, _ in rows()}
        missing = sorted(f"{name} ({room})" for name, room in private_classes()
                         if name not in listed and phrase(name) not in known)
        self.assertEqual(missing, [], "not in docs/glossary.md")

    def test_every_struct_that_rooms_share_has_a_row_or_is_a_word(self):
        known = set(words())
        listed = {name for name, _, _ in rows()}
        shared = shared_structs()
        self.assertGreater(len(shared), 40)
        self.assertEqual([s for s in shared if s[0] not in listed and phrase(s[0]) not in known],
                         [], "not in docs/glossary.md")

    def test_every_row_is_of_a_class_in_that_room(self):
        there = {(name, room) for room, header in private_headers()
                 for name in declared(header.read_text(), "class|struct|enum class")}
        self.assertEqual([r[:2] for r in rows() if r[:2] not in there], [])

    def test_every_line_of_the_table_is_a_row(self):
        lines = [line for line in section("Classes").splitlines() if line.startswith("| `")]
        self.assertEqual(len(lines), len(rows()))
        self.assertGreater(len(lines), 200)

    def test_rows_are_in_order_and_short(self):
        names = [name for name, _, _ in rows()]
        self.assertEqual(names, sorted(set(names)))
        self.assertEqual([r for r in rows() if len(r[2].split()) > MOST_WORDS], [])

    def test_a_name_is_of_one_thing(self):
        names = [name for name, _ in private_classes()]
        self.assertEqual(sorted({n for n in names if names.count(n) > 1}), [])
        both = sorted({name for name, _, _ in rows()} & {n for n in names if phrase(n) in words()})
        self.assertEqual(both, [], "a word and a class")


class Declarations(unittest.TestCase):
    def test_what_counts_as_one(self):
        text = ("class Ax {\n};\nclass Bx;\nclass [[nodiscard]] Cx : public Dx {\n"
                "  class Inner {\nclass Ax::Nested {\nstruct Sx {\nenum class Ex {\n"
                "template <int n>\nclass Tx final : Ux {\n// class Vx {\n")
        self.assertEqual(declared(text), ["Ax", "Cx", "Tx"])
        self.assertEqual(declared(text, "class|struct|enum class"), ["Ax", "Cx", "Sx", "Ex", "Tx"])


if __name__ == "__main__":
    unittest.main()
