#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A bit that flips in one rank's weights is found, with its rank, tensor and step."""
import json
import os
import tempfile
import unittest
from unittest import mock

import train_run

KEYS = {"data.synthetic": "true", "model.width": 4, "batch": 24, "elastic": "off",
        "valid.every_epochs": 0}


def last_action(ranks, keys=KEYS, layout="shard=0"):
    """Commit, of every rank's step. On shared memory a rank's update overwrites what
    others have of its share, damaged or not: only later damage stays."""
    run = train_run.cohort("step", "fashion-mnist", "-n", ranks, "--layout", layout, "--json",
                           *train_run.assignments(keys))
    return sum(json.loads(run.out)["actions"].values()) - 1


def train(ranks, damaged, step, every, *args):
    fault = f"engine.action[{last_action(ranks)}]@{damaged}:{step}=flip"
    with mock.patch.dict(os.environ, {"COHORT_FAULT": fault}):
        return train_run.cohort(
            "train", "fashion-mnist", "-n", ranks, "--max-steps", 12, "--quiet", *args,
            *train_run.assignments({**KEYS, "drift.every_steps": every}))


def train_on(ranks, fault, layout, *args, **keys):
    """An elastic run that goes on: what it says, and its hash."""
    keys = {**KEYS, "elastic": "on", "slices": 6, "drift.every_steps": 4,
            "snapshot.every_steps": 2, **keys}
    with mock.patch.dict(os.environ, {"COHORT_FAULT": fault}):
        return train_run.cohort(
            "train", "fashion-mnist", "-n", ranks, "--layout", layout, "--max-steps", 12,
            "--json", *args, *train_run.assignments(keys))


def flip(rank, step, action=0):
    return f"engine.action[{action}]@{rank}:{step}=flip"


class HealingTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def check(self, ranks, fault, layout, said, went_on_from):
        """The weights are those of a run that nobody disturbed, and history knows."""
        out = f"{self.folder.name}/{layout}{ranks}{fault}"
        run = train_on(ranks, fault, layout, "--exact", "--out", out,
                       **{"checkpoint.dir": f"{out}/saved", "checkpoint.every_steps": 5})
        self.assertEqual(run.code, 0, run.err)
        self.assertRegex(run.err, said)
        self.assertIn(f"goes on from the snapshot of step {went_on_from}", run.err)
        calm = train_on(ranks, "", layout, "--exact")
        self.assertEqual(run.done["weights_hash"], calm.done["weights_hash"])
        steps = [event["step"] for event in run.of("step")]
        self.assertEqual(len(steps), len(set(steps)))
        verified = train_run.cohort("history", "verify", f"{out}/history.log")
        self.assertEqual(verified.code, 0, verified.out + verified.err)

    def test_before_anything_was_compared_the_run_begins_again(self):
        self.check(2, flip(0, 2), "shard=0", "step 4: .* differs between ranks 0-1", 0)

    def test_what_a_damaged_rank_computed_is_made_again(self):
        self.check(3, flip(1, 7), "shard=0", "step 8: .* of rank 1 differs", 5)

    def test_what_is_saved_is_compared_before(self):
        self.check(2, flip(0, 9), "shard=0", "step 10: .* differs between ranks 0-1", 8)

    def test_the_owners_share_is_compared_with_its_second_copy(self):
        for layout in ("shard=1", "shard=2", "shard=3"):
            with self.subTest(layout=layout):
                self.check(3, flip(1, 7), layout, "step 8: .* differs between ranks 1-2", 5)

    def test_the_last_step_is_compared_too(self):
        self.check(2, flip(1, 11), "shard=0", "step 12: .* differs between ranks 0-1", 10)

    def test_a_run_that_is_not_exact_is_healed_from_the_others(self):
        action = last_action(3, {**KEYS, "elastic": "on", "slices": 6})
        run = train_on(3, flip(1, 8, action), "shard=0")
        self.assertEqual(run.code, 0, run.err)
        self.assertRegex(run.err, r"step 8: .* of rank 1 differs .*healed from the others")


class DriftTest(unittest.TestCase):
    def test_most_ranks_know_whose_weights_are_damaged(self):
        """Rank 1 of 3, at the end of its sixth step; compared after every second one."""
        run = train(3, damaged=1, step=6, every=2)
        self.assertEqual(run.code, 1, run.err)
        self.assertIn("step 6: replicas drifted apart", run.err)
        self.assertRegex(run.err, r"drifted apart: \S+\.(weight|bias)\b.*rank 1\b")

    def test_two_ranks_cannot_tell_which_of_them_it_is(self):
        run = train(2, damaged=0, step=3, every=1)
        self.assertEqual(run.code, 1, run.err)
        self.assertIn("step 3: replicas drifted apart", run.err)

    def test_nothing_is_found_where_nothing_flipped(self):
        run = train(3, damaged=7, step=5, every=1)
        self.assertEqual(run.code, 0, run.err)

    def test_nobody_looks_if_told_so(self):
        run = train(3, damaged=1, step=5, every=0)
        self.assertEqual(run.code, 0, run.err)


if __name__ == "__main__":
    unittest.main()
