#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an elastic run costs while nothing is lost, in processor seconds a step.

  elastic_cost.py --case plain      fashion-mnist, 2 ranks: a vote and a commit each step,
                                    snapshots every 10
  elastic_cost.py --case sharded    cifar-resnet50v2, 4 ranks, shard=3: a second copy of
                                    each share besides

Runs elastic=off and elastic=on in turns, each with few and with many steps: the
difference is what steps cost, without starting and ending. Processor seconds are those
of all processes of a run, user and system; wall times vary by more than the cost.

One round alone may be off by several percent, for a processor's clock and caches are
shared. --lanes K measures on K sets of cores at once, and the median over all rounds is
printed with the interval in which it lies, 19 times of 20.
"""
import argparse
import json
import math
import multiprocessing
import os
import resource
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CASES = {
    "plain": (["fashion-mnist", "-n", "2"], {"snapshot.every_steps": 10}, (20, 220)),
    "sharded": (["cifar-resnet50v2", "-n", "4", "--layout", "shard=3"],
                {"batch": 32, "snapshot.every_steps": 10}, (2, 12)),
}


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(args, elastic, steps):
    what, keys, _ = CASES[args.case]
    keys = {**keys, "threads": 1, "data.synthetic": "true", "valid.every_epochs": 0, "epochs": 1000,
            "elastic": elastic}
    command = [args.cohort, "train", *what, "--json", "--max-steps", str(steps)]
    for key, value in keys.items():
        command += ["--set", f"{key}={value}"]
    before = processor_seconds()
    out = subprocess.run(command, capture_output=True, text=True, check=True,
                         stdin=subprocess.DEVNULL).stdout
    done = json.loads(out.splitlines()[-1])
    return processor_seconds() - before, done["step_ms"]


def a_step(args, elastic):
    few, many = CASES[args.case][2]
    short, _ = run(args, elastic, few)
    long, wall_ms = run(args, elastic, many)
    return 1e3 * (long - short) / (many - few), wall_ms


def lane(args, cores):
    """All rounds on these cores: pairs of milliseconds a step, off and on."""
    os.sched_setaffinity(0, cores)
    pairs = []
    for i in range(args.rounds):
        seen = {elastic: a_step(args, elastic)
                for elastic in (("off", "on"), ("on", "off"))[i % 2]}
        (off, off_wall), (on, on_wall) = seen["off"], seen["on"]
        pairs.append((off, on))
        if not args.json:
            print(f"round {i + 1}: {on:.2f} against {off:.2f} ms of processor a step, "
                  f"{100 * (on / off - 1):+.2f} % ({on_wall:.2f}, {off_wall:.2f} ms wall)",
                  flush=True)
    return pairs


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
    parser.add_argument("--rounds", type=int, default=5, help="of each lane")
    parser.add_argument("--lanes", type=int, default=1, help="measured at once")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    lanes = min(args.lanes, len(cores))
    width = len(cores) // lanes
    sets = [cores[i * width:(i + 1) * width] for i in range(lanes)]
    with multiprocessing.Pool(lanes) as pool:
        pairs = sum(pool.starmap(lane, [(args, chosen) for chosen in sets]), [])
    costs = [100 * (on / off - 1) for off, on in pairs]
    low, high = interval(costs)
    row = {"case": args.case, "rounds": len(costs),
           "off_ms": statistics.median(off for off, _ in pairs),
           "on_ms": statistics.median(on for _, on in pairs),
           "cost_percent": statistics.median(costs), "low_percent": low, "high_percent": high}
    print(json.dumps(row) if args.json else
          f"{args.case}: {row['on_ms']:.2f} against {row['off_ms']:.2f} ms a step: median of "
          f"{len(costs)} rounds {row['cost_percent']:+.2f} % ({low:+.2f} to {high:+.2f} %)")


if __name__ == "__main__":
    main()
