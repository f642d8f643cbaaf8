#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pipelines from outside: layouts meet in one hash, a lost stage comes back, refusals."""
import os
import signal
import unittest

import train_run

KEYS = {**train_run.SMALL, "slices": 6}


class Pipelines(train_run.TrainTest):
    def exact(self, ranks, steps, *args, keys={}):
        run = train_run.train(ranks, "--exact", "--max-steps", steps, *args,
                              keys={**KEYS, **keys})
        self.assertEqual(run.code, 0, run.err)
        return run.done["weights_hash"]

    def test_a_checkpoint_of_stages_is_loaded_by_any_layout(self):
        saved = {"checkpoint.dir": self.root, "checkpoint.every_steps": 4}
        wanted = self.exact(1, 12)
        self.exact(4, 4, "--layout", "dp=2,pp=2,shard=2", keys=saved)
        self.exact(3, 8, "--resume", keys=saved)
        self.assertEqual(self.exact(4, 12, "--resume", "--layout", "pp=4", keys=saved),
                         wanted)

    def test_a_lost_stage_comes_back_from_its_neighbour(self):
        steps = 80
        wanted = self.exact(1, steps)
        run = self.start(3, "--exact", "--layout", "pp=3", "--max-steps", steps,
                         keys={**KEYS, "elastic": "on"})
        events = self.read_steps(run, 20)
        os.kill(train_run.pids_of(events)[1], signal.SIGKILL)
        ended = train_run.finish(run)
        self.assertEqual(ended.code, 0, ended.err)
        self.assertEqual(ended.done["weights_hash"], wanted)
        self.assertGreaterEqual(ended.done["restarts"], 1)

    def test_what_cannot_be_is_one_line_before_any_rank_starts(self):
        for ranks, layout, why in (
                (5, "pp=5", "the model has 4 blocks, which is no stage for each"),
                (5, "pp=2", "is for 4 ranks; the world has 5"),
                (2, "pp=0", "legal: a number from 1")):
            run = train_run.train(ranks, "--layout", layout, keys=KEYS)
            self.assertEqual(run.code, 2, layout)
            self.assertIn(why, run.err)
            self.assertEqual(len(run.err.splitlines()), 1, run.err)


if __name__ == "__main__":
    unittest.main()
