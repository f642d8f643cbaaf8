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
"""
import argparse
import json
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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cohort", default=os.environ.get(
        "COHORT_BIN", str(ROOT / "build/release/bin/cohort")))
    parser.add_argument("--case", choices=CASES, default="plain")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    seen = {"off": [], "on": []}
    for i in range(args.rounds):
        for elastic in (("off", "on"), ("on", "off"))[i % 2]:
            seen[elastic].append(a_step(args, elastic))
            if not args.json:
                print(f"round {i + 1}, elastic={elastic}: {seen[elastic][-1][0]:.2f} ms of "
                      f"processor a step ({seen[elastic][-1][1]:.2f} ms wall)", flush=True)
    off, on = (statistics.median(cpu for cpu, _ in seen[side]) for side in ("off", "on"))
    pairs = [100 * (b[0] / a[0] - 1) for a, b in zip(seen["off"], seen["on"])]
    row = {"case": args.case, "off_ms": off, "on_ms": on, "cost_percent": 100 * (on / off - 1),
           "cost_percent_of_rounds": [round(pair, 2) for pair in pairs]}
    print(json.dumps(row) if args.json else
          f"{args.case}: {on:.2f} ms against {off:.2f} ms a step: {row['cost_percent']:+.2f} % "
          f"(rounds: {', '.join(f'{pair:+.2f}' for pair in pairs)})")


if __name__ == "__main__":
    main()
