#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs with recipes of their own, from outside: examples/my_cohort, and one whose
recipe has a fault (odd_cohort.cpp)."""
import json
import os
import subprocess
import unittest

import train_run

MY_COHORT = os.environ["COHORT_MY"]
ODD_COHORT = os.environ["COHORT_ODD_PROGRAM"]

COMMANDS = [
    ["train", "odd"], ["launch", "-n", "1", "--", "true"], ["resize", "1", "1"],
    ["bench", "comm"], ["bench", "train", "odd"], ["step", "odd"], ["verify", "odd"],
    ["checkpoint", "list", "here"], ["history", "verify", "here"], ["data", "info", "here"],
    ["sample", "here", "text"], ["doctor"], ["--version"], ["--help"], []]


def run(program, *args, odd=""):
    variables = {**train_run.clean_environment(), "COHORT_ODD": odd}
    done = subprocess.run([program, *map(str, args)], env=variables, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=train_run.DEADLINE_S, check=False)
    return train_run.Run(done.returncode, done.stdout, done.stderr)


class OddRecipe(unittest.TestCase):
    def refused_by_every_command(self, odd, line, commands=COMMANDS):
        for command in commands:
            with self.subTest(command=command):
                refused = run(ODD_COHORT, *command, odd=odd)
                self.assertEqual(refused.code, 2, refused.err)
                self.assertEqual(refused.out, "")
                self.assertEqual(refused.err.splitlines(), [line])

    def test_a_recipe_registered_twice_is_refused_by_every_command(self):
        self.refused_by_every_command(
            "name", "odd_cohort: [recipes] 'mlp' is the name of two recipes; taken: "
            "fashion-mnist, mlp, cifar-resnet50v2, gpt, gpt-tiny, llama-tiny, bert, bert-tiny")

    def test_a_key_that_clashes_is_refused_by_every_command(self):
        """As a name is, so the short form takes every fourth."""
        self.refused_by_every_command(
            "key", "odd_cohort: [config] the key 'optim.lr' is there already; legal: a name that "
            "no other key has", COMMANDS if train_run.LONG else COMMANDS[::4])

    def test_a_model_that_depends_on_the_rank_is_refused_with_the_block_that_differs(self):
        refused = run(ODD_COHORT, "train", "odd", "-n", 3, odd="rank")
        self.assertEqual(refused.code, 2, refused.err)
        self.assertIn(
            "[engine] the model of rank 1 is not that of rank 0: block 1 (second) has "
            "second.weight [4, 4], and on rank 0 second.weight [3, 4]; legal: the same blocks "
            "on every rank", refused.err)
        self.assertEqual(run(ODD_COHORT, "train", "odd", "-n", 3).code, 0)


class Help(unittest.TestCase):
    def test_each_command_that_takes_a_recipe_lists_them_all_and_their_keys(self):
        for command in (["train"], ["bench", "train"], ["step"], ["verify"], ["sample"]):
            with self.subTest(command=command):
                said = run(MY_COHORT, *command, "--help").out
                for expected in ("\n  gpt-tiny  ", "\n  spirals  which of two spirals",
                                 "\nKeys for --set and --config:\nseed  ",
                                 "\nKeys of spirals:\ndata.turns  1.5 ", "\nExamples:\n"):
                    self.assertEqual(said.count(expected), 1, (expected, said))


class BenchOfARecipe(unittest.TestCase):
    def test_times_the_step_of_a_recipe_of_ones_own(self):
        for layout, ranks in (("", 2), ("shard=3", 3), ("pp=2", 2)):
            timed = run(MY_COHORT, "bench", "train", "spirals", "-n", ranks, "--layout", layout,
                        "--json")
            self.assertEqual(timed.code, 0, timed.err)
            row = json.loads(timed.out)
            self.assertEqual((row["case"], row["ranks"]), ("spirals", ranks))
            self.assertGreater(row["step_ms"], 0)
            self.assertAlmostEqual(row["samples_per_second"], 64 / (1e-3 * row["step_ms"]), 0)
            self.assertGreaterEqual(row["wait_ms"], 0)
            self.assertTrue(0 <= row["comm_hidden"] <= 1, row)
            self.assertNotIn("plain_step_ms", row)

    def test_layers_are_cut_in_parts(self):
        small = [f"--set={key}" for key in (
            "data.synthetic=true", "model.width=16", "model.depth=2", "model.heads=2",
            "model.context=8", "batch=8", "slices=4")]
        timed = run(MY_COHORT, "bench", "train", "gpt-tiny", "-n", 2, "--layout", "tp=2",
                    "--json", *small)
        self.assertEqual(timed.code, 0, timed.err)
        row = json.loads(timed.out)
        self.assertEqual((row["case"], row["ranks"]), ("gpt-tiny", 2))
        self.assertGreater(row["step_ms"], 0)

    def test_layers_that_cannot_be_cut_are_refused_before_ranks_start(self):
        for name, room in (("mlp100", "bench"), ("resnet50-cifar", "bench"),
                           ("fashion", "bench"), ("mlp", "recipes"),
                           ("fashion-mnist", "recipes")):
            with self.subTest(name=name):
                refused = run(MY_COHORT, "bench", "train", name, "-n", 2, "--layout", "tp=2")
                self.assertEqual(refused.code, 2, refused.err)
                self.assertEqual(refused.out, "")
                self.assertEqual(refused.err.splitlines(), [
                    f"my_cohort: [{room}] layout tp=2: the layers of {name} cannot be cut; "
                    "legal: tp=1"])

    def test_keys_change_it(self):
        timed = run(MY_COHORT, "bench", "train", "spirals", "-n", 1, "--set", "batch=16",
                    "--set", "model.width=4", "--json")
        row = json.loads(timed.out)
        self.assertAlmostEqual(row["samples_per_second"], 16 / (1e-3 * row["step_ms"]), 0)

    def test_what_is_neither_a_case_nor_a_recipe_is_refused_with_the_nearest(self):
        refused = run(MY_COHORT, "bench", "train", "spiral")
        self.assertEqual(refused.code, 2)
        self.assertEqual(refused.err.splitlines(), [
            "my_cohort: [bench] unknown benchmark or recipe 'spiral'; nearest: spirals; legal: "
            "mlp100, resnet50-cifar, fashion, fashion-mnist, mlp, cifar-resnet50v2, gpt, "
            "gpt-tiny, llama-tiny, bert, bert-tiny, spirals"])

    def test_keys_are_of_recipes(self):
        refused = run(MY_COHORT, "bench", "train", "mlp100", "--set", "batch=16")
        self.assertEqual(refused.code, 2)
        self.assertIn("--set and --config go with a recipe", refused.err)
        unknown = run(MY_COHORT, "bench", "train", "spirals", "--set", "batc=16")
        self.assertEqual(unknown.code, 2)
        self.assertIn("batch", unknown.err)


if __name__ == "__main__":
    unittest.main()
