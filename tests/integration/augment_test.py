#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images of CIFAR-10's own files, cropped and flipped on their way into a run."""
import random
import tempfile
import unittest
from pathlib import Path

import train_run

RECORDS, RECORD = 10_000, 1 + 3 * 32 * 32
SMALL = {"model.name": "resnet18", "model.width": 4, "model.depth": 1, "batch": 16,
         "slices": 8, "valid.every_epochs": 0}


def write_files(folder, pixels):
    """The files of cifar-10-binary.tar.gz, all with the records of the first."""
    folder.mkdir()
    data = bytearray(pixels)
    data[::RECORD] = bytes(i % 10 for i in range(RECORDS))  # labels
    first = folder / "data_batch_1.bin"
    first.write_bytes(data)
    for name in [*(f"data_batch_{i}.bin" for i in range(2, 6)), "test_batch.bin"]:
        (folder / name).symlink_to(first)
    return folder


class AugmentTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        root = Path(scratch.name)
        bytes_of_file = RECORDS * RECORD
        cls.noise = write_files(root / "noise", random.Random(1).randbytes(bytes_of_file))
        cls.black = write_files(root / "black", bytes(bytes_of_file))

    def weights_hash(self, folder, augment, ranks, *args):
        run = train_run.cohort(
            "train", "cifar-resnet50v2", "-n", ranks, "--exact", "--max-steps", 4, "--json",
            *args, *train_run.assignments({**SMALL, "data.dir": folder,
                                           "data.augment": augment}))
        self.assertEqual(run.code, 0, run.err)
        return run.done["weights_hash"]

    def test_the_same_images_come_at_every_number_of_ranks(self):
        alone = self.weights_hash(self.noise, "true", 1)
        self.assertEqual(self.weights_hash(self.noise, "true", 2), alone)
        self.assertEqual(
            self.weights_hash(self.noise, "true", 3, "--layout", "dp=3,shard=3"), alone)

    def test_images_differ_from_those_in_the_files(self):
        self.assertNotEqual(self.weights_hash(self.noise, "true", 2),
                            self.weights_hash(self.noise, "false", 2))

    def test_what_is_black_stays_black(self):
        """Crops and flips move pixels and bring in nothing else."""
        self.assertEqual(self.weights_hash(self.black, "true", 1),
                         self.weights_hash(self.black, "false", 1))


if __name__ == "__main__":
    unittest.main()
