#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every class of the public headers is a word of docs/glossary.md, which has each word once, in
order."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Not words of ours: settings of a class, kinds of errors, what LibTorch has, numbers and ranges.
ENDINGS = ("Options", "Error", "Kind", "Range")
OTHERS = {"Error", "Linear", "Conv2d", "BatchNorm2d", "Dropout", "Module", "Optimizer", "Tensor",
          "ReduceOp", "CallOp", "Phase"}


def words():
    text = (ROOT / "docs/glossary.md").read_text()
    return [word.strip() for word in re.findall(r"^\| ([^|]+) \|", text, re.M)
            if word.strip() not in ("word", "---")]


def phrase(name):
    """BlockCall -> "block call"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name).lower()


def public_classes():
    found = set()
    for header in (ROOT / "include/cohort").glob("*.h"):
        # A declaration that ends at once is of somebody else's class.
        found.update(re.findall(r"^(?:class|struct)(?: \[\[nodiscard\]\])? ([A-Z]\w+)\b[^;\n]*\{?$",
                                header.read_text(), re.M))
    return {name for name in found if not name.endswith(ENDINGS) and name not in OTHERS}


class Glossary(unittest.TestCase):
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


if __name__ == "__main__":
    unittest.main()
