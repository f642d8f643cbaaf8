#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults without end in one run of `cohort train`, which must end as if there were none.

  fault_storm.py [--faults 30] [--seed N] [--kinds kill,flip-weight] [--backend gloo]
                 [--recipe fashion-mnist] [--layout shard=3] [-n 2] [--gap 6]
                 [--save-every 20] [--out DIR]

storm_kinds.py has the kinds: ranks die by signals and by themselves, freeze, two at once,
in recoveries, saves and resizes; bits flip in weights, moments, gradients, second copies,
snapshots and files; the disk is slow or full; the clock steps; the agent is killed and
the same command started with --resume. At the end the weights have the hash of a run that
nobody disturbed, the history verifies, and each step has been reported once.

The kinds of fault, the victims and the steps come from the seed, the instants within a
step do not. Every fault is noted in DIR/storm.log; a storm that fails prints the command
that repeats it.
"""
import argparse
import collections
import os
import queue
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import storm_kinds  # noqa: E402
import storm_run  # noqa: E402
import train_run  # noqa: E402

EXIT_DATA = 5


class Storm:
    def __init__(self, args, folder):
        self.args, self.folder = args, Path(folder)
        self.live_kinds, self.armed_kinds = storm_kinds.check(args.kinds)
        if "clock" in self.live_kinds and not storm_kinds.FAKETIME:
            del self.live_kinds["clock"]
            print("no faketime is installed: the clock does not step", flush=True)
        self.rng = random.Random(args.seed)
        self.counts = collections.Counter()
        self.generations = self.resumes = self.life = 0
        self.recoveries = []
        self.problems = []
        self.damaged = set()  # names of checkpoints
        self.next_at = args.gap
        self.step = 0
        self.size = args.ranks  # that was asked for
        self.began = time.monotonic()
        self.log = open(self.folder / "storm.log", "w")
        self.actions = storm_run.count_actions(args)
        self.command = self.plan = self.strikes = None

    def note(self, what):
        seconds = time.monotonic() - self.began
        print(f"{seconds:8.3f} s, seed {self.args.seed}, step {self.step}: {what}",
              file=self.log, flush=True)

    def environment(self):
        """With the armed faults of the agent's next life; they have their own seed, so
        that what is drawn later does not depend on when the agent was killed."""
        self.life += 1
        self.plan = storm_kinds.Plan(random.Random(f"{self.args.seed}.{self.life}"),
                                     self.armed_kinds, self.args.ranks, self.actions,
                                     self.args.layout)
        struck = self.folder / f"struck.{self.life}"
        struck.touch()
        self.strikes = open(struck)
        self.note(f"the agent's life {self.life} with COHORT_FAULT='{self.plan.text}'")
        env = {"COHORT_FAULT": self.plan.text, "COHORT_FAULT_LOG": str(struck)}
        if "clock" in self.live_kinds:
            self.set_clock(0)
            env |= storm_kinds.clock_environment(self.folder / "clock")
        return env

    def set_clock(self, seconds):
        """Sets it at one instant: whoever reads the file sees the old or the new one."""
        aside = self.folder / ".clock"
        aside.write_text(f"{seconds:+d}\n")
        aside.rename(self.folder / "clock")

    def run(self):
        resume = False
        while True:
            self.command = storm_run.Command(self.args, self.folder, resume,
                                             self.environment())
            self.size = self.args.ranks
            done = self.live()
            self.count_strikes()
            code = self.command.process.wait(storm_run.LIMIT_S)
            self.command.err.close()
            if (done is not None or code != -signal.SIGKILL) and not self.last_is_missing(code):
                return done, code
            resume = True
            self.resumes += 1

    def last_is_missing(self, code):
        """The disk was full at the last checkpoint: its user makes room, and goes on."""
        said = Path(self.folder, "stderr").read_text()[-1000:]
        return code == EXIT_DATA and "the last, is not saved" in said

    def live(self):
        """Until this agent's end; its last word if it has one."""
        reported = set()
        done = None
        while (event := self.command.next()) is not None:
            kind = event["event"]
            if kind == "step":
                self.note_step(event["step"], reported)
            elif kind == "recovered":
                self.generations += 1
                self.recoveries.append(event["seconds"])
            elif kind == "done":
                done = event
        return done

    def count_strikes(self):
        for line in self.strikes.read().splitlines():
            kind = self.plan.kind(line)
            self.counts[kind] += 1
            self.note(f"{kind} has struck: {line}")

    def note_step(self, step, reported):
        if step in reported:
            self.problems.append(f"step {step} was reported twice")
        reported.add(step)
        self.step = step
        self.count_strikes()
        if self.counts.total() < self.args.faults and step >= self.next_at:
            self.next_at = step + self.rng.randint(1, 2 * self.args.gap - 1)
            if self.live_kinds:
                self.inject()

    def inject(self):
        kind = self.rng.choices(list(self.live_kinds), list(self.live_kinds.values()))[0]
        victim = self.rng.randrange(self.args.ranks)
        other = (victim + 1) % self.args.ranks
        delay = self.rng.uniform(0, 0.08)
        place = self.rng.random()
        seconds = self.rng.choice((-86400, -3600, -5, 5, 3600, 86400))
        # Only files outlive an agent. A run of which every checkpoint is damaged ends, and
        # rightly so.
        least = {"agent": 1, "flip-file": 2}.get(kind, 0)
        if len(self.sound_checkpoints()) < least:
            kind = "kill"
        self.counts[kind] += 1
        self.note(f"{kind}, rank {victim}")
        if kind in storm_kinds.SIGNALS:
            self.command.signal(victim, storm_kinds.SIGNALS[kind])
        elif kind == "pause":
            self.command.signal(victim, "STOP")
            self.later(storm_run.DETECT_S / 3, victim, "CONT")
        elif kind == "two-at-once":
            for rank in (victim, other):
                self.command.signal(rank, "KILL")
        elif kind == "during-recovery":
            self.command.signal(victim, "KILL")
            self.later(delay, other, "KILL")
        elif kind == "during-save":
            self.kill_during_save(victim)
        elif kind == "resize":
            self.resize()
        elif kind == "during-resize":
            self.resize()
            self.later(delay, victim, "KILL")
        elif kind == "clock":
            self.set_clock(seconds)
        elif kind == "flip-file":
            self.flip_file(place)
        elif kind == "agent":
            os.kill(self.command.process.pid, signal.SIGKILL)

    def sound_checkpoints(self):
        """Those that no bit was flipped in."""
        found = sorted((self.folder / "saved").glob("step-*"))
        return [folder for folder in found if folder.name not in self.damaged]

    def flip_file(self, seed):
        """In the newest, which may be the one that is read next."""
        rng = random.Random(seed)
        newest = self.sound_checkpoints()[-1]
        self.damaged.add(newest.name)
        file = rng.choice(sorted(newest.glob("*.safetensors")))
        data = bytearray(file.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        aside = file.with_name(".flipped")
        aside.write_bytes(data)  # others share the file: they keep theirs
        aside.rename(file)

    def later(self, delay, rank, name):
        threading.Timer(delay, self.command.signal, (rank, name)).start()

    def resize(self):
        """To one team of ranks more, and back. A command that has ended since has no answer."""
        self.size = 2 * self.args.ranks + storm_run.team_of(self.args) - self.size
        command, size = self.command, self.size

        def ask():
            run = subprocess.run(
                [self.args.cohort, "resize", str(command.process.pid), str(size)],
                capture_output=True, text=True, timeout=storm_run.LIMIT_S,
                env=train_run.clean_environment())
            if run.returncode != 0 and command.process.poll() is None:
                self.note(f"resize to {size}: {run.stderr.strip()}")

        threading.Thread(target=ask, daemon=True).start()

    def kill_during_save(self, victim):
        """The folder of a checkpoint being written has a dot in front."""
        command, saved = self.command, self.folder / "saved"

        def wait():
            until = time.monotonic() + 5
            while time.monotonic() < until and command.process.poll() is None:
                if saved.is_dir() and any(p.name.startswith(".") for p in saved.iterdir()):
                    break
                time.sleep(0.001)
            command.signal(victim, "KILL")

        threading.Thread(target=wait, daemon=True).start()


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cohort", default=train_run.COHORT)
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=[],
                        help="only these, of: "
                             + ", ".join([*storm_kinds.LIVE, *storm_kinds.ARMED]))
    parser.add_argument("--recipe", default="fashion-mnist")
    parser.add_argument("--layout", default="")
    parser.add_argument("--backend", default="")
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--gap", type=int, default=6, help="mean steps between two faults")
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--out", help="keep the run's folder here")
    args = parser.parse_args()
    args.steps = args.faults * (args.gap + 1) + 30  # the gaps are random
    return args


def repeat_command(args):
    """The command that makes the same happen again."""
    parts = [sys.executable, __file__, "--cohort", args.cohort, "--faults", args.faults,
             "--seed", args.seed, "--recipe", args.recipe, "-n", args.ranks, "--gap",
             args.gap, "--save-every", args.save_every]
    for name, value in (("--layout", args.layout), ("--backend", args.backend),
                        ("--kinds", ",".join(args.kinds))):
        parts += [name, value] if value else []
    return shlex.join(map(str, parts))


def find_problems(args, storm, done, code, wanted):
    problems = list(storm.problems)
    if code != 0 or done is None:
        problems.append(f"the run ended with exit code {code}")
    elif done["weights_hash"] != wanted:
        problems.append(f"weights {done['weights_hash']}, undisturbed {wanted}")
    if storm.counts.total() < args.faults:
        problems.append(f"{storm.counts.total()} faults have struck; expected {args.faults}")
    history_code, history = storm_run.verify(args, storm.folder)
    if history_code != 0:
        problems.append(f"history verify: {history}")
    if "by the number of the step alone" in history:
        problems.append(f"nobody knows what some steps drew: {history}")
    return problems + storm_run.check_samples(storm.folder, args.steps)


def fail(args, folder, problems):
    for name in ("stderr", "storm.log"):
        print(f"--- the end of {folder}/{name}")
        print(Path(folder, name).read_text()[-3000:])
    for problem in problems:
        print(f"PROBLEM: {problem}")
    sys.exit(f"FAILED; {folder} has what is left of it. This repeats it:\n"
             f"  {repeat_command(args)}")


def print_summary(storm, calm_s, wall_s):
    counts = ", ".join(f"{count} x {kind}" for kind, count in sorted(storm.counts.items()))
    print(f"{storm.counts.total()} faults ({counts}); {storm.generations} recoveries, "
          f"{storm.resumes} resumes")
    if storm.recoveries:
        ordered = sorted(storm.recoveries)
        print(f"recovery: median {ordered[len(ordered) // 2]:.3f} s, "
              f"longest {ordered[-1]:.3f} s")
    print(f"goodput {100 * calm_s / wall_s:.0f} % ({calm_s:.1f} s undisturbed, "
          f"{wall_s:.1f} s here)", flush=True)


def main():
    args = read_arguments()
    folder = args.out or tempfile.mkdtemp(prefix="cohort_storm_")
    os.makedirs(folder, exist_ok=True)
    if os.listdir(folder):
        sys.exit(f"--out {folder}: something is in it; legal: an empty folder, or none yet")
    print(f"seed {args.seed}: {args.faults} faults in {args.steps} steps of {args.recipe} "
          f"on {args.ranks} ranks {args.layout} {args.backend}", flush=True)

    storm = Storm(args, folder)
    wanted, calm_s = storm_run.undisturbed(args)
    began = time.monotonic()
    try:
        done, code = storm.run()
    except queue.Empty:
        storm.command.process.kill()
        fail(args, folder, [f"nothing was heard for {storm_run.LIMIT_S} s"])
    wall_s = time.monotonic() - began
    problems = find_problems(args, storm, done, code, wanted)
    print_summary(storm, calm_s, wall_s)
    if problems:
        fail(args, folder, problems)
    print(f"weights {wanted}, as in the undisturbed run; the history verifies")
    if not args.out:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
