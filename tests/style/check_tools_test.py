# SPDX-License-Identifier: Apache-2.0
"""The tools that hold the house rules refuse what they must, and nothing else."""

import argparse
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
HEADER = SPDX + "#pragma once\n"


def run(tool, *args):
    done = subprocess.run([str(ROOT / "tools" / tool), *map(str, args)],
                          capture_output=True, text=True, timeout=240)
    return done.returncode, done.stdout + done.stderr


class Tree(unittest.TestCase):
    def setUp(self):
        self._dir = tempfile.TemporaryDirectory()
        self.root = Path(self._dir.name)
        self.write("src/cohort/core/error.h", HEADER)
        self.addCleanup(self._dir.cleanup)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


class CheckIncludes(Tree):
    def refused(self, name, text, because):
        self.write(name, text)
        code, out = run("check_includes", "--root", self.root)
        self.assertEqual(code, 1, out)
        self.assertIn(because, out)

    def accepted(self, name, text):
        self.write(name, text)
        code, out = run("check_includes", "--root", self.root)
        self.assertEqual(code, 0, out)

    def test_an_earlier_room_is_fine(self):
        self.accepted("src/cohort/comm/x.h", HEADER + '#include "cohort/core/error.h"\n')

    def test_a_later_room_is_refused(self):
        self.refused("src/cohort/core/x.h", HEADER + '#include "cohort/comm/world.h"\n',
                     "comm/ comes after it")

    def test_an_unknown_room_is_refused(self):
        self.refused("cli/x.h", HEADER + '#include "cohort/misc/x.h"\n', "no such room")

    def test_a_unit_test_may_use_later_rooms(self):
        self.accepted("src/cohort/core/x_test.cpp", SPDX + '#include "cohort/comm/world.h"\n')

    def test_a_backend_is_private(self):
        line = '#include "cohort/comm/shm/segment.h"\n'
        self.accepted("src/cohort/comm/shm/segment.cpp", SPDX + line)
        self.accepted("src/cohort/comm/backends.cpp", SPDX + line)
        self.accepted("tests/conformance/x.cpp", SPDX + line)
        self.refused("src/cohort/comm/gloo/x.cpp", SPDX + line, "only comm/backends.cpp")

    def test_another_room_cannot_reach_a_backend(self):
        self.refused("src/cohort/train/x.cpp",
                     SPDX + '#include "cohort/comm/shm/segment.h"\n', "only comm/backends.cpp")

    def test_a_public_header_cannot_lean_on_a_room(self):
        self.accepted("include/cohort/x.h", HEADER + '#include "cohort/error.h"\n')
        self.refused("include/cohort/x.h", HEADER + '#include "cohort/core/error.h"\n',
                     "rooms are private")

    def test_heavy_headers(self):
        self.accepted("cli/flags.h", SPDX + "#pragma once\n#include <CLI/CLI.hpp>\n")
        self.refused("cli/other.cpp", SPDX + "#include <CLI/CLI.hpp>\n", "only in cli/flags.h")
        self.refused("recipes/x.cpp", SPDX + "#include <torch/torch.h>\n", "allowed nowhere")

    def test_own_header_comes_first(self):
        self.refused("src/cohort/core/error.cpp",
                     SPDX + '#include <string>\n#include "cohort/core/error.h"\n',
                     "its own header error.h comes first")

    def test_spdx_pragma_ascii(self):
        self.refused("src/cohort/core/a.h", "#pragma once\n", "SPDX")
        self.refused("src/cohort/core/a.h", SPDX, "no #pragma once")
        self.refused("src/cohort/core/a.h", HEADER + "// caf\u00e9\n", "not ASCII")

    def test_a_comment_does_not_begin_with_of(self):
        for line in ("// It is that\n// of all.", "int b;  // The sum\n        // of all.",
                     "int a();  // often", "// Often.", 'const char* a = "// of";'):
            self.accepted("src/cohort/core/a.h", HEADER + "int a();\n" + line + "\n")
        for line in ("// Of the run.", "  // of the run.", "int b;  // of the run",
                     "int b;  // Of the run.", "//   int b;  // of the run"):
            self.refused("src/cohort/core/a.h", HEADER + "int a();\n" + line + "\n",
                         "begins with 'of'")

    def test_length(self):
        self.accepted("src/cohort/core/a.cpp", SPDX + "//\n" * 399)
        self.refused("src/cohort/core/a.cpp", SPDX + "//\n" * 400, "401 lines")
        self.refused("src/cohort/core/b.h", HEADER + "//\n" * 199, "201 lines")

    def test_an_empty_tree_is_no_success(self):
        (self.root / "src/cohort/core/error.h").unlink()
        self.assertEqual(run("check_includes", "--root", self.root)[0], 1)


class CheckSilence(Tree):
    def outcome(self, line, name="src/cohort/core/a.cpp"):
        self.write(name, SPDX + line + "\n")
        return run("check_silence", "--root", self.root)

    def test_printing_and_leaving_are_refused(self):
        for line in ("std::cout << 1;", "std::cerr << 1;", 'printf("x");', 'puts("x");',
                     "fprintf(stderr, s);", "exit(1);", "::exit(1);", "std::exit(1);",
                     "if (x) abort();", "else exit(2);", "std::terminate();", "_exit(1);",
                     "#include <iostream>", "write(STDERR_FILENO, p, n);", "assert(x);"):
            with self.subTest(line):
                code, out = self.outcome(line)
                self.assertEqual(code, 1, out)
                self.assertIn("a.cpp:2:", out)

    def test_what_only_looks_like_it_is_accepted(self):
        for line in ("// std::cout << 1;", 'text("exit(1)");', "comm.abort(reason);",
                     "comm->abort();", "void abort(std::string_view reason);",
                     "abort(reason);", "static_assert(true);", "snprintf(b, n, f);",
                     "int n = 10'000; char c = '\"';", "void Shm::abort() {}"):
            with self.subTest(line):
                code, out = self.outcome(line)
                self.assertEqual(code, 0, out)

    def test_forked_children_may_leave(self):
        self.assertEqual(self.outcome("_exit(1);", "src/cohort/launch/a.cpp")[0], 0)
        self.assertEqual(self.outcome("exit(1);", "src/cohort/launch/a.cpp")[0], 1)

    def test_the_archive_is_read_too(self):
        source = self.write("src/cohort/core/hidden.cpp", SPDX + "#include <cstdio>\n"
                            "#define J(a, b) a##b\n" 'void f() { J(pu, ts)("x"); }\n')
        self.assertEqual(run("check_silence", "--root", self.root)[0], 0)
        made = self.root / "hidden.cpp.o"
        subprocess.run(["g++", "-c", str(source), "-o", str(made)], check=True)
        archive = self.root / "libx.a"
        subprocess.run(["ar", "rc", str(archive), str(made)], check=True)
        code, out = run("check_silence", "--root", self.root, "--archive", archive)
        self.assertEqual(code, 1, out)
        self.assertIn("needs puts", out)
        # What is not in the archive is there for tests only.
        self.write("src/cohort/core/support.cpp", SPDX + "void g() { exit(1); }\n")
        code, out = run("check_silence", "--root", self.root, "--archive", archive)
        self.assertNotIn("support.cpp", out)
        source.write_text(SPDX + "void f() { exit(1); }\n")
        code, out = run("check_silence", "--root", self.root, "--archive", archive)
        self.assertIn("hidden.cpp:2: exit", out)


class CheckHeaders(Tree):
    def test_a_header_that_leans_on_another_is_refused(self):
        good = self.write("good.h", HEADER + "#include <string>\nstd::string f();\n")
        bad = self.write("bad.h", HEADER + "std::string f();\n")
        self.assertEqual(run("check_headers", "--build", BUILD, good)[0], 0)
        code, out = run("check_headers", "--build", BUILD, good, bad)
        self.assertEqual(code, 1, out)
        self.assertIn("bad.h: does not compile alone", out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, default=BUILD)
    args, rest = parser.parse_known_args()
    BUILD = args.build
    unittest.main(argv=[sys.argv[0], *rest])
