#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run that grows and shrinks while it trains ends with the weights of one that did not."""
import json
import subprocess
import tempfile
import unittest
from pathlib import Path

import train_run

KEYS = {"data.synthetic": "true", "model.width": 32, "batch": 32, "log.every_steps": 1,
        "valid.every_epochs": 0}
STEPS = 900
SIZES = (4, 3, 1, 2)


def command(*args):
    return ["train", "mlp", "--exact", "--json", "--max-steps", STEPS,
            *train_run.assignments(KEYS), *args]


def resize(pid, ranks):
    return subprocess.run([train_run.COHORT, "resize", str(pid), str(ranks)], text=True,
                          capture_output=True, timeout=train_run.DEADLINE_S)


class ResizeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name)

    def train_through(self, *args):
        """The sizes of its worlds, and its last word."""
        run = train_run.start(*command("-n", 2, "--out", self.out, *args))
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.stderr.close)
        self.addCleanup(run.kill)
        wanted, seen, events = list(SIZES), [], []
        next_at = 20
        for line in run.stdout:
            event = json.loads(line)
            events.append(event)
            if event["event"] == "recovered":
                seen.append(event["ranks"])
                next_at = events[-2]["step"] + 20
            if event["event"] == "step" and event["step"] == next_at and wanted and (
                    not seen or seen[-1] in SIZES):
                answer = resize(run.pid, wanted.pop(0))
                self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(run.wait(train_run.DEADLINE_S), 0)
        self.assertEqual(wanted, [])
        steps = [event["step"] for event in events if event["event"] == "step"]
        self.assertEqual(steps, list(range(1, STEPS + 1)))
        return seen, events[-1]

    def check(self, *args):
        calm = train_run.cohort(*command("-n", 1)).done
        seen, done = self.train_through(*args)
        self.assertEqual(done["weights_hash"], calm["weights_hash"])
        for size in SIZES:
            self.assertIn(size, seen)
        verified = train_run.cohort("history", "verify", self.out / "history.log")
        self.assertEqual(verified.code, 0, verified.out)
        self.assertIn(" 0 rollbacks", verified.out)

    def test_whole_state(self):
        self.check()

    def test_state_that_is_cut(self):
        self.check("--layout", "shard=3")

    def test_a_number_that_cannot_be_is_refused(self):
        for pid, ranks, why in ((1, 2, "no run has pid 1"), (1, 0, "legal: 1 or more")):
            answer = resize(pid, ranks)
            self.assertEqual(answer.returncode, 2)
            self.assertIn(why, answer.stderr)


if __name__ == "__main__":
    unittest.main()
