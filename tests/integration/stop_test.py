#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A stop on request saves the run, also when a rank is lost about the same time."""
import os
import signal
import socket
import subprocess
import time
import unittest

import train_run
from train_run import ENDLESS


class StopTest(train_run.TrainTest):
    def start_steps(self, ranks, under=(), **keys):
        """A run that has done some steps."""
        self.run_ = self.start(ranks, "--exact", "--grace", 60, under=under,
                               keys={"checkpoint.dir": self.root, **keys})
        self.events = self.read_steps(self.run_, 12)

    def pids(self):
        return train_run.pids_of(self.events)

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
        keys = {**ENDLESS, "checkpoint.dir": self.root}
        more = saved["step"] + 2
        again = train_run.train(3, "--exact", "--max-steps", more, "--resume", keys=keys)
        self.assertEqual(again.code, 0, again.err)
        whole = train_run.train(1, "--exact", "--max-steps", more, keys=ENDLESS)
        self.assertEqual(again.done["weights_hash"], whole.done["weights_hash"])
        return events

    def test_a_request_while_the_program_is_being_loaded(self):
        """From its first constructor on; before that the system ends it, as any program."""
        for signal_ in (signal.SIGTERM, signal.SIGUSR1):
            with self.subTest(signal=signal_):
                self.root = self.root.with_name(f"run{signal_}")
                run = self.start(2, "--grace", 60, keys={"checkpoint.dir": self.root})
                held = 1 << (signal_ - 1)
                while not train_run.blocked_signals(run.pid) & held:
                    self.assertIsNone(run.poll(), "it ended before it was asked to")
                run.send_signal(signal_)
                ended = train_run.finish(run)
                # Its agent answers: by what is saved, or by the signal if nothing is.
                self.assertIn(ended.code, (75, 128 + signal_), ended.err)
                self.assertIn("stopping 2 ranks", ended.err)

    def test_a_command_without_ranks_ends_as_any_program(self):
        self.root.mkdir(parents=True)
        pipe = self.root / "history.bin"
        os.mkfifo(pipe)
        reader = subprocess.Popen([train_run.COHORT, "history", "show", pipe])
        try:
            with open(pipe, "wb"):  # once the command has opened it, and waits for a byte
                reader.send_signal(signal.SIGTERM)
                self.assertEqual(reader.wait(20), -signal.SIGTERM)
        finally:
            reader.kill()
            reader.wait()

    def test_a_rank_that_died_just_before_the_request(self):
        for victim in (0, 1):
            with self.subTest(victim=victim):
                self.root = self.root.with_name(f"run{victim}")
                self.start_steps(2)
                self.kill_and_stop([victim])
                events = self.expect_saved()
                (fault,) = [e for e in events if e["event"] == "fault"]
                self.assertEqual(fault["rank"], victim)

    def test_variables_around_the_command_are_not_for_those_who_come_later(self):
        self.start_steps(2, under=["env", "RANK=3"])
        os.kill(self.pids()[1], signal.SIGKILL)
        self.events += self.read_until(self.run_, lambda e: e["event"] == "recovered")
        self.run_.send_signal(signal.SIGTERM)
        self.expect_saved()

    def test_a_rank_of_another_launcher_that_waits_for_its_peers_ends_by_the_signal(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        world = ["env", "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                 f"MASTER_PORT={port}"]
        run = train_run.start("train", "mlp", "--set", "data.synthetic=true", under=world)
        self.addCleanup(run.kill)
        while True:  # it hosts the place where they meet
            self.assertIsNone(run.poll(), "it ended before it was asked to")
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.01)
        run.send_signal(signal.SIGTERM)
        self.assertEqual(train_run.finish(run).code, -signal.SIGTERM)

    def test_all_ranks_that_died_just_before_the_request(self):
        for ranks in (1, 3):
            with self.subTest(ranks=ranks):
                self.root = self.root.with_name(f"all{ranks}")
                self.start_steps(ranks, **{"snapshot.every_steps": 5})
                self.kill_and_stop(range(ranks))
                self.expect_saved(survivors=False)

    def test_a_request_while_the_replacement_is_still_loading(self):
        self.start_steps(2, **{"elastic.spares": 0})
        os.kill(self.pids()[1], signal.SIGKILL)
        self.events += self.read_until(self.run_, lambda e: e["event"] == "fault")
        self.run_.send_signal(signal.SIGTERM)
        self.expect_saved()

    def test_a_replacement_that_only_the_agent_can_tell(self):
        self.start_steps(1, **{"elastic.spares": 0})
        self.kill_and_stop([0])
        self.expect_saved(survivors=False)

    def test_without_a_folder_nothing_is_saved_and_the_code_says_so(self):
        self.start_steps(2, **{"checkpoint.dir": ""})
        self.kill_and_stop([1])
        ended = train_run.finish(self.run_)
        self.assertEqual(ended.code, 128 + signal.SIGTERM, ended.err)


if __name__ == "__main__":
    unittest.main()
