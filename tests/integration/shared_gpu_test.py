#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks that share one GPU: with --exact the weights are those of a rank alone on it,
whether tensors pass through windows or over the host, and also if ranks are killed on
the way. A gpt whose layers or stages are cut over NCCL has the losses of one rank."""
import os
import signal
import unittest

import train_run

STEPS = 10
KEYS = {"slices": 4, "batch": 24, "data.synthetic": "true", "valid.every_epochs": 0,
        "model.width": 16}


def start(ranks, shard=0, recipe="fashion-mnist", backend="auto", layout=None, steps=STEPS,
          **keys):
    named = {name.replace("__", "."): value for name, value in keys.items()}
    return train_run.start("train", recipe, "--device", "cuda", "--exact", "-n", ranks,
                           "--backend", backend, "--layout", layout or f"shard={shard}",
                           "--max-steps", steps, "--json",
                           *train_run.assignments({**KEYS, **named}))


def train(*args, **keys):
    return train_run.finish(start(*args, **keys))


def why_no_gpu():
    if not os.path.exists("/dev/nvidia0"):
        return "no GPU"
    run = train(1)
    return run.err if run.code == 2 else ""


WHY_NOT = why_no_gpu()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class SharedGpu(train_run.TrainTest):
    def hash_of(self, *args, windows=True, backend="auto", **keys):
        if not windows:
            keys["comm__gpu_windows"] = "false"
        run = train(*args, backend=backend, **keys)
        self.assertEqual(run.code, 0, run.err)
        self.assertNotIn("comm.gpu_windows:", run.err)  # they could be had
        if args[0] > 1:
            over_host = not windows or backend == "gloo"
            self.assertEqual("go over the host" in run.err,
                             over_host and "layout" not in keys, run.err)
            self.assertEqual(run.of("start")[0]["backend"],
                             "gloo" if backend == "gloo" else "shm")
        return run.done["weights_hash"]

    def test_weights_are_those_of_a_rank_alone(self):
        for recipe in ("fashion-mnist", "mlp"):
            alone = self.hash_of(1, recipe=recipe)
            for ranks, shard in ((2, 0), (2, 1), (2, 2), (2, 3), (4, 0), (4, 3)):
                with self.subTest(recipe=recipe, ranks=ranks, shard=shard):
                    self.assertEqual(self.hash_of(ranks, shard, recipe=recipe), alone)

    def test_so_are_those_of_ranks_that_exchange_over_the_host(self):
        alone = self.hash_of(1, recipe="mlp")
        for way in ({"windows": False}, {"backend": "gloo"}):
            for ranks, shard in ((2, 0), (2, 1), (2, 3), (4, 2), (4, 3)):
                with self.subTest(way=way, ranks=ranks, shard=shard):
                    self.assertEqual(self.hash_of(ranks, shard, recipe="mlp", **way), alone)
            with self.subTest(way=way, layout="pp=2"):
                self.assertEqual(self.hash_of(2, recipe="mlp", layout="pp=2", **way), alone)

    def test_a_killed_rank_is_replaced_and_the_weights_stay(self):
        keys = {"steps": 400, "log__every_steps": 1}
        alone = train(1, **keys).done["weights_hash"]
        for ranks, shard, windows in ((2, 0, "true"), (3, 3, "true"), (2, 1, "false")):
            with self.subTest(ranks=ranks, shard=shard, windows=windows):
                run = start(ranks, shard, comm__gpu_windows=windows, **keys)
                self.addCleanup(run.kill)
                pids = {}
                for victim, step in ((ranks - 1, 50), (0, 150), (1, 250)):
                    pids.update(train_run.pids_of(self.read_steps(run, step)))
                    os.kill(pids[victim], signal.SIGKILL)
                end = train_run.finish(run)
                self.assertEqual(end.code, 0, end.err)
                self.assertEqual(end.done["steps"], 400)
                self.assertEqual(end.done["weights_hash"], alone)

    def test_so_it_is_where_ranks_hold_parts_of_tensors(self):
        keys = {"batch": 16, "slices": 2}
        alone = self.gpt(2, "tp=2", keys).done["weights_hash"]
        for backend in ("shm", "nccl"):
            with self.subTest(backend=backend):
                run = self.start_gpt(4, "dp=2,tp=2", keys, backend)
                pids = {}
                for victim, step in ((3, 30), (0, 60)):
                    pids.update(train_run.pids_of(self.read_steps(run, step)))
                    os.kill(pids[victim], signal.SIGKILL)
                end = train_run.finish(run)
                self.assertEqual(end.code, 0, end.err)
                self.assertEqual(end.done["weights_hash"], alone)

    def test_a_gpt_cut_over_nccl_has_the_losses_of_a_rank_alone(self):
        def losses(ranks, layout, **more):
            keys = {"batch": 16, "slices": 4, **more}
            run = self.gpt(ranks, layout, keys, "nccl", flags=(), steps=STEPS)
            return [event["loss"] for event in run.of("step")]

        alone = losses(1, "dp=1")
        self.assertEqual(len(alone), STEPS)
        for layout, key, values in (
                ("tp=2", "model.sequence_parallel", ("true", "false")),
                ("pp=2", "pipeline.schedule", ("1f1b", "interleaved", "zero-bubble"))):
            for value in values:
                with self.subTest(layout=layout, **{key: value}):
                    found = losses(2, layout, **{key: value})
                    self.assertEqual(len(found), STEPS)
                    for step, (loss, wanted) in enumerate(zip(found, alone), 1):
                        self.assertAlmostEqual(loss, wanted, delta=1e-4, msg=f"step {step}")

    def test_exact_stages_over_nccl_have_the_weights_of_a_rank_alone(self):
        keys = {"batch": 16, "slices": 4}
        alone = self.gpt(1, "dp=1", keys, "nccl", steps=STEPS)
        stages = self.gpt(2, "pp=2", keys, "nccl", steps=STEPS)
        self.assertEqual(stages.done["steps"], STEPS)
        self.assertEqual(stages.done["weights_hash"], alone.done["weights_hash"])

    def start_gpt(self, ranks, layout, keys, backend="shm", flags=("--exact",), steps=100):
        keys = {**keys, "log.every_steps": 1, "valid.every_epochs": 0,
                "comm.nccl_share_gpu": "true" if backend == "nccl" else "false"}
        run = train_run.start("train", "gpt-tiny", "--device", "cuda", *flags, "-n", ranks,
                              "--backend", backend, "--layout", layout, "--max-steps", steps,
                              "--json", *train_run.assignments(keys))
        self.addCleanup(run.kill)
        return run

    def gpt(self, *args, **more):
        run = train_run.finish(self.start_gpt(*args, **more))
        self.assertEqual(run.code, 0, run.err)
        return run

    def test_steps_without_exact_sums_are_near(self):
        losses = []
        for ranks in (1, 2):
            run = train_run.cohort("train", "mlp", "--device", "cuda", "-n", ranks,
                                   "--max-steps", STEPS, "--json",
                                   *train_run.assignments(KEYS))
            self.assertEqual(run.code, 0, run.err)
            losses.append(run.done["loss"])
        self.assertAlmostEqual(*losses, places=4)


if __name__ == "__main__":
    unittest.main()
