#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/gpu_scaling.py: foretold from a made-up table, and measured by a stand-in."""

import os
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "bench/gpu_scaling.py"
PROGRAM = os.environ.get("COHORT_BIN", str(ROOT / "build/release/bin/cohort"))

# Passes on what is only foretold, and makes rows up where GPUs would be needed.
STAND_IN = """#!/usr/bin/env python3
import json, os, sys
args = sys.argv[1:]
if "--costs" in args:
    os.execv({program!r}, [{program!r}, *args])
assert args[args.index("--backend") + 1] == "nccl", args
for ranks in map(int, args[args.index("-n") + 1].split(",")):
    print(json.dumps({{"ranks": ranks, "batch": 256 * ranks, "step_ms": 80.0 + ranks,
                       "samples_per_second": 256e3 * ranks / (80.0 + ranks)}}))
"""


def write_costs(path):
    rows = ["what,name,fixed_us,per_sample_us,gb_per_s,hidden", "samples,256,,,,",
            "update,,5,,800,"]
    for block in range(18):
        rows += [f"forward,{block},50,5,,", f"backward,{block},100,10,,"]
    path.write_text("\n".join(rows) + "\n")


def run(*args):
    return subprocess.run([sys.executable, str(SCRIPT), *args], capture_output=True,
                          text=True, timeout=120)


class GpuScaling(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.costs = Path(self.folder.name) / "costs.csv"
        write_costs(self.costs)

    def rows(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return [line.split() for line in done.stdout.splitlines()
                if line.split()[0].isdigit()]

    def test_without_gpus_every_row_says_that_it_was_not_run(self):
        done = run("--program", PROGRAM, "--costs", str(self.costs), "--gpus", "0")
        rows = self.rows(done)
        self.assertEqual([row[0] for row in rows], ["1", "8", "64"] * 2)
        for row in rows:
            self.assertEqual(row[-2:], ["not", "run"])
        self.assertIn("links published: NVLink 4", done.stdout)

    def test_measured_rows_stand_beside_foretold_ones(self):
        stand_in = Path(self.folder.name) / "cohort"
        stand_in.write_text(STAND_IN.format(program=PROGRAM))
        stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
        done = run("--program", str(stand_in), "--costs", str(self.costs),
                   "--gpus", "4", "--foretell", "64")
        rows = self.rows(done)
        self.assertEqual([row[0] for row in rows], ["1", "2", "4", "64"] * 2)
        self.assertIn("82.00", rows[1])
        self.assertNotIn("run", rows[1])
        self.assertEqual(rows[3][-2:], ["not", "run"])

    def test_without_gpu_and_costs_it_says_what_it_needs(self):
        done = run("--program", PROGRAM, "--gpus", "0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--costs FILE", done.stderr)

    def test_a_table_of_another_model_is_refused_as_the_program_does(self):
        self.costs.write_text("what,name,fixed_us,per_sample_us,gb_per_s,hidden\n"
                              "forward,0,1,1,,\n")
        done = run("--program", PROGRAM, "--costs", str(self.costs), "--gpus", "0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("legal: those of the step", done.stderr)


if __name__ == "__main__":
    unittest.main()
