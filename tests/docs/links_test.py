#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every relative link of the README and the docs leads to a file of the repository, and to a
heading of it if it names one. Every page is listed."""

import re
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
import doc_pages  # noqa: E402


def broken(pages: dict):
    """What is broken in a repository of these pages."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in pages.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return doc_pages.broken_links(Path(folder))


class Links(unittest.TestCase):
    def test_all_lead_somewhere(self):
        self.assertEqual(doc_pages.broken_links(ROOT), [])

    def test_the_table_of_decisions_has_them_all(self):
        table = (ROOT / "docs/README.md").read_text()
        listed = re.findall(r"^\| \[\d{4}\]\(decisions/([^)]+)\)", table, re.M)
        files = sorted(f.name for f in (ROOT / "docs/decisions").glob("[0-9]*.md"))
        self.assertEqual(listed, files)

    def test_the_contents_list_every_page_once(self):
        listed = []
        for section in doc_pages.navigation(ROOT):
            for entry in section.values():
                entries = entry if isinstance(entry, list) else [entry]
                listed += [e if isinstance(e, str) else next(iter(e.values())) for e in entries]
        self.assertEqual(sorted(listed), sorted(map(str, doc_pages.pages(ROOT))))

    def test_every_question_has_a_heading_that_answers_it(self):
        text = (ROOT / "docs/questions.md").read_text()
        rows = [line for line in text.splitlines() if line.startswith("| ") and "?" in line]
        self.assertGreaterEqual(len(rows), 10)
        for row in rows:
            self.assertTrue(doc_pages.links(row), row)
        for link in doc_pages.links(text):
            self.assertTrue(link.anchor, link)

    def test_one_that_does_not_is_found(self):
        text = "[web](https://a.b/c), [self](README.md), [a](nowhere.md)"
        self.assertEqual(broken({"README.md": text}),
                         ["README.md:1: nowhere.md: no such file"])

    def test_a_heading_that_is_not_there_is_found(self):
        pages = {"README.md": "# A\n\n[here](#a), [there](docs/x.md#two-b)\n\n"
                              "[text of\ntwo lines](docs/x.md#c) [not](#b)\n",
                 "docs/x.md": "# Two `b`!\n\n```sh\n# c\n[code](gone.md)\n```\n`[code](gone)`\n"}
        self.assertEqual(broken(pages), ["README.md:5: docs/x.md#c: no such heading",
                                         "README.md:6: #b: no such heading"])

    def test_a_folder_needs_a_heading_in_the_contents(self):
        pages = {"README.md": "[a](docs/a/) [b](docs/b/)\n", "docs/README.md": "## A\n",
                 "docs/a/x.md": "", "docs/b/x.md": ""}
        self.assertEqual(broken(pages), [
            "README.md:1: docs/b/: docs/README.md has no heading for this folder"])

    def test_anchors_are_those_of_github(self):
        text = ("# cohort launch -- PROGRAM ARGS\n## On a GPU, and on 16 cores\n## `--exact`\n"
                "## Same\n## Same\n## A_b c_\n## [Link](x.md) *now*\n")
        self.assertEqual([anchor for *_, anchor in doc_pages.headings(text)], [
            "cohort-launch----program-args", "on-a-gpu-and-on-16-cores", "--exact",
            "same", "same-1", "a_b-c", "link-now"])


if __name__ == "__main__":
    unittest.main()
