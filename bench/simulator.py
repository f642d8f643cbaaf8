#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well the simulator foretells a step: predicted over measured, shard 0 to 3.

Costs are measured at two batch sizes, the step at a third one, by turns in one run.

    bench/simulator.py [--program build/release/bin/cohort] [--case mlp] [--steps 20]

Exits with 1 if a step is off by more than --within percent.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# name: recipe, keys, batches of the costs, batch of the step
CASES = {
    "fashion-mnist": ("fashion-mnist", ["data.synthetic=true"], (96, 192), 128),
    "mlp": ("mlp", ["model.width=2048", "model.depth=6", "data.synthetic=true"], (16, 64), 32),
    "cifar-resnet50v2": ("cifar-resnet50v2",
                         ["model.width=16", "model.depth=1", "data.synthetic=true"],
                         (16, 64), 32),
}


def measure(args, name, shard):
    recipe, keys, costs_at, batch = CASES[name]
    command = [args.program, "step", recipe, "-n", str(args.ranks), "--json",
               "--layout", f"shard={shard}", "--backend", args.backend,
               "--measure", str(args.steps),
               "--costs-at", ",".join(map(str, costs_at)), "--set", f"batch={batch}"]
    for key in [*keys, *args.set]:
        command += ["--set", key]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/cohort"))
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--shard", type=int, action="append")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--within", type=float, default=10, help="percent")
    parser.add_argument("--set", action="append", default=[], help="key=value")
    args = parser.parse_args()
    worst = 0.0
    print(f"{'case':18}{'shard':>6}{'batch':>7}{'predicted':>13}{'measured':>12}"
          f"{'off':>9}{'memory off':>12}", flush=True)
    for name in args.case or CASES:
        for shard in args.shard or range(4):
            row = measure(args, name, shard)
            off = 100 * (row["predicted_over_measured"] - 1)
            memory = 100 * (row["peak_memory_bytes"]
                            / row["measured_peak_memory_bytes"] - 1)
            worst = max(worst, abs(off))
            print(f"{name:18}{shard:6}{CASES[name][3]:7}{row['step_ms']:10.2f} ms"
                  f"{row['measured_step_ms']:9.2f} ms{off:+8.1f} %{memory:+10.1f} %",
                  flush=True)
    print(f"worst: {worst:.1f} %")
    return 0 if worst <= args.within else 1


if __name__ == "__main__":
    sys.exit(main())
