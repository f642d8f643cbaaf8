#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The site that tools/docs builds: it asks no other host for anything, its search knows every
page, and two clicks lead from its start to every page. Needs a network the first time, for the
packages that the site is built with; without both this test fails and says so."""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "docs"
# What a browser fetches by itself, without a click.
FETCHED = {"link": ["href"], "script": ["src"], "img": ["src", "srcset"], "iframe": ["src"],
           "source": ["src", "srcset"], "video": ["src", "poster"], "audio": ["src"],
           "embed": ["src"], "object": ["data"], "use": ["href", "xlink:href"],
           "image": ["href", "xlink:href"]}
FOREIGN = re.compile(r"^\s*(https?:)?//", re.I)
FOREIGN_STYLE = re.compile(r"(url\(|@import)\s*[\"']?\s*(https?:)?//", re.I)
headers = ROOT / "include" / "cohort"


def run_docs(*args):
    done = subprocess.run([sys.executable, str(TOOL), "--headers", str(headers), *map(str, args)],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


class Page(HTMLParser):
    """Links, what is fetched, anchors and the words of the article."""

    def __init__(self, file: Path):
        super().__init__()
        self.clicks, self.fetched, self.anchors, self.styles = [], [], set(), []
        self.text, self.article, self.style = [], 0, False
        self.feed(file.read_text())

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.fetched += [given[name] for name in FETCHED.get(tag, []) if given.get(name)]
        self.styles.append(given.get("style") or "")
        self.style = tag == "style"
        self.article += tag == "article"
        if tag == "a" and given.get("href"):
            self.clicks.append(given["href"])
        if given.get("id"):
            self.anchors.add(given["id"])

    def handle_endtag(self, tag):
        self.article -= tag == "article"
        self.style = False

    def handle_data(self, data):
        if self.style:
            self.styles.append(data)
        elif self.article:
            self.text.append(data)


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.dir = Path(folder.name)
        cls.site = cls.dir / "site"
        code, out = run_docs("--out", cls.site)
        if code:
            raise AssertionError(f"tools/docs ended with {code} (its packages need a network "
                                 f"once):\n{out}")
        cls.pages = {str(file.relative_to(cls.site)): Page(file)
                     for file in sorted(cls.site.rglob("*.html")) if file.name != "404.html"}

    def target(self, page, href):
        """The page of the site that a link leads to, and its anchor; or None."""
        if re.match(r"^[a-z]+:", href):
            return None
        path, anchor = urldefrag(href)
        file = ((self.site / page).parent / unquote(path)).resolve() if path else self.site / page
        file = file / "index.html" if file.is_dir() else file
        return str(file.relative_to(self.site.resolve())), anchor

    def test_every_page_of_the_repository_is_there(self):
        found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        names = {str(page.relative_to(ROOT)) for page in found}
        names |= {f"headers/{header.stem}.md" for header in headers.glob("*.h")}
        made = {re.sub(r"README\.md$", "index.md", name)[:-3] + ".html" for name in names}
        self.assertEqual(made - set(self.pages), set())

    def test_no_other_host_is_asked(self):
        for name, page in self.pages.items():
            for address in page.fetched:
                self.assertIsNone(FOREIGN.match(address), f"{name}: {address}")
                if not address.startswith("data:"):
                    self.assertTrue((self.site / name).parent.joinpath(
                        unquote(urldefrag(address)[0])).exists(), f"{name}: {address}")
            for style in page.styles:
                self.assertIsNone(FOREIGN_STYLE.search(style), f"{name}: {style[:200]}")
        for file in [*self.site.rglob("*.css"), *self.site.rglob("*.svg")]:
            self.assertIsNone(FOREIGN_STYLE.search(file.read_text()), file)

    def test_a_request_to_another_host_would_be_found(self):
        file = self.dir / "wrong.html"
        file.write_text('<link href="https://a.b/c.css"><script src=//a.b/c.js></script>'
                        '<style>x { background: url("https://a.b/c.png") }</style>')
        page = Page(file)
        self.assertEqual([bool(FOREIGN.match(a)) for a in page.fetched], [True, True])
        self.assertTrue(FOREIGN_STYLE.search("".join(page.styles)))

    def test_the_search_knows_a_word_of_every_page(self):
        index = json.loads((self.site / "search" / "search_index.json").read_text())
        known = {}
        for entry in index["docs"]:
            text = re.sub(r"<[^>]+>", "", entry["title"] + " " + entry["text"])
            page = urldefrag(entry["location"])[0] or "index.html"
            known[page] = known.get(page, "") + " " + text
        for name, page in self.pages.items():
            words = re.findall(r"[A-Za-z]+", " ".join(page.text))
            self.assertIn(max(words, key=len), known.get(name, ""), name)

    def test_the_search_works_from_the_disk(self):
        script = (self.site / "search" / "search_index.js").read_text()
        self.assertTrue(script.startswith("var __index = {"))
        for name, page in self.pages.items():
            self.assertTrue(any("iframe-worker" in a for a in page.fetched), name)

    def test_two_clicks_lead_to_every_page(self):
        reached, border = {"index.html"}, {"index.html"}
        for _ in range(2):
            border = {found[0] for name in border for href in self.pages[name].clicks
                      if (found := self.target(name, href)) and found[0] in self.pages} - reached
            reached |= border
        self.assertEqual(set(self.pages) - reached, set())

    def test_every_question_is_two_clicks_from_its_answer(self):
        page = "docs/questions.html"
        self.assertIn(page, {self.target("index.html", href)[0]
                             for href in self.pages["index.html"].clicks
                             if self.target("index.html", href)})
        rows = [line for line in (ROOT / "docs/questions.md").read_text().splitlines()
                if line.startswith("| ") and "?" in line]
        asked = {self.target(page, href) for href in self.pages[page].clicks}
        for row in rows:
            for target, anchor in re.findall(r"\]\(([^)#]+)\.md#([^)]+)\)", row):
                self.assertIn((f"docs/{target}.html", anchor), asked, row)

    def test_every_link_and_anchor_leads_somewhere(self):
        for name, page in self.pages.items():
            for href in page.clicks:
                found = self.target(name, href)
                if not found:
                    continue
                self.assertTrue((self.site / found[0]).exists(), f"{name}: {href}")
                if found[1] and found[0] in self.pages:
                    self.assertIn(found[1], self.pages[found[0]].anchors | {"__skip"},
                                  f"{name}: {href}")


class Mistakes(unittest.TestCase):
    """A small repository, in which one thing is wrong."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        self.put("README.md", "# Start\n")
        self.put("docs/README.md", "# Pages\n\n## Tasks\n\n| page | for |\n|---|---|\n"
                                   "| [One](one.md) | it |\n")
        self.put("docs/one.md", "# One\n\n[here](#one)\n")
        self.assertEqual(self.build()[0], 0)

    def put(self, name, text):
        (self.dir / name).parent.mkdir(exist_ok=True)
        (self.dir / name).write_text(text)

    def build(self, *args):
        return run_docs("--root", self.dir, "--out", self.dir / "site", *args)

    def refuse(self, words):
        code, out = self.build()
        self.assertEqual(code, 1, out)
        self.assertIn(words, out)
        self.assertTrue((self.dir / "site" / "index.html").exists())  # the one before
        self.assertEqual(list(self.dir.glob("site.part.*")), [])

    def test_a_link_to_no_heading_is_one(self):
        self.put("docs/one.md", "# One\n\n[there](../README.md#nowhere)\n")
        self.refuse("#nowhere")

    def test_a_link_to_no_page_is_one(self):
        self.put("docs/one.md", "# One\n\n[there](two.md)\n")
        self.refuse("two.md")

    def test_a_page_that_is_not_listed_is_one(self):
        self.put("docs/two.md", "# Two\n")
        self.refuse("two.md")

    def test_a_header_that_cannot_be_read_is_one(self):
        self.put("cohort/x.h", "#pragma once\n#define X\n")
        code, out = self.build("--headers", self.dir / "cohort")
        self.assertEqual(code, 1, out)
        self.assertIn("x.h:2: cannot read #define here", out)

    def test_it_is_served_on_this_machine_alone(self):
        server = subprocess.Popen(
            [sys.executable, str(TOOL), "--headers", str(headers), "--root", str(self.dir),
             "--out", str(self.dir / "site"), "--serve", "--port", "0"],
            stderr=subprocess.PIPE, text=True)
        late = threading.Timer(120, server.kill)
        late.start()
        try:
            address = re.search(r"http://127\.0\.0\.1:\d+/", server.stderr.readline())
            self.assertIsNotNone(address)
            with urllib.request.urlopen(address[0], timeout=60) as answer:
                self.assertIn(b"Start", answer.read())
        finally:
            late.cancel()
            server.terminate()
            server.communicate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--headers", type=Path, default=headers)
    args, rest = parser.parse_known_args()
    headers = args.headers.resolve()
    unittest.main(argv=[sys.argv[0], *rest])
