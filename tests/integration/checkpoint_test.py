#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`cohort checkpoint` from outside: every action, exit codes, damage, kill -9 at any time.

Usage: COHORT_BIN=... checkpoint_test.py [--kills K] [--seed S]
"""

import argparse
import json
import os
import random
import struct
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

COHORT = os.environ.get("COHORT_BIN", "build/release/bin/cohort")
KILLS, SEED = 8, 1


def run(*args):
    return subprocess.run([COHORT, "checkpoint", *map(str, args)], capture_output=True,
                          text=True, timeout=120)


def rows(*args):
    done = run(*args, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        part = struct.pack(f"<{len(values)}f", *values)
        header[name] = {"dtype": "F32", "shape": [len(values)],
                        "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class CheckpointCommand(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = Path(folder.name)
        self.source = self.dir / "a.safetensors"
        self.root = self.dir / "run"
        write_safetensors(self.source, {"fc.weight": [0.5, 1.5, 2.5], "fc.bias": [1.0]})

    def ok(self, *args):
        done = run(*args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refused(self, code, *args):
        done = run(*args)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def test_goes_round_every_form(self):
        self.ok("import", self.source, self.root, "--step", 12, "--files", 2)
        [row] = rows("list", self.root)
        self.assertEqual((row["step"], row["trouble"]), (12, ""))
        head, *tensors = rows("show", self.root)
        self.assertEqual(head["step"], 12)
        self.assertEqual([t["tensor"] for t in tensors], ["fc.bias", "fc.weight"])
        for form in ("safetensors", "pt", "hf"):
            out = self.dir / f"out.{form}"
            self.ok("export", self.root, out, "--to", form)
            self.assertIn("equal: 2 tensors", self.ok("diff", out, self.source))
            self.ok("import", out, self.dir / f"again.{form}")
            self.ok("diff", self.dir / f"again.{form}", self.root)
        self.ok("reshape", self.root, self.dir / "three", "--files", 3)
        self.ok("diff", self.dir / "three", self.root)

    def test_diff_names_the_tensor_and_exits_with_1(self):
        other = self.dir / "b.safetensors"
        write_safetensors(other, {"fc.weight": [0.5, 1.5, 3.0], "fc.bias": [1.0]})
        done = run("diff", self.source, other, "--json")
        self.assertEqual(done.returncode, 1)
        [row] = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual((row["tensor"], row["different"], row["max_absolute"]),
                         ("fc.weight", 1, 0.5))

    def test_damage_is_named_and_exits_with_5(self):
        self.ok("import", self.source, self.root)
        shard = next(self.root.glob("step-*/model-*"))
        bytes_ = bytearray(shard.read_bytes())
        bytes_[-1] ^= 1
        shard.write_bytes(bytes_)
        done = run("verify", self.root)
        self.assertEqual(done.returncode, 5)
        self.assertIn("tensor 'fc.weight', elements 0 to 3", done.stdout)
        self.assertIn(shard.name, self.refused(5, "export", self.root, self.dir / "x"))
        self.assertFalse((self.dir / "x").exists())

    def test_show_names_the_checkpoint_that_is_damaged(self):
        self.ok("import", self.source, self.root, "--step", 1)
        self.ok("import", self.source, self.root, "--step", 2)
        old, new = (next(folder.glob("model-*")) for folder in sorted(self.root.glob("step-*")))
        os.truncate(new, new.stat().st_size - 1)
        shown = run("show", self.root)
        self.assertEqual((shown.returncode, "step 1," in shown.stdout), (0, True), shown)
        self.assertRegex(shown.stderr, f"^passed over: .*{new}: truncated")
        os.truncate(old, old.stat().st_size - 1)
        self.assertIn(f"{new}: truncated", self.refused(5, "show", self.root))

    def test_bad_usage_and_missing_files(self):
        for path in (self.dir, self.source, self.dir / "nothing"):
            self.assertIn(f"{path}: is no checkpoint", self.refused(5, "show", path))
        self.assertIn("nothing", self.refused(5, "list", self.dir / "nothing"))
        self.refused(5, "diff", self.source, self.dir / "nothing")
        for path in (self.dir, self.source, self.dir / "nothing"):
            self.assertIn(f"{path}: is no checkpoint", self.refused(5, "verify", path))
        self.assertIn("legal: safetensors, pt, hf",
                      self.refused(2, "export", self.source, "x", "--to", "zip"))
        self.assertIn("legal: F64", self.refused(2, "export", self.source, "x", "--dtype", "I8"))
        self.assertIn("nearest to 'shwo': show", self.refused(2, "shwo"))
        self.refused(5, "reshape", self.source, self.root)
        self.refused(5, "import", self.source, "/proc/nowhere")

    def test_kill_at_any_time_leaves_what_was_there(self):
        print(f"seed {SEED}, {KILLS} kills")
        draw = random.Random(SEED)
        values = [draw.random() for _ in range(500_000)]
        write_safetensors(self.source, {"w": values})
        self.ok("import", self.source, self.root, "--step", 1)
        began = time.monotonic()
        self.ok("import", self.source, self.root, "--step", 2, "--files", 3)
        usual = time.monotonic() - began
        before = {1, 2}
        for kill in range(KILLS):
            values[draw.randrange(len(values))] += 1
            write_safetensors(self.source, {"w": values})
            step = draw.choice([1, 2, 3 + kill])
            child = subprocess.Popen(
                [COHORT, "checkpoint", "import", self.source, self.root, "--step", str(step)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                child.wait(draw.uniform(0.3, 1.1) * usual)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            now = {row["step"] for row in rows("list", self.root)}
            self.assertTrue(before <= now <= before | {step}, (before, now, step))
            self.ok("verify", self.root)
            before = now
        self.ok("import", self.source, self.root, "--step", 99)
        self.assertEqual([p.name for p in self.root.iterdir() if p.name[0] == "."], [])
        self.ok("diff", self.root, self.source)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=SEED)
    given, rest = parser.parse_known_args()
    KILLS, SEED = given.kills, given.seed
    unittest.main(argv=["checkpoint_test.py", *rest])
