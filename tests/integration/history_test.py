#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run notes is what its ranks computed with, also where ranks are lost.

Histories and sample logs are read by history_reader.py, which is no part of the program.
"""
import json
import os
import unittest
from unittest import mock

import history_reader
import train_run

STEPS = 12
KEYS = {"data.synthetic": "true", "model.width": 8, "batch": 600, "slices": 6,
        "log.every_steps": 1, "valid.every_epochs": 0, "drift.every_steps": 4,
        "snapshot.every_steps": 3}


def actions(ranks, keys, layout):
    """How many the step of a rank has; the last is Commit, right after it was decided."""
    run = train_run.cohort("step", "mlp", "-n", ranks, "--exact", "--layout", layout, "--json",
                           *train_run.assignments(keys))
    return sum(json.loads(run.out)["actions"].values())


class HistoryTest(train_run.TrainTest):
    def train(self, ranks, *args, keys={}, fault="", steps=STEPS, layout="shard=0"):
        with mock.patch.dict(os.environ, {"COHORT_FAULT": fault}):
            return train_run.cohort(
                "train", "mlp", "-n", ranks, "--json", "--max-steps", steps, "--layout",
                layout, *args, *train_run.assignments({**KEYS, **keys}))

    def noted(self, ranks, *args, **options):
        """A run that ends well; its records and the lines of its sample log."""
        out, log = self.root, self.scratch / "samples"
        run = self.train(ranks, "--exact", "--out", out, "--sample-log", log, *args, **options)
        self.assertEqual(run.code, 0, run.err)
        return run, history_reader.read(out / "history.log"), train_run.read_samples(log)

    def check(self, records, log, steps=STEPS):
        """Each step drew what the order of samples says, in both files."""
        run = records[0][1]
        noted = history_reader.steps_in_effect(records)
        self.assertEqual(sorted(noted), list(range(1, steps + 1)))
        logged = {}
        for epoch, step, _, sample in log:
            logged.setdefault(step, []).append((epoch, sample))
        for step, fields in noted.items():
            epoch, ids = history_reader.batch(run, step)
            self.assertEqual(fields["drawn"],
                             history_reader.sample_sum(run["seed"], epoch, ids), step)
            self.assertEqual(sorted(logged[step]), sorted((epoch + 1, i) for i in ids), step)
        self.assertEqual(sorted(logged), sorted(noted))

    def test_history_and_log_hold_what_the_ranks_drew(self):
        for ranks in (1, 2, 3):
            for elastic in ("on", "off"):
                with self.subTest(ranks=ranks, elastic=elastic):
                    _, records, log = self.noted(ranks, keys={"elastic": elastic})
                    self.check(records, log)
                    self.assertEqual({rank for _, _, rank, _ in log}, set(range(ranks)))

    def test_a_step_that_was_committed_by_those_who_are_left_is_noted_as_it_was_drawn(self):
        """The victim dies at its Commit, its vote, or after it said what it drew; each
        process that takes its place does so, too."""
        for number, layout in enumerate(("shard=0", "shard=2")):
            last = actions(3, KEYS, layout) - 1
            for turn, action in enumerate((last, last - 2, last - 4)):
                # In the short form each layout has one of the two victims.
                for victim in (0, 1) if train_run.LONG else ((number + turn) % 2,):
                    with self.subTest(layout=layout, action=action, victim=victim):
                        run, records, log = self.noted(
                            3, fault=f"engine.action[{action}]@{victim}:5=kill", layout=layout)
                        self.assertTrue(run.of("recovered"))
                        self.check(records, log)
                        verified = train_run.cohort("history", "verify",
                                                    self.root / "history.log", "--json")
                        self.assertEqual(verified.code, 0, verified.out)
                        self.assertEqual(json.loads(verified.out)["steps_drawn"], STEPS)

    def test_a_sample_that_is_not_the_steps_stops_the_run_before_it_counts(self):
        run = self.train(3, "--out", self.root, keys={"elastic": "off"},
                         fault="train.batch[5]@2:4=flip")
        self.assertEqual(run.code, 1, run.err)
        self.assertIn("step 4: the ranks drew 600 samples with the sum", run.err)
        self.assertEqual([e["step"] for e in run.of("step")], [1, 2, 3])
        noted = history_reader.steps_in_effect(history_reader.read(self.root / "history.log"))
        self.assertEqual(sorted(noted), [1, 2, 3])

    def test_an_elastic_run_makes_such_a_step_again(self):
        """Each process of rank 2 draws a wrong sample in the fourth step of its life."""
        run, records, log = self.noted(3, fault="train.batch[5]@2:4=flip")
        self.assertIn("step 4: the ranks drew 600 samples with the sum", run.err)
        self.check(records, log)
        calm = self.train(3, "--exact")
        self.assertEqual(run.done["weights_hash"], calm.done["weights_hash"])

    def test_an_elastic_run_that_cannot_draw_a_step_rightly_ends(self):
        run = self.train(3, fault="train.batch@2=flip")  # the first one of each process
        self.assertEqual(run.code, 1, run.err)
        self.assertIn("step 1: the ranks drew 600 samples with the sum", run.err)

    def test_a_log_of_a_run_that_goes_on_has_no_step_that_nobody_saw(self):
        """The first command has no log: its steps are not made up."""
        keys = {"checkpoint.dir": self.scratch / "saved", "checkpoint.every_steps": 5}
        self.train(2, keys=keys, steps=5)
        log = self.scratch / "samples"
        run = self.train(2, "--resume", "--sample-log", log, keys=keys, steps=8)
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual({step for _, step, _, _ in train_run.read_samples(log)}, {6, 7, 8})
        self.assertIn("steps 1 to 5 are not in it", run.err)


class VerifyTest(train_run.TrainTest):
    def history(self, name, *args, steps=3, **keys):
        out = self.scratch / name
        run = train_run.cohort("train", "mlp", "-n", 2, "--quiet", "--out", out, "--max-steps",
                               steps, *args,
                               *train_run.assignments({**KEYS, "drift.every_steps": 0, **keys}))
        self.assertEqual(run.code, 0, run.err)
        return out / "history.log"

    def test_runs_that_are_not_related_are_refused(self):
        first = self.history("a")
        for name, args, keys in (("seed", [], {"seed": 9}), ("batch", [], {"batch": 300}),
                                 ("slices", [], {"slices": 2}), ("exact", ["--exact"], {})):
            with self.subTest(name):
                run = train_run.cohort("history", "verify", first,
                                       self.history(name, *args, **keys))
                self.assertEqual(run.code, 2, run.out)
                self.assertIn("cannot be compared with", run.err)

    def test_two_histories_with_nothing_in_common_do_not_hold(self):
        run = train_run.cohort("history", "verify", self.history("a"),
                               self.history("b", steps=5))
        self.assertEqual(run.code, 3, run.out)
        self.assertIn("nothing to compare: 3 steps are in both, none with a hash", run.out)
        self.assertNotIn("holds", run.out)

    def test_a_folder_stands_for_the_history_in_it(self):
        folder = os.path.dirname(self.history("a", "--exact"))
        run = train_run.cohort("history", "verify", folder)
        self.assertEqual(run.code, 0, run.err)
        shown = train_run.cohort("history", "show", folder, "--last", "1")
        self.assertEqual(shown.code, 0, shown.err)
        self.assertIn("end", shown.out)

    def test_two_that_agree_hold_and_two_that_differ_do_not(self):
        first = self.history("a", "--exact")
        run = train_run.cohort("history", "verify", first, self.history("b", "--exact"))
        self.assertEqual(run.code, 0, run.out)
        self.assertIn("equal in both: 4 values at 3 steps", run.out)
        other = self.history("c", "--exact", **{"optim.lr": 0.5})
        self.assertEqual(train_run.cohort("history", "verify", first, other).code, 1)


if __name__ == "__main__":
    unittest.main()
