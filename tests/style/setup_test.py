# SPDX-License-Identifier: Apache-2.0
"""tools/setup, with a python3 that only pretends to install LibTorch."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Makes a folder like a virtual environment; its pip makes the files setup looks for,
# slowly enough that two setups would meet. $FAKE_PIP_FAILS makes the second pip fail.
FAKE_PYTHON = """#!/bin/bash
if [[ "$1 $2" == "-m venv" ]]; then
  mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
elif [[ "$1 $2 $3" == "-m pip install" ]]; then
  echo "$@" >>"$FAKE_LOG"
  site=$(dirname "$(dirname "$0")")/lib/python3.99/site-packages/torch
  mkdir -p "$site/lib" "$site/include/ATen/core"
  [[ -n $FAKE_PIP_FAILS && "$*" == *cuda-toolkit* ]] && exit 1
  sleep 0.3
  touch "$site/lib/libtorch_cpu.so" "$site/include/ATen/core/Tensor.h"
fi
"""


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        self.root, self.cache = self.dir / "checkout", self.dir / "cache"
        (self.root / "tools").mkdir(parents=True)
        shutil.copy(ROOT / "tools" / "setup", self.root / "tools" / "setup")
        (self.dir / "bin").mkdir()
        python = self.dir / "bin" / "python3"
        python.write_text(FAKE_PYTHON)
        python.chmod(0o755)
        self.log = self.dir / "log"
        self.log.write_text("")

    def start(self, *args, **env):
        env = {"PATH": f"{self.dir}/bin:/usr/bin:/bin", "HOME": str(self.dir),
               "COHORT_CACHE": str(self.cache), "FAKE_LOG": str(self.log), **env}
        return subprocess.Popen([str(self.root / "tools" / "setup"), *args], env=env,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run_setup(self, *args, **env):
        process = self.start(*args, **env)
        out, _ = process.communicate(timeout=240)
        return process.returncode, out

    def installed(self):
        return (self.root / ".deps/torch/lib/libtorch_cpu.so").exists()

    def test_installs_once_and_links(self):
        self.assertEqual(self.run_setup("--check")[0], 1)
        code, out = self.run_setup()
        self.assertEqual(code, 0, out)
        self.assertTrue(self.installed())
        log = self.log.read_text()
        self.assertIn("--no-deps torch==2.11.0", log)
        self.assertEqual(self.run_setup(), (0, ""))
        self.assertEqual(self.run_setup("--check"), (0, ""))
        self.assertEqual(self.log.read_text(), log)

    def test_two_at_once_install_once(self):
        both = [self.start(), self.start()]
        for process in both:
            out, _ = process.communicate(timeout=240)
            self.assertEqual(process.returncode, 0, out)
        self.assertEqual(self.log.read_text().count("torch==2.11.0"), 1)

    def test_a_failed_install_leaves_nothing(self):
        code, out = self.run_setup(FAKE_PIP_FAILS="1")
        self.assertEqual(code, 1, out)
        self.assertEqual([p.name for p in self.cache.iterdir()], [".setup.lock"])
        self.assertFalse(self.installed())
        self.assertEqual(self.run_setup()[0], 0)

    def test_a_given_libtorch_is_taken(self):
        given = self.dir / "given"
        code, out = self.run_setup(COHORT_TORCH=str(given))
        self.assertEqual(code, 2)
        self.assertIn(f"COHORT_TORCH={given} has no include", out)
        for name in ("lib/libtorch_cpu.so", "include/ATen/core/Tensor.h"):
            (given / name).parent.mkdir(parents=True)
            (given / name).touch()
        self.assertEqual(self.run_setup(COHORT_TORCH=str(given)), (0, ""))
        self.assertTrue((self.root / ".deps/torch").samefile(given))
        self.assertEqual(self.log.read_text(), "")

    def test_bad_arguments(self):
        for args in (["--bogus"], ["--bundle"], ["--from", "/nowhere"]):
            with self.subTest(args):
                code, out = self.run_setup(*args)
                self.assertEqual(code, 2, out)
                self.assertEqual(out.count("\n"), 1, out)

    # Without the right to install, the command for one who has it is printed.
    def test_an_administrator_is_told_what_to_type(self):
        tools = self.dir / "few"
        tools.mkdir()
        needed = "bash dirname mkdir tr flock env python3 g++ cmake ninja ccache bible"
        for name in needed.split():
            real = shutil.which(name, path=f"{self.dir}/bin:/usr/bin:/bin")
            os.symlink(real, tools / name)
        code, out = self.run_setup(PATH=str(tools))
        self.assertEqual(code, 2, out)
        self.assertIn("sudo apt-get install -y --no-install-recommends pkg-config\n", out)


if __name__ == "__main__":
    unittest.main()
