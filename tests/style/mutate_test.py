# SPDX-License-Identifier: Apache-2.0
"""tools/mutate: what each operator makes, and verdicts on a tree of two files."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "tools"))
import cpp_mutants  # noqa: E402

# operator: (what stands there, what must be made of it)
MADE = {
    "drop-check": [
        ('COHORT_CHECK(a < b, "a ", a);', ";"),
        ("if (a < b) return;", ";"),
        ("if (a) {\n    throw Trouble();\n  }", ";\n\n"),
    ],
    "swap-comparison": [("f(a < b);", "f(a <= b);"), ("f(a >= b);", "f(a > b);"),
                        ("f(a == b);", "f(a != b);")],
    "swap-logic": [("f(a && b);", "f(a || b);"), ("f(a || b);", "f(a && b);")],
    "negate-condition": [("if (a) f();", "if (!(a)) f();"),
                         ("while (a && b) f();", "while (!(a && b)) f();"),
                         ("if (auto x = g(); x) f();", "if (auto x = g(); !( x)) f();")],
    "drop-wait": [("comm.barrier().wait();", "comm.barrier();"), ("work.wait();", ";"),
                  ("news_.wait(lock, [&] { return a; });", ";")],
    "drop-sync": [("disk_.sync_folder(root_);", ";"),
                  ("if (::fsync(fd) != 0) f();", "if (0 != 0) f();")],
    "weaken-order": [
        ("f(a.load());", "f(a.load(std::memory_order_relaxed));"),
        ("a->store(1);", "a->store(1, std::memory_order_relaxed);"),
        ("f(a.load(std::memory_order_acquire));", "f(a.load(std::memory_order_relaxed));"),
        ("std::atomic_thread_fence(std::memory_order_seq_cst);", ";"),
    ],
    "drop-notify": [("shared_->wake.notify_one();", ";")],
    "drop-store": [("mine_->left.store(1);", ";"), ("bell.fetch_add(1);", ";")],
    "swap-sum": [("f(a + b);", "f(a - b);"), ("f(g(a) - 1);", "f(g(a) + 1);")],
    "add-one": [("f(7);", "f(8);")],
    "drop-assignment": [("step_ = a;", ";"), ("found->second[i] = a;", ";")],
    "flip-return": [("return true;", "return false;"), ("return a;", "return !(a);")],
    "drop-reset": [("f(std::exchange(a_, {}));", "f(std::decay_t<decltype(a_)>(a_));"),
                   ("last_.reset();", ";")],
    "skip-first": [("for (int i = 0; i < n; ++i) f();", "for (int i = 1; i < n; ++i) f();"),
                   ("for (auto& x : all) f();",
                    "for (auto& x : (all) | std::views::drop(1)) f();")],
}
# Nothing may be made of these: messages, comments, templates, times.
LEFT_ALONE = [
    'throw CommError(text("a ", a + 1, b < c));',
    'note("a && b", a + 1);',
    "// if (a) return;",
    "template <typename T>",
    "std::vector<int> x;",
    "constexpr std::chrono::seconds kLimit{30};",
    "virtual void f() = 0;",
    "#include <a>",
]


def made(line, operator=None):
    text = f"bool h() {{\n  {line}\n}}\n"
    for mutant in cpp_mutants.mutants(text, "comm", "x.cpp"):
        if operator in (None, mutant.operator):
            yield mutant.apply(text)


class Operators(unittest.TestCase):
    def test_each_makes_what_it_says(self):
        self.assertEqual(set(MADE), set(cpp_mutants.OPERATORS))
        for operator, cases in MADE.items():
            for before, after in cases:
                with self.subTest(operator=operator, before=before):
                    texts = [t.replace("#include <ranges>\n#line 1\n", "")
                             for t in made(before, operator)]
                    self.assertIn(f"bool h() {{\n  {after}\n}}\n", texts)

    def test_what_nobody_could_notice_is_left_alone(self):
        for line in LEFT_ALONE:
            with self.subTest(line=line):
                self.assertEqual(list(made(line)), [])

    def test_what_stands_behind_a_message_within_a_message_is_changed(self):
        text = 'bool h() {\n  note(text("a"));\n  f(g(a < b));\n}\n'
        changed = [m.apply(text) for m in cpp_mutants.mutants(text, "comm", "x.cpp")]
        self.assertIn(text.replace("a < b", "a <= b"), changed)

    def test_lines_stay_where_they_are(self):
        text = "bool h() {\n  if (a)\n    return b;\n  f(__LINE__);\n}\n"
        for mutant in cpp_mutants.mutants(text, "comm", "x.cpp"):
            changed = mutant.apply(text).split("#line 1\n")[-1]
            self.assertEqual(changed.splitlines()[3:], text.splitlines()[3:])

    def test_an_optional_is_given_back_empty(self):
        text = "std::optional<int> h() {\n  return a;\n}\n"
        changed = [m.apply(text) for m in cpp_mutants.mutants(text, "comm", "x.cpp")]
        self.assertIn(text.replace("return a", "return std::nullopt"), changed)

    def test_an_id_survives_new_lines_above(self):
        text = "bool h() {\n  f(a < b);\n  f(a < b);\n}\n"
        first = [m.id for m in cpp_mutants.mutants(text, "comm", "x.cpp")]
        later = [m.id for m in cpp_mutants.mutants("\n// new\n" + text, "comm", "x.cpp")]
        self.assertEqual(first, later)
        self.assertEqual(len(set(first)), 2)


FILES = {
    "CMakeLists.txt": """cmake_minimum_required(VERSION 3.25)
project(fake CXX)
enable_testing()
add_library(cohort STATIC src/cohort/comm/part.cpp)
target_include_directories(cohort PUBLIC src)
add_executable(comm_test src/cohort/comm/part_test.cpp)
target_link_libraries(comm_test PRIVATE cohort)
add_test(NAME comm_test COMMAND comm_test)
""",
    "src/cohort/comm/part.h": """#include <string>
int at_most_nine(int x);
int count_down();
std::string twice(const std::string& a);
inline bool is_odd(int x) { return x % 2 != 0; }
""",
    "src/cohort/comm/part.cpp": """#include "cohort/comm/part.h"
constexpr int kUnused = 5;
int at_most_nine(int x) {
  if (x > 9) return 9;
  return x;
}
int count_down() {
  volatile long left = 40;
  while (left != 0) left = left - 1;
  return left;
}
std::string twice(const std::string& a) { return a + a; }
""",
    "src/cohort/comm/part_test.cpp": """#include "cohort/comm/part.h"
int main() {
  const bool good = at_most_nine(20) == 9 && at_most_nine(3) == 3 && count_down() == 0 &&
                    is_odd(3) && !is_odd(4) && twice("a") == "aa";
  return good ? 0 : 1;
}
""",
}
# by their changed line: verdict and how
VERDICTS = {
    "  if (x > 10) return 9;": ("survived", ""),
    "  if (x > 9) return 10;": ("found", "exit code 1"),
    "  ;": ("found", "exit code 1"),
    "  while (left == 0) left = left - 1;": ("found", "exit code 1"),
    "constexpr int kUnused = 6;": ("not made", "the same code"),
    "std::string twice(const std::string& a) { return a - a; }":
        ("not made", "does not compile"),
    "inline bool is_odd(int x) { return x % 2 == 0; }": ("found", "exit code 1"),
    "  while (left != 1) left = left - 1;": ("found", "exit code 1"),
    "  volatile long left = 41;": ("survived", ""),
    "  while (left != 0) left = left - 2;": ("survived", ""),
}


class Verdicts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls._dir = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls._dir.cleanup)
        cls.root = Path(cls._dir.name) / "tree"
        for name, text in FILES.items():
            path = cls.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        cls.out = cls.root.parent / "rows.jsonl"
        cls.first = cls.mutate("--jobs", "2")
        if not cls.out.exists():
            raise AssertionError(cls.first[1])
        cls.rows = [json.loads(line) for line in cls.out.read_text().splitlines()]

    @classmethod
    def mutate(cls, *args):
        done = subprocess.run(
            [str(ROOT / "tools" / "mutate"), "--root", str(cls.root), "--rooms", "comm",
             "--out", str(cls.out), "--patience", "2", *args],
            capture_output=True, text=True, timeout=240)
        return done.returncode, done.stdout + done.stderr

    def find(self, after):
        rows = [row for row in self.rows if row["after"] == after]
        self.assertEqual(len(rows), 1, f"{after}\n{self.first[1]}")
        return rows[0]

    def test_found_and_survived_are_told_apart(self):
        for after, verdict in VERDICTS.items():
            with self.subTest(after=after):
                row = self.find(after)
                self.assertEqual((row["verdict"], row["how"]), verdict)
                by = "comm_test" if row["verdict"] == "found" else None
                self.assertEqual(row.get("by"), by)

    def test_a_hang_is_found(self):
        row = self.find("  while (left != 0) left = left + 1;")
        self.assertEqual((row["verdict"], row["how"]), ("found", "hangs"))

    def test_survivors_make_it_fail_until_they_are_explained(self):
        self.assertEqual(self.first[0], 1, self.first[1])
        self.assertIn("NO TEST NOTICES", self.first[1])
        left = [row["id"] for row in self.rows if row["verdict"] == "survived"]
        known = self.root / "tools" / "mutants_known.txt"
        known.parent.mkdir()
        self.addCleanup(known.unlink)
        known.write_text("# why\n" + "".join(f"{i} nobody can tell\n" for i in left))
        code, out = self.mutate("--only", left[0])
        self.assertEqual(code, 0, out)
        self.assertIn("nobody can tell", out)
        self.assertIn("+++ src/cohort/comm/part", out)

    def test_what_was_judged_is_not_judged_again(self):
        size = len(self.out.read_text())
        _, out = self.mutate("--mutants", "3")
        self.assertEqual(len(self.out.read_text()), size)
        self.assertIn("all             3", out)

    def test_the_same_seed_draws_the_same(self):
        self.assertEqual(self.mutate("--list"), self.mutate("--list", "--seed", "1"))
        self.assertNotEqual(self.mutate("--list"), self.mutate("--list", "--seed", "2"))

    def test_the_tree_itself_stays_as_it_was(self):
        for name, text in FILES.items():
            self.assertEqual((self.root / name).read_text(), text)

    def test_bad_arguments_are_named(self):
        for args in (["--rooms", "attic"], ["--jobs", "0"], ["--only", "comm-none"]):
            code, out = self.mutate(*args)
            self.assertEqual(code, 2, out)
            self.assertIn(args[1], out)

    def test_a_test_that_fails_without_a_change_is_no_ground_to_stand_on(self):
        test = self.root / "src/cohort/comm/part_test.cpp"
        self.addCleanup(test.write_text, test.read_text())
        test.write_text("int main() { return 1; }\n")
        code, out = self.mutate()
        self.assertEqual(code, 2, out)
        self.assertIn("comm_test fails without any change", out)


if __name__ == "__main__":
    unittest.main()
