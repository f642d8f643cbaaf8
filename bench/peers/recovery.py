#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seconds from a kill -9 of a rank to the next completed step: Cohort, then torchrun.

  recovery.py [-n 2] [--kills 40] [--stops 3] [--torchrun PATH] [--torchrun-kills 5] [--json]

One run of `cohort train fashion-mnist`, and one of restarted_ddp.py under torchrun, is hit
again and again. The time counts from the signal to the line of the first step after it,
when that line arrives on the pipe. A step that is missing or made twice is lost. torchrun
runs if --torchrun names it, or if it lies next to $COHORT_PEERS or in .deps/peers/bin.
"""
import argparse
import json
import os
import queue
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

PEERS = Path(__file__).resolve().parent
ROOT = PEERS.parents[1]
LIMIT_S = 60  # without a line from the run


class Run:
    """A program whose ranks report as JSON lines. A thread notes when each line arrives."""

    def __init__(self, command, **variables):
        self.pids = {}  # by rank
        self.last_step = None
        self.lost_steps = 0
        self.lines = queue.Queue()
        self.process = subprocess.Popen([str(part) for part in command], text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL,
                                        env={**os.environ, **variables})
        threading.Thread(target=self.read_lines, daemon=True).start()

    def read_lines(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                self.lines.put((time.monotonic(), line))
        self.lines.put((time.monotonic(), None))

    def next_line(self):
        """The next line and when it arrived."""
        try:
            arrived, line = self.lines.get(timeout=LIMIT_S)
        except queue.Empty:
            self.stop()
            sys.exit(f"recovery: the run printed nothing for {LIMIT_S} s")
        if line is None:
            sys.exit(f"recovery: the run ended with exit code {self.process.wait()}")
        return arrived, json.loads(line)

    def note_step(self, step):
        if self.last_step is not None:
            self.lost_steps += abs(step - self.last_step - 1)
        self.last_step = step

    def stop(self):
        self.process.terminate()
        self.process.wait(LIMIT_S)


class CohortRun(Run):
    def __init__(self, args):
        super().__init__(
            [args.cohort, "train", "fashion-mnist", "-n", args.ranks, "--json",
             "--max-restarts", 100000, "--set", "epochs=1000000",
             "--set", "log.every_steps=1", "--set", "valid.every_epochs=0",
             "--set", "data.synthetic=true", "--set", "optim.lr=0.001",
             "--set", f"elastic.detect_s={args.detect}"])

    def next_event(self):
        arrived, event = self.next_line()
        if event["event"] == "rank":
            self.pids[event["rank"]] = event["pid"]
        if event["event"] == "step":
            self.note_step(event["step"])
        return arrived, event

    def wait_for_steps(self, count):
        while count > 0:
            count -= self.next_event()[1]["event"] == "step"

    def recovery_seconds(self, rank, name):
        """Sends a signal. The event "recovered" follows the first step of the new world."""
        began = time.monotonic()
        os.kill(self.pids[rank], getattr(signal, name))
        step_at = began
        while True:
            arrived, event = self.next_event()
            if event["event"] == "step":
                step_at = arrived
            if event["event"] == "recovered":
                return step_at - began


class TorchrunRun(Run):
    """Every rank reports every step; only rank 0's steps are counted."""

    def __init__(self, args):
        # Without the variable, restarted ranks may find the addresses of the killed ones in
        # the store that torchrun keeps; then this restart fails and torchrun tries again.
        super().__init__([args.torchrun, "--standalone", "--nproc-per-node", args.ranks,
                          "--max-restarts", args.torchrun_kills,
                          PEERS / "restarted_ddp.py"],
                         OMP_NUM_THREADS="1", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        self.restart = 0

    def next_step(self):
        arrived, step = self.next_line()
        self.pids[step["rank"]] = step["pid"]
        if step["rank"] == 0:
            self.note_step(step["step"])
        return arrived, step

    def wait_for_steps(self, count):
        while count > 0:
            count -= self.next_step()[1]["rank"] == 0

    def recovery_seconds(self, rank, name):
        began = time.monotonic()
        os.kill(self.pids[rank], getattr(signal, name))
        while True:
            arrived, step = self.next_step()
            if step["restart"] > self.restart:
                self.restart = step["restart"]
                return arrived - began


def hit(run, program, name, count, args):
    """Hits a random rank `count` times. Returns the row of the results."""
    rng = random.Random(args.seed)
    lost_before = run.lost_steps
    seconds = []
    for _ in range(count):
        run.wait_for_steps(rng.randint(5, 15))
        seconds.append(run.recovery_seconds(rng.randrange(args.ranks), name))
    run.wait_for_steps(10)
    seconds.sort()
    return {"program": program, "signal": name, "ranks": args.ranks, "count": count,
            "median_s": statistics.median(seconds),
            "p99_s": seconds[min(count - 1, int(0.99 * count))], "longest_s": seconds[-1],
            "lost_steps": run.lost_steps - lost_before}


def measure(args):
    """Yields a row for each program and signal."""
    run = CohortRun(args)
    run.wait_for_steps(20)
    for name, count in (("SIGKILL", args.kills), ("SIGSTOP", args.stops)):
        if count > 0:
            yield hit(run, "cohort", name, count, args)
    run.stop()
    if args.torchrun and args.torchrun_kills > 0:
        run = TorchrunRun(args)
        run.wait_for_steps(20)
        yield hit(run, "torchrun", "SIGKILL", args.torchrun_kills, args)
        run.stop()


def format_row(row):
    return (f"{row['program']}, {row['signal']} of one of {row['ranks']} ranks, "
            f"{row['count']} times: median {row['median_s']:.3f} s, p99 {row['p99_s']:.3f} s, "
            f"longest {row['longest_s']:.3f} s, steps lost {row['lost_steps']}")


def default_torchrun():
    python = os.environ.get("COHORT_PEERS") or str(ROOT / ".deps/peers/bin/python")
    torchrun = Path(python).with_name("torchrun")
    return str(torchrun) if torchrun.exists() else ""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohort", default=os.environ.get(
        "COHORT_BIN", str(ROOT / "build/release/bin/cohort")), help="the program cohort")
    parser.add_argument("-n", "--ranks", type=int, default=2, help="ranks (default 2)")
    parser.add_argument("--kills", type=int, default=40,
                        help="kill -9 of ranks of Cohort (default 40)")
    parser.add_argument("--stops", type=int, default=3,
                        help="SIGSTOP of ranks of Cohort (default 3)")
    parser.add_argument("--torchrun", default=default_torchrun(),
                        help="the program torchrun; empty: Cohort alone")
    parser.add_argument("--torchrun-kills", type=int, default=5,
                        help="kill -9 of ranks of torchrun (default 5)")
    parser.add_argument("--detect", type=float, default=5,
                        help="elastic.detect_s (default 5)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (default 1)")
    parser.add_argument("--json", action="store_true", help="one JSON object per row")
    args = parser.parse_args()
    for row in measure(args):
        print(json.dumps(row) if args.json else format_row(row), flush=True)


if __name__ == "__main__":
    main()
