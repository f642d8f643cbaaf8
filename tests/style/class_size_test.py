# SPDX-License-Identifier: Apache-2.0
"""No class of ours has more than 25 data members: more are two ideas.

Counted are the members of each class itself, in headers and sources of include/, src/cohort/,
cli/ and recipes/: not static ones, not those of its bases. A plain struct of settings or results
may have as many.
"""

import re
import sys
import tempfile
import unittest
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
import cpp_text  # noqa: E402

FOLDERS = ("include", "src/cohort", "cli", "recipes")
MOST = 25

_CLASS = re.compile(r"(class|struct|union)\b(?!\s*\()(.*)", re.DOTALL)
_TAGS = re.compile(r"\[\[.*?\]\]|alignas\s*\([^)]*\)", re.DOTALL)
_LABEL = re.compile(r"(public|private|protected)\s*:(?!:)")
_NO_DATA = re.compile(r"(using|typedef|friend|static_assert|static|namespace|extern|template)\b|"
                      r"(inline|constexpr)\s+(constexpr\s+)?static\b")
_DECLARED_ONLY = re.compile(r"(class|struct|union|enum(\s+(class|struct))?)\s+[\w:]+"
                            r"(\s*:\s*[\w:]+)?")


class ClassSize(NamedTuple):
    name: str
    members: int


def _end_of_block(code, at):
    """Behind the } that belongs to the { at `at`."""
    depth = 0
    for i in range(at, len(code)):
        depth += {"{": 1, "}": -1}.get(code[i], 0)
        if depth == 0:
            return i + 1
    raise ValueError("a { without its }")


def _without_template(text):
    """The declaration behind `template <...>`, if it begins with that."""
    text = text.strip()
    while re.match(r"template\s*<", text):
        depth = 0
        for i in range(text.index("<"), len(text)):
            depth += {"<": 1, ">": -1}.get(text[i], 0)
            if depth == 0:
                break
        text = text[i + 1:].strip()
    return text


def _marks(text):
    """(position, character) of what stands in no brackets of any kind; those of ( [ { as well,
    where they open."""
    text = text.replace("->", "  ").replace("<<", "  ")
    open_angles = others = 0
    for i, c in enumerate(text):
        if c in "([{":
            if open_angles == others == 0:
                yield i, c
            others += 1
        elif c in ")]}":
            others -= 1
        elif others == 0 and c in "<>":
            open_angles += 1 if c == "<" else -1
        elif open_angles == others == 0:
            yield i, c


def _is_function(text):
    if re.search(r"\boperator\b", text):
        return True
    for i, c in _marks(_TAGS.sub(" ", text)):
        if c == "=":
            return False
        if c == "(":
            return not re.match(r"\(\s*[*&]", _TAGS.sub(" ", text)[i:])
    return False


def _data_in(text):
    """How many data members a declaration makes."""
    text = text.strip()
    if not text or _NO_DATA.match(text) or _DECLARED_ONLY.fullmatch(_TAGS.sub(" ", text)):
        return 0
    if re.match(r"(virtual|explicit)\b", text) or _is_function(_without_template(text)):
        return 0
    return 1 + sum(c == "," for _, c in _marks(text))


def _class_head(text):
    """The name if a class is defined by what follows `text`; "" where it has none."""
    match = _CLASS.match(_without_template(text))
    if not match or "=" in match.group(2):
        return None
    before_bases = re.split(r"(?<!:):(?!:)|<", _TAGS.sub(" ", match.group(2)))[0]
    names = [word for word in before_bases.split()
             if word != "final" and not re.fullmatch(r"[A-Z]+_[A-Z_]+", word)]
    # Two names: `struct sigaction before_ {}` is a variable.
    return None if len(names) > 1 else names[0] if names else ""


def _scan(code, outer, found):
    """Adds the classes defined in `code` to `found`. Returns the data declared beside them."""
    data = 0
    statement, at = "", 0
    while at < len(code):
        c = code[at]
        if c == ";":
            data += _data_in(statement)
            statement = ""
        elif c == ":" and _LABEL.fullmatch(statement.strip() + ":") and code[at + 1:at + 2] != ":":
            statement = ""
        elif c == "{":
            end = _end_of_block(code, at)
            inside = code[at + 1:end - 1]
            name = _class_head(statement.strip())
            if statement.count("(") > statement.count(")"):
                statement += "{}"  # an argument
            elif name is not None:
                names = outer + [name] if name else outer
                inner = _scan(inside, names, found)
                if name:
                    found.append(ClassSize("::".join(names), inner))
                elif code[end:].lstrip().startswith(";"):
                    data += inner  # they are those of the class around it
                # What it may declare: struct { ... } name;
                statement = ""
                declared = re.match(r"\s*(\w[^;{}]*);", code[end:])
                data += len(declared.group(1).split(",")) if declared else 0
                end += code[end:].index(";") + 1 if ";" in code[end:] else 0
            elif re.match(r"(inline\s+)?namespace\b|extern\b", statement.strip()):
                _scan(inside, outer, found)
                statement = ""
            elif statement.strip().startswith("enum"):
                statement = ""
                end += code[end:].index(";") + 1
            elif _is_function(_without_template(statement)):
                # A member that is set in braces, or the body?
                goes_on = re.match(r"\s*[,{]|\s*\.\.\.", code[end:])
                statement = statement + "()" if goes_on else ""
            else:
                statement += "{}"
            at = end
            continue
        else:
            statement += c
        at += 1
    return data


def classes(text):
    code = cpp_text.code(text)
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", code, flags=re.MULTILINE)
    found = []
    _scan(code, [], found)
    return found


def breaches(root):
    for path in cpp_text.sources(root, FOLDERS):
        name = path.relative_to(root).as_posix()
        for size in classes(path.read_text()):
            if size.members > MOST:
                yield f"{name}: {size.name} has {size.members} data members; legal: {MOST}"


class Counting(unittest.TestCase):
    def sizes(self, text):
        return {size.name: size.members for size in classes(text)}

    def test_what_is_a_data_member(self):
        for line in ("int a_;", "int a_ = 0;", "int a_{0};", "const Mesh& a_;", "T a_[3];",
                     "std::function<void(int, int)> a_;", "std::map<int, std::vector<int>> a_;",
                     "uint64_t a_ = uint64_t{1} << 3;", "std::array<int, 2> a_ = {1, 2};",
                     "int (*a_)(int, int);", "mutable std::mutex a_;", "struct { int x; } a_;",
                     "enum class E { kA, kB }; E a_;", "struct B { int x; }; B a_;",
                     "union { int a_; };", "alignas(64) std::atomic<int> a_{0};",
                     "std::function<int()> a_ = [] { return 1; };", "[[no_unique_address]] T a_;",
                     "struct sigaction a_ {};", "const struct sigaction* a_ = nullptr;"):
            with self.subTest(line):
                self.assertEqual(self.sizes("class A {\n private:\n  " + line + "\n};\n")["A"], 1)

    def test_what_is_none(self):
        for line in ("int a() const;", "virtual void f() = 0;", "A(const A&) = delete;",
                     "explicit A(int x) : x_(x), y_{x} {}",
                     "bool operator==(const A&) const = default;",
                     "static int a;", "static constexpr int kA = 3;", "using B = int;", "class B;",
                     "friend class B;", "enum E { kA, kB };", "enum class E : int { kA };",
                     "template <typename T> void f(T a = {}) { g(a); }", "auto f() -> int;",
                     "std::vector<int> f(std::map<int, int> a = {}) const { return {1, 2}; }",
                     "int x() const { return a < b ? 1 : 2; }", "// int a_;", "~A() override;",
                     "static_assert(sizeof(int) == 4);", "struct B;", "operator bool() const;",
                     "void f(int a = {}, int b = {});", "#define A \\\n  int a_;",
                     "[[nodiscard]] int f();", "inline static int a;"):
            with self.subTest(line):
                self.assertEqual(self.sizes("class A {\n public:\n  " + line + "\n};\n")["A"], 0)

    def test_several_in_one_line_count_each(self):
        self.assertEqual(self.sizes("struct A { int a = 0, b = 1; std::map<int, int> c, d; };"),
                         {"A": 4})

    def test_names_are_whole(self):
        text = ("namespace a::b {\ntemplate <typename T, typename U = int>\n"
                "class [[nodiscard]] A final : public B<T> {\n  struct C { int x; };\n"
                "  C c_;\n  int d_;\n};\n}\n"
                "struct A::D { int x, y, z; };\n")
        self.assertEqual(self.sizes(text), {"A": 2, "A::C": 1, "A::D": 3})
        self.assertEqual(self.sizes("class COHORT_API E { int a_; };"), {"E": 1})


class OurClasses(unittest.TestCase):
    def test_each_class_is_one_idea(self):
        self.assertEqual(list(breaches(ROOT)), [])

    def test_a_class_that_is_too_large_is_named_with_its_file_and_count(self):
        members = "".join(f"  int a{i}_;\n" for i in range(26))
        with tempfile.TemporaryDirectory() as folder:
            header = Path(folder) / "src/cohort/core/a.h"
            header.parent.mkdir(parents=True)
            header.write_text("class A {\n" + members + "};\nstruct B {\n" + members + "};\n")
            header.with_name("b.cpp").write_text(
                "struct C {\n  int x;\n" + members + "};\nclass D {\n" + members + "};\n")
            self.assertEqual(list(breaches(Path(folder))), [
                "src/cohort/core/a.h: A has 26 data members; legal: 25",
                "src/cohort/core/a.h: B has 26 data members; legal: 25",
                "src/cohort/core/b.cpp: C has 27 data members; legal: 25",
                "src/cohort/core/b.cpp: D has 26 data members; legal: 25"])

    def test_that_is_all_of_them(self):
        """A parser that loses its way finds few."""
        names = {size.name for path in cpp_text.sources(ROOT, FOLDERS) if path.suffix == ".h"
                 for size in classes(path.read_text())}
        self.assertGreater(len(names), 400)
        for name in ("ElasticRanks", "ElasticRanks::Member", "GradientSums", "Communicator"):
            self.assertIn(name, names)


if __name__ == "__main__":
    unittest.main()
