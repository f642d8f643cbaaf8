#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A full disk below --out does not end a run, and its history is whole afterwards."""
import json
import os
import signal
import subprocess
import unittest
from pathlib import Path

import train_run

FULL = "No space left on device"
STEPS = 700  # seconds: the disk is filled in a moment after the fifth


class FullStdoutTest(unittest.TestCase):
    STEP = [train_run.COHORT, "step", "mlp", "-n", "2", "--json"]

    def test_results_that_are_lost_are_an_error(self):
        with open("/dev/full", "w") as full:
            run = subprocess.run(self.STEP, stdout=full, stderr=subprocess.PIPE, text=True,
                                 timeout=train_run.DEADLINE_S)
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertEqual(run.stderr, f"cohort: stdout: {FULL}; results are lost\n")

    def test_a_reader_that_has_gone_is_none(self):
        reads, writes = os.pipe()
        os.close(reads)
        with os.fdopen(writes, "w") as gone:
            run = subprocess.run(self.STEP, stdout=gone, stderr=subprocess.PIPE, text=True,
                                 timeout=train_run.DEADLINE_S)
        self.assertEqual((run.returncode, run.stderr), (0, ""))


@unittest.skipUnless(train_run.mounts_work(), "needs the right to mount a file system")
class FullOutTest(train_run.TrainTest):
    def start_on_disk(self, *args, saved="saved", files=1000):
        """A run with a small disk of its own, which is seen through its process."""
        self.run_ = self.start(
            2, "--grace", 60, "--out", self.scratch / "disk/out", *args,
            keys={"checkpoint.dir": self.scratch / saved}, under=self.disk_of("32m", files))
        self.events = []

    def disk_of(self, size, files=1000):
        """The command that becomes a program with such a disk."""
        (self.scratch / "disk").mkdir(exist_ok=True)
        mount = (f"mount -t tmpfs -o size={size},nr_inodes={files} none {self.scratch}/disk; "
                 'exec "$@"')
        return ["unshare", "-m", "sh", "-ec", mount, "sh"]

    def read_more(self, steps):
        for _ in range(steps):
            self.events += self.read_until(self.run_, lambda e: e["event"] == "step")

    def read_said(self, words):
        """Up to the line that has these words."""
        while words not in (line := self.run_.stderr.readline()):
            self.assertTrue(line, "the run ended by itself")

    def find_disk(self):
        """The disk stays for as long as it is open here."""
        disk = os.open(f"/proc/{self.run_.pid}/root{self.scratch}/disk", os.O_RDONLY)
        self.addCleanup(os.close, disk)
        self.disk = Path(f"/proc/{os.getpid()}/fd/{disk}")

    def fill(self):
        self.find_disk()
        with open(self.disk / "ballast", "wb", buffering=0) as ballast:
            with self.assertRaises(OSError):
                while True:
                    ballast.write(bytes(1 << 20))

    def test_what_could_not_be_saved_is_the_cause_that_is_named(self):
        self.start_on_disk("--max-steps", STEPS, saved="disk/saved")
        self.read_more(5)
        self.fill()
        said, err = self.run_.communicate(timeout=120)
        self.assertEqual(self.run_.returncode, 5, err)
        events = [json.loads(line) for line in said.splitlines()]
        self.assertRegex(events[-1]["cause"],
                         f"disk/saved: step {STEPS}, the last, is not saved")
        self.assertNotIn("done", [event["event"] for event in events])

    def test_weights_without_room_end_the_run_at_once(self):
        for elastic in ("on", "off"):
            with self.subTest(elastic=elastic):
                final = self.scratch / "disk/final"
                ended = train_run.finish(
                    self.start(2, "--save-final", final, "--max-steps", 5,
                               keys={"elastic": elastic}, under=self.disk_of("4k")))
                self.assertEqual(ended.code, 5, ended.err)
                [fault] = ended.of("fault")
                self.assertEqual(fault["cause"],
                                 f"exit code 5: [core.file] cannot write {final}: {FULL}")
                self.assertEqual(ended.err.count(FULL), 1, ended.err)
                self.assertEqual([e["step"] for e in ended.of("step")], [1, 2, 3, 4, 5])
                self.assertEqual((ended.of("recovered"), ended.of("done")), ([], []))
                self.assertEqual(ended.events[-1], fault)

    def test_a_disk_that_was_full_for_a_while(self):
        self.start_on_disk()
        self.read_more(5)
        self.fill()
        self.read_said(FULL)
        self.read_more(200)
        victim = train_run.pids_of(self.events)[0]
        os.kill(victim, signal.SIGKILL)  # what it kept is made up for by the next
        self.read_said(FULL)
        self.read_more(200)
        (self.disk / "ballast").unlink()
        self.read_said("there is room again: what was kept is written, nothing is lost")
        self.read_more(200)
        self.run_.send_signal(signal.SIGTERM)
        ended = train_run.finish(self.run_)
        self.assertEqual(ended.code, 75, ended.err)
        checked = train_run.cohort("history", "verify", self.disk / "out/history.log")
        self.assertEqual(checked.code, 0, checked.out + checked.err)
        self.assertIn(f"{ended.done['steps']} steps", checked.out)

    def test_a_new_rank_0_without_room_for_its_files(self):
        self.start_on_disk("--max-steps", 800, files=60)
        self.read_more(5)
        self.find_disk()
        with self.assertRaises(OSError):  # no file can be made any more
            for i in range(1000):
                (self.disk / f"ballast{i}").touch()
        os.kill(train_run.pids_of(self.events)[0], signal.SIGKILL)
        self.read_said("the run goes on, and writes")
        self.read_more(20)
        for ballast in self.disk.glob("ballast*"):
            ballast.unlink()
        ended = train_run.finish(self.run_)
        self.assertEqual(ended.code, 0, ended.err)
        self.assertIn("there is room again", ended.err)
        self.assertEqual(len(list((self.disk / "out/tensorboard").iterdir())), 2)

    def test_a_disk_that_is_full_at_the_end(self):
        self.start_on_disk("--max-steps", STEPS)
        self.read_more(5)
        self.fill()
        ended = train_run.finish(self.run_)
        self.assertEqual(ended.code, 3, ended.err)
        (done,) = [e for e in ended.events if e["event"] == "done"]
        self.assertEqual(done["steps"], STEPS)
        self.assertEqual([e["step"] for e in ended.events if e["event"] == "checkpoint"],
                         [STEPS])
        self.assertEqual(ended.err.count("the run goes on, and writes"), 1, ended.err)
        self.assertEqual(ended.err.count("the run is done, its records are not"), 1,
                         ended.err)
        self.assertEqual([e for e in ended.events if e["event"] == "recovered"], [])


if __name__ == "__main__":
    unittest.main()
