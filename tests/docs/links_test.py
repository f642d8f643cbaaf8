#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every relative link of the README and the docs leads to a file of the repository."""

import re
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


def broken(root: Path):
    pages = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    for page in pages:
        for target in LINK.findall(page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                yield f"{page.relative_to(root)}: {target}"


class Links(unittest.TestCase):
    def test_all_lead_somewhere(self):
        self.assertEqual(list(broken(ROOT)), [])

    def test_the_table_of_decisions_has_them_all(self):
        table = (ROOT / "docs/README.md").read_text()
        listed = re.findall(r"^\| \[\d{4}\]\(decisions/([^)]+)\)", table, re.M)
        files = sorted(f.name for f in (ROOT / "docs/decisions").glob("[0-9]*.md"))
        self.assertEqual(listed, files)

    def test_one_that_does_not_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "README.md"
            page.write_text("[web](https://a.b/c), [self](README.md#x), [a](nowhere.md)")
            self.assertEqual(list(broken(Path(folder))), ["README.md: nowhere.md"])


if __name__ == "__main__":
    unittest.main()
