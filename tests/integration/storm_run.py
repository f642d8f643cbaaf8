# SPDX-License-Identifier: Apache-2.0
"""The run that fault_storm.py disturbs: its commands, one life of its agent, and what must
hold at its end."""
import collections
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time

import train_run

LIMIT_S = 120  # for the next step to come, after any fault
DETECT_S = 1
SMALL = {"fashion-mnist": {"model.width": 8, "batch": 32},
         "mlp": {"model.width": 64, "batch": 32}}


def team_of(args):
    """How many ranks have a model together: they come and go with one another."""
    sizes = dict(item.split("=") for item in args.layout.split(",") if item)
    return int(sizes.get("tp", 1)) * int(sizes.get("pp", 1))


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
                                     "--set", f"elastic.max_ranks={args.ranks + team_of(args)}",
                                     "--set", "checkpoint.keep=50",
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
    if args.backend:
        command += ["--backend", args.backend]
    return command + train_run.assignments(keys)


def count_actions(args):
    """How many actions a rank's step has."""
    command = [args.cohort, "step", args.recipe, "-n", str(args.ranks), "--json",
               "--layout", args.layout or "shard=0"]
    run = subprocess.run(command + train_run.assignments(
        {**SMALL.get(args.recipe, {}), "slices": 8, "elastic": "on"}), text=True,
        capture_output=True, env=train_run.clean_environment(), check=True)
    return sum(json.loads(run.stdout)["actions"].values())


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
