#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the program says to a command line that is wrong, and what --help says."""
import unittest

import train_run

OPS = "all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, exchange, barrier"


class UsageTest(unittest.TestCase):
    def assert_said(self, command, line):
        with self.subTest(command=command):
            run = train_run.cohort(*command.split())
            self.assertEqual((run.code, run.out, run.err), (2, "", f"cohort: {line}\n"))

    def test_a_misspelt_flag_is_named_with_the_nearest_one(self):
        for command, flag, nearest, place in (
                ("train mlp --outt x", "--outt", "--out", "train"),
                ("train --outt x", "--outt", "--out", "train"),
                ("verify mlp --layot dp=2 --all", "--layot", "--layout", "verify"),
                ("bench comm --opp foo", "--opp", "--op", "bench comm")):
            self.assert_said(command, f"[usage] unknown flag '{flag}'; nearest to '{flag}': "
                             f"{nearest}; see cohort {place} --help")

    def test_a_flag_before_its_command_is_unknown_there(self):
        for command, place in (("--json train mlp", ""), ("bench --json comm", " bench")):
            with self.subTest(command=command):
                run = train_run.cohort(*command.split())
                self.assertEqual((run.code, run.out), (2, ""))
                self.assertTrue(run.err.startswith("cohort: [usage] unknown flag '--json'; "),
                                run.err)
                self.assertTrue(run.err.endswith(f"; see cohort{place} --help\n"), run.err)

    def test_a_wrong_word_is_named_with_what_is_legal(self):
        legal = "list, show, verify, diff, reshape, import, export"
        see = "see cohort checkpoint --help"
        self.assert_said("checkpoint shwo x", "[usage] unknown command 'shwo'; nearest to 'shwo': "
                         f"show; legal: {legal}; {see}")
        self.assert_said("checkpoint", f"[usage] no command; legal: {legal}; {see}")
        self.assert_said("train mlp gpt", "[usage] 'gpt' is one argument too many; legal: flags "
                         "alone from here on; see cohort train --help")
        self.assert_said("bench comm --op foo",
                         f"[bench.comm] unknown operation 'foo'; nearest: barrier; legal: {OPS}")

    def test_a_backend_that_there_is_not_is_refused_before_any_rank_starts(self):
        for command in ("train mlp", "step mlp --measure 1", "bench comm", "bench train mlp100",
                        "bench train mlp", "bench train gpt --device cuda"):
            for given in ("glo", "gloo,glo") if command == "bench comm" else ("glo",):
                with self.subTest(command=command, given=given):
                    run = train_run.cohort(*command.split(), "--backend", given)
                    self.assertEqual((run.code, run.out), (2, ""))
                    self.assertRegex(run.err, r"\Acohort: \[comm\] unknown backend 'glo', nearest "
                                     r"is 'gloo'; available: auto, local, shm, gloo[^\n]*\n\Z")

    def test_what_no_rank_could_measure_is_refused_before_any_starts(self):
        for backends in ("shm,shm", "auto,shm"):
            self.assert_said(f"bench comm --backend {backends} --bytes 4", "[bench.comm] --backend "
                             f"{backends}: shm twice; legal: each once")
        run = train_run.cohort("bench", "comm", "-n", 1, "--device", "cuda", "--bytes", 4)
        if "no CUDA in this build" in run.err:
            self.assert_said("bench comm --device cuda", "[bench.comm] --device cuda: no CUDA in "
                             "this build; legal here: cpu")

    def test_a_value_that_is_none_is_named_with_what_is_legal(self):
        for given, name, value, legal in (
                ("resize abc 2", "pid", "abc", "a whole number"),
                ("resize 12 2.5", "ranks", "2.5", "a whole number"),
                ("launch --join-timeout soon -- true", "--join-timeout", "soon", "a number"),
                ("bench train gpt --batch 0", "--batch", "0", "a number from 1 to 1e+09")):
            place = " ".join(given.split()[:2 if given.startswith("bench") else 1])
            self.assert_said(given, f"[usage] {name}: '{value}'; legal: {legal}; "
                             f"see cohort {place} --help")
        for given in ("train mlp --json=maybe", "bench train mlp100 --kernels=x"):
            place = "bench train" if given.startswith("bench") else "train"
            name, value = given.split()[-1].split("=")
            self.assert_said(given, f"[usage] {name}: '{value}'; legal: the flag alone; "
                             f"see cohort {place} --help")
        self.assert_said("train mlp --out",
                         "[usage] --out: its value is missing; see cohort train --help")

    def test_an_argument_that_is_missing_is_named_with_all_that_there_are(self):
        for given, name, legal in (("train", "RECIPE", "train RECIPE"),
                                   ("bench train --json", "CASE", "bench train CASE"),
                                   ("resize 12", "RANKS", "resize PID RANKS"),
                                   ("checkpoint diff a", "B", "checkpoint diff A B"),
                                   ("history verify", "F", "history verify F")):
            place = legal.rstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ ")
            self.assert_said(given, f"[usage] no {name}; legal: cohort {legal}; "
                             f"see cohort {place} --help")

    def test_a_flag_that_is_given_too_often_or_alone_is_named(self):
        self.assert_said("train mlp -n 2 -n 3 -n 4",
                         "[usage] -n is given 3 times; legal: once; see cohort train --help")
        self.assert_said("launch --spares 1 -- true", "[usage] --spares without --elastic; "
                         "legal: both; see cohort launch --help")


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
            self.assertIn("\nRecipes (RECIPE --help shows all keys of one, ", said)


if __name__ == "__main__":
    unittest.main()
