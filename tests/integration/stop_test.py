#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stop on request saves the run, also when a rank is lost about the same time."""
import json
import os
import signal
import tempfile
import unittest
from pathlib import Path

import train_run

KEYS = {"data.synthetic": "true", "model.width": 2, "batch": 24, "slices": 4,
        "log.every_steps": 1, "valid.every_epochs": 0, "epochs": 100_000}


class StopTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name) / "run"

    def start(self, ranks, **keys):
        keys = {**KEYS, "checkpoint.dir": self.root, **keys}
        self.run_ = train_run.start("train", "fashion-mnist", "-n", ranks, "--json",
                                    "--exact", "--grace", 60,
                                    *train_run.assignments(keys))
        for cleanup in (self.run_.stdout.close, self.run_.stderr.close, self.run_.kill):
            self.addCleanup(cleanup)
        self.events = []

    def read_until(self, wanted):
        while not self.events or not wanted(self.events[-1]):
            line = self.run_.stdout.readline()
            self.assertTrue(line, "the run ended by itself")
            self.events.append(json.loads(line))

    def read_steps(self, steps):
        self.read_until(lambda event: event.get("step", 0) >= steps)

    def pids(self):
        """By rank, the newest of each."""
        return {e["rank"]: e["pid"] for e in self.events if e["event"] == "rank"}

    def kill_and_stop(self, ranks):
        """The agent finds the request and the deaths together when it wakes."""
        os.kill(self.run_.pid, signal.SIGSTOP)
        for rank in ranks:
            os.kill(self.pids()[rank], signal.SIGKILL)
            train_run.wait_dead(self.pids()[rank])
        os.kill(self.run_.pid, signal.SIGTERM)
        os.kill(self.run_.pid, signal.SIGCONT)

    def expect_saved(self, survivors=True):
        ended = train_run.finish(self.run_)
        self.assertEqual(ended.code, 75, ended.err)
        events = self.events + ended.events
        (saved,) = [e for e in events if e["event"] == "checkpoint"]
        self.assertEqual(events[-1]["event"], "done")
        self.assertEqual(events[-1]["steps"], saved["step"])
        steps = [e["step"] for e in events if e["event"] == "step"]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        if survivors:  # else the run went back to a snapshot
            self.assertEqual(len(steps), saved["step"])
        keys = {**KEYS, "checkpoint.dir": self.root}
        more = saved["step"] + 2
        again = train_run.train(3, "--exact", "--max-steps", more, "--resume", keys=keys)
        self.assertEqual(again.code, 0, again.err)
        whole = train_run.train(1, "--exact", "--max-steps", more, keys=KEYS)
        self.assertEqual(again.done["weights_hash"], whole.done["weights_hash"])
        return events

    def test_a_rank_that_died_just_before_the_request(self):
        for victim in (0, 1):
            with self.subTest(victim=victim):
                self.root = self.root.with_name(f"run{victim}")
                self.start(2)
                self.read_steps(12)
                self.kill_and_stop([victim])
                events = self.expect_saved()
                (fault,) = [e for e in events if e["event"] == "fault"]
                self.assertEqual(fault["rank"], victim)

    def test_all_ranks_that_died_just_before_the_request(self):
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                self.root = self.root.with_name(f"all{ranks}")
                self.start(ranks, **{"snapshot.every_steps": 5})
                self.read_steps(12)
                self.kill_and_stop(range(ranks))
                self.expect_saved(survivors=False)

    def test_a_request_while_the_replacement_is_still_loading(self):
        self.start(2, **{"elastic.spares": 0})
        self.read_steps(12)
        os.kill(self.pids()[1], signal.SIGKILL)
        self.read_until(lambda event: event["event"] == "fault")
        self.run_.send_signal(signal.SIGTERM)
        self.expect_saved()

    def test_a_replacement_that_only_the_agent_can_tell(self):
        self.start(1, **{"elastic.spares": 0})
        self.read_steps(12)
        self.kill_and_stop([0])
        self.expect_saved(survivors=False)

    def test_without_a_folder_nothing_is_saved_and_the_code_says_so(self):
        self.start(2, **{"checkpoint.dir": ""})
        self.read_steps(12)
        self.kill_and_stop([1])
        ended = train_run.finish(self.run_)
        self.assertEqual(ended.code, 128 + signal.SIGTERM, ended.err)


if __name__ == "__main__":
    unittest.main()
