#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A folder that a run writes to is its own, for as long as it or a rank of it lives."""
import os
import signal
import unittest
from unittest import mock

import train_run
from train_run import ENDLESS


class LockTest(train_run.TrainTest):
    def start_two(self, *args, keys={}):
        """A run of two ranks that has done some steps, and their pids."""
        run = self.start(2, "--grace", 60, *args, keys=keys)
        return run, self.read_pids(run, generation=0)

    def read_pids(self, run, generation):
        """By rank, once the generation has come as far as its third step."""
        pids = {}
        while len(pids) < 2:
            event = self.read_until(run, lambda event: event["event"] == "rank")[-1]
            if event["generation"] == generation:
                pids[event["rank"]] = event["pid"]
        for _ in range(3):
            self.read_until(run, lambda event: event["event"] == "step")
        return pids

    def expect_refused(self, run, *args, keys={}):
        second = train_run.train(2, "--max-steps", 2, *args, keys={**ENDLESS, **keys})
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
        run, pids = self.start_two(keys=keys)
        self.expect_refused(run, keys=keys)
        self.expect_refused(run, "--resume", keys=keys)
        os.kill(pids[0], signal.SIGKILL)
        self.read_pids(run, generation=1)
        self.expect_refused(run, "--resume", keys=keys)
        self.stop(run, 75)
        again = train_run.train(1, "--max-steps", 2, "--resume", keys={**ENDLESS, **keys})
        self.assertEqual(again.code, 0, again.err)

    def test_two_runs_with_one_out(self):
        run, _ = self.start_two("--out", self.root)
        before = (self.root / "config.json").read_text()
        self.expect_refused(run, "--out", self.root)
        self.assertEqual((self.root / "config.json").read_text(), before)
        self.stop(run, 128 + signal.SIGTERM)

    def test_one_folder_for_everything_of_a_run(self):
        run = train_run.train(2, "--max-steps", 2, "--out", self.root,
                              keys={**ENDLESS, "checkpoint.dir": self.root})
        self.assertEqual(run.code, 0, run.err)

    def test_a_run_goes_on_as_soon_as_its_agent_is_killed(self):
        keys = {"checkpoint.dir": self.root, "checkpoint.every_steps": 1}
        run, pids = self.start_two("--out", self.root, keys=keys)
        os.kill(run.pid, signal.SIGKILL)  # nobody waits for it, nor for its ranks
        again = train_run.train(2, "--max-steps", 2, "--resume", "--out", self.root,
                                keys={**ENDLESS, **keys})
        self.assertEqual(again.code, 0, again.err)
        for pid in pids.values():
            self.assertEqual(train_run.process_state(pid)[0], "Z")

    def test_a_rank_lost_before_the_first_world_stands(self):
        """In folders of another run: its history is not gone on with, nor its state."""
        old = train_run.train(2, "--max-steps", 3, "--out", self.root,
                              keys={**ENDLESS, "seed": 7})
        self.assertEqual(old.code, 0, old.err)
        for layout in ("shard=0", "shard=3"):
            with self.subTest(layout=layout), mock.patch.dict(
                    os.environ, {"COHORT_FAULT": "train.restore[0]@1:1=kill"}):
                new = train_run.train(2, "--max-steps", 4, "--out", self.root, "--layout",
                                      layout, keys={**ENDLESS, "seed": 8})
                self.assertEqual(new.code, 0, new.err)
                self.assertEqual(new.done["restarts"], 1)
                checked = train_run.cohort("history", "show", self.root / "history.log",
                                           "--json")
                self.assertIn('"seed":8', checked.out.replace(" ", ""))
                self.assertNotIn("rollback", checked.out)

    def test_a_folder_with_checkpoints_is_refused_before_any_rank_starts(self):
        keys = {**ENDLESS, "checkpoint.dir": self.root}
        self.assertEqual(train_run.train(2, "--max-steps", 2, keys=keys).code, 0)
        again = train_run.train(2, "--max-steps", 4, keys=keys)
        self.assertEqual((again.code, again.out), (2, ""), again.err)
        self.assertIn("has checkpoints up to step 2; go on from them with --resume", again.err)

    def test_ranks_of_another_launcher(self):
        keys = train_run.assignments({**ENDLESS, "checkpoint.dir": self.root})
        run, _ = self.start_two(keys={"checkpoint.dir": self.root})
        second = train_run.cohort("launch", "-n", 2, "--", train_run.COHORT, "train",
                                  "fashion-mnist", "--max-steps", 2, *keys)
        self.assertEqual(second.code, 2, second.err)
        self.assertIn(f"{self.root} is written to by the run of pid {run.pid} on ",
                      second.err)
        self.stop(run, 75)


if __name__ == "__main__":
    unittest.main()
