#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A disk that is slower than a rank may be silent ends no run, and is named."""
import os
import signal
import unittest
from unittest import mock

import train_run
from train_run import SMALL

# Ranks wait 1.5 s for one another; one of them takes 3 s for a sync.
KEYS = {**SMALL, "comm.timeout_s": 1.5, "elastic.detect_s": 1}
SLOW = "disk.sync@1:1=slow3000"


class SlowDiskTest(train_run.TrainTest):
    def save_slowly(self, *args, **keys):
        with mock.patch.dict(os.environ, {"COHORT_FAULT": SLOW}):
            return train_run.train(2, "--max-steps", 6, *args,
                                   keys={**KEYS, "checkpoint.dir": self.root, **keys})

    def expect_saved(self, run, *steps):
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual([e["step"] for e in run.of("checkpoint")], list(steps))
        self.assertEqual(run.of("fault"), [])
        self.assertEqual(run.done["restarts"], 0)

    def test_the_last_save(self):
        for elastic in ("on", "off"):
            with self.subTest(elastic=elastic):
                self.root = self.root.with_name(f"saved_{elastic}")
                run = self.save_slowly(elastic=elastic)
                self.expect_saved(run, 6)
                self.assertRegex(run.err, "rank 1 has been writing its checkpoint for 2 s")

    def test_a_save_that_training_waits_for(self):
        run = self.save_slowly(**{"checkpoint.async": "false", "checkpoint.every_steps": 3})
        self.expect_saved(run, 3, 6)

    def test_a_save_in_the_background(self):
        run = self.save_slowly(**{"checkpoint.every_steps": 3})
        self.expect_saved(run, 3, 6)

    def test_on_gloo(self):
        self.expect_saved(self.save_slowly("--backend", "gloo"), 6)

    def test_a_rank_that_dies_meanwhile_is_not_waited_for(self):
        """The others leave what they were writing behind, and save in the next world."""
        with mock.patch.dict(os.environ, {"COHORT_FAULT": "disk.sync@0:1=slow3000"}):
            run = self.start(2, "--max-steps", 6, "--grace", 60, keys={
                **KEYS, "epochs": 1, "checkpoint.dir": self.root, "elastic.detect_s": 10})
            events = self.read_until(run, lambda e: e["event"] == "step" and e["step"] == 6)
        pids = {e["rank"]: e["pid"] for e in events if e["event"] == "rank"}
        while not any(p.name.startswith(".") for p in self.root.glob("*")):
            self.assertIsNone(run.poll())
        os.kill(pids[1], signal.SIGKILL)
        ended = train_run.finish(run)
        self.assertEqual(ended.code, 0, ended.err)
        self.assertEqual([e["step"] for e in ended.of("checkpoint")], [6])


if __name__ == "__main__":
    unittest.main()
