#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program with a loop of its own (examples/elastic.cpp) under `cohort launch --elastic`:
however often its ranks are killed or stopped, it ends with the weights of a run that nobody
disturbed.

COHORT_KILLS: how many (6)."""
import os
import random
import signal
import subprocess
import unittest
from pathlib import Path

import train_run

PROGRAM = str(Path(train_run.COHORT).with_name("elastic"))
KILLS = int(os.environ.get("COHORT_KILLS", "6"))
EPOCHS = 4 * KILLS  # each has 16 steps, some milliseconds each


def start(*flags, ranks=2):
    return train_run.start("launch", *flags, "-n", ranks, "--threads", 1, "--", PROGRAM, EPOCHS)


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])


def ranks_of(agent):
    """Processes of the program whose grandparent is the agent: ranks and spares."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            pid = int(entry.name)
            if os.readlink(entry / "exe") == PROGRAM and parent_of(parent_of(pid)) == agent:
                found.append(pid)
        except (OSError, ValueError):
            pass
    return found


class ElasticProgram(unittest.TestCase):
    def weights(self, run):
        self.assertEqual(run.code, 0, run.err)
        # Every rank says it, the others behind a prefix.
        said = {line.split("weights ")[1] for line in run.out.splitlines() if "weights" in line}
        self.assertEqual(len(said), 1, run.out)
        return said.pop()

    def disturbed(self, seed, how=signal.SIGKILL, kills=KILLS, ranks=2):
        choose = random.Random(seed)
        run = start("--elastic", "--detect", "1", ranks=ranks)
        self.addCleanup(run.kill)
        done, last = 0, 0
        while done < kills:
            line = run.stdout.readline()
            self.assertTrue(line, f"it ended after {done} of {kills} faults")
            if "step" not in line:
                continue
            step = int(line.split("step ")[1].split(":")[0])
            if step <= last:  # another rank's, or told before the fault
                continue
            last = step
            alive = ranks_of(run.pid)
            if alive:
                os.kill(choose.choice(alive), how)
                done += 1
        return train_run.finish(run)

    def test_weights_are_those_of_a_run_that_nobody_disturbed(self):
        alone = self.weights(train_run.finish(start()))
        self.assertEqual(self.weights(self.disturbed(seed=1)), alone)
        self.assertEqual(self.weights(train_run.finish(start("--elastic"))), alone)

    def test_so_they_are_after_a_rank_has_frozen(self):
        alone = self.weights(train_run.finish(start()))
        self.assertEqual(self.weights(self.disturbed(2, signal.SIGSTOP, kills=1)), alone)

    def test_without_an_agent_that_replaces_a_loss_ends_the_run(self):
        run = start()
        self.addCleanup(run.kill)
        run.stdout.readline()
        os.kill(ranks_of(run.pid)[0], signal.SIGKILL)
        self.assertEqual(train_run.finish(run).code, 128 + signal.SIGKILL)

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
            self.assertIn(f"{flag} requires --elastic", run.err)


if __name__ == "__main__":
    unittest.main()
