#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs into a folder that nobody may write to, and builds and runs there, as an ordinary
user, what a user would: projects with find_package and with pkg-config, a loop that outlives
its ranks, a program with a recipe of its own, and the examples of earlier releases.

Usage: install_test.py --build DIR --generator NAME
"""
import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from installed import LIMIT_S, LONG, ROOT, InstalledTest


def ranks_of(program, agent):
    """Processes of the program whose grandparent is the agent, but for spares."""
    def parent_of(pid):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (os.readlink(entry / "exe") == str(program)
                    and parent_of(parent_of(entry.name)) == agent
                    and b"COHORT_SPARE" not in (entry / "environ").read_bytes()):
                found.append(int(entry.name))
        except OSError:
            pass
    return found


class Install(InstalledTest):
    def headers(self):
        return sorted(p.relative_to(self.prefix / "include").as_posix()
                      for p in (self.prefix / "include").rglob("*.h"))

    def promised(self):
        return re.findall(r"^\| \[?`(cohort/\w+\.h)`", (ROOT / "docs/api.md").read_text(),
                          re.MULTILINE)

    def test_nobody_may_write_there(self):
        self.as_user("touch", self.prefix / "include/cohort/more.h", code=1)
        self.as_user("touch", self.prefix / "include/cohort/cohort.h", code=1)

    def test_what_is_installed_is_what_the_docs_promise(self):
        self.assertEqual(self.headers(), sorted(self.promised()))
        umbrella = (self.prefix / "include/cohort/cohort.h").read_text()
        for header in self.headers():
            if header != "cohort/cohort.h":
                self.assertIn(f'"{header}"', umbrella)

    def test_nothing_but_these_files_is_installed(self):
        package = ("cohort-config.cmake", "cohort-config-version.cmake", "FindLibTorch.cmake")
        self.assertEqual(
            {path.relative_to(self.prefix).as_posix() for path in self.prefix.rglob("*")
             if not path.is_dir()},
            {"bin/cohort", "lib/libcohort.a", "lib/pkgconfig/cohort.pc",
             *(f"lib/cmake/cohort/{name}" for name in package),
             *(f"include/{name}" for name in self.promised())})

    def test_headers_lean_on_nothing_else(self):
        for header in self.headers():
            for name in re.findall(r'#include "([^"]+)"',
                                   (self.prefix / "include" / header).read_text()):
                self.assertIn(name, self.headers(), header)

    def compile_alone(self, header, *under):
        source = self.scratch / "header.cpp"
        source.write_text(f"#include <{header}>\n")
        flags = self.as_user("pkg-config", "--cflags", "cohort").split()
        self.as_user(*under, "g++", *flags, "-fsyntax-only", source)

    def seconds_to_compile(self, header, enough=0.0):
        """Of a processor; the least of three times, or the first that is no more than enough."""
        least = float("inf")
        for _ in range(3):
            before = os.times()
            self.compile_alone(header, "env", "CCACHE_DISABLE=1")
            after = os.times()
            least = min(least, after.children_user - before.children_user +
                        after.children_system - before.children_system)
            if least <= enough:
                break
        return least

    def test_each_header_compiles_alone(self):
        """In the short form the header of all headers: style_headers compiles each one that
        has changed alone."""
        for header in self.promised() if LONG else ["cohort/cohort.h"]:
            with self.subTest(header):
                self.compile_alone(header)

    @unittest.skipUnless(LONG, "a measurement, for docs/measured.md")
    def test_a_header_costs_little_more_than_the_tensor(self):
        """Prints the table of docs/measured.md: lines, and processor seconds to compile, in the
        same run."""
        tensor = self.seconds_to_compile("ATen/core/Tensor.h")
        print(f"\nATen/core/Tensor.h: {tensor:.1f} s")
        for header in self.promised():
            with self.subTest(header):
                seconds = self.seconds_to_compile(header, enough=2.2 * tensor)
                lines = len((ROOT / "include" / header).read_text().splitlines())
                print(f"| `{header}` | {lines} | <= 4 s | {seconds:.1f} s |")
                self.assertLessEqual(seconds, 2.2 * tensor)

    def test_only_what_is_promised_can_be_linked_with(self):
        """What the library defines in namespace cohort for others is of a class, a function or
        a constant that a public header names."""
        names = self.as_user("nm", "-g", "--defined-only", self.prefix / "lib/libcohort.a")
        code = "".join(re.sub("//.*", "", (self.prefix / "include" / header).read_text())
                       for header in self.headers())
        found = set()
        for length, more in re.findall(r" _Z(?:GV|T[VISThv])?N[VKRO]*6cohort(\d+)(\w+)", names):
            found.add(more[:int(length)])
        self.assertTrue({"Session", "run_program", "DataParallel"} < found, found)
        self.assertEqual(sorted(found - set(re.findall(r"\w+", code))), [])
        self.assertEqual(found & {"Executor", "Schedule", "Trainer", "Membership", "cli"}, set())

    def test_find_package(self):
        program = self.build("cmake_project") / "my_training"
        self.assertIn("fits on 1 rank", self.as_user(program))
        self.assertIn("fits on 2 ranks", self.launch(program))
        self.assertIn("0.1", self.as_user(self.prefix / "bin/cohort", "--version"))

    def test_pkg_config(self):
        self.assertIn("epoch 3", self.launch(self.program("examples/data_parallel.cpp")))

    def test_state_that_is_cut(self):
        said = self.launch(self.example("sharded"))
        self.assertLess(float(re.findall(r"epoch 3: .* ([\d.]+)", said)[-1]), 0.5)

    def test_a_loop_that_saves_goes_on_with_other_numbers_of_ranks(self):
        program = self.example("checkpoints")

        def weights(folder, epochs, ranks):
            """Those at the start and at each save, by step; all ranks have them."""
            said = self.launch(program, self.home / folder, str(epochs), ranks=ranks)
            all_said = re.findall(r"at step (\d+): weights (\S+)", said)
            self.assertEqual(len(all_said), ranks * len(set(all_said)), said)
            return {int(step): float(value) for step, value in all_said}

        saved = weights("on_two", 2, 2)
        whole = weights("whole", 3, 2)
        for ranks in (1, 3):
            self.as_user("cp", "-r", self.home / "on_two", self.home / f"on_{ranks}")
            on = weights(f"on_{ranks}", 3, ranks)
            self.assertEqual(sorted(on), [32, 48])
            self.assertEqual(on[32], saved[32])
            self.assertAlmostEqual(on[48], whole[48], 2)

    def test_results_in_a_program_of_its_own(self):
        said = self.launch(self.example("own_training"))
        self.assertIn("as on one; trained 320 steps to a loss of 0.0", said)
        self.assertLess(float(re.findall(r"distance ([\d.]+)", said)[-1]), 0.2)

    def weights(self, said):
        """What all ranks say of their weights at the end."""
        (weights,) = set(re.findall(r"weights (\S+)", said))
        return weights

    def test_a_loop_that_outlives_its_ranks(self):
        program = self.example("elastic")
        expected = self.weights(self.launch(program, "12"))
        command = [*self.user, str(self.prefix / "bin/cohort"), "launch", "--elastic", "-n", "2",
                   "--", str(program), "12"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env=self.environment, cwd=self.home) as agent:
            self.addCleanup(agent.kill)
            said = ""
            while "step 16:" not in said:
                line = agent.stdout.readline()
                self.assertTrue(line, said)
                said += line
            os.kill(ranks_of(program, agent.pid)[0], signal.SIGKILL)
            said += agent.stdout.read()
            self.assertEqual(agent.wait(LIMIT_S), 0, said)
        self.assertEqual(self.weights(said), expected)
        self.assertIn("killed", said)

    def test_examples_of_earlier_releases_still_compile(self):
        """In the short form those that are no examples any more: the build has the others."""
        sources = sorted((ROOT / "tests/install").glob("release_*/**/*.cpp"))
        self.assertTrue(sources)
        examples = {path.read_text() for path in (ROOT / "examples").rglob("*.cpp")}
        for source in sources:
            if not LONG and source.read_text() in examples:
                continue
            with self.subTest(source.relative_to(ROOT)):
                self.program(source)

    def test_a_program_with_a_recipe_of_its_own(self):
        program = self.build("my_cohort") / "my_cohort"
        for command in (["train"], ["bench", "train"], ["step"], ["verify"]):
            help_text = self.as_user(program, *command, "--help")
            for expected in ("which of two spirals", "Keys of spirals", "data.turns",
                             "fashion-mnist"):
                self.assertIn(expected, help_text)
        learned = self.as_user(program, "train", "spirals", "-n", "2", "--json")
        self.assertGreater(float(re.findall(r'"accuracy":([\d.]+)', learned)[-1]), 0.9)
        self.assertIn("accepted", self.as_user(program, "step", "spirals", "-n", "4", "--layout",
                                               "dp=2,pp=2,shard=1"))
        self.assertIn("equal", self.as_user(program, "verify", "spirals", "-n", "4", "--layout",
                                            "dp=2,pp=2,shard=3"))
        timed = json.loads(self.as_user(program, "bench", "train", "spirals", "--json"))
        self.assertEqual((timed["case"], timed["ranks"]), ("spirals", 2))
        self.assertIn("my_cohort: [recipes] unknown recipe 'spiral'; nearest: spirals",
                      self.as_user(program, "train", "spiral", code=2))
        self.goes_on_from_a_checkpoint(program)

    def goes_on_from_a_checkpoint(self, program):
        def hash_after(ranks, steps, *more):
            said = self.as_user(program, "train", "spirals", "--exact", "--set", "slices=4", "-n",
                                ranks, "--max-steps", steps, "--json", *more)
            return re.search(r'"weights_hash":"(\w+)"', said)[1]

        saved = self.home / "saved"
        to_folder = ("--set", f"checkpoint.dir={saved}")
        hash_after(2, 20, *to_folder)
        self.assertRegex(self.as_user(program, "checkpoint", "list", saved), r"(?m)^20 ")
        self.assertIn("layer0.weight", self.as_user(program, "checkpoint", "show", saved))
        self.as_user(program, "checkpoint", "verify", saved)
        resumed = hash_after(1, 40, *to_folder, "--resume")
        self.assertEqual({resumed, hash_after(2, 40)}, {hash_after(1, 40)})
        newest = saved / "step-00000040"
        damaged = max((f for f in newest.rglob("*") if f.is_file()),
                      key=lambda f: f.stat().st_size)
        damaged.chmod(0o644)
        damaged.write_bytes(damaged.read_bytes()[:-1] + b"~")
        self.assertIn(damaged.name, self.as_user(program, "checkpoint", "verify", newest, code=5))

    def another_libtorch(self):
        """The folder of a LibTorch of which there is little but its number."""
        other = Path(tempfile.mkdtemp(prefix="torch_", dir=self.scratch))
        other.chmod(0o755)
        header = other / "include/torch/headeronly/version.h"
        header.parent.mkdir(parents=True)
        header.write_text("#define TORCH_VERSION_MAJOR 1\n#define TORCH_VERSION_MINOR 13\n"
                          "#define TORCH_VERSION_PATCH 1\n"
                          '#define TORCH_VERSION "1.13.1"\n')
        (other / "include/ATen/core").mkdir(parents=True)
        (other / "include/ATen/core/Tensor.h").write_text("#include_next <ATen/core/Tensor.h>\n")
        (other / "lib").mkdir()
        for name in ("libtorch_cpu.so", "libc10.so"):
            (other / "lib" / name).touch()
        return other

    def test_another_libtorch_is_refused(self):
        said = self.as_user("cmake", "-S", ROOT / "examples/cmake_project", "-B",
                            self.home / "refused", "-G", self.generator,
                            f"-DCMAKE_PREFIX_PATH={self.prefix}",
                            f"-DCOHORT_TORCH={self.another_libtorch()}", code=1)
        self.assertIn("LibTorch 1.13.1", said)
        self.assertIn("was built with", " ".join(said.split()))

    def test_the_compiler_refuses_another_libtorch(self):
        source = self.scratch / "other.cpp"
        source.write_text("#include <cohort/session.h>\n")
        other = self.another_libtorch()
        by_pkg_config = self.as_user("pkg-config", f"--define-variable=torch={other}",
                                     "--cflags", "cohort").split()
        by_hand = ["-std=c++20", f"-I{self.prefix}/include", f"-I{other}/include"]
        for flags in (by_pkg_config, by_hand):
            said = self.as_user("g++", *flags, "-isystem", f"{self.torch}/include",
                                "-fsyntax-only", source, code=1)
            (line,) = re.findall(r"error: (.*)", said)
            self.assertIn("LibTorch 1.13.1; this Cohort was built with", line)

    def test_a_program_that_finds_another_libtorch_ends_with_a_line(self):
        source, library = self.scratch / "number.cpp", self.home / "libtorch_cpu.so"
        source.write_text('extern "C" unsigned long aoti_torch_abi_version() '
                          "{ return 1UL << 56 | 13UL << 48 | 1UL << 40; }\n")
        self.as_user("g++", "-shared", "-fPIC", source, "-o", library)
        preload = ("env", f"LD_PRELOAD={library}")
        said = self.as_user(*preload, self.prefix / "bin/cohort", "train", "mlp", code=2)
        self.assertEqual(said.count("\n"), 1, said)
        self.assertIn(f"[libtorch] {library} is LibTorch 1.13.1; legal: ", said)
        said = self.as_user(*preload, self.program("examples/data_parallel.cpp"),
                            code=-signal.SIGABRT)
        self.assertIn("is LibTorch 1.13.1; legal: ", said)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--generator", default=InstalledTest.generator)
    args, rest = parser.parse_known_args()
    InstalledTest.built, InstalledTest.generator = args.build, args.generator
    unittest.main(argv=[sys.argv[0], *rest])
