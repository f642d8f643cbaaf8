#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs into a folder that nobody may write to, and builds and runs what a user would:
projects with find_package and with pkg-config, and a program with a recipe of its own.

Usage: install_test.py --build DIR --generator NAME
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300


def run(*command, code=0, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                          timeout=LIMIT_S, **more)
    if done.returncode != code:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout + done.stderr


def as_ordinary_user():
    """A command prefix under which even the owner of a folder may write only where its mode
    says so. Without root that is everybody's lot."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = Path(tempfile.mkdtemp(prefix="cohort_install_"))
        cls.prefix = cls.scratch / "prefix"
        run("cmake", "--install", ARGS.build, "--prefix", cls.prefix)
        for folder, _, files in os.walk(cls.prefix):
            for name in files:
                path = Path(folder) / name
                path.chmod(path.stat().st_mode & ~0o222)
            os.chmod(folder, 0o555)

    @classmethod
    def tearDownClass(cls):
        for folder, _, _ in os.walk(cls.prefix):
            os.chmod(folder, 0o755)
        shutil.rmtree(cls.scratch)

    def headers(self):
        return sorted(p.relative_to(self.prefix / "include").as_posix()
                      for p in (self.prefix / "include").rglob("*.h"))

    def build(self, project):
        folder = self.scratch / project
        run(*as_ordinary_user(), "cmake", "-S", ROOT / "examples" / project, "-B", folder,
            "-G", ARGS.generator, f"-DCMAKE_PREFIX_PATH={self.prefix}",
            "-DCMAKE_BUILD_TYPE=Release")
        run(*as_ordinary_user(), "cmake", "--build", folder)
        return folder

    def launch(self, *program):
        return run(*as_ordinary_user(), self.prefix / "bin/cohort", "launch", "-n", "2", "--",
                   *program)

    def test_nobody_may_write_there(self):
        run(*as_ordinary_user(), "touch", self.prefix / "include/cohort/more.h", code=1)

    def test_what_is_installed_is_what_the_docs_promise(self):
        promised = re.findall(r"^\| \[?`(cohort/\w+\.h)`", (ROOT / "docs/api.md").read_text(),
                              re.MULTILINE)
        self.assertEqual(self.headers(), sorted(promised))
        umbrella = (self.prefix / "include/cohort/cohort.h").read_text()
        for header in self.headers():
            if header != "cohort/cohort.h":
                self.assertIn(f'"{header}"', umbrella)

    def test_headers_lean_on_nothing_else(self):
        for header in self.headers():
            for name in re.findall(r'#include "([^"]+)"',
                                   (self.prefix / "include" / header).read_text()):
                self.assertIn(name, self.headers(), header)

    def test_each_header_compiles_quickly(self):
        flags = run("pkg-config", "--cflags", "cohort", env=self.pkg_config()).split()
        lines = []
        for header in self.headers():
            source = self.scratch / "header.cpp"
            source.write_text(f"#include <{header}>\n")
            usage = os.times()
            run("g++", *flags, "-fsyntax-only", source)
            after = os.times()
            seconds = (after.children_user - usage.children_user +
                       after.children_system - usage.children_system)
            text = (self.prefix / "include" / header).read_text()
            lines.append(f"{header:28} {len(text.splitlines()):4} lines  {seconds:.1f} s")
        print("\n" + "\n".join(lines))

    def test_only_what_is_promised_can_be_linked_with(self):
        names = run("nm", "-gC", "--defined-only", self.prefix / "lib/libcohort.a")
        self.assertIn("cohort::Session::from_env", names)
        self.assertIn("cohort::run_program", names)
        for private in ("cohort::Executor", "cohort::Schedule", "cohort::cli::run",
                        "cohort::Trainer", "cohort::Membership"):
            self.assertNotIn(f" {private}", names)

    def test_find_package(self):
        program = self.build("cmake_project") / "my_training"
        self.assertIn("fits on 1 rank", run(*as_ordinary_user(), program))
        self.assertIn("fits on 2 ranks", self.launch(program))
        self.assertIn("0.1", run(self.prefix / "bin/cohort", "--version"))

    def pkg_config(self):
        return {**os.environ, "PKG_CONFIG_PATH": str(self.prefix / "lib/pkgconfig")}

    def test_pkg_config(self):
        flags = run("pkg-config", "--cflags", "--libs", "cohort", env=self.pkg_config()).split()
        program = self.scratch / "by_pkg_config"
        run(*as_ordinary_user(), "g++", "-O1", ROOT / "examples/data_parallel.cpp", *flags, "-o",
            program)
        self.assertIn("epoch 3", self.launch(program))

    def test_results_in_a_program_of_its_own(self):
        flags = run("pkg-config", "--cflags", "--libs", "cohort", env=self.pkg_config()).split()
        program = self.scratch / "own_training"
        run(*as_ordinary_user(), "g++", "-O1", ROOT / "examples/own_training.cpp", *flags, "-o",
            program)
        said = self.launch(program)
        self.assertIn("as on one; trained 320 steps to a loss of 0.0", said)
        self.assertLess(float(re.findall(r"distance ([\d.]+)", said)[-1]), 0.2)

    def test_a_program_with_a_recipe_of_its_own(self):
        program = [*as_ordinary_user(), self.build("my_cohort") / "my_cohort"]
        help_text = run(*program, "train", "--help")
        for expected in ("spirals", "which of two spirals", "Keys of spirals", "data.turns",
                         "fashion-mnist"):
            self.assertIn(expected, help_text)
        exact = [*program, "train", "spirals", "--exact", "--set", "slices=4",
                 "--max-steps", "40", "--json"]
        hashes = {re.search(r'"weights_hash":"(\w+)"', run(*exact, "-n", n))[1]
                  for n in (1, 2)}
        self.assertEqual(len(hashes), 1)
        learned = run(*program, "train", "spirals", "-n", "2", "--json")
        self.assertGreater(float(re.findall(r'"accuracy":([\d.]+)', learned)[-1]), 0.9)
        self.assertIn("accepted", run(*program, "step", "spirals", "-n", "4", "--layout",
                                      "dp=2,pp=2,shard=1"))
        self.assertIn("equal", run(*program, "verify", "spirals", "-n", "4", "--layout",
                                   "dp=2,pp=2,shard=3"))
        self.assertIn("my_cohort: [recipes] unknown recipe 'spiral'; nearest: spirals",
                      run(*program, "train", "spiral", code=2))

    def test_another_libtorch_is_refused(self):
        other = self.scratch / "torch"
        header = other / "include/torch/headeronly/version.h"
        header.parent.mkdir(parents=True)
        header.write_text("#define TORCH_VERSION_MAJOR 1\n#define TORCH_VERSION_MINOR 13\n"
                          "#define TORCH_VERSION_PATCH 1\n")
        (other / "include/ATen/core").mkdir(parents=True)
        (other / "include/ATen/core/Tensor.h").touch()
        (other / "lib").mkdir()
        for name in ("libtorch_cpu.so", "libc10.so"):
            (other / "lib" / name).touch()
        said = run("cmake", "-S", ROOT / "examples/cmake_project", "-B",
                   self.scratch / "refused", f"-DCMAKE_PREFIX_PATH={self.prefix}",
                   f"-DCOHORT_TORCH={other}", code=1)
        self.assertIn("LibTorch 1.13.1", said)
        self.assertIn("was built with", " ".join(said.split()))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, required=True)
    parser.add_argument("--generator", default="Ninja")
    ARGS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
