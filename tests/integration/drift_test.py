#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A bit that flips in one rank's state is found, with its rank, tensor and step.

An exact elastic run notices it in the rank itself, before it counts (engine/state_seal.h).
Any other run compares copies: every drift.every_steps steps, before a checkpoint is
written, and at the last step.
"""
import functools
import json
import os
import tempfile
import unittest
from unittest import mock

import train_run

KEYS = {"data.synthetic": "true", "model.width": 4, "batch": 24, "elastic": "off",
        "valid.every_epochs": 0}


def last_action(ranks, keys=KEYS, *args):
    """Commit, of every rank's step. On shared memory a rank's update overwrites what
    others have of its share, damaged or not: only later damage stays."""
    return last_action_with(ranks, tuple(keys.items()), *args)


@functools.cache
def last_action_with(ranks, items, *args):
    keys = dict(items)
    run = train_run.cohort("step", "fashion-mnist", "-n", ranks, "--layout", "shard=0",
                           "--json", *args, *train_run.assignments(keys))
    return sum(json.loads(run.out)["actions"].values()) - 1


def train(ranks, damaged, step, every, *args):
    exact = [arg for arg in args if arg == "--exact"]
    fault = flip(damaged, step, last_action(ranks, KEYS, *exact))
    with mock.patch.dict(os.environ, {"COHORT_FAULT": fault}):
        return train_run.cohort(
            "train", "fashion-mnist", "-n", ranks, "--max-steps", 12, *(args or ("--quiet",)),
            *train_run.assignments({**KEYS, "drift.every_steps": every}))


def train_on(ranks, fault, layout, *args, **keys):
    """An elastic run that goes on: what it says, and its hash."""
    keys = {**KEYS, "elastic": "on", "slices": 6, "drift.every_steps": 4,
            "snapshot.every_steps": 2, **keys}
    with mock.patch.dict(os.environ, {"COHORT_FAULT": fault}):
        return train_run.cohort(
            "train", "fashion-mnist", "-n", ranks, "--layout", layout, "--max-steps", 12,
            "--json", *args, *train_run.assignments(keys))


@functools.cache
def undisturbed_hash():
    """With --exact it is that of any number of ranks, in any layout."""
    return train_on(1, "", "shard=0", "--exact").done["weights_hash"]


def flip(rank, step, action=0):
    return f"engine.action[{action}]@{rank}:{step}=flip"


class HealingTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def train_with(self, ranks, fault, layout, *args):
        """Its run, which ends well and reports each step once, and what its history says."""
        out = f"{self.folder.name}/{layout}{ranks}{fault}"
        run = train_on(ranks, fault, layout, "--out", out, *args,
                       **{"checkpoint.dir": f"{out}/saved", "checkpoint.every_steps": 5})
        self.assertEqual(run.code, 0, run.err)
        steps = [event["step"] for event in run.of("step")]
        self.assertEqual(len(steps), len(set(steps)))
        verified = train_run.cohort("history", "verify", f"{out}/history.log")
        self.assertEqual(verified.code, 0, verified.out + verified.err)
        return run, verified.out


class SealTest(HealingTest):
    """A run with --exact heals: the weights are those of one that nobody disturbed."""

    def check(self, ranks, fault, layout, step, rank, rollbacks=0):
        run, history = self.train_with(ranks, fault, layout, "--exact")
        self.assertRegex(
            run.err, rf"step {step}: the memory of .* has changed by itself on rank {rank}\b")
        self.assertRegex(history, rf" {rollbacks} rollbacks?\b")
        self.assertEqual(run.done["weights_hash"], undisturbed_hash())

    def test_the_others_have_what_a_damaged_rank_lost(self):
        for layout in ("shard=0", "shard=1", "shard=2", "shard=3"):
            with self.subTest(layout=layout):
                self.check(3, flip(1, 7), layout, step=7, rank=1)

    def test_of_two_ranks_the_damaged_one_is_known(self):
        self.check(2, flip(0, 9), "shard=0", step=9, rank=0)

    def test_moments_and_second_copies_are_looked_at_too(self):
        for point in ("engine.moment", "engine.mirror"):
            with self.subTest(point=point):
                self.check(3, f"{point}[0]@1:7=flip", "shard=1", step=7, rank=1)

    def test_a_rank_alone_goes_back(self):
        self.check(1, flip(0, 8), "shard=0", step=8, rank=0, rollbacks=1)

    def test_after_the_last_step_copies_are_compared_once_more(self):
        """Nobody computes with what is damaged only then."""
        action = last_action(2, {**KEYS, "elastic": "on", "slices": 6}, "--exact")
        run, history = self.train_with(2, flip(1, 12, action), "shard=0", "--exact")
        self.assertRegex(run.err, "step 12: .* differs between ranks 0-1")
        self.assertIn(" 1 rollback ", history)
        self.assertEqual(run.done["weights_hash"], undisturbed_hash())


class ComparisonTest(HealingTest):
    """An elastic run without --exact compares replicas."""

    def damage(self, ranks, rank, step):
        action = last_action(ranks, {**KEYS, "elastic": "on", "slices": 6})
        return self.train_with(ranks, flip(rank, step, action), "shard=0")

    def check_goes_back(self, step, noticed, went_on_from):
        """Two ranks cannot tell which of them it is."""
        run, history = self.damage(2, 0, step)
        self.assertRegex(run.err, f"step {noticed}: .* differs between ranks 0-1")
        self.assertIn(f"goes on from the snapshot of step {went_on_from}", run.err)
        self.assertIn(" 1 rollback ", history)

    def test_before_anything_was_compared_the_run_begins_again(self):
        self.check_goes_back(step=2, noticed=4, went_on_from=0)

    def test_what_is_saved_is_compared_before(self):
        self.check_goes_back(step=9, noticed=10, went_on_from=8)

    def test_the_last_step_is_compared_too(self):
        self.check_goes_back(step=11, noticed=12, went_on_from=10)

    def test_most_ranks_heal_the_odd_one(self):
        run, history = self.damage(3, 1, 8)
        self.assertRegex(run.err, r"step 8: .* of rank 1 differs .*healed from the others")
        self.assertIn(" 0 rollbacks", history)


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
        """What a damaged rank computes is in everyone's weights."""
        damaged, calm = (train(3, rank, 5, 0, "--exact", "--json") for rank in (1, 7))
        self.assertEqual(damaged.code, 0, damaged.err)
        self.assertNotIn("drifted apart", damaged.err)
        self.assertNotEqual(damaged.done["weights_hash"], calm.done["weights_hash"])
        looked = train(3, 1, 5, 1, "--exact")
        self.assertEqual(looked.code, 1, looked.err)
        self.assertIn("step 5: replicas drifted apart", looked.err)


if __name__ == "__main__":
    unittest.main()
