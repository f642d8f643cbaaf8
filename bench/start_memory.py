#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The most memory a rank takes to start and to save, against what is planned for it.

  start_memory.py [--ranks 4] [--width 9216]

Trains one step of an mlp of four layers at shard=3, with --save-initial and --save-final.
Prints, in MiB, the peak (VmHWM) of the largest rank when the first weights are saved, and
what `done` says of the whole run; for this width and for one of 8, which is the library's
own. What is planned (parameters, optimizer state, room for gradients and for gathered
parameters) is that of `cohort step`.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MIB = 2**20


def arguments(args, width):
    keys = {"data.synthetic": "true", "model.width": width, "model.depth": 4,
            "batch": args.ranks, "elastic": "off", "snapshot.every_steps": 0}
    return ["mlp", "-n", str(args.ranks), "--layout", "shard=3"] + [
        word for key, value in keys.items() for word in ("--set", f"{key}={value}")]


def family(root):
    """A process and all that come from it."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            parents[int(entry.name)] = int(stat[1])
        except OSError:
            pass  # it has ended meanwhile
    members, more = set(), {root}
    while more:
        members |= more
        more = {pid for pid, parent in parents.items() if parent in members} - members
    return members


def peak_of(pid):
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0


def measure(args, width):
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder) / "first"
        command = [args.cohort, "train", *arguments(args, width), "--max-steps", "1", "--json",
                   "--quiet", "--save-initial", str(first), "--save-final", f"{folder}/last"]
        run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        start = 0
        while run.poll() is None and not first.exists():
            time.sleep(0.02)
            start = max([start] + [peak_of(pid) for pid in family(run.pid) - {run.pid}])
        lines = run.communicate()[0].splitlines()
        if run.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: exit code {run.returncode}")
        return start, json.loads(lines[-1])["peak_memory_bytes"] / MIB


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cohort", default=os.environ.get(
        "COHORT", str(ROOT / "build/release/bin/cohort")))
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--width", type=int, default=9216)
    args = parser.parse_args()
    for width in (8, args.width):
        start, whole = measure(args, width)
        print(f"width {width}: {start:.0f} MiB to start, {whole:.0f} MiB in all", flush=True)
    step = [args.cohort, "step", *arguments(args, args.width)]
    print(*(line for line in subprocess.run(step, capture_output=True, text=True, check=True)
            .stdout.splitlines() if line.startswith("memory")))


if __name__ == "__main__":
    main()
