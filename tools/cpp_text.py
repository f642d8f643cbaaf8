# SPDX-License-Identifier: Apache-2.0
"""Reading C++ sources for the house rules: files, includes, code without comments."""

import re
from pathlib import Path

SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
FOLDERS = ("include", "src", "cli", "recipes", "examples", "tests", "bench")

_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/                 # comments
      | R"(?P<tag>[^()\s\\]*)\(.*?\)(?P=tag)"  # raw strings
      | "(?:\\.|[^"\\\n])*"                # strings
      | '(?:\\.|[^'\\\n])+'                # characters""",
    re.DOTALL | re.VERBOSE,
)
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def sources(root: Path, folders=FOLDERS):
    """Every C++ file below the given folders, sorted."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path


def includes(text: str):
    """(line, "<" or '"', name) of each #include."""
    for match in _INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start(2)) + 1
        yield line, match.group(1), match.group(2)


def _blank(match: re.Match) -> str:
    token = match.group(0)
    if token.startswith("'") and re.search(r"[0-9A-Fa-f]$", match.string[: match.start()]):
        return token  # a digit separator: 10'000
    return re.sub(r"[^\n]", " ", token)


def code(text: str) -> str:
    """The text with comments and literals blanked; lines stay where they are."""
    return _TOKEN.sub(_blank, text)
