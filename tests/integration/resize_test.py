#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run that grows and shrinks while it trains ends with the weights of one that did not."""
import json
import signal
import subprocess
import unittest

import train_run

KEYS = {"data.synthetic": "true", "model.width": 32, "batch": 32, "log.every_steps": 1,
        "valid.every_epochs": 0, "epochs": 1000000, "optim.lr": 0.001}
SIZES = (4, 3, 1, 2)


def command(*args):
    return ["train", "mlp", "--exact", "--json", *train_run.assignments(KEYS), *args]


def resize(pid, ranks):
    return subprocess.run([train_run.COHORT, "resize", str(pid), str(ranks)], text=True,
                          capture_output=True, timeout=train_run.DEADLINE_S)


class ResizeTest(train_run.TrainTest):
    def train_through(self, *args):
        """The sizes of its worlds, and its last word. Each is asked for when the run has
        gone on for a while in the one before; then the run is stopped."""
        run = train_run.start(*command("-n", 2, "--out", self.scratch, *args))
        self.addCleanup(run.stdout.close)
        self.addCleanup(run.stderr.close)
        self.addCleanup(run.kill)
        wanted, size, seen, events, due = list(SIZES), 2, [2], [], 20
        for line in run.stdout:
            event = json.loads(line)
            events.append(event)
            if event["event"] == "recovered":
                seen.append(event["ranks"])
                due = max(e.get("step", 0) for e in events[-20:]) + 20
            if event["event"] != "step" or event["step"] != due or seen[-1] != size:
                continue
            if not wanted:
                run.send_signal(signal.SIGTERM)
                continue
            size = wanted.pop(0)
            answer = resize(run.pid, size)
            self.assertEqual(answer.returncode, 0, answer.stderr)
        self.assertEqual(run.wait(train_run.DEADLINE_S), 128 + signal.SIGTERM)
        self.assertEqual(wanted, [])
        steps = [event["step"] for event in events if event["event"] == "step"]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        return seen, events[-1]

    def check(self, *args):
        seen, done = self.train_through(*args)
        calm = train_run.cohort(*command("-n", 1, "--max-steps", done["steps"])).done
        self.assertEqual(done["weights_hash"], calm["weights_hash"])
        for size in SIZES:
            self.assertIn(size, seen)
        verified = train_run.cohort("history", "verify", self.scratch / "history.log")
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
