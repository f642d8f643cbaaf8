#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of `cohort train`: a run that was cut goes on, whatever it goes on with."""
import json
import os
import shutil
import signal
import subprocess
import unittest

import train_run
from train_run import ENDLESS, SMALL

CUT, END = 6, 10
# What a run saved by 4 ranks at shard level 3 goes on with.
WAYS = [(1, "shard=0"), (3, "shard=0"), (2, "shard=1")]


class ResumeTest(train_run.TrainTest):
    def train(self, ranks, layout, steps, *args, keys={}, code=0):
        run = train_run.train(ranks, "--exact", "--layout", layout, "--max-steps", steps,
                              *args, keys={**SMALL, **keys})
        self.assertEqual(run.code, code, run.err)
        return run

    def saving(self, **keys):
        return {"checkpoint.dir": self.root, **keys}

    def resume(self, ranks, layout, steps, *args, keys={}, code=0):
        """From a copy of what is saved, so that it can be done again."""
        copy = self.scratch / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.root, copy)
        return self.train(ranks, layout, steps, "--resume", *args, code=code,
                          keys={**keys, "checkpoint.dir": copy})

    def test_any_layout_goes_on_to_the_same_weights(self):
        """In the short form each precision with one optimizer: StateTest has every pair."""
        ways = [("float32", "sgd"), ("bf16", "adamw"), ("float32", "adamw"), ("bf16", "sgd")]
        for precision, optimizer in ways if train_run.LONG else ways[:2]:
            keys = {"precision": precision, "optim.name": optimizer, "optim.lr": 0.01}
            shutil.rmtree(self.root, ignore_errors=True)
            saved = self.train(4, "shard=3", CUT,
                               keys={**keys, **self.saving(**{"checkpoint.every_steps": 3})})
            self.assertEqual([e["step"] for e in saved.of("checkpoint")][-1], CUT)
            wanted = self.train(4, "shard=3", END, keys=keys).done["weights_hash"]
            for ranks, layout in WAYS:
                with self.subTest(precision=precision, optimizer=optimizer, ranks=ranks):
                    run = self.resume(ranks, layout, END, keys=keys)
                    self.assertIn(f"goes on from {self.scratch}/copy/step-", run.err)
                    self.assertEqual([e["step"] for e in run.of("step")],
                                     list(range(CUT + 1, END + 1)))
                    self.assertEqual(run.done["weights_hash"], wanted)

    def test_a_run_that_is_done_has_nothing_left_and_says_what_it_knows(self):
        done = self.train(2, "shard=0", CUT, keys=self.saving()).done
        again = self.train(2, "shard=0", CUT, "--resume", keys=self.saving()).done
        self.assertEqual(again["steps"], CUT)
        self.assertIsNone(again["loss"])
        self.assertEqual(again["weights_hash"], done["weights_hash"])

    def test_a_history_that_was_cut_is_said_to_be(self):
        out = ("--out", self.scratch / "out")
        self.train(2, "shard=0", CUT, *out, keys=self.saving())
        history = self.scratch / "out/history.log"
        os.truncate(history, history.stat().st_size // 2)
        run = self.train(2, "shard=0", END, "--resume", *out, keys=self.saving())
        self.assertRegex(run.err, rf"history.log ends at step \d, what was saved at {CUT}: ")

    def test_saving_nowhere_is_said(self):
        run = self.train(1, "shard=0", 1, keys={"checkpoint.every_steps": 1})
        self.assertIn("checkpoint.every_steps: there is no checkpoint.dir", run.err)

    def test_slices_that_nobody_gave_are_those_of_the_run(self):
        keys = train_run.assignments({**SMALL, "slices": 0, **self.saving()})
        for ranks, steps in ((4, 2), (2, 4), (1, 6)):
            run = train_run.cohort("train", "fashion-mnist", "-n", ranks, "--max-steps",
                                   steps, "--resume", *keys)
            self.assertEqual(run.code, 0, run.err)
            manifest = json.loads((self.root / f"step-{steps:08}/manifest.json").read_text())
            self.assertEqual(manifest["state"]["slices"], "4")

    def test_a_signal_saves_and_the_run_goes_on_from_there(self):
        for name in ("SIGTERM", "SIGUSR1"):
            with self.subTest(signal=name):
                shutil.rmtree(self.root, ignore_errors=True)
                run = self.start(2, "--exact", "--grace", 60, keys=self.saving())
                events = self.read_steps(run, 4)
                run.send_signal(getattr(signal, name))
                ended = train_run.finish(run)
                self.assertEqual(ended.code, 75, ended.err)
                events += ended.events
                (saved,) = [e for e in events if e["event"] == "checkpoint"]
                self.assertEqual(saved["path"],
                                 f"{self.root}/step-{saved['step']:08}")
                self.assertEqual(events[-1]["event"], "done")
                self.assertEqual(events[-1]["steps"], saved["step"])
                steps = saved["step"] + 3
                keys = {"epochs": ENDLESS["epochs"]}
                wanted = self.train(1, "shard=0", steps, keys=keys)
                again = self.resume(3, "shard=1", steps, keys=keys)
                self.assertEqual(again.done["weights_hash"], wanted.done["weights_hash"])
                self.assertEqual(again.done["steps"], steps)

    def test_all_ranks_killed_at_once_go_on_from_memory(self):
        for layout in ("shard=0", "shard=3"):
            with self.subTest(layout=layout):
                keys = {**ENDLESS, "snapshot.every_steps": 5, "elastic": "on"}
                args = (2, "--exact", "--layout", layout, "--max-steps", 200)
                wanted = train_run.train(*args, keys=keys).done["weights_hash"]
                run = self.start(*args, keys=keys)
                events = self.read_steps(run, 23)
                pids = train_run.pids_of(events).values()
                for number in (signal.SIGSTOP, signal.SIGKILL):  # neither helps the other
                    for pid in pids:
                        os.kill(pid, number)
                ended = train_run.finish(run)
                self.assertEqual(ended.code, 0, ended.err)
                self.assertIn("goes on from the snapshot of step ", ended.err)
                self.assertEqual(ended.done["weights_hash"], wanted)
                steps = [e["step"] for e in events + ended.events if e["event"] == "step"]
                self.assertEqual(steps, list(range(1, 201)))

    def test_a_run_that_is_over_ends_at_once(self):
        done = self.train(2, "shard=1", CUT, keys=self.saving()).done
        again = self.resume(2, "shard=1", CUT)
        self.assertEqual(again.of("step"), [])
        self.assertEqual(again.done["weights_hash"], done["weights_hash"])

    def test_nothing_saved_starts_anew_and_says_so(self):
        run = self.train(2, "shard=0", 2, "--resume", keys=self.saving())
        self.assertIn(f"nothing is saved in {self.root}: starts anew", run.err)
        self.assertEqual(run.done["steps"], 2)

    def test_another_run_is_refused_in_one_line(self):
        self.train(2, "shard=0", 2, keys=self.saving())
        for keys, said in (({"seed": 7}, "saved with seed=0, asked for is seed=7"),
                           ({"batch": 32}, "saved with batch=24, asked for is batch=32")):
            run = self.resume(2, "shard=0", 4, keys=keys, code=2)
            self.assertIn(said, run.err)
            self.assertEqual(len(run.err.strip().splitlines()), 1, run.err)
        run = self.train(2, "shard=0", 4, keys=self.saving(), code=2)
        self.assertIn("has checkpoints up to step 2; go on from them with --resume",
                      run.err)

    def test_a_state_of_another_model_or_rule_is_refused_before_ranks_start(self):
        self.train(2, "shard=0", 2, keys=self.saving())
        for keys, said in (({"model.width": 3}, r"tensor 'c1.weight' is 2x1x\d+x\d+, expected 3x1"),
                           ({"optim.name": "adam"},
                            "has no tensor 'optimizer.exp_avg.c1.weight'")):
            run = self.resume(2, "shard=0", 4, keys=keys, code=5)
            self.assertRegex(run.err, said)
            self.assertNotIn("[launch]", run.err)
            self.assertEqual((run.out, len(run.err.strip().splitlines())), ("", 1), run.err)

    def test_what_is_damaged_is_named_and_passed_over(self):
        self.train(2, "shard=2", CUT, keys=self.saving(**{"checkpoint.every_steps": 3,
                                                           "checkpoint.async": "false"}))
        wanted = self.train(2, "shard=2", END).done["weights_hash"]
        shard = next(self.root.glob(f"step-{CUT:08}/model-*.safetensors"))
        data = bytearray(shard.read_bytes())
        data[-5] ^= 1
        shard.write_bytes(data)
        run = self.resume(3, "shard=0", END)
        self.assertIn("passed over: ", run.err)
        self.assertIn(shard.name, run.err)
        self.assertEqual(run.of("step")[0]["step"], 4)
        self.assertEqual(run.done["weights_hash"], wanted)
        for manifest in self.root.glob("step-*/manifest.json"):
            manifest.write_text("{")
        run = self.resume(2, "shard=0", END, code=5)
        self.assertRegex(run.err, r"^cohort: .*manifest.json: ")
        self.assertEqual(len(run.err.strip().splitlines()), 1, run.err)

    def test_a_folder_that_cannot_be_written_is_refused(self):
        (self.scratch / "file").write_text("")
        for folder in ("file", "file/run"):
            run = train_run.train(2, "--max-steps", 4, keys={
                **SMALL, "checkpoint.dir": self.scratch / folder})
            self.assertEqual((run.code, run.out), (2, ""))
            self.assertIn(f"{folder}: cannot be written", run.err)

    def on_small_disk(self, options, command):
        """Runs a shell command with a tmpfs at the root of checkpoints, its own alone."""
        self.root.mkdir(exist_ok=True)
        mount = f"mount -t tmpfs -o {options} none {self.root}"
        return subprocess.run(["unshare", "-m", "sh", "-ec", f"{mount}; {command}"],
                              capture_output=True, text=True, timeout=120,
                              env=train_run.clean_environment())

    def test_a_full_or_read_only_disk_loses_nothing_and_is_reported(self):
        if not train_run.mounts_work():
            return  # the case before this one, and those of Disk, hold what they can
        keys = train_run.assignments({**SMALL, **self.saving(
            **{"checkpoint.every_steps": 1, "checkpoint.keep": 10,
               "checkpoint.async": "false"})})  # none is left out
        train = " ".join([train_run.COHORT, "train", "fashion-mnist", "-n", "2", "--json",
                          "--max-steps", "6", *keys])
        listing = f"{train_run.COHORT} checkpoint list {self.root} --json"
        verify = (f"for d in {self.root}/step-*; do {train_run.COHORT} checkpoint verify "
                  "$d 1>&2; done")
        full = self.on_small_disk("size=80k",
                                  f"{train} || test $? = 5; {verify}; {listing}")
        self.assertEqual(full.returncode, 0, full.stderr)
        rows = [json.loads(line) for line in full.stdout.splitlines()]
        failed = [r for r in rows if r.get("event") == "checkpoint_failed"]
        self.assertIn("the disk is full", failed[0]["cause"])
        saved = [r["step"] for r in rows if r.get("event") == "checkpoint"]
        self.assertEqual([r["step"] for r in rows if "event" not in r], saved)
        self.assertTrue(saved)
        only = self.on_small_disk("ro", train)
        self.assertEqual(only.returncode, 2, only.stderr)
        self.assertIn("cannot be written", only.stderr)


if __name__ == "__main__":
    unittest.main()
