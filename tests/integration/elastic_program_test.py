#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program with a loop of its own (examples/elastic.cpp) under `cohort launch --elastic`:
however often its ranks are killed or stopped, it ends with the weights of a run that nobody
disturbed.

COHORT_KILLS: how many (4; with COHORT_LONG=1 50). COHORT_SEED: of victims and instants (1)."""
import functools
import os
import random
import signal
import subprocess
import time
import unittest
from pathlib import Path

import train_run

PROGRAM = str(Path(train_run.COHORT).with_name("elastic"))
KILLS = int(os.environ.get("COHORT_KILLS", "50" if train_run.LONG else "4"))
SEED = int(os.environ.get("COHORT_SEED", "1"))
# Each has 16 steps, some milliseconds each. A fault takes one; the others are there so that
# a test that hears late finds the run going on.
EPOCHS = 10 + 2 * KILLS
TWO_STEPS_S = 0.02
DEADLINE_S = 3 * train_run.DEADLINE_S + 10 * KILLS


def start(*flags, ranks=2, epochs=EPOCHS):
    return train_run.start("launch", *flags, "-n", ranks, "--threads", 1, "--", PROGRAM, epochs)


def finish(run):
    return train_run.finish(run, DEADLINE_S)


@functools.cache
def undisturbed(epochs=EPOCHS):
    """Its weights."""
    return weights_of(finish(start(epochs=epochs)))


def weights_of(run):
    assert run.code == 0, run.err
    # Every rank says it, the others behind a prefix.
    said = {line.split("weights ")[1] for line in run.out.splitlines() if "weights" in line}
    assert len(said) == 1, run.out
    return said.pop()


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


def has_world(pid):
    """Whether it shares memory with others, as the ranks of a world do and spares do not."""
    return "/memfd:cohort (" in Path(f"/proc/{pid}/maps").read_text()


def ranks_of(agent):
    """Processes of the program whose grandparent is the agent: the world's ranks, and spares."""
    ranks, spares = [], []
    for entry in Path("/proc").iterdir():
        try:
            pid = int(entry.name)
            if os.readlink(entry / "exe") == PROGRAM and parent_of(parent_of(pid)) == agent:
                (ranks if has_world(pid) else spares).append(pid)
        except (OSError, ValueError):
            pass
    return sorted(ranks), sorted(spares)


class ElasticProgram(unittest.TestCase):
    def start_elastic(self, detect=1, **more):
        run = start("--elastic", "--detect", detect, "--max-restarts", 10 * KILLS, **more)
        self.addCleanup(run.kill)
        return run

    def epochs_of(self, run):
        """Reads on; yields at the first line about each step that is further than all before."""
        last = 0
        for line in iter(run.stdout.readline, ""):
            step = int(line.split("step ")[1].split(":")[0]) if "step" in line else 0
            if step > last:  # else another rank's, or told before a fault
                last = step
                yield

    def disturbed(self, how=signal.SIGKILL, kills=KILLS):
        choose = random.Random(SEED)
        run = self.start_elastic()
        done = 0
        for _ in self.epochs_of(run):
            # No wait for an event: a line tells that a step has ended, and the fault is to
            # come at any instant of a step.
            time.sleep(choose.uniform(0, TWO_STEPS_S))
            ranks, _ = ranks_of(run.pid)
            if ranks:
                os.kill(choose.choice(ranks), how)
                done += 1
            if done == kills:
                break
        self.assertEqual(done, kills, "it ended early")
        run = finish(run)
        self.assertIn("opened generation", run.err)
        print(f"{kills} x {how.name} of ranks, seed {SEED}, "
              f"{run.err.count('opened generation')} new generations")
        return run

    def test_weights_are_those_of_a_run_that_nobody_disturbed(self):
        self.assertEqual(weights_of(self.disturbed()), undisturbed())
        self.assertEqual(weights_of(finish(start("--elastic"))), undisturbed())

    def test_so_they_are_after_a_rank_has_frozen(self):
        self.assertEqual(weights_of(self.disturbed(signal.SIGSTOP, kills=1)), undisturbed())

    def test_so_they_are_when_spares_are_killed_and_no_rank_notices(self):
        run = self.start_elastic(detect=60, epochs=40)  # none is lost, however slow it is
        killed, seen = 0, []
        for _ in self.epochs_of(run):
            _, spares = ranks_of(run.pid)
            for pid in set(spares) & set(seen):  # it has come to where spares wait
                os.kill(pid, signal.SIGKILL)
                killed += 1
            seen = spares
            if killed == 2:
                break
        self.assertEqual(killed, 2, "it ended early")
        run = finish(run)
        self.assertEqual(weights_of(run), undisturbed(epochs=40))
        self.assertNotIn("opened generation", run.err)

    def test_without_an_agent_that_replaces_a_loss_ends_the_run(self):
        run = start(epochs=1_000_000)
        self.addCleanup(run.kill)
        run.stdout.readline()
        os.kill(ranks_of(run.pid)[0][0], signal.SIGKILL)
        self.assertEqual(finish(run).code, 128 + signal.SIGKILL)

    def test_a_program_with_a_session_is_refused(self):
        run = train_run.cohort("launch", "--elastic", "-n", 2, "--",
                               str(Path(PROGRAM).with_name("data_parallel")))
        self.assertNotEqual(run.code, 0)
        self.assertIn("legal: ElasticRun::train()", run.err)
        self.assertNotIn("epoch", run.out)

    def refused(self, script):
        run = train_run.cohort("launch", "--elastic", "-n", 2, "--", "sh", "-c", script)
        self.assertEqual(run.code, 2, run.err)
        self.assertEqual(run.err.splitlines(),
                         ["[launch] sh ended well without a cohort::ElasticRun, so no rank "
                          "could be replaced; legal: a loop in ElasticRun::train(), or "
                          "launch without --elastic"])

    def test_a_program_without_an_elastic_run_is_refused(self):
        self.refused("exit 0")

    def test_so_it_is_when_a_rank_goes_on(self):
        for rank in (0, 1):
            self.refused(f"if [ $RANK = {rank} ]; then exit 0; fi; sleep 60")

    def test_a_program_that_fails_before_its_elastic_run_fails_as_it_does(self):
        run = train_run.cohort("launch", "--elastic", "-n", 2, "--max-restarts", 0, "--",
                               "sh", "-c", "exit 7")
        self.assertEqual(run.code, 7, run.err)
        self.assertNotIn("ElasticRun", run.err)

    def test_a_program_hears_of_the_end_at_once(self):
        run = subprocess.Popen([PROGRAM, "1000000"], stdout=subprocess.PIPE, text=True,
                               env=train_run.clean_environment())
        self.addCleanup(run.kill)
        run.stdout.readline()
        run.terminate()
        self.assertEqual(run.wait(train_run.DEADLINE_S), -signal.SIGTERM)

    def test_several_nodes_are_refused(self):
        run = train_run.cohort("launch", "--elastic", "--nnodes", 2, "--rdzv", "127.0.0.1:1",
                               "--", PROGRAM)
        self.assertEqual(run.code, 2)
        self.assertIn("several nodes", run.err)

    def test_flags_of_elastic_runs_alone_need_it(self):
        for flag in ("--spares", "--detect"):
            run = train_run.cohort("launch", flag, 2, "--", PROGRAM)
            self.assertEqual(run.code, 2)
            self.assertIn(f"{flag} without --elastic; legal: both", run.err)


if __name__ == "__main__":
    unittest.main()
