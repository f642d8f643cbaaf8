#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the same network from the same weights on the same samples in Cohort and in
stock PyTorch, and compares all weights and losses: within 1e-4, or what PyTorch differs
from itself, or exit code 1.

  parity.py                  all cases, 50 steps in float32, 1 to 3 ranks
  parity.py --golden FILE    writes what tests/integration/parity_test.py compares with

Needs PyTorch (see README.md here) and a built `cohort` ($COHORT_BIN).
"""
import argparse
import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path

import torch

from parity_resnet import check_resnet, check_resnet50
from parity_run import LOSS_BOUND, report, run_cohort, run_pytorch, to_tensors, train_run

# Activations and maxima that nearly tie fall one way or the other with the rounding, and
# then whole gradients of a sample differ: from there on PyTorch differs from itself, too,
# by as much as 9e-4, when its memory format or the order of a batch changes. So all steps
# count against that; the first ones, and the middle one of all weights, stay sharp.
SHARP_STEPS = 10
TYPICAL_BOUND = 1e-6
SLOW = {"optim.lr": 0.01}
NESTEROV = {"optim.momentum": 0.8, "optim.nesterov": "true", "optim.weight_decay": 0.01}
# Adam moves by its rate even where a gradient is nothing but rounding.
ADAM = {"optim.lr": 1e-4}
ADAMW = {**ADAM, "optim.name": "adamw", "optim.weight_decay": 0.1}
CASES = [  # name, ranks, keys
    ("momentum", 1, SLOW),
    ("momentum", 2, SLOW),
    ("momentum, unequal slices", 3, SLOW),
    ("momentum, 5 slices", 2, {**SLOW, "slices": 5}),
    ("nesterov, weight decay", 1, {**SLOW, **NESTEROV}),
    ("nesterov, weight decay", 2, {**SLOW, **NESTEROV}),
    ("warm-up", 2, {**SLOW, "schedule.warmup_steps": 20}),
    ("no momentum", 2, {"optim.momentum": 0}),
    ("adam, weight decay", 2, {**ADAM, "optim.name": "adam", "optim.weight_decay": 0.01}),
    ("adamw", 1, ADAMW),
    ("adamw", 3, ADAMW),
    ("momentum, shard 3", 2, {**SLOW, "layout": "shard=3"}),
    ("adamw, shard 3", 2, {**ADAMW, "layout": "shard=3"}),
    ("adamw, shard 3", 3, {**ADAMW, "layout": "shard=3"}),
    ("the recipe's own rate", 1, {}),
    ("the recipe's own rate", 2, {}),
]
GOLDEN_CASES = {"plain": {}, "nesterov": NESTEROV}
GOLDEN_STEPS = 10
GOLDEN_VALUES = 24  # told of each tensor


def typical_distance(a, b):
    return torch.cat([(a[name] - b[name]).abs().flatten() for name in a]).median().item()


def check_case(folder, steps, name, ranks, keys):
    run = run_cohort(folder, ranks, steps, keys)
    expected, losses = run_pytorch(run)
    others = [run_pytorch(run, reverse=True),
              run_pytorch(run, form=torch.channels_last)]
    ok = report(name, ranks, run, expected, losses, others)
    final = to_tensors(run["final"])
    typical = typical_distance(final, expected)
    own = max(typical_distance(expected, other) for other, _ in others)
    first = max(abs(a - b["loss"]) for a, b in zip(losses[:SHARP_STEPS], run["steps"]))
    sharp = typical < max(TYPICAL_BOUND, 3 * own) and first < LOSS_BOUND
    print(f"{'ok  ' if sharp else 'FAIL'} {'':24} half of the weights differ by less than "
          f"{typical:.1e} (PyTorch's own {own:.1e}), the first {SHARP_STEPS} losses by "
          f"{first:.1e}", flush=True)
    return ok and sharp


def check_parity(folder, steps):
    return all([check_case(folder, steps, *case) for case in CASES])


def check_epochs(folder):
    """Two whole epochs: each sample once per epoch, in an order of its own."""
    good = True
    keys = {"batch": 2000, "epochs": 2, "model.width": 1, "valid.every_epochs": 0}
    orders = []
    for ranks in (1, 2):
        log = folder / "log"
        run = train_run.train(ranks, "--sample-log", log, keys=keys)
        if run.code != 0:
            sys.exit(f"cohort: exit code {run.code}: {run.err.strip()}")
        epochs = [[s for e, _, _, s in train_run.read_samples(log) if e == epoch]
                  for epoch in (1, 2)]
        ok = all(sorted(epoch) == list(range(60_000)) for epoch in epochs)
        ok &= epochs[0] != epochs[1]
        orders.append(epochs)
        good &= ok and orders[0] == epochs
        print(f"{'ok  ' if ok else 'FAIL'} {ranks} ranks: every sample once in each of 2 "
              "epochs, in two orders", flush=True)
    print(f"{'ok  ' if good else 'FAIL'} one order at every world size")
    return good


def describe(tensors):
    """What of each tensor is kept: enough to notice any difference that matters."""
    def of(tensor):
        flat = tensor.flatten()
        count = min(GOLDEN_VALUES, flat.numel())
        places = [i * (flat.numel() - 1) // max(1, count - 1) for i in range(count)]
        return {"mean": float(f"{flat.double().mean().item():.8g}"),
                "rms": float(f"{flat.double().square().mean().sqrt().item():.8g}"),
                "values": {str(p): float(f"{flat[p].item():.8g}") for p in places}}

    return {name: of(tensor) for name, tensor in sorted(tensors.items())}


def make_golden(folder):
    golden = {"made_by": "bench/peers/parity.py --golden", "torch": torch.__version__,
              "steps": GOLDEN_STEPS, "cases": {}}
    for name, keys in GOLDEN_CASES.items():
        run = run_cohort(folder, 1, GOLDEN_STEPS, keys)
        final, losses = run_pytorch(run)
        golden["initial"] = describe(to_tensors(run["initial"]))
        samples = json.dumps(run["samples"]).encode()
        golden["samples_sha256"] = hashlib.sha256(samples).hexdigest()
        golden["cases"][name] = {"keys": keys, "losses": losses, "final": describe(final)}
    return golden


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--golden", metavar="FILE")
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.golden:
            text = json.dumps(make_golden(folder), indent=1)
            one_line = re.sub(r"[{[][^{}[\]]*[]}]", lambda m: " ".join(m[0].split()), text)
            Path(args.golden).write_text(one_line + "\n")
            return 0
        good = check_parity(folder, args.steps)
        good &= check_resnet(folder)
        good &= check_resnet50(folder, "shard=0", 1)
        good &= check_resnet50(folder, "shard=3", 2)
        good &= check_epochs(folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
