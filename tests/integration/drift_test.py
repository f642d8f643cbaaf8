#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A bit that flips in one rank's weights is found, with its rank, tensor and step."""
import json
import os
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


def train_on(ranks, damaged, step, every, layout="shard=0"):
    """An elastic run that goes on: what it says, and its hash."""
    keys = {**KEYS, "elastic": "on", "slices": 6}
    fault = f"engine.action[{last_action(ranks, keys, layout)}]@{damaged}:{step}=flip"
    with mock.patch.dict(os.environ, {"COHORT_FAULT": fault}):
        return train_run.cohort(
            "train", "fashion-mnist", "-n", ranks, "--layout", layout, "--max-steps", 12,
            "--json", "--exact",
            *train_run.assignments({**keys, "drift.every_steps": every}))


class HealingTest(unittest.TestCase):
    def test_a_damaged_rank_is_healed_from_the_others(self):
        run = train_on(3, damaged=1, step=6, every=2)
        self.assertEqual(run.code, 0, run.err)
        self.assertRegex(run.err, r"step 6: .* of rank 1 differs .*healed")
        calm = train_on(3, damaged=7, step=6, every=2)
        self.assertEqual(run.done["weights_hash"], calm.done["weights_hash"])

    def test_of_two_ranks_both_go_back_to_what_was_good(self):
        run = train_on(2, damaged=0, step=6, every=2)
        self.assertEqual(run.code, 0, run.err)
        self.assertIn("step 6: replicas drifted apart", run.err)
        self.assertIn("goes on from the snapshot of step 4", run.err)
        calm = train_on(2, damaged=7, step=6, every=2)
        self.assertEqual(run.done["weights_hash"], calm.done["weights_hash"])
        steps = [event["step"] for event in run.of("step")]
        self.assertEqual(len(steps), len(set(steps)))

    def test_a_share_is_compared_with_its_second_copy(self):
        run = train_on(3, damaged=1, step=6, every=2, layout="shard=3")
        self.assertEqual(run.code, 0, run.err)
        self.assertRegex(run.err, "step 6: .* differs between ranks 1-2")
        self.assertIn("goes on from the snapshot of step 4", run.err)
        calm = train_on(3, damaged=7, step=6, every=2, layout="shard=3")
        self.assertEqual(run.done["weights_hash"], calm.done["weights_hash"])


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
