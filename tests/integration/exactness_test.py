#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--exact through the program: one weights_hash per recipe and precision, whatever the layout.

exactness_test (C++) proves that no layout changes a bit, over many more layouts, with ranks as
threads. This test shows that the program's recipes, keys and backends keep that promise: every
value of every factor occurs in a run of SHORT.

COHORT_LONG=1 runs the whole product, for more steps. COHORT_RECIPE=NAME takes one recipe,
COHORT_PART=i/n every n-th run from the i-th on, COHORT_JOBS=k runs k (2) at once.
"""
import concurrent.futures
import itertools
import os
import sys
import unittest
from dataclasses import dataclass

import train_run


@dataclass(frozen=True)
class Layout:
    recipe: str
    precision: str = "float32"
    ranks: int = 1
    shard: int = 0
    stages: int = 1
    recompute: str = "none"
    backend: str = "shm"
    schedule: str = "1f1b"

    def alone(self):
        """The run on one rank whose weights this run must have."""
        return Layout(self.recipe, self.precision)


PRECISIONS = ["float32", "bf16"]
SHARDS = [0, 1, 2, 3]
BACKENDS = ["shm", "gloo"]
SCHEDULES = ["gpipe", "1f1b", "interleaved", "zero-bubble"]
IMAGES = {"batch": 20}
RECIPES = {  # recipe, and keys for seconds instead of minutes
    "fashion-mnist": ("fashion-mnist", {**IMAGES, "model.width": 4}),
    "mlp": ("mlp", {**IMAGES, "model.width": 32}),
    "cifar-resnet50v2": ("cifar-resnet50v2", {**IMAGES, "model.width": 4, "model.depth": 1}),
    "augmented resnet18": ("cifar-resnet50v2", {
        **IMAGES, "model.name": "resnet18", "model.width": 4, "model.depth": 1,
        "data.augment": "true"}),
    "gpt-tiny": ("gpt-tiny", {"batch": 8}),
}
SHORT = [
    Layout("fashion-mnist", ranks=3, shard=1),
    Layout("fashion-mnist", ranks=4, shard=3, stages=2, recompute="all", backend="gloo",
           schedule="gpipe"),
    Layout("mlp", "bf16", ranks=8, shard=2, stages=2, recompute="every=2"),
    Layout("mlp", "bf16", ranks=3, stages=3, backend="gloo"),
    Layout("cifar-resnet50v2", ranks=2, shard=3, recompute="every=2", backend="gloo"),
    Layout("augmented resnet18", "bf16", ranks=4, stages=2, recompute="all",
           schedule="zero-bubble"),
    Layout("gpt-tiny", ranks=4, stages=4),
    Layout("gpt-tiny", ranks=4, shard=2, stages=2, schedule="interleaved"),
    Layout("gpt-tiny", ranks=4, shard=3, stages=2, schedule="zero-bubble"),
]


def long_layouts():
    for recipe, precision, ranks, shard, stages, recompute, backend in itertools.product(
            RECIPES, PRECISIONS, [1, 2, 3, 4, 8], SHARDS, [1, 2, 3],
            ["none", "all", "every=2"], BACKENDS):
        if recipe != "gpt-tiny" and ranks % stages == 0:
            yield Layout(recipe, precision, ranks, shard, stages, recompute, backend)
    for replicas, shard, stages in itertools.product([1, 2], SHARDS, [1, 2, 4]):
        for schedule in SCHEDULES if stages > 1 else ["1f1b"]:
            yield Layout("gpt-tiny", "float32", replicas * stages, shard, stages,
                         schedule=schedule)


def steps(layout):
    if layout.recipe == "gpt-tiny":
        return 3
    return 20 if train_run.LONG else 10


def weights_hash(layout, more_steps=0):
    recipe, small = RECIPES[layout.recipe]
    keys = {"slices": 8, "data.synthetic": "true", "valid.every_epochs": 0, "threads": 1,
            "precision": layout.precision, "step.recompute": layout.recompute, **small}
    if layout.stages > 1:
        keys["pipeline.schedule"] = layout.schedule
    run = train_run.cohort("train", recipe, "-n", layout.ranks, "--exact", "--json",
                           "--backend", layout.backend,
                           "--max-steps", steps(layout) + more_steps,
                           "--layout", f"pp={layout.stages},shard={layout.shard}",
                           *train_run.assignments(keys))
    assert run.code == 0, (layout, run.code, run.err)
    return run.done["weights_hash"]


def layouts():
    rows = list(long_layouts()) if train_run.LONG else SHORT
    if recipe := os.environ.get("COHORT_RECIPE"):
        rows = [row for row in rows if row.recipe == recipe]
    first, step = map(int, os.environ.get("COHORT_PART", "0/1").split("/"))
    return rows[first::step]


class Exactness(unittest.TestCase):
    def test_no_layout_changes_a_bit_of_the_weights(self):
        rows = layouts()
        references = sorted({row.alone() for row in rows}, key=str)
        with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("COHORT_JOBS", 2))) as pool:
            expected = dict(zip(references, pool.map(weights_hash, references)))
            for row, found in zip(rows, pool.map(weights_hash, rows)):
                with self.subTest(row):
                    self.assertEqual(found, expected[row.alone()])
        self.assertEqual(len(set(expected.values())), len(expected), expected)
        print(f"{len(rows)} runs, {len(expected)} hashes", file=sys.stderr)

    def test_another_step_changes_the_weights(self):
        """A hash that never changes would prove nothing."""
        row = Layout("mlp")
        self.assertNotEqual(weights_hash(row), weights_hash(row, more_steps=1))

    def test_every_value_occurs_in_the_short_form(self):
        for name, values in [("recipe", RECIPES), ("precision", PRECISIONS),
                             ("shard", SHARDS), ("backend", BACKENDS),
                             ("schedule", SCHEDULES)]:
            self.assertEqual({getattr(row, name) for row in SHORT}, set(values), name)


if __name__ == "__main__":
    unittest.main()
