# SPDX-License-Identifier: Apache-2.0
"""tools/repeat and tools/fresh, in a checkout whose tools/test only pretends."""

import importlib.machinery
import importlib.util
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Prints what ctest prints, with the result that the file `result` holds.
FAKE_TEST = """#!/bin/bash
cd "$(dirname "$0")/.."
echo "1/2 Test  #1: core_test ................   Passed    0.33 sec"
if [[ $(cat result) == fail ]]; then
  echo "2/2 Test  #2: integration_stop .........***Failed    1.50 sec"
  exit 8
fi
echo "2/2 Test  #2: integration_stop .........   Passed    1.20 sec"
"""


class Repeat(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools/repeat", self.root / "tools")
        self.write("tools/build", "#!/bin/bash\n")
        self.write("tools/test", FAKE_TEST)
        self.write("result", "pass\n")
        self.write(".gitignore", "/build/\n")
        self.git("init", "--quiet")
        self.git("add", "--all")
        self.commit()
        self.log = self.root / "build/repeat/log"

    def write(self, name, text):
        path = self.root / name
        path.write_text(text)
        path.chmod(0o755)

    def git(self, *args):
        subprocess.run(["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@b",
                        *args], check=True, capture_output=True)

    def commit(self):
        self.git("commit", "--all", "--quiet", "--allow-empty", "--message", "change")

    def repeat(self, *args):
        done = subprocess.run([self.root / "tools/repeat", "--idle", *args], timeout=60,
                              capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def lines(self):
        return self.log.read_text().splitlines()

    def test_a_stopped_run_continues_where_it_was(self):
        self.assertEqual(self.repeat("2")[0], 0)
        self.assertEqual(len(self.lines()), 2)
        self.assertIn("2 passed, 0 failed", self.lines()[0])
        self.assertEqual(self.repeat("3")[0], 0)
        self.assertEqual(len(self.lines()), 3)

    def test_a_change_of_the_code_starts_the_count_from_zero(self):
        self.repeat("1")
        self.write("code", "new\n")
        self.git("add", "code")
        self.assertEqual(self.repeat("1")[0], 0)
        self.assertEqual(len(self.lines()), 2)
        self.assertEqual(len(self.repeat("--show")[1].splitlines()), 1)

    def test_a_commit_of_the_log_does_not(self):
        log = self.root / "passes.log"
        self.repeat("1", "--log", str(log))
        self.git("add", "passes.log")
        self.commit()
        self.repeat("1", "--log", str(log))
        self.assertEqual(len(log.read_text().splitlines()), 1)

    def test_a_failure_is_named_and_its_output_kept(self):
        self.write("result", "fail\n")
        code, said = self.repeat("1")
        self.assertEqual(code, 1)
        self.assertIn("1 passed, 1 failed: integration_stop", said)
        kept = list((self.root / "build/repeat").glob("*.txt"))
        self.assertIn("***Failed", kept[0].read_text())

    def test_passes_of_some_tests_do_not_count_for_all(self):
        self.repeat("1", "--", "-R", "core")
        self.assertIn("tests [-R core]", self.lines()[0])
        self.repeat("1")
        self.assertEqual(len(self.lines()), 2)


class Fresh(unittest.TestCase):
    def setUp(self):
        loader = importlib.machinery.SourceFileLoader("fresh", str(ROOT / "tools/fresh"))
        self.fresh = importlib.util.module_from_spec(
            importlib.util.spec_from_loader("fresh", loader))
        loader.exec_module(self.fresh)

    def test_the_commands_are_those_that_readme_prints_first(self):
        self.assertEqual(self.fresh.readme_commands(),
                         ["./cohort train fashion-mnist -n 2", "tools/test"])

    def test_every_phase_is_recognised(self):
        watch = self.fresh.Stopwatch()
        phases = []
        for line in ("setup: downloading packages: g++", "setup: installing packages",
                     "Preset CMake variables:", "[1/56] Building CXX object a.o",
                     "cohort 0.1.0: fashion-mnist on 2 ranks"):
            watch.read(line)
            phases.append(watch.phase)
        self.assertEqual(phases, ["download", "install", "compile", "compile", "run"])
        self.assertIsNotNone(watch.first_result)


if __name__ == "__main__":
    unittest.main()
