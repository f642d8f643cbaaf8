# SPDX-License-Identifier: Apache-2.0
"""Reading the Markdown pages of the repository: headings, links, and the site made of them."""

import re
from dataclasses import dataclass
from pathlib import Path

CONTENTS = "docs/README.md"  # its headings and tables are the navigation of the site
COPIED = {".svg", ".png"}    # what a page shows; other files become pages
LANGUAGES = {".cpp": "cpp", ".h": "cpp", ".py": "python", ".txt": "text"}

_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*([^\s`]*)")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]*)\)")
_CODE = re.compile(r"(`+)(?:(?!`).)*?\1")
_ROW = re.compile(r"^\| \[([^\]]+)\]\(([^)#\s]+)\) \|")


class BadPage(Exception):
    """A page that cannot be made into one of the site, in one line."""


@dataclass
class Link:
    line: int
    image: bool
    target: str  # without its anchor; empty: the page itself
    anchor: str


def pages(root: Path) -> list:
    """Paths of all pages, relative to the root."""
    found = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
    return [page.relative_to(root) for page in found]


def prose(text: str):
    """(number, line, opens a fence, is outside of all) of each line, from 1."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        match = _FENCE.match(line)
        if not fence and match:
            fence = match[2]
            yield number, line, True, False
        elif fence:
            yield number, line, False, False
            if match and match[2].startswith(fence) and line.strip() == match[2]:
                fence = ""
        else:
            yield number, line, False, True


def slug(heading: str, taken: dict) -> str:
    """The anchor that GitHub gives a heading; `taken` counts those of the page."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    text = re.sub(r"(?<!\w)[*_]+|[*_]+(?!\w)", "", text)
    name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    count = taken[name] = taken.get(name, -1) + 1
    return f"{name}-{count}" if count else name


def headings(text: str) -> list:
    """(line, level, text, anchor) of each heading."""
    taken, out = {}, []
    for number, line, _, outside in prose(text):
        match = _HEADING.match(line) if outside else None
        if match:
            out.append((number, len(match[1]), match[2], slug(match[2], taken)))
    return out


def anchors(text: str) -> set:
    return {anchor for _, _, _, anchor in headings(text)}


def _replace_links(text: str, replace) -> str:
    """Calls replace(match, line number) for each link in prose. A link's text may be broken
    into two lines, so prose is looked at paragraph by paragraph."""
    out, paragraph, first = [], [], 1

    def flush():
        if not paragraph:
            return
        joined = "\n".join(paragraph)
        held = []

        def hold(match):
            held.append(match[0])
            return f"\0{len(held) - 1}\0"
        masked = _CODE.sub(hold, joined)
        masked = _LINK.sub(
            lambda m: replace(m, first + masked.count("\n", 0, m.start())), masked)
        out.append(re.sub("\0(\\d+)\0", lambda m: held[int(m[1])], masked))
        paragraph.clear()

    for number, line, _, outside in prose(text):
        if outside and line.strip():
            if not paragraph:
                first = number
            paragraph.append(line)
        else:
            flush()
            out.append(line)
    flush()
    return "\n".join(out) + "\n"


def links(text: str) -> list:
    """Every link that leads into the repository."""
    found = []

    def note(match, line):
        if "://" not in match[3] and not match[3].startswith("mailto:"):
            target, _, anchor = match[3].partition("#")
            found.append(Link(line, bool(match[1]), target, anchor))
        return match[0]
    _replace_links(text, note)
    return found


def broken_links(root: Path) -> list:
    """A line for each link of a page that leads nowhere: no file, or no such heading."""
    known = {}

    def anchors_of(path: Path):
        if path not in known:
            known[path] = anchors(path.read_text())
        return known[path]

    out = []
    for page in pages(root):
        for link in links((root / page).read_text()):
            target = (root / page).parent / link.target if link.target else root / page
            target = target.resolve()
            shown = link.target + ("#" + link.anchor if link.anchor else "")
            where = f"{page}:{link.line}: {shown}"
            if not target.exists():
                out.append(f"{where}: no such file")
            elif target.is_dir() and target.name not in anchors_of(root / CONTENTS):
                out.append(f"{where}: {CONTENTS} has no heading for this folder")
            elif link.anchor and (target.suffix != ".md"
                                  or link.anchor not in anchors_of(target)):
                out.append(f"{where}: no such heading")
    return out


# ---- The site -----------------------------------------------------------------

def _relative(target: Path, page: Path) -> str:
    up = [".."] * (len(page.parts) - 1)
    return "/".join([*up, *target.parts])


class Site:
    """Copies the pages of `root` into `folder`, in the form that mkdocs reads: anchors are
    GitHub's, fences have a language alone, and files that pages link to are pages too."""

    def __init__(self, root: Path, folder: Path):
        self.root, self.folder = root.resolve(), folder
        self.sources = []  # pages made of other files: they have no place in the navigation

    def write(self):
        for page in pages(self.root):
            self.put(page, self.page((self.root / page).read_text(), page))

    def put(self, path: Path, text: str):
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text)

    def page(self, text: str, path: Path) -> str:
        text = _replace_links(text, lambda match, line: self.link(match, path, line))
        named = {number: anchor for number, _, _, anchor in headings(text)}
        out = []
        for number, line, opens, _ in prose(text):
            if number in named:
                line = f"{line} {{#{named[number]}}}"
            elif opens:
                match = _FENCE.match(line)
                line = match[1] + match[2] + (match[3] or "text")
            out.append(line)
        return "\n".join(out) + "\n"

    def link(self, match, page: Path, line: int) -> str:
        target, hash_, anchor = match[3].partition("#")
        if "://" in match[3] or not target or target.endswith(".md"):
            return match[0]  # mkdocs itself finds out whether it is there
        file = (self.root / page.parent / target).resolve()
        if not file.is_relative_to(self.root) or not file.exists():
            raise BadPage(f"{page}:{line}: {target}: no such file")
        path = file.relative_to(self.root)
        if file.is_dir():
            target, hash_, anchor = _relative(Path(CONTENTS), page), "#", file.name
        elif file.suffix in COPIED:
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_bytes(file.read_bytes())
        else:
            target = _relative(self.source(path), page)
        return f"{match[1]}[{match[2]}]({target}{hash_}{anchor})"

    def source(self, path: Path) -> Path:
        made = path.with_name(path.name + ".md")
        if made not in self.sources:
            text = (self.root / path).read_text()
            language = LANGUAGES.get(path.suffix, "text")
            self.put(made, f"# {path}\n\n````{language}\n{text.rstrip()}\n````\n")
            self.sources.append(made)
        return made


def navigation(root: Path) -> list:
    """The start page, and what the contents list: a heading of the second level is a section,
    the link that begins a row of its tables is a page. Pages of the first section are what one
    looks for, so they stand beside the other sections. A page that is known by a number has its
    own title."""
    contents = Path(CONTENTS)
    text = (root / contents).read_text()
    sections, titles = [], {line: title for line, level, title, _ in headings(text) if level == 2}
    for number, line, _, outside in prose(text):
        if number in titles:
            sections.append((titles[number], []))
        row = _ROW.match(line) if outside else None
        if row and not sections:
            raise BadPage(f"{contents}:{number}: a page before the first heading")
        if row:
            file = (root / contents.parent / row[2]).resolve()
            if not file.is_file() or not file.is_relative_to(root.resolve()):
                raise BadPage(f"{contents}:{number}: {row[2]}: no such page")
            path = str(file.relative_to(root.resolve()))
            sections[-1][1].append(path if row[1].isdigit() else {row[1]: path})
    first = sections[0][1] if sections else []
    return [{"Cohort": "README.md"}, *first, {"All pages": str(contents)},
            *({title: listed} for title, listed in sections[1:] if listed)]
