#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts rely on: streams, events, exit codes and signals of `cohort train`."""
import json
import os
import signal
import unittest
from pathlib import Path
from unittest import mock

import train_run
from train_run import SMALL

DATA = Path("/usr/share/datasets/fashion-mnist")
FIELDS = {
    "start": {"config", "version", "world", "backend", "device"},
    "rank": {"rank", "pid", "host", "generation"},
    "step": {"step", "loss", "lr", "samples_per_second"},
    "valid": {"epoch", "loss", "accuracy"},
    "fault": {"rank", "cause"},
    "recovered": {"generation", "ranks", "seconds"},
    "done": {"steps", "epoch", "loss", "accuracy", "samples_per_second", "step_ms",
             "first_step_s", "peak_memory_bytes", "restarts", "weights_hash"},
}
KEYS = {"seed", "epochs", "batch", "slices", "threads", "precision", "optim.name",
        "optim.lr", "optim.momentum", "optim.nesterov", "optim.weight_decay",
        "optim.beta1", "optim.beta2", "optim.eps", "optim.trust", "optim.clip", "schedule.name",
        "schedule.warmup_steps", "schedule.scale", "data.dir", "data.normalize",
        "data.synthetic", "checkpoint.dir", "checkpoint.every_steps",
        "checkpoint.keep", "checkpoint.async", "log.every_steps", "elastic"}


class ContractTest(train_run.TrainTest):
    def assert_fields(self, events):
        for event in events:
            self.assertEqual(event.keys() - {"event"}, FIELDS[event["event"]])

    def start_endless(self, ranks, *args, steps=3):
        """A run that has done some steps: the process, what it said, its ranks' pids."""
        run = self.start(ranks, *args)
        events = self.read_steps(run, steps)
        return run, events, train_run.pids_of(events)

    def finish(self, run, events, pids):
        """Its end, with all events; none of its ranks may be left."""
        end = train_run.finish(run)
        for pid in pids.values():
            with self.assertRaises(ProcessLookupError):
                os.kill(pid, 0)
        return end.code, events + end.events, end.err


class EventsTest(ContractTest):
    def test_lines_are_json_in_the_order_of_the_contract(self):
        for ranks in (1, 2, 3):
            with self.subTest(ranks=ranks):
                run = train_run.train(ranks, "--max-steps", 5, keys=SMALL)
                self.assertEqual(run.code, 0, run.err)
                events = run.events
                self.assertEqual([e["event"] for e in events],
                                 ["start"] + ranks * ["rank"] + 5 * ["step"] + ["done"])
                self.assert_fields(events)
                self.assertLessEqual(KEYS, events[0]["config"].keys())
                self.assertEqual(events[0]["world"], ranks)
                self.assertGreaterEqual(events[0]["config"]["threads"], 1)
                self.assertEqual([e["rank"] for e in run.of("rank")], list(range(ranks)))
                self.assertEqual(len({e["pid"] for e in run.of("rank")}), ranks)
                self.assertEqual([e["step"] for e in run.of("step")], [1, 2, 3, 4, 5])
                self.assertEqual(run.done["steps"], 5)
                self.assertEqual(run.done["loss"], run.of("step")[-1]["loss"])
                self.assertRegex(run.done["weights_hash"], "^[0-9a-f]{16}$")

    def test_steps_are_logged_every_so_many(self):
        run = train_run.train(2, "--max-steps", 7, keys={**SMALL, "log.every_steps": 3})
        self.assertEqual([e["step"] for e in run.of("step")], [3, 6])
        self.assertEqual(run.done["steps"], 7)

    def test_every_sample_comes_once_an_epoch_in_an_order_of_its_own(self):
        orders = []
        for ranks in (1, 2):
            log = self.scratch / "log"
            run = train_run.train(
                ranks, "--sample-log", log,
                keys={"model.width": 1, "batch": 7000, "epochs": 2, "data.dir": DATA})
            self.assertEqual(run.code, 0, run.err)
            self.assert_fields(run.events)
            self.assertEqual([e["epoch"] for e in run.of("valid")], [1, 2])
            self.assertEqual(run.done["accuracy"], run.of("valid")[-1]["accuracy"])
            lines = train_run.read_samples(log)
            self.assertEqual({rank for _, _, rank, _ in lines}, set(range(ranks)))
            epochs = [[s for e, _, _, s in lines if e == epoch] for epoch in (1, 2)]
            for epoch in epochs:
                self.assertEqual(sorted(epoch), list(range(60_000)))
            self.assertNotEqual(*epochs)
            orders.append(epochs)
        self.assertEqual(*orders)  # one order at every world size

    def test_a_width_of_0_is_the_recipes_own(self):
        hashes = {train_run.train(1, "--max-steps", 1, keys={**SMALL, "model.width": w})
                  .done["weights_hash"] for w in (0, 32)}
        self.assertEqual(len(hashes), 1)

    def test_weights_of_a_named_model_go_out_and_come_back(self):
        keys = {"data.synthetic": "true", "model.name": "resnet18", "model.stem": "large",
                "model.width": 4, "batch": 4, "data.augment": "true"}
        first, again = self.scratch / "first", self.scratch / "again"
        run = train_run.cohort("train", "cifar-resnet50v2", "--json", "--max-steps", 1,
                               "--save-final", first, *train_run.assignments(keys))
        self.assertEqual(run.code, 0, run.err)
        back = {**keys, "seed": 9, "model.weights": first}
        run = train_run.cohort("train", "cifar-resnet50v2", "-n", 2, "--json",
                               "--max-steps", 1, "--save-initial", again,
                               *train_run.assignments(back))
        self.assertEqual(run.code, 0, run.err)
        saved = train_run.read_weights(first)
        self.assertEqual(saved, train_run.read_weights(again))
        self.assertEqual(len(saved), 102)  # torchvision's, without num_batches_tracked
        self.assertEqual(saved["conv1.weight"][0], [4, 3, 7, 7])
        self.assertIn("layer4.1.bn2.running_var", saved)

    def test_two_runs_side_by_side_do_not_meet(self):
        def go(name):
            return train_run.start("train", "fashion-mnist", "-n", 2, "--json",
                                   "--max-steps", 20, "--save-final",
                                   self.scratch / name, *train_run.assignments(SMALL))

        ends = [train_run.finish(run) for run in (go("a"), go("b"))]
        for name, end in zip("ab", ends):
            self.assertEqual(end.code, 0, end.err)
            self.assertEqual(end.done["weights_hash"],
                             train_run.weights_hash(self.scratch / name))
        self.assertEqual(*(end.done["weights_hash"] for end in ends))

    def test_ranks_of_another_launcher_train(self):
        """As under torchrun: no -n, and a launcher's variables."""
        arguments = ["--max-steps", 3, "--json", *train_run.assignments(SMALL)]
        own = train_run.cohort("train", "fashion-mnist", "-n", 2, *arguments)
        run = train_run.cohort("launch", "-n", 2, "--", train_run.COHORT, "train",
                               "fashion-mnist", *arguments)
        self.assertEqual(run.code, 0, run.err)
        self.assertEqual(run.events[0]["world"], 2)
        self.assertEqual(run.done["weights_hash"], own.done["weights_hash"])

    def test_a_closed_stdout_is_no_crash(self):
        for form in (["--json"], []):
            run = train_run.start("train", "fashion-mnist", "-n", 2, "--max-steps", 30,
                                  "--save-final", self.scratch / "final", *form,
                                  *train_run.assignments(SMALL))
            if form:
                run.stdout.readline()  # as head -1 does
            run.stdout.close()
            self.assertEqual(run.wait(timeout=train_run.DEADLINE_S), 0)
            with run.stderr:
                self.assertNotIn("failed", run.stderr.read())
            (self.scratch / "final").unlink()  # it went to its end


class RefusalTest(ContractTest):
    def refused(self, code, *args, recipe="fashion-mnist"):
        """One line on stderr, nothing but JSON on stdout."""
        run = train_run.cohort("train", recipe, "--json", *args)
        self.assertEqual(run.code, code, run.err)
        self.assertEqual(len(run.err.splitlines()), 1, run.err)
        self.assertTrue(all(e["event"] == "fault" for e in run.events), run.out)
        return run.err

    def test_what_is_misspelt_is_refused_with_the_nearest_name(self):
        nearest = {
            "fashion-mnist": self.refused(2, "-n", 2, recipe="fashion-mnis"),
            "optim.momentum": self.refused(2, "-n", 2, "--set", "optim.momentun=0.5"),
            "gloo": self.refused(2, "-n", 2, "--backend", "glo"),
            "dp": self.refused(2, "-n", 2, "--layout", "dq=2"),
        }
        for name, line in nearest.items():
            self.assertRegex(line, f"nearest[^;]*\\b{name}\\b")

    def test_values_that_cannot_be_are_refused(self):
        for args in (["-n", 0], ["-n", 2, "--set", "batch=x"],
                     ["-n", 2, "--layout", "dp=3"], ["-n", 3, "--set", "slices=2"],
                     ["-n", 2, "--grace", "nan"], ["-n", 2, "--grace", "1e30"],
                     ["-n", 2, "--max-steps", 0], ["-n", 2, "--layout", "dp=2,dp=2"],
                     ["-n", 2, "--set", f"epochs={2**63 - 1}"],
                     ["-n", 2, "--set", "threads=1000000"],
                     ["-n", 2, "--set", "comm.timeout_s=1e30"],
                     ["-n", 2, "--watch"], ["-n", 2, "--layout", "tp=2"],
                     ["-n", 2, "--set", "pipeline.virtual=2"],
                     ["-n", 2, "--set", "pipeline.cut=0,2"],
                     ["-n", 2, "--layout", "pp=2", "--set", "pipeline.cut=0,1,2"],
                     ["-n", 2, "--layout", "pp=2", "--set", "pipeline.cut=0,1"],
                     ["-n", 2, "--layout", "pp=2", "--set", "pipeline.speeds=1"],
                     ["-n", 2, "--layout", "pp=2", "--set", "pipeline.virtual=3",
                      "--set", "pipeline.schedule=interleaved"],
                     ["-n", 2, "--set", "step.recompute=every=0"],
                     ["-n", 2, "--set", "step.recompute=blocks=4"],
                     ["-n", 2, "--sample-log", self.scratch / "none/log"]):
            with self.subTest(args=args):
                self.refused(2, *args)

    def test_a_gpu_that_is_not_there_is_refused(self):
        with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": ""}):
            for ranks in (1, 2):
                line = self.refused(2, "-n", ranks, "--device", "cuda")
                self.assertIn("--device cuda", line)
                self.assertIn("legal here: cpu", line)
            line = self.refused(2, "-n", 2, "--device", "cuda", "--backend", "nccl")
            self.assertRegex(line, "'nccl' .*; available: auto|legal here: cpu")
        self.assertIn("legal: cpu, cuda", self.refused(2, "--device", "gpu"))

    def test_weights_replace_nothing_but_files(self):
        pipe = self.scratch / "pipe"
        os.mkfifo(pipe)
        for flag in ("--save-initial", "--save-final"):
            self.assertIn(str(pipe), self.refused(2, "-n", 2, flag, pipe))
        self.assertTrue(pipe.is_fifo())

    def test_a_pipe_is_no_data_file(self):
        for file in DATA.iterdir():
            (self.scratch / file.name).symlink_to(file)
        pipe = self.scratch / "train-labels-idx1-ubyte.gz"
        pipe.unlink()
        os.mkfifo(pipe)
        self.assertIn(str(pipe), self.refused(3, "-n", 2, "--set",
                                              f"data.dir={self.scratch}"))

    def test_ends_of_ranges_are_readable(self):
        self.assertLess(len(self.refused(2, "-n", 2, "--grace", -1)), 200)

    def test_a_truncated_file_is_named(self):
        for file in DATA.iterdir():
            (self.scratch / file.name).symlink_to(file)
        broken = self.scratch / "train-images-idx3-ubyte.gz"
        broken.unlink()
        broken.write_bytes((DATA / broken.name).read_bytes()[:1_000_000])
        for ranks in (1, 2):
            line = self.refused(3, "-n", ranks, "--set", f"data.dir={self.scratch}")
            self.assertIn(str(broken), line)

    def test_a_missing_folder_is_named(self):
        folder = self.scratch / "none"
        self.assertIn(str(folder), self.refused(3, "-n", 2, "--set", f"data.dir={folder}"))


class SignalTest(ContractTest):
    def test_a_killed_rank_is_exit_code_4_and_named(self):
        """Where nobody replaces it: not elastic, or no restart is left."""
        off, spent = ("--set", "elastic=off"), ("--max-restarts", 0)
        for ranks, victim, backend, why in ((1, 0, "auto", off), (2, 0, "auto", spent),
                                            (2, 1, "gloo", off), (3, 1, "auto", spent)):
            with self.subTest(ranks=ranks, victim=victim, backend=backend):
                run, events, pids = self.start_endless(ranks, "--backend", backend, *why)
                os.kill(pids[victim], signal.SIGKILL)
                code, events, err = self.finish(run, events, pids)
                self.assertEqual(code, 4, err)
                self.assertEqual(events[-1]["event"], "fault")
                self.assertEqual(events[-1]["rank"], victim)
                self.assert_fields(events)
                self.assertIn(f"rank {victim} ", err)
                self.assertIn("SIGKILL", err)

    def test_the_killed_rank_is_named_though_its_peer_is_seen_dead_first(self):
        for name in ("SIGKILL", "SIGSEGV"):
            with self.subTest(signal=name):
                run, events, pids = self.start_endless(2, "--set", "elastic=off")
                zygote = train_run.parent(pids[1])
                for pid in (run.pid, zygote):  # they see both ends at once
                    os.kill(pid, signal.SIGSTOP)
                os.kill(pids[1], getattr(signal, name))
                train_run.wait_dead(pids[0])
                for pid in (zygote, run.pid):
                    os.kill(pid, signal.SIGCONT)
                code, events, err = self.finish(run, events, pids)
                self.assertEqual(code, 4, err)
                self.assertEqual(events[-1]["rank"], 1, events[-1])
                self.assertIn(name, events[-1]["cause"])

    def test_the_stopped_rank_is_named_not_one_that_waited_for_it(self):
        for ranks, backend in ((2, "shm"), (3, "gloo")):
            with self.subTest(backend=backend):
                run, events, pids = self.start_endless(
                    ranks, "--backend", backend, "--set", "elastic=off",
                    "--set", "comm.timeout_s=3")
                os.kill(pids[1], signal.SIGSTOP)
                code, events, err = self.finish(run, events, pids)
                self.assertEqual(code, 4, err)
                self.assertEqual(events[-1]["rank"], 1, events[-1])
                self.assertIn("stopped while other ranks waited", events[-1]["cause"])

    def test_a_killed_rank_is_replaced_and_the_run_goes_on(self):
        for backend in ("auto", "gloo"):
            with self.subTest(backend=backend):
                run, events, pids = self.start_endless(2, "--backend", backend)
                os.kill(pids[1], signal.SIGKILL)
                while events[-1]["event"] != "recovered":
                    events.append(json.loads(run.stdout.readline()))
                    if events[-1]["event"] == "rank":
                        pids[events[-1]["rank"]] = events[-1]["pid"]
                run.send_signal(signal.SIGTERM)
                code, events, err = self.finish(run, events, pids)
                self.assertEqual(code, 143, err)
                self.assert_fields(events)
                faults = [e for e in events if e["event"] == "fault"]
                self.assertEqual([e["rank"] for e in faults], [1])
                steps = [e["step"] for e in events if e["event"] == "step"]
                self.assertEqual(steps, list(range(1, len(steps) + 1)))
                self.assertEqual(events[-1]["restarts"], 1)

    def test_a_stop_stays_a_stop_if_the_zygote_dies_meanwhile(self):
        run, events, pids = self.start_endless(2)
        zygote = train_run.parent(pids[0])
        for pid in pids.values():
            os.kill(pid, signal.SIGSTOP)
        os.kill(zygote, signal.SIGSTOP)
        run.send_signal(signal.SIGTERM)
        while "stopping" not in run.stderr.readline():
            self.assertIsNone(run.poll())
        os.kill(zygote, signal.SIGKILL)
        code, _, err = self.finish(run, events, pids)
        self.assertEqual(code, 143, err)
        self.assertIn("zygote", err)

    def test_a_stop_finishes_the_step_and_says_what_was_done(self):
        for name, code in (("SIGTERM", 143), ("SIGUSR1", 138), ("SIGINT", 130)):
            with self.subTest(signal=name):
                final, log = self.scratch / "final", self.scratch / "log"
                run, events, pids = self.start_endless(2, "--save-final", final,
                                                       "--sample-log", log)
                run.send_signal(getattr(signal, name))
                got, events, err = self.finish(run, events, pids)
                self.assertEqual(got, code, err)
                self.assertEqual(events[-1]["event"], "done")
                steps = [e["step"] for e in events if e["event"] == "step"]
                self.assertEqual(steps, list(range(1, events[-1]["steps"] + 1)))
                self.assertEqual(len(train_run.read_samples(log)), 24 * len(steps))
                self.assertEqual(events[-1]["weights_hash"],
                                 train_run.weights_hash(final))

    def test_a_run_that_cannot_finish_its_step_is_killed_after_the_grace(self):
        run, events, pids = self.start_endless(2, "--grace", 0.2)
        os.kill(pids[1], signal.SIGSTOP)
        run.send_signal(signal.SIGTERM)
        code, _, err = self.finish(run, events, pids)
        self.assertEqual(code, 143, err)


if __name__ == "__main__":
    unittest.main(verbosity=2)
