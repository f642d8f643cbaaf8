#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the program says to a command line that is wrong, and what --help says."""
import unittest

import train_run


class HelpTest(unittest.TestCase):
    def help_of(self, *command):
        run = train_run.cohort(*command, "--help")
        self.assertEqual((run.code, run.err), (0, ""))
        return run.out

    def test_a_recipe_that_is_named_is_the_one_whose_keys_are_shown(self):
        for command in (["train"], ["bench", "train"], ["step"], ["verify"]):
            with self.subTest(command=command):
                said = self.help_of(*command, "gpt")
                self.assertIn("\nRecipe:\n  gpt  ", said)
                self.assertRegex(said, "\nmodel.size +124M ")
                self.assertNotIn("model.stem", said)
                self.assertNotIn("Keys of", said)

    def test_its_defaults_are_those_of_the_recipe(self):
        self.assertRegex(self.help_of("train", "gpt"), "\noptim.name +adamw ")
        self.assertRegex(self.help_of("train"), "\noptim.name +sgd ")

    def test_without_a_recipe_all_are_shown(self):
        for command in (["train"], ["train", "gptt"]):
            said = self.help_of(*command)
            for name in ("gpt", "cifar-resnet50v2"):
                self.assertIn(f"\nKeys of {name}:\n", said)


if __name__ == "__main__":
    unittest.main()
