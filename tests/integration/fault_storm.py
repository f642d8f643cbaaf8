#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults without end in one run of `cohort train`, which must end as if there were none.

  fault_storm.py [--faults 30] [--seed N] [--recipe fashion-mnist] [--layout shard=3]
                 [-n 2] [--gap 6] [--save-every 20] [--out DIR]

Ranks are killed (SIGKILL, SIGSEGV, SIGABRT, SIGTERM), stopped for good and for a
moment, two at once, during a recovery, during a save; one exits by itself now and then;
the agent is killed and the same command started with --resume. At the end the weights
have the hash of a run that nobody disturbed, the history verifies, and each step has
been reported once. The kinds of fault, the victims and the moments come from the seed.
"""
import argparse
import collections
import json
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import train_run  # noqa: E402

LIMIT_S = 120  # for the next step to come, after any fault
DETECT_S = 1
KINDS = {"kill": 6, "segv": 2, "abort": 1, "term": 1, "stop": 1, "pause": 1,
         "two at once": 3, "during recovery": 3, "during a save": 2, "agent": 1}
SIGNALS = {"kill": "KILL", "segv": "SEGV", "abort": "ABRT", "term": "TERM",
           "stop": "STOP"}
SMALL = {"fashion-mnist": {"model.width": 8, "batch": 32},
         "mlp": {"model.width": 64, "batch": 32}}


class Command:
    """One life of the agent, and what it says."""

    def __init__(self, args, folder, resume, env):
        self.ranks = {}  # rank -> pid
        self.lines = queue.Queue()
        line = base_command(args) + ["--out", folder, "--sample-log", f"{folder}/samples",
                                     "--set", f"checkpoint.dir={folder}/saved",
                                     "--set", f"checkpoint.every_steps={args.save_every}",
                                     "--set", "snapshot.every_steps=5",
                                     "--set", f"elastic.detect_s={DETECT_S}",
                                     "--max-restarts", "100000"]
        self.err = open(f"{folder}/stderr", "a")
        self.process = subprocess.Popen(
            line + (["--resume"] if resume else []), stdout=subprocess.PIPE,
            stderr=self.err, stdin=subprocess.DEVNULL, text=True,
            env=dict(train_run.clean_environment(), **env))
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put(None)

    def next(self):
        """The next event; None: it has ended."""
        event = self.lines.get(timeout=LIMIT_S)
        if event and event["event"] == "rank":
            self.ranks[event["rank"]] = event["pid"]
        return event

    def signal(self, rank, name):
        try:
            os.kill(self.ranks[rank], getattr(signal, "SIG" + name))
            return True
        except (KeyError, ProcessLookupError):
            return False


def base_command(args):
    keys = dict(SMALL.get(args.recipe, {}), slices=8, seed=args.seed)
    keys.update({"data.synthetic": "true", "epochs": 1000000, "log.every_steps": 1,
                 "valid.every_epochs": 0, "drift.every_steps": 50})
    command = [args.cohort, "train", args.recipe, "-n", str(args.ranks), "--exact",
               "--json", "--max-steps", str(args.steps)]
    if args.layout:
        command += ["--layout", args.layout]
    return command + train_run.assignments(keys)


class Storm:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.rng = random.Random(args.seed)
        self.counts = collections.Counter()
        self.generations = 0
        self.exits = 0  # of ranks by themselves
        self.resumes = 0
        self.recoveries = []
        self.problems = []
        self.next_at = args.gap
        self.command = None

    def environment(self):
        """A rank that exits by itself after so many actions of its life."""
        rank = self.rng.randrange(self.args.ranks)
        return {"COHORT_FAULT": f"engine.action@{rank}:{self.rng.randrange(300, 1500)}=throw"}

    def run(self):
        resume = False
        while True:
            self.command = Command(self.args, self.folder, resume, self.environment())
            done = self.live()
            code = self.command.process.wait(LIMIT_S)
            self.command.err.close()
            if done is not None or code != -signal.SIGKILL:
                return done, code
            resume = True
            self.resumes += 1

    def live(self):
        """Until this agent's end; its last word if it has one."""
        reported = set()
        done = None
        while (event := self.command.next()) is not None:
            kind = event["event"]
            if kind == "step":
                self.note_step(event["step"], reported)
            elif kind == "fault":
                self.exits += "injected" in event["cause"]
            elif kind == "recovered":
                self.generations += 1
                self.recoveries.append(event["seconds"])
            elif kind == "done":
                done = event
        return done

    def note_step(self, step, reported):
        if step in reported:
            self.problems.append(f"step {step} was reported twice")
        reported.add(step)
        if sum(self.counts.values()) < self.args.faults and step >= self.next_at:
            self.next_at = step + self.rng.randint(1, 2 * self.args.gap - 1)
            self.inject()

    def inject(self):
        kind = self.rng.choices(list(KINDS), list(KINDS.values()))[0]
        victim = self.rng.randrange(self.args.ranks)
        self.counts[kind] += 1
        if kind in SIGNALS:
            self.command.signal(victim, SIGNALS[kind])
        elif kind == "pause":
            self.command.signal(victim, "STOP")
            threading.Timer(DETECT_S / 3, self.command.signal, (victim, "CONT")).start()
        elif kind == "two at once":
            for rank in (victim, (victim + 1) % self.args.ranks):
                self.command.signal(rank, "KILL")
        elif kind == "during recovery":
            self.command.signal(victim, "KILL")
            other = (victim + 1) % self.args.ranks
            delay = self.rng.uniform(0, 0.08)
            threading.Timer(delay, self.command.signal, (other, "KILL")).start()
        elif kind == "during a save":
            self.kill_during_save(victim)
        elif kind == "agent":
            os.kill(self.command.process.pid, signal.SIGKILL)

    def kill_during_save(self, victim):
        """The folder of a checkpoint being written has a dot in front."""
        command, saved = self.command, Path(self.folder, "saved")

        def wait():
            until = time.monotonic() + 5
            while time.monotonic() < until and command.process.poll() is None:
                if saved.is_dir() and any(p.name.startswith(".") for p in saved.iterdir()):
                    break
                time.sleep(0.001)
            command.signal(victim, "KILL")

        threading.Thread(target=wait, daemon=True).start()


def undisturbed(args):
    began = time.monotonic()
    run = subprocess.run(base_command(args) + ["--set", "log.every_steps=100000"],
                         capture_output=True, text=True, stdin=subprocess.DEVNULL,
                         env=train_run.clean_environment())
    if run.returncode != 0:
        sys.exit(f"the undisturbed run failed with {run.returncode}: {run.stderr}")
    done = json.loads(run.stdout.splitlines()[-1])
    return done["weights_hash"], time.monotonic() - began


def verify(args, folder):
    run = subprocess.run([args.cohort, "history", "verify", f"{folder}/history.log"],
                         capture_output=True, text=True)
    return run.returncode, (run.stdout + run.stderr).strip()


def check_samples(folder, steps):
    log = train_run.read_samples(f"{folder}/samples")
    lines = collections.Counter((epoch, sample) for epoch, _, _, sample in log)
    twice = [key for key, count in lines.items() if count > 1]
    problems = [f"sample {twice[0]} was used twice"] if twice else []
    if {step for _, step, _, _ in log} != set(range(1, steps + 1)):
        problems.append("the sample log has not every step")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cohort", default=train_run.COHORT)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--recipe", default="fashion-mnist")
    parser.add_argument("--layout", default="")
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--gap", type=int, default=6, help="mean steps between two faults")
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--out", help="keep the run's folder here")
    args = parser.parse_args()
    args.steps = args.faults * (args.gap + 1) + 30  # the gaps are random
    folder = args.out or tempfile.mkdtemp(prefix="cohort_storm_")
    os.makedirs(folder, exist_ok=True)
    print(f"seed {args.seed}: {args.faults} faults in {args.steps} steps of {args.recipe} "
          f"on {args.ranks} ranks {args.layout}", flush=True)

    wanted, calm_s = undisturbed(args)
    storm = Storm(args, folder)
    began = time.monotonic()
    try:
        done, code = storm.run()
    except queue.Empty:
        storm.command.process.kill()
        print(Path(folder, "stderr").read_text()[-3000:])
        sys.exit(f"FAILED (seed {args.seed}): nothing was heard for {LIMIT_S} s; {folder}")
    wall_s = time.monotonic() - began

    problems = storm.problems
    if code != 0 or done is None:
        problems.append(f"the run ended with exit code {code}")
    elif done["weights_hash"] != wanted:
        problems.append(f"weights {done['weights_hash']}, undisturbed {wanted}")
    history_code, history = verify(args, folder)
    if history_code != 0:
        problems.append(f"history verify: {history}")
    if "by the number of the step alone" in history:
        problems.append(f"nobody knows what some steps drew: {history}")
    problems += check_samples(folder, args.steps)
    counts = ", ".join(f"{count} x {kind}" for kind, count in sorted(storm.counts.items()))
    print(f"{sum(storm.counts.values())} faults ({counts}); {storm.generations} "
          f"recoveries, {storm.resumes} resumes; {storm.exits} ranks ended by themselves")
    if storm.recoveries:
        ordered = sorted(storm.recoveries)
        print(f"recovery: median {ordered[len(ordered) // 2]:.3f} s, "
              f"longest {ordered[-1]:.3f} s")
    print(f"goodput {100 * calm_s / wall_s:.0f} % ({calm_s:.1f} s undisturbed, "
          f"{wall_s:.1f} s here)")
    for problem in problems:
        print(f"PROBLEM: {problem}")
    if problems:
        print(Path(folder, "stderr").read_text()[-3000:])
        sys.exit(f"FAILED (seed {args.seed}); the run's folder: {folder}")
    if not args.out:
        shutil.rmtree(folder)
    print("the weights are those of the undisturbed run; the history verifies")


if __name__ == "__main__":
    main()
