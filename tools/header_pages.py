# SPDX-License-Identifier: Apache-2.0
"""Turns public headers into Markdown: a page for each, a heading for each class or group of
functions, its comment as text, its declaration as code.

Read are headers as CONTRIBUTING.md wants them: `//` comments, one namespace, no macros. What
else there is, is refused with its line: a page that leaves something out would be worse.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import cpp_text

_OPEN = re.compile(r"^namespace\s+(\[\[.*?\]\]\s*)?(?P<name>[\w:]+)\s*\{$")
_INCLUDE = re.compile(r'^#include\s+[<"]([^>"]+)[>"]')
_TYPE = re.compile(r"^(?:template\s*<[^;{]*?>\s*)?(?:class|struct|union|enum(?:\s+class)?)\s+"
                   r"(?:\[\[.*?\]\]\s*)?(?P<name>\w+)")
_PAIRS = {"(": ")", "{": "}", "[": "]"}
_ACCESS = re.compile(r"^ (public|protected|private):$")


class Unreadable(Exception):
    """A header that cannot be turned into a page, in one line."""


@dataclass
class Group:
    """Declarations that share a comment."""
    comment: list = field(default_factory=list)
    names: list = field(default_factory=list)
    code: list = field(default_factory=list)


@dataclass
class Header:
    name: str                                    # as in #include <...>
    top: list = field(default_factory=list)      # lines of the comment before all else
    includes: list = field(default_factory=list)
    groups: list = field(default_factory=list)

    def names(self):
        return [name for group in self.groups for name in group.names]


class _Reader:
    def __init__(self, path: Path, name: str):
        self.path = path
        text = path.read_text()
        self.lines = text.splitlines()
        self.bare = cpp_text.code(text).splitlines()  # without comments and literals
        self.at = 0
        self.header = Header(name)
        for number, line in enumerate(self.lines):
            if "/*" in re.sub(r'"(\\.|[^"\\])*"|//.*', "", line):
                self.fail("a comment in /* */; legal: //", number)

    def fail(self, what: str, line=None):
        raise Unreadable(f"{self.path}:{(self.at if line is None else line) + 1}: {what}")

    def line(self):
        return self.lines[self.at].rstrip()

    def more(self):
        return self.at < len(self.lines)

    def read(self) -> Header:
        if "#pragma once" not in self.lines:
            self.fail("no #pragma once", 0)
        inside, closed = False, False
        while self.more():
            line = self.line()
            if not line:
                self.at += 1
            elif line.startswith("//"):
                self.comment(inside)
            elif line.startswith("#"):
                self.directive(inside)
            elif inside and self.bare[self.at].strip() == "}":
                inside, closed = False, True
                self.at += 1
            elif not inside and _OPEN.match(line):
                if closed:
                    self.fail("a second part of the namespace")
                inside = self.namespace(_OPEN.match(line)["name"])
            elif inside:
                self.declaration([])
            else:
                self.fail(f"declared outside of the namespace cohort: {line}")
        if inside:
            self.fail("the namespace is not closed", len(self.lines) - 1)
        if not closed and not self.header.includes:
            self.fail("nothing is declared", 0)
        return self.header

    def directive(self, inside):
        include = _INCLUDE.match(self.line())
        if inside or not (include or self.line() == "#pragma once"):
            self.fail(f"cannot read {self.line().split()[0]} here")
        if include:
            self.header.includes.append(include[1])
        self.at += 1

    def namespace(self, name):
        """Enters ours; passes by names of others that are only declared."""
        if name == "cohort":
            self.at += 1
            return True
        while self.more() and self.bare[self.at].strip() != "}":
            self.at += 1
            if self.more() and not re.match(r"^(class|struct) \w+;$|^\}", self.line()):
                self.fail(f"more than names in namespace {name}")
        if not self.more():
            self.fail(f"namespace {name} is not closed", len(self.lines) - 1)
        self.at += 1
        return False

    def comment(self, inside):
        lines = []
        while self.more() and self.line().startswith("//"):
            lines.append(self.line()[2:])
            self.at += 1
        if lines[0].startswith(" SPDX-License-Identifier"):
            lines.pop(0)
        alone = not self.more() or not self.line()
        if not inside or (alone and not self.header.groups and not self.header.top):
            self.header.top += ([""] if self.header.top and lines else []) + lines
        elif alone:
            self.header.groups.append(Group(comment=lines))
        else:
            self.declaration(lines)

    def declaration(self, comment):
        """One declaration. Without a comment, and with no empty line before it, it belongs to
        the group above."""
        if not self.more() or self.line().startswith(("#", "namespace")):
            self.fail("cannot read this")
        start, code, brackets = self.at, "", []
        while True:
            if not self.more():
                self.fail("this declaration does not end", start)
            bare = self.bare[self.at].strip()
            code += " " + bare
            for sign in re.findall(r"[(){}\[\]]", bare):
                if sign in _PAIRS:
                    brackets.append(_PAIRS[sign])
                elif not brackets or brackets.pop() != sign:
                    self.fail(f"a '{sign}' that closes nothing")
            self.at += 1
            is_type = _TYPE.match(code.strip())
            if not brackets and (bare.endswith(";") or bare.endswith("}") and not is_type):
                break
        name = self.name_of(code.strip(), start)
        shown = without_private(self.lines[start:self.at])
        if not comment and re.match(r"^(class|struct) \w+;$", self.bare[start].strip()):
            return  # known by name, for the declarations below
        joins = not comment and start > 0 and self.lines[start - 1].strip() and \
            not _OPEN.match(self.lines[start - 1].rstrip()) and self.header.groups
        if not joins:
            self.header.groups.append(Group(comment=comment))
        group = self.header.groups[-1]
        if name not in group.names:
            group.names.append(name)
        group.code += shown

    def name_of(self, code, start):
        is_type = _TYPE.match(code)
        if is_type:
            return is_type["name"]
        for pattern in (r"^using\s+(\w+)\s*=", r"(operator\s*[^\s\w(]+)\s*\(",
                        r"^[^(={]*?(\w+)\s*\(", r"^[^(]*?(\w+)\s*(?:=|\{|;)"):
            match = re.search(pattern, code)
            if match:
                return match[1]
        self.fail(f"cannot find the name of: {code[:60]}", start)


def without_private(lines):
    """The class as its users see it."""
    out, hidden = [], False
    for line in lines:
        access = _ACCESS.match(line)
        if access:
            hidden = access[1] == "private"
        elif line.startswith("}"):
            hidden = False
        if not hidden:
            out.append(line)
        while hidden and out and not out[-1].strip():
            out.pop()
    return out


def read(path: Path, name: str) -> Header:
    return _Reader(path, name).read()


# ---- Markdown -----------------------------------------------------------------

def _text(line: str) -> str:
    """Prose of a comment: what would be markup is not, but for code and stress."""
    parts = re.split(r"(`[^`]*`)", line)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"&(?=\w+;)", "&amp;", parts[i]).replace("<", "&lt;")
        parts[i] = re.sub(r"[\[\]]", r"\\\g<0>", parts[i])
    return re.sub(r"^(\s*)#", r"\1\\#", "".join(parts))


def comment_text(lines) -> list:
    """A comment as Markdown: what stands further in than its text is code."""
    out, block = [], []

    def flush():
        while block and not block[-1]:
            block.pop()
        if block:
            cpp = any(line.endswith((";", "{")) or "; //" in line for line in block)
            indent = min(len(line) - len(line.lstrip()) for line in block if line)
            out.extend(["", "```cpp" if cpp else "```text",
                        *(line[indent:] for line in block), "```", ""])
            block.clear()

    for line in lines:
        line = line[1:] if line.startswith(" ") else line
        if line.startswith("  ") or block and not line:
            block.append(line)
        else:
            flush()
            out.append(_text(line))
    flush()
    return out


def markdown(header: Header) -> str:
    out = [f"# {header.name}", "", *comment_text(header.top), "",
           "```cpp", f"#include <{header.name}>", "```", ""]
    if not header.groups:
        out += ["It includes:", "", *(f"- `{name}`" for name in header.includes), ""]
    for group in header.groups:
        if group.names:
            out += [f"## {', '.join(group.names)}", ""]
        out += [*comment_text(group.comment), ""]
        if group.code:
            out += ["```cpp", *group.code, "```", ""]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out))


def contents(headers: dict) -> str:
    """The page that lists them; `headers` by the file of its page."""
    out = ["# Headers", "",
           "What a program of your own may include, as the headers themselves say it.", "",
           "| header | declares |", "|---|---|"]
    for file, header in headers.items():
        names = ", ".join(f"`{name}`" for name in header.names()) or "all of them"
        out.append(f"| [{header.name}]({file}) | {names} |")
    return "\n".join(out) + "\n"


def write(folder: Path, prefix: str) -> dict:
    """Markdown by file name, of every header in `folder`; `README.md` lists them."""
    files = sorted(folder.glob("*.h"))
    if not files:
        raise Unreadable(f"{folder}: no headers there")
    headers = {file.stem + ".md": read(file, f"{prefix}/{file.name}") for file in files}
    return {"README.md": contents(headers),
            **{file: markdown(header) for file, header in headers.items()}}
