#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What tools/docs makes of Markdown and headers before mkdocs sees it; needs no network."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
import doc_pages  # noqa: E402
import header_pages  # noqa: E402

HEADER = """// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

// What it is for.
//
//   auto box = make_box(1);
//
// Failure: none of [a, b) where x < y.

namespace torch::nn {
class Module;
}

namespace [[gnu::visibility("default")]] cohort {

class Hidden;

enum class Color { kRed, kBlue };

// A box, as `std::vector<int>` is one.
class Box {
 public:
  explicit Box(int size) : size_(size) {}  // "}" is no end
  int size() const { return size_; }

 private:
  int size_ = 10'000;
};

// Makes boxes.
Box make_box(int size);
Box make_box(double size,
             int more = 0);
inline constexpr int kMost = 3;

// A remark about all that follows.

template <typename Real>
struct Stretch {
  Real* begin = nullptr;
};

}  // namespace cohort
"""


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)

    def put(self, name, text):
        path = self.dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


class Headers(Folder):
    def page(self, text):
        return header_pages.markdown(header_pages.read(self.put("box.h", text), "cohort/box.h"))

    def refusal(self, text):
        with self.assertRaises(header_pages.Unreadable) as caught:
            self.page(text)
        return str(caught.exception)

    def test_a_page_has_headings_text_and_code(self):
        page = self.page(HEADER)
        self.assertTrue(page.startswith("# cohort/box.h\n\nWhat it is for.\n"), page)
        headings = [line for line in page.splitlines() if line.startswith("## ")]
        self.assertEqual(headings, ["## Color", "## Box", "## make_box, kMost", "## Stretch"])
        self.assertIn("```cpp\nauto box = make_box(1);\n```", page)
        self.assertIn("none of \\[a, b) where x &lt; y.", page)
        self.assertIn("\nA box, as `std::vector<int>` is one.\n\n```cpp\nclass Box {", page)
        self.assertIn("             int more = 0);\ninline constexpr", page)
        self.assertIn("\nA remark about all that follows.\n", page)

    def test_what_is_private_is_left_out(self):
        page = self.page(HEADER)
        self.assertNotIn("private", page)
        self.assertNotIn("10'000", page)
        self.assertNotIn("Hidden", page)
        self.assertNotIn("SPDX", page)

    def test_a_header_of_includes_alone_lists_them(self):
        self.assertIn("- `cohort/a.h`", self.page('#pragma once\n\n#include "cohort/a.h"\n'))

    def test_what_cannot_be_read_is_refused_with_its_line(self):
        line = HEADER.splitlines().index("class Hidden;") + 1
        for wrong, what in (("#define MOST 3", "cannot read #define here"),
                            ("#if 1", "cannot read #if here"),
                            ("/* old */", "a comment in /* */; legal: //"),
                            ("namespace inner {", "cannot read this")):
            self.assertIn(f"box.h:{line}: {what}",
                          self.refusal(HEADER.replace("class Hidden;", wrong)))

    def test_a_header_that_does_not_end_is_refused(self):
        self.assertIn("not closed", self.refusal(HEADER.replace("}  // namespace cohort\n", "")))
        self.assertIn("'}' that closes nothing",
                      self.refusal(HEADER.replace("int more = 0);", "int more")))
        self.assertIn("does not end", self.refusal(HEADER.split(" private:")[0]))
        self.assertIn("outside of the namespace", self.refusal(HEADER + "int stray();\n"))
        self.assertIn("no #pragma once", self.refusal("// nothing\n"))

    def test_every_header_has_a_page_and_a_row(self):
        self.put("cohort/box.h", HEADER)
        pages = header_pages.write(self.dir / "cohort", "cohort")
        self.assertEqual(list(pages), ["README.md", "box.md"])
        self.assertIn("| [cohort/box.h](box.md) | `Color`, `Box`,", pages["README.md"])
        with self.assertRaises(header_pages.Unreadable):
            header_pages.write(self.dir, "cohort")

    def test_the_public_headers_can_be_read(self):
        folder = ROOT / "include" / "cohort"
        for file, page in header_pages.write(folder, "cohort").items():
            self.assertIn("\n## " if file not in ("README.md", "cohort.md") else "\n", page)


class Pages(Folder):
    def site(self):
        site = doc_pages.Site(self.dir, self.dir / "site")
        site.write()
        return site

    def read(self, name):
        return (self.dir / "site" / name).read_text()

    def test_headings_have_the_anchors_of_github(self):
        self.put("README.md", "# A `b`\n\n```sh\n# no heading\n```\n")
        self.site()
        self.assertEqual(self.read("README.md"), "# A `b` {#a-b}\n\n```sh\n# no heading\n```\n")

    def test_fences_keep_their_language_alone(self):
        self.put("README.md", "```sh no-run: needs a GPU\nx\n```\n\n```\ny\n```\n")
        self.site()
        self.assertEqual(self.read("README.md"), "```sh\nx\n```\n\n```text\ny\n```\n")

    def test_sources_become_pages_and_pictures_are_copied(self):
        self.put("README.md", "")
        self.put("docs/x.md", "[a](../ex/a.cpp) ![b](p/b.svg) [c](../d/e/) `[d](gone)`\n")
        self.put("ex/a.cpp", "int main() {}\n")
        self.put("docs/p/b.svg", "<svg/>")
        self.put("d/e/f", "")
        site = self.site()
        self.assertEqual(self.read("docs/x.md"), "[a](../ex/a.cpp.md) ![b](p/b.svg) "
                         "[c](../docs/README.md#e) `[d](gone)`\n")
        self.assertEqual(self.read("ex/a.cpp.md"),
                         "# ex/a.cpp\n\n````cpp\nint main() {}\n````\n")
        self.assertEqual(self.read("docs/p/b.svg"), "<svg/>")
        self.assertEqual(site.sources, [Path("ex/a.cpp.md")])

    def test_a_link_to_nothing_is_refused_with_its_line(self):
        self.put("README.md", "\n\n[a](a.cpp)\n")
        with self.assertRaises(doc_pages.BadPage) as caught:
            self.site()
        self.assertEqual(str(caught.exception), "README.md:3: a.cpp: no such file")

    def test_the_contents_are_the_navigation(self):
        self.put("docs/x.md", "")
        self.put("docs/README.md", "# D\n\n## Tasks\n\n| page | for |\n|---|---|\n"
                 "| [Do](x.md) | it |\n\n## Empty\n\n## Why\n\n| [0001](x.md) | so |\n")
        self.assertEqual(doc_pages.navigation(self.dir), [
            {"Cohort": "README.md"}, {"Do": "docs/x.md"}, {"All pages": "docs/README.md"},
            {"Why": ["docs/x.md"]}])
        self.put("docs/README.md", "## T\n\n| [Do](y.md) | it |\n")
        with self.assertRaises(doc_pages.BadPage):
            doc_pages.navigation(self.dir)


class Command(Folder):
    def run_docs(self, *args):
        done = subprocess.run([sys.executable, str(ROOT / "tools/docs"), *args],
                              env={"PATH": "/usr/bin:/bin", "COHORT_CACHE": str(self.dir / "cache")},
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def test_help_and_wrong_arguments(self):
        self.assertEqual(self.run_docs("--help")[0], 0)
        self.assertEqual(self.run_docs("--nonsense")[0], 2)
        self.assertEqual(self.run_docs("--from", str(self.dir / "none"))[0], 2)
        self.assertEqual(self.run_docs("--headers", str(self.dir / "none"), "--out",
                                       str(self.dir / "site"))[0], 2)

    def test_check_installs_nothing(self):
        code, out = self.run_docs("--check")
        self.assertEqual(code, 1)
        self.assertIn("missing: mkdocs in ", out)
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_a_failed_install_leaves_nothing(self):
        self.put("cohort/box.h", HEADER)
        (self.dir / "wheels").mkdir()
        code, out = self.run_docs("--from", str(self.dir / "wheels"), "--headers",
                                  str(self.dir / "cohort"), "--out", str(self.dir / "site"))
        self.assertEqual(code, 1, out)
        self.assertRegex(out, "mkdocs could not be installed|is python3-venv there")
        self.assertEqual([p.name for p in (self.dir / "cache").iterdir()], [".docs.lock"])
        self.assertFalse((self.dir / "site").exists())

    def test_what_is_no_site_is_not_overwritten(self):
        self.put("mine/notes.txt", "")
        code, out = self.run_docs("--out", str(self.dir / "mine"))
        self.assertEqual(code, 2, out)
        self.assertTrue((self.dir / "mine/notes.txt").exists())


if __name__ == "__main__":
    unittest.main()
