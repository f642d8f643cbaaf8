#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/peers/compare.py and recovery.py, with stand-ins for all programs that they run."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "bench/peers"
sys.dont_write_bytecode = True
sys.path.insert(0, str(PEERS))
import compare  # noqa: E402

# Reports times that tell a median from a mean and one program from another.
TIMED_STAND_IN = """#!{python}
import json, os, sys
from pathlib import Path
name, args = Path(sys.argv[0]).name, sys.argv[1:]
files = [Path(arg).name for arg in args]

def comm_rows(backend, p50, sizes, **more):
    for size in sizes:
        print(json.dumps({{"backend": backend, "bytes": int(size), "p50": p50, "mean": 1e6,
                          **more}}))

if os.environ.get("FAILS") in files:
    sys.exit("out of luck")
if "ddp_cpu.py" in files:
    assert float(os.environ["COMMAND_BEGAN"]) > 0
    print("a line of the launcher")
    print(json.dumps({{"step_ms": 100.0 if name == "torchrun" else 50.0,
                      "first_step_s": 8.0}}))
elif "fsdp2.py" in files:
    print(json.dumps({{"step_ms": 300.0}}))
elif "allreduce_gloo.py" in files or "allreduce_mpi" in files:
    comm_rows("", 20.0 if name == "torchrun" else 30.0, [a for a in args if a.isdigit()
                                                       and int(a) > 100])
elif name == "mpicxx":
    Path(args[-1]).touch()
elif args[:2] == ["bench", "comm"]:
    backend, sizes = args[args.index("--backend") + 1], args[args.index("--bytes") + 1]
    comm_rows("limit", 1.0, sizes.split(","), memory="shared")
    comm_rows(backend, 2.0, sizes.split(","), memory="shared")
    comm_rows(backend, 10.0, sizes.split(","), memory="ordinary")
elif args[:2] == ["bench", "train"]:
    print(json.dumps({{"step_ms": 25.0 if "shard=3" in args else 50.0}}))
elif args[0] == "train":
    print(json.dumps({{"event": "start"}}))
    print(json.dumps({{"event": "done", "first_step_s": 2.0}}))
"""

# Makes steps, with a child process as its one rank, and replaces it when it is killed:
# `cohort` goes on, `torchrun` begins again.
KILLED_STAND_IN = """#!{python}
import itertools, json, subprocess, sys, time
from pathlib import Path
name = Path(sys.argv[0]).name
step = 0

def tell(**line):
    print(json.dumps(line), flush=True)

for restart in itertools.count():
    rank = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    if name == "cohort":
        tell(event="rank", rank=0, pid=rank.pid)
    first = step if name == "cohort" else 0
    for step in itertools.count(first):
        if rank.poll() is not None:
            break
        if name == "cohort":
            tell(event="step", step=step)
            if restart > 0 and step == first:
                tell(event="recovered")
        else:
            tell(step=step, rank=0, pid=rank.pid, restart=restart)
        time.sleep(0.002)
"""


class Peers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bin = Path(folder.name)

    def stand_in(self, text, *names):
        for name in names:
            path = self.bin / name
            path.write_text(text.format(python=sys.executable))
            path.chmod(0o755)

    def run_script(self, script, *args, **variables):
        command = [sys.executable, str(PEERS / script), "--cohort", str(self.bin / "cohort"),
                   *args]
        return subprocess.run(command, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "PATH": str(self.bin), **variables})

    def rows(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]


class Compare(Peers):
    def setUp(self):
        super().setUp()
        self.stand_in(TIMED_STAND_IN, "cohort", "torchrun", "python", "mpicxx", "mpirun")

    def compare(self, *args, **variables):
        return self.run_script("compare.py", "--python", str(self.bin / "python"),
                               "--repeat", "1", *args, **variables)

    def ratios(self, case):
        return {(row["cohort"], row["peer"], row["what"]): row["ratio"]
                for row in self.rows(self.compare("--json", "--case", case))}

    def test_both_sides_of_an_all_reduce_are_medians_of_calls(self):
        ratios = self.ratios("comm")
        self.assertEqual(len(ratios), 2 * 2 * len(compare.SIZES))
        for (_, peer, _), ratio in ratios.items():
            self.assertEqual(ratio, 3 if peer == "Open MPI" else 2)

    def test_steps_are_set_against_those_of_ddp_and_fsdp(self):
        for case in ("mlp100", "resnet50-cifar", "fashion"):
            self.assertEqual(self.ratios(case), {("bench train", "DDP", "step"): 2})
        self.assertEqual(self.ratios("fsdp"), {("shard=3", "FSDP2, gloo", "step"): 12})

    def test_starts_are_compared(self):
        self.assertEqual(self.ratios("first-step"), {("train", "DDP", "first step"): 4})
        self.assertEqual(self.ratios("launch"), {("launch", "torchrun", "step"): 2,
                                                 ("launch", "torchrun", "first step"): 1})

    def test_a_row_has_the_median_over_rounds_whose_order_alternates(self):
        asked = []
        times = {"a": iter([1.0, 9.0, 2.0]), "b": iter([8.0, 4.0, 6.0])}

        def program(name):
            asked.append(name)
            return {("step", "ms"): next(times[name])}

        sides = {name: lambda name=name: program(name) for name in times}
        values = compare.run_in_turns("case", sides, 3, lambda line: None)
        self.assertEqual(asked, ["a", "b", "b", "a", "a", "b"])
        (row,) = compare.rows_of("case", values, ["a"], ["b"])
        self.assertEqual((row["cohort_median"], row["peer_median"], row["ratio"]), (2, 6, 3))

    def test_a_program_that_fails_leaves_the_other_cases_their_rows(self):
        done = self.compare("--case", "fsdp", "--case", "mlp100", FAILS="fsdp2.py")
        self.assertEqual(done.returncode, 1)
        self.assertIn("fsdp FAILED", done.stderr)
        self.assertIn("exit code 1: out of luck", done.stderr)
        self.assertRegex(done.stdout, r"(?m)^mlp100 .* 50\.00 ms .* 100\.00 ms +2\.00$")

    def test_without_pytorch_it_says_how_to_install_it(self):
        (self.bin / "torchrun").unlink()
        done = self.compare()
        self.assertEqual(done.returncode, 2)
        self.assertIn("pip install torch==", done.stderr)


class Recovery(Peers):
    def test_kills_are_timed_and_lost_steps_counted_for_both_programs(self):
        self.stand_in(KILLED_STAND_IN, "cohort", "torchrun")
        cohort, torchrun = self.rows(self.run_script(
            "recovery.py", "--json", "-n", "1", "--kills", "3", "--stops", "0",
            "--torchrun", str(self.bin / "torchrun"), "--torchrun-kills", "2"))
        self.assertEqual((cohort["program"], cohort["count"]), ("cohort", 3))
        self.assertEqual(cohort["lost_steps"], 0)
        self.assertEqual((torchrun["program"], torchrun["count"]), ("torchrun", 2))
        self.assertGreaterEqual(torchrun["lost_steps"], 20)
        for row in (cohort, torchrun):
            self.assertLess(0, row["median_s"])
            self.assertLessEqual(row["median_s"], row["longest_s"])


if __name__ == "__main__":
    unittest.main()
