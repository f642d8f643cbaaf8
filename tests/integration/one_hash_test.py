#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpt-tiny --exact: one weights_hash, however many stages, in whatever order they take
their slices, and however many ranks share the state at whatever level.

COHORT_LONG=1 runs the whole product, else a few runs in which every value occurs.
"""
import functools
import sys
import unittest

import train_run

STAGES = [2, 4]
SCHEDULES = ["gpipe", "1f1b", "interleaved", "zero-bubble"]
REPLICAS = [1, 2]
SHARDS = [0, 1, 2, 3]
KEYS = {"data.synthetic": "true", "batch": 8, "slices": 8, "valid.every_epochs": 0,
        "threads": 1}
STEPS = 3
ALONE = (1, "1f1b", 1, 0)
# (stages, schedule, data-parallel ranks, level of sharding)
A_FEW = [ALONE, (1, "1f1b", 2, 3), (2, "gpipe", 2, 1), (4, "1f1b", 1, 0),
         (4, "interleaved", 2, 2), (2, "zero-bubble", 2, 3)]


def cases():
    """With one stage there is no order of slices to choose."""
    if not train_run.LONG:
        return A_FEW
    return [(pp, schedule, dp, shard)
            for pp, schedules in [(1, ["1f1b"])] + [(pp, SCHEDULES) for pp in STAGES]
            for schedule in schedules for dp in REPLICAS for shard in SHARDS]


@functools.cache
def weights_hash(case):
    pp, schedule, dp, shard = case
    run = train_run.cohort("train", "gpt-tiny", "-n", pp * dp, "--exact", "--json",
                           "--layout", f"dp={dp},pp={pp},shard={shard}",
                           "--max-steps", STEPS, *train_run.assignments(
                               {**KEYS, "pipeline.schedule": schedule}))
    assert run.code == 0, (case, run.code, run.err)
    return run.done["weights_hash"]


class OneHash(unittest.TestCase):
    def test_no_layout_and_no_order_of_slices_changes_a_bit(self):
        hashes = {case: weights_hash(case) for case in cases()}
        for case, found in hashes.items():
            with self.subTest(case=case):
                self.assertEqual(found, hashes[ALONE])
        print(f"{len(hashes)} runs, {len(set(hashes.values()))} hash: {hashes[ALONE]}",
              file=sys.stderr)

    def test_the_few_have_every_value(self):
        for values, wanted in zip(zip(*A_FEW), (STAGES, SCHEDULES, REPLICAS, SHARDS)):
            self.assertLessEqual(set(wanted), set(values))

    def test_other_steps_have_another_hash(self):
        """So that one hash says something."""
        run = train_run.cohort("train", "gpt-tiny", "--exact", "--json", "--max-steps",
                               STEPS - 1, *train_run.assignments(KEYS))
        self.assertNotEqual(run.done["weights_hash"], weights_hash(ALONE))


if __name__ == "__main__":
    unittest.main()
