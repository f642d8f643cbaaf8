#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`cohort step` of models that no machine holds: shown in less memory than one rank needs."""
import json
import resource
import tempfile
import unittest

from train_run import finish, start

MOST_KB = 2_000_000


def step(*args):
    """Ends itself where it asks for more memory of its own than that."""
    limit = ("bash", "-c", f'ulimit -d {MOST_KB}; exec "$@"', "step")
    return finish(start("step", *args, "--json", under=limit))


class StepLarge(unittest.TestCase):
    def shown(self, *args):
        done = step(*args)
        self.assertEqual(done.code, 0, done.err)
        peak_kb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        self.assertLess(peak_kb, MOST_KB)
        return json.loads(done.out)

    def test_models_of_billions_need_no_memory_to_be_shown(self):
        for size, ranks, layout in (("1.5B", 64, "dp=16,pp=4"),
                                    ("1.3B", 64, "dp=8,tp=2,pp=4"),
                                    ("7B", 64, "dp=8,tp=2,pp=4"),
                                    ("7B", 512, "dp=64,tp=2,pp=4,shard=3")):
            with self.subTest(size=size, layout=layout):
                row = self.shown("gpt", "--set", f"model.size={size}", "-n", ranks,
                                 "--layout", layout, "--set", "batch=256")
                self.assertEqual(row["verdict"], "accepted")
                self.assertEqual(row["world"], ranks)
                self.assertGreater(row["step_ms"], 0)
                self.assertIn("by their FLOPs", row["costs"])

    def test_a_model_larger_than_any_size_with_a_name(self):
        row = self.shown("gpt", "--set", "model.size=7B", "--set", "model.width=12288",
                         "--set", "model.depth=96", "--set", "model.heads=96", "-n", 1024,
                         "--layout", "dp=16,tp=8,pp=8,shard=1", "--set", "batch=1024")
        self.assertGreater(row["peak_memory_bytes"], 4 * 175e9 / 64)

    def test_what_a_table_says_of_blocks_is_taken(self):
        small = ("gpt", "--set", "model.width=64", "--set", "model.heads=4",
                 "--set", "model.context=32")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = f"{folder.name}/costs.csv"
        row = self.shown(*small, "--costs-out", path)
        self.assertIn("blocks run here", row["costs"])
        large = ("gpt", "--set", "model.size=7B", "--set", "model.depth=12")
        row = self.shown(*large, "--costs", path)
        self.assertEqual(row["costs"], path)
        self.assertLess(row["step_ms"], self.shown(*large)["step_ms"] / 10)


if __name__ == "__main__":
    unittest.main()
