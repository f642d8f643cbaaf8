#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A folder that a run writes to is its own, for as long as it or a rank of it lives."""
import json
import os
import signal
import tempfile
import unittest
from pathlib import Path

import train_run

KEYS = {"data.synthetic": "true", "model.width": 2, "batch": 24, "slices": 4,
        "log.every_steps": 1, "valid.every_epochs": 0, "epochs": 100_000}


class LockTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name) / "run"

    def start(self, *args, keys={}):
        """A run without an end that has done some steps, and its ranks' pids."""
        run = train_run.start("train", "fashion-mnist", "-n", 2, "--json", "--grace", 60,
                              *train_run.assignments({**KEYS, **keys}), *args)
        for cleanup in (run.stdout.close, run.stderr.close, run.kill):
            self.addCleanup(cleanup)
        return run, self.read_pids(run, generation=0)

    def read_pids(self, run, generation):
        """Of a generation that has come as far as its third step."""
        pids, steps = {}, 0
        while len(pids) < 2 or steps < 3:
            line = run.stdout.readline()
            self.assertTrue(line, "the run ended by itself")
            event = json.loads(line)
            if event["event"] == "rank" and event["generation"] == generation:
                pids[event["rank"]] = event["pid"]
            steps += event["event"] == "step" and len(pids) == 2
        return pids

    def expect_refused(self, run, *args, keys={}):
        second = train_run.train(2, "--max-steps", 2, *args, keys={**KEYS, **keys})
        self.assertEqual((second.code, second.out), (2, ""), second.err)
        self.assertIn(f"{self.root} is written to by the run of pid {run.pid} on ",
                      second.err)
        self.assertEqual(len(second.err.strip().splitlines()), 1, second.err)

    def stop(self, run, code):
        run.send_signal(signal.SIGTERM)
        ended = train_run.finish(run)
        self.assertEqual(ended.code, code, ended.err)

    def test_checkpoints_of_two_runs_in_one_folder(self):
        keys = {"checkpoint.dir": self.root}
        run, pids = self.start(keys=keys)
        self.expect_refused(run, keys=keys)
        self.expect_refused(run, "--resume", keys=keys)
        os.kill(pids[0], signal.SIGKILL)
        self.read_pids(run, generation=1)
        self.expect_refused(run, "--resume", keys=keys)
        self.stop(run, 75)
        again = train_run.train(1, "--max-steps", 2, "--resume", keys={**KEYS, **keys})
        self.assertEqual(again.code, 0, again.err)

    def test_two_runs_with_one_out(self):
        run, _ = self.start("--out", self.root)
        before = (self.root / "config.json").read_text()
        self.expect_refused(run, "--out", self.root)
        self.assertEqual((self.root / "config.json").read_text(), before)
        self.stop(run, 128 + signal.SIGTERM)

    def test_one_folder_for_everything_of_a_run(self):
        run = train_run.train(2, "--max-steps", 2, "--out", self.root,
                              keys={**KEYS, "checkpoint.dir": self.root})
        self.assertEqual(run.code, 0, run.err)

    def test_a_run_goes_on_as_soon_as_its_agent_is_killed(self):
        keys = {"checkpoint.dir": self.root, "checkpoint.every_steps": 1}
        run, pids = self.start("--out", self.root, keys=keys)
        os.kill(run.pid, signal.SIGKILL)  # nobody waits for it, nor for its ranks
        again = train_run.train(2, "--max-steps", 2, "--resume", "--out", self.root,
                                keys={**KEYS, **keys})
        self.assertEqual(again.code, 0, again.err)
        for pid in pids.values():
            self.assertEqual(train_run.process_state(pid)[0], "Z")

    def test_ranks_of_another_launcher(self):
        keys = train_run.assignments({**KEYS, "checkpoint.dir": self.root})
        run, _ = self.start(keys={"checkpoint.dir": self.root})
        second = train_run.cohort("launch", "-n", 2, "--", train_run.COHORT, "train",
                                  "fashion-mnist", "--max-steps", 2, *keys)
        self.assertEqual(second.code, 2, second.err)
        self.assertIn(f"{self.root} is written to by the run of pid {run.pid} on ",
                      second.err)
        self.stop(run, 75)


if __name__ == "__main__":
    unittest.main()
