#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each epoch's validation is told of exactly once, whoever dies around it."""
import os
import random
import struct
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import train_run

# Ten steps per epoch.
KEYS = {"model.width": 8, "batch": 24, "slices": 6, "epochs": 3, "snapshot.every_steps": 5}
POINTS = ("train.validate", "train.validated", "train.validation_told")


def is_taken(case):
    """The short form takes every other one: each pair of point, victim and epoch is there."""
    return case % 2 == 0 or train_run.LONG


def write_images(folder, name, count):
    """Files of Fashion-MNIST's form, with noise."""
    rng = random.Random(name)
    (folder / f"{name}-images-idx3-ubyte").write_bytes(
        struct.pack(">4I", 0x803, count, 28, 28) + rng.randbytes(count * 28 * 28))
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(
        struct.pack(">2I", 0x801, count) + bytes(rng.randrange(10) for _ in range(count)))


class ValidTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.data = Path(scratch.name)
        write_images(cls.data, "train", 240)
        write_images(cls.data, "t10k", 70)

    def train(self, ranks, fault="", layout="shard=0"):
        with mock.patch.dict(os.environ, {"COHORT_FAULT": fault}):
            run = train_run.cohort("train", "mlp", "-n", ranks, "--exact", "--json",
                                   "--layout", layout, *train_run.assignments({**KEYS, "data.dir": self.data}))
        self.assertEqual(run.code, 0, run.err)
        return run

    def check(self, ranks, fault, calm):
        run = self.train(ranks, fault)
        self.assertTrue(run.of("fault"), run.err)
        self.assertEqual(run.of("valid"), calm.of("valid"))
        self.assertEqual(run.done["accuracy"], calm.done["accuracy"])
        self.assertEqual(run.done["weights_hash"], calm.done["weights_hash"])

    def test_stages_of_a_pipeline_look_at_every_sample_once(self):
        alone = self.train(1)
        for ranks, layout in ((2, "pp=2"), (4, "dp=2,pp=2"), (6, "pp=3,shard=3")):
            run = self.train(ranks, layout=layout)
            self.assertEqual(run.done["weights_hash"], alone.done["weights_hash"])
            for ours, theirs in zip(run.of("valid"), alone.of("valid"), strict=True):
                self.assertAlmostEqual(ours["loss"], theirs["loss"], places=5)
                self.assertEqual(ours["accuracy"], theirs["accuracy"])

    def test_a_rank_that_dies_then_costs_no_event_and_doubles_none(self):
        """In the first world; in the second epoch, and in the last."""
        for ranks in (1, 3):
            calm = self.train(ranks)
            self.assertEqual([e["epoch"] for e in calm.of("valid")], [1, 2, 3])
            for point in POINTS:
                for victim in {0, ranks - 1}:
                    for epoch in (2, 3):
                        if ranks > 1 and not is_taken(POINTS.index(point) + victim // 2 + epoch):
                            continue
                        with self.subTest(ranks=ranks, point=point, victim=victim, epoch=epoch):
                            self.check(ranks, f"{point}[0]@{victim}:{epoch}=kill", calm)

    def test_all_ranks_at_once(self):
        calm = self.train(3)
        for point in POINTS:
            with self.subTest(point):
                self.check(3, f"{point}[0]@*:2=kill", calm)


if __name__ == "__main__":
    unittest.main()
