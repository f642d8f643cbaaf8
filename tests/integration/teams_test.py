#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that hold a model together, from outside: lost ones come back, teams wait,
layouts change."""
import functools
import os
import signal
import subprocess
import unittest

import train_run

TINY = {"data.synthetic": "true", "model.width": 16, "model.depth": 2, "model.heads": 2,
        "model.context": 8, "batch": 8, "slices": 4, "log.every_steps": 1,
        "valid.every_epochs": 0}
ENDLESS = {**TINY, "epochs": 100_000}
STEPS = 50


def arguments(ranks, layout, *args, keys={}):
    return ["train", "gpt-tiny", "-n", ranks, "--layout", layout, "--exact", "--json",
            *train_run.assignments({**ENDLESS, **keys}), *args]


def run_to_end(*args, **more):
    run = train_run.cohort(*arguments(*args, **more))
    assert run.code == 0, run.err
    return run.done["weights_hash"]


def is_step(event):
    return event["event"] == "step"


@functools.cache
def undisturbed(team, steps):
    """The weights of two ranks that nobody disturbed: several tests want the same."""
    return run_to_end(2, team, "--max-steps", steps)


class TeamTest(train_run.TrainTest):
    def begin(self, *args, **more):
        run = train_run.start(*arguments(*args, **more))
        for cleanup in (run.stdout.close, run.stderr.close,
                        lambda: run.wait(train_run.DEADLINE_S), run.kill):
            self.addCleanup(cleanup)  # the last one is the first to be done
        return run

    def recovered(self, run):
        return self.read_until(run, lambda event: event["event"] == "recovered")

    def resize(self, run, ranks):
        return subprocess.run([train_run.COHORT, "resize", str(run.pid), str(ranks)],
                              text=True, capture_output=True,
                              timeout=train_run.DEADLINE_S)

    def stop(self, run):
        """After ten more steps."""
        self.read_steps(run, self.read_until(run, is_step)[-1]["step"] + 10)
        run.send_signal(signal.SIGTERM)
        return train_run.finish(run)

    def kill(self, run, rank, step=20, before=()):
        """At that step; `before`: what the run has said."""
        events = [*before, *self.read_steps(run, step)]
        os.kill(train_run.pids_of(events)[rank], signal.SIGKILL)


class Parts(TeamTest):
    """Teams of two ranks: parts of tensors here, stages in the class below."""
    team = "tp=2"

    def test_what_is_lost_comes_back_from_its_neighbour(self):
        wanted = undisturbed(self.team, STEPS)
        for victim in (0, 1):
            run = self.begin(2, self.team, "--max-steps", STEPS, "--out", self.root)
            self.kill(run, victim)
            ended = train_run.finish(run)
            self.assertEqual(ended.code, 0, ended.err)
            self.assertEqual(ended.done["weights_hash"], wanted)
            verified = train_run.cohort("history", "verify", self.root / "history.log")
            self.assertIn(" 0 rollbacks", verified.out)

    def test_who_makes_no_team_waits(self):
        wanted = undisturbed(self.team, STEPS)
        alone = {"elastic.spares": 0, "elastic.replace": "false"}
        run = self.begin(4, f"dp=2,{self.team}", "--max-steps", STEPS, keys=alone)
        self.kill(run, 1)
        self.assertEqual(self.recovered(run)[-1]["ranks"], 2)
        ended = train_run.finish(run)
        self.assertEqual(ended.code, 0, ended.err)
        self.assertEqual(ended.done["weights_hash"], wanted)
        self.assertIn("with 2 ranks, 1 waits", ended.err)

    def test_who_waits_takes_the_next_place(self):
        alone = {"elastic.spares": 0, "elastic.replace": "false"}
        run = self.begin(4, f"dp=2,{self.team}", keys=alone)
        self.kill(run, 3)
        events = self.recovered(run)
        events += self.read_until(run, is_step)
        self.kill(run, 0, step=events[-1]["step"] + 10, before=events)
        self.assertEqual(self.recovered(run)[-1]["ranks"], 2)
        ended = self.stop(run)
        self.assertEqual(ended.done["weights_hash"],
                         undisturbed(self.team, ended.done["steps"]))
        self.assertIn("with 2 ranks, 1 waits (restart 1 ", ended.err)
        self.assertIn("with 2 ranks (restart 2 ", ended.err)

    def test_too_few_end_the_run(self):
        alone = {"elastic.spares": 0, "elastic.replace": "false"}
        saved = {**alone, "checkpoint.dir": self.root, "checkpoint.every_steps": 5}
        for keys, code in ((alone, 4), (saved, 75)):
            run = self.begin(2, self.team, keys=keys)
            self.kill(run, 1)
            ended = train_run.finish(run)
            self.assertEqual(ended.code, code, ended.err)
            self.assertIn("1 rank is left, and a model is held by 2 together", ended.err)
        self.assertIn("run it again with --resume", ended.err)
        more = run_to_end(2, self.team, "--resume", "--max-steps", STEPS, keys=saved)
        self.assertEqual(more, undisturbed(self.team, STEPS))

    def test_a_run_grows_and_shrinks_by_teams(self):
        run = self.begin(2, self.team, "--out", self.root)

        def resize(ranks, step):
            self.read_steps(run, step)
            return self.resize(run, ranks)

        self.assertIn("legal for this run: 2 to 8", resize(1, 10).stderr)
        self.assertIn("from 2 to 4 ranks, in generation 1, 1 waits", resize(5, 20).stdout)
        self.assertEqual(self.recovered(run)[-1]["ranks"], 4)
        step = self.read_until(run, is_step)[-1]["step"]
        self.assertIn("from 4 to 2 ranks", resize(2, step + 10).stdout)
        self.assertEqual(self.recovered(run)[-1]["ranks"], 2)
        ended = self.stop(run)
        self.assertEqual(ended.done["weights_hash"],
                         undisturbed(self.team, ended.done["steps"]))
        verified = train_run.cohort("history", "verify", self.root / "history.log")
        self.assertIn(" 0 rollbacks", verified.out)

    def test_a_range_is_of_whole_teams(self):
        run = train_run.cohort(*arguments(2, self.team, keys={"elastic.max_ranks": 5}))
        self.assertEqual(run.code, 2)
        self.assertIn("elastic.max_ranks=5", run.err)
        self.assertIn("legal: a multiple of 2", run.err)
        self.assertEqual(run.err.count("\n"), 1, run.err)


class Stages(Parts):
    team = "pp=2"


class PartsOfStages(TeamTest):
    def test_stages_with_parts_leave_and_come_together(self):
        alone = {"elastic.spares": 0, "elastic.replace": "false"}
        run = self.begin(8, "dp=2,tp=2,pp=2", "--out", self.root, keys=alone)
        self.kill(run, 7)
        self.assertEqual(self.recovered(run)[-1]["ranks"], 4)
        self.read_until(run, is_step)
        self.assertEqual(self.resize(run, 8).returncode, 0)
        self.assertEqual(self.recovered(run)[-1]["ranks"], 8)
        ended = self.stop(run)
        self.assertEqual(ended.done["weights_hash"],
                         undisturbed("tp=2", ended.done["steps"]))
        self.assertIn("with 4 ranks, 3 wait", ended.err)
        verified = train_run.cohort("history", "verify", self.root / "history.log")
        self.assertIn(" 0 rollbacks", verified.out)

    def test_a_checkpoint_of_parts_is_loaded_by_any_layout(self):
        saved = {"checkpoint.dir": self.root, "checkpoint.every_steps": 4}
        wanted = run_to_end(4, "tp=2,pp=2", "--max-steps", 4, keys=saved)
        for ranks, layout in ((3, "dp=3"), (1, "dp=1"), (2, "tp=2")):
            loaded = run_to_end(ranks, layout, "--resume", "--max-steps", 4,
                                keys=saved)
            self.assertEqual(loaded, wanted, layout)


if __name__ == "__main__":
    unittest.main()
