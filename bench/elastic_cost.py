#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an elastic run costs while nothing is lost, in processor seconds per step.

  elastic_cost.py --case plain      fashion-mnist, 2 ranks: a vote and a commit each step,
                                    snapshots every 10
  elastic_cost.py --case sharded    cifar-resnet50v2, 4 ranks, shard=3: a second copy of
                                    each shard besides

Runs elastic=off and elastic=on side by side, each with few and with many steps: the
difference is what steps cost, without starting and ending. Processor seconds are those
of all processes of a run, user and system; wall times vary by more than the cost. Both
runs have the same cores, one less than there are ranks: so no rank spins while it waits,
and processor seconds are work alone. As many rounds as there are cores for run at once.

One round alone may be off by several percent, for a processor's clock and caches are
shared. The median over all rounds is printed with the interval in which it lies, 19
times of 20.
"""
import argparse
import json
import math
import os
import queue
import statistics
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CASES = {  # and the few and the many steps: a spare has loaded within the few
    "plain": (["fashion-mnist", "-n", "2"], {"snapshot.every_steps": 10}, (100, 300)),
    "sharded": (["cifar-resnet50v2", "-n", "4", "--layout", "shard=3"],
                {"batch": 32, "snapshot.every_steps": 10}, (6, 16)),
}


def start(args, elastic, steps, cores, out):
    what, keys, _ = CASES[args.case]
    keys = {**keys, "threads": 1, "data.synthetic": "true", "valid.every_epochs": 0,
            "epochs": 1000, "elastic": elastic}
    command = [args.cohort, "train", *what, "--json", "--max-steps", str(steps)]
    for key, value in keys.items():
        command += ["--set", f"{key}={value}"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out,
                            preexec_fn=lambda: os.sched_setaffinity(0, cores))


def side_by_side(args, steps, cores):
    """{elastic: processor seconds} of two runs at once, on the same cores."""
    with tempfile.TemporaryFile() as out:
        runs = {elastic: start(args, elastic, steps, cores, out) for elastic in ("off", "on")}
        seconds = {}
        for elastic, run in runs.items():
            _, status, usage = os.wait4(run.pid, 0)
            run.returncode = os.waitstatus_to_exitcode(status)
            if run.returncode != 0:
                raise SystemExit(f"elastic={elastic}: exit code {run.returncode}")
            seconds[elastic] = usage.ru_utime + usage.ru_stime
    return seconds


def a_round(args, lanes):
    """Milliseconds of processor time per step, off and on."""
    few, many = CASES[args.case][2]
    cores = lanes.get()
    try:
        short, long = (side_by_side(args, steps, cores) for steps in (few, many))
    finally:
        lanes.put(cores)  # or the next round would wait for them for ever
    return tuple(1e3 * (long[side] - short[side]) / (many - few) for side in ("off", "on"))


def make_lanes(case):
    """Sets of cores that a round can have."""
    cores = sorted(os.sched_getaffinity(0))
    width = min(len(cores), max(1, int(CASES[case][0][2]) - 1))
    lanes = queue.Queue()
    for at in range(0, len(cores) - width + 1, width):
        lanes.put(cores[at:at + width])
    return lanes


def interval(values):
    """Where the median of what these are drawn from lies, in 19 of 20 cases."""
    ordered = sorted(values)
    reach = 1.96 * math.sqrt(len(ordered)) / 2
    low = max(0, math.floor(len(ordered) / 2 - reach))
    high = min(len(ordered) - 1, math.ceil(len(ordered) / 2 + reach))
    return ordered[low], ordered[high]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cohort", default=os.environ.get(
        "COHORT_BIN", str(ROOT / "build/release/bin/cohort")))
    parser.add_argument("--case", choices=CASES, default="plain")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    pairs = []
    lanes = make_lanes(args.case)
    with ThreadPoolExecutor(lanes.qsize()) as pool:
        rounds = [pool.submit(a_round, args, lanes) for _ in range(args.rounds)]
        for done in as_completed(rounds):
            off, on = done.result()
            pairs.append((off, on))
            if not args.json:
                print(f"round {len(pairs)}: {on:.2f} against {off:.2f} ms of processor a "
                      f"step, {100 * (on / off - 1):+.2f} %", flush=True)
    costs = [100 * (on / off - 1) for off, on in pairs]
    low, high = interval(costs)
    row = {"case": args.case, "rounds": len(costs),
           "off_ms": statistics.median(off for off, _ in pairs),
           "on_ms": statistics.median(on for _, on in pairs),
           "cost_percent": statistics.median(costs), "low_percent": low, "high_percent": high}
    print(json.dumps(row) if args.json else
          f"{args.case}: {row['on_ms']:.2f} against {row['off_ms']:.2f} ms per step: median of "
          f"{len(costs)} rounds {row['cost_percent']:+.2f} % ({low:+.2f} to {high:+.2f} %)")


if __name__ == "__main__":
    main()
