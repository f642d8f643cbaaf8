#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 on more and more GPUs: measured where they are, foretold where they are not.

    bench/gpu_scaling.py [--program build/release/bin/cohort] [--precision bf16]
    bench/gpu_scaling.py --costs costs.csv        no GPU needed: nothing is run

With several GPUs the step is run on 1, 2, 4, ... of them with NCCL. Without --costs the
costs of a step's actions are measured on one GPU first. Rows that nobody ran say so.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARDS = (0, 3)


def count_gpus():
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    except OSError:
        return 0
    return done.stdout.count("GPU ") if done.returncode == 0 else 0


def bench(args, *more):
    """The rows of one run of the program; ends with its error line if it fails."""
    command = [args.program, "bench", "train", args.case, "--device", "cuda",
               "--precision", args.precision, "--json", *more]
    if args.batch:
        command += ["--batch", str(args.batch)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        sys.exit(done.returncode)
    return [json.loads(line) for line in done.stdout.splitlines()]


def by_ranks(rows):
    return {row["ranks"]: row for row in rows}


def powers_up_to(most):
    """1, 2, 4, ... and the number itself."""
    powers = {2 ** i for i in range(most.bit_length()) if 2 ** i <= most}
    return sorted(powers | {most}) if most > 0 else []


def ranks_text(ranks):
    return ",".join(map(str, ranks))


def measure(args, gpus, shard):
    if gpus < 2:
        return {}
    return by_ranks(bench(args, "-n", ranks_text(powers_up_to(gpus)), "--backend",
                          "nccl", "--layout", f"shard={shard}"))


def foretell(args, costs, ranks, shard):
    return by_ranks(bench(args, "-n", ranks_text(ranks), "--costs", costs, "--links",
                          args.links, "--layout", f"shard={shard}"))


def cells(row, alone):
    """Milliseconds of a step, samples per second, and the share of perfect scaling."""
    if not row:
        return f"{'not run':>10}{'':>12}{'':>8}"
    rate = row["samples_per_second"]
    share = 100 * rate / (row["ranks"] * alone["samples_per_second"]) if alone else 0
    share_text = f"{share:6.1f} %" if alone else ""
    return f"{row['step_ms']:10.2f}{rate:12.0f}{share_text:>8}"


def print_table(shard, measured, foretold):
    print(f"shard={shard}")
    print(f"{'GPUs':>6}{'batch':>8} |{'ms/step':>10}{'samples/s':>12}{'scaling':>8}"
          f"  measured |{'ms/step':>10}{'samples/s':>12}{'scaling':>8}"
          f"{'overlapped':>12}  foretold")
    for ranks, row in sorted(foretold.items()):
        ran = measured.get(ranks)
        label = "" if ran else "not run"
        print(f"{ranks:6}{row['batch']:8} |{cells(ran, measured.get(1))}{'':11}|"
              f"{cells(row, foretold.get(1))}{row['overlapped_step_ms']:12.2f}  {label}")


def costs_of(args, gpus, folder):
    if args.costs:
        return args.costs
    if gpus == 0:
        print("no GPU here to measure costs on; legal: --costs FILE, a table that "
              "`cohort bench train resnet50 --device cuda --costs-out FILE` wrote",
              file=sys.stderr)
        sys.exit(2)
    costs = str(Path(folder) / "costs.csv")
    alone = bench(args, "--costs-out", costs)[0]
    print(f"one GPU, captured: {alone['step_ms']:.2f} ms per step, "
          f"{alone['samples_per_second']:.0f} samples/s (measured)")
    return costs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build/release/bin/cohort"))
    parser.add_argument("--case", default="resnet50")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--batch", type=int, help="samples of a rank; the case's own")
    parser.add_argument("--costs", help="a table of costs; else one GPU is measured")
    parser.add_argument("--links", default="nvlink4-ndr")
    parser.add_argument("--gpus", type=int, help="of this machine, to run on; all")
    parser.add_argument("--foretell", default="1,8,64", help="numbers of GPUs")
    args = parser.parse_args()
    gpus = count_gpus() if args.gpus is None else args.gpus
    numbers = {int(number) for number in args.foretell.split(",")}
    ranks = sorted(numbers | set(powers_up_to(gpus)))
    with tempfile.TemporaryDirectory() as folder:
        costs = costs_of(args, gpus, folder)
        for shard in SHARDS:
            foretold = foretell(args, costs, ranks, shard)
            print_table(shard, measure(args, gpus, shard), foretold)
    print(f"foretold from {foretold[ranks[0]]['from']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
