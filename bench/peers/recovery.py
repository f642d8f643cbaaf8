#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seconds from kill -9 of a rank to the next committed step, beside torchrun.

  recovery.py [-n 2] [--kills 40] [--stops 3] [--torchrun PATH] [--json]

One run of `cohort train fashion-mnist` is hit again and again; the time counts from the
signal to the line of the first step of the new world, as a reader of the pipe sees it.
A step that is missing or comes twice in between is lost. With --torchrun (or where
COHORT_PEERS has one) `kill_torchrun.py` of --measure runs in the same go.
"""
import argparse
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 60


class Training:
    def __init__(self, args):
        self.pids = {}
        self.last = 0
        self.lost_steps = 0
        self.events = queue.Queue()
        command = [args.cohort, "train", "fashion-mnist", "-n", args.ranks, "--json",
                   "--max-restarts", 100000, "--set", "epochs=1000000",
                   "--set", "log.every_steps=1", "--set", "valid.every_epochs=0",
                   "--set", "data.synthetic=true", "--set", "optim.lr=0.001",
                   "--set", f"elastic.detect_s={args.detect}"]
        self.process = subprocess.Popen([str(part) for part in command], text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.events.put((time.monotonic(), json.loads(line)))
        self.events.put((time.monotonic(), None))

    def next(self):
        at, event = self.events.get(timeout=LIMIT_S)
        if event is None:
            sys.exit(f"the run ended with {self.process.wait()}")
        if event["event"] == "rank":
            self.pids[event["rank"]] = event["pid"]
        if event["event"] == "step":
            self.lost_steps += abs(event["step"] - self.last - 1)
            self.last = event["step"]
        return at, event

    def steps(self, count):
        while count > 0:
            count -= self.next()[1]["event"] == "step"

    def hit(self, rank, name):
        """Seconds until the first step of the next world."""
        began = time.monotonic()
        os.kill(self.pids[rank], getattr(signal, "SIG" + name))
        step_at = began
        while True:
            at, event = self.next()
            if event["event"] == "step":
                step_at = at
            if event["event"] == "recovered":
                return step_at - began


def summary(times):
    ordered = sorted(times)
    return {"count": len(ordered), "median_s": ordered[len(ordered) // 2],
            "p99_s": ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))],
            "longest_s": ordered[-1]}


def measure_cohort(args):
    rng = random.Random(args.seed)
    run = Training(args)
    run.steps(20)
    rows = []
    for name, count in (("KILL", args.kills), ("STOP", args.stops)):
        times = []
        for _ in range(count):
            run.steps(rng.randint(5, 15))
            times.append(run.hit(rng.randrange(args.ranks), name))
        if times:
            rows.append({"what": f"SIG{name} of one of {args.ranks} ranks",
                         **summary(times)})
    run.steps(10)
    rows[0]["lost_steps"] = run.lost_steps
    run.process.terminate()
    run.process.wait(LIMIT_S)
    return rows


def measure_torchrun(args):
    program = Path(args.measure, "kill_torchrun.py")
    run = subprocess.run([sys.executable, program, args.torchrun], text=True,
                         capture_output=True, timeout=300)
    return run.stdout.strip() or f"torchrun: nothing came ({run.stderr.strip()[-200:]})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cohort", default=os.environ.get(
        "COHORT_BIN", str(ROOT / "build/release/bin/cohort")))
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--stops", type=int, default=3)
    parser.add_argument("--detect", type=float, default=5, help="elastic.detect_s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--measure", default=str(ROOT.parent / "shared/measure"))
    peers = os.environ.get("COHORT_PEERS", "")
    beside = Path(peers).with_name("torchrun") if peers else None
    parser.add_argument("--torchrun", default=str(beside) if beside else "")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for row in measure_cohort(args):
        if args.json:
            print(json.dumps(row))
        else:
            print(f"{row['what']}, {row['count']} times: median {row['median_s']:.3f} s, "
                  f"p99 {row['p99_s']:.3f} s, longest {row['longest_s']:.3f} s"
                  + (f", steps lost {row['lost_steps']}" if "lost_steps" in row else ""))
    if args.torchrun:
        print(measure_torchrun(args))


if __name__ == "__main__":
    main()
