#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loss curves of one recipe in several layouts, from the same weights on the same samples.

  loss_curves.py [--recipe gpt-tiny] [--steps 200] [--set batch=16 ...] [LAYOUT ...]

Trains in each layout and prints the largest difference to one rank's loss, at which step,
and the two last losses. A layout's ranks are the product of its dp, tp and pp.
"""
import argparse
import json
import math
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYOUTS = ["dp=4", "tp=4", "pp=4", "dp=2,tp=2,pp=2", "dp=2,pp=2,shard=3"]


def ranks_of(layout):
    sizes = dict(key.split("=") for key in layout.split(","))
    return math.prod(int(sizes.get(axis, 1)) for axis in ("dp", "tp", "pp"))


def losses_of(args, layout):
    keys = ["slices=8", "log.every_steps=1", "threads=1", *args.set]
    command = [args.cohort, "train", args.recipe, "-n", str(ranks_of(layout)), "--layout",
               layout, "--max-steps", str(args.steps), "--json", "--quiet"]
    for key in keys:
        command += ["--set", key]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {run.stderr.strip()}")
    events = [json.loads(line) for line in run.stdout.splitlines()]
    return {e["step"]: e["loss"] for e in events if e["event"] == "step"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cohort", default=os.environ.get(
        "COHORT", str(ROOT / "build/release/bin/cohort")))
    parser.add_argument("--recipe", default="gpt-tiny")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("layouts", nargs="*", default=LAYOUTS)
    args = parser.parse_args()
    alone = losses_of(args, "dp=1")
    last = max(alone)
    print(f"{args.recipe}, {args.steps} steps, one rank: {alone[1]:.6f} to {alone[last]:.6f}",
          flush=True)
    for layout in args.layouts:
        curve = losses_of(args, layout)
        if curve.keys() != alone.keys():
            raise SystemExit(f"{layout}: other steps than one rank's")
        worst = max(curve, key=lambda step: abs(curve[step] - alone[step]))
        print(f"{layout}: largest difference {abs(curve[worst] - alone[worst]):.2e} at step "
              f"{worst}; last {curve[last]:.6f}", flush=True)


if __name__ == "__main__":
    main()
