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
import copy
import gzip
import hashlib
import json
import re
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/integration"))
import train_run  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src/cohort/nn"))
from resnet_golden import ResNetV2  # noqa: E402

BOUND = 1e-4
LOSS_BOUND = 1e-5
# Activations and maxima that nearly tie fall one way or the other with the rounding, and
# then whole gradients of a sample differ: from there on PyTorch differs from itself, too,
# by as much as 9e-4, when its memory format or the order of a batch changes. So all steps
# count against that; the first ones, and the middle one of all weights, stay sharp.
SHARP_STEPS = 10
TYPICAL_BOUND = 1e-6
# One step from the same weights and momentum: rounding, and at most such a unit or two.
STEP_BOUND = 1e-5
STEP_LOSS_BOUND = 1e-6
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
# A whole ResNet-50V2, narrow, on files of the form of CIFAR-10; one slice, as PyTorch's
# batch norm has it. In float32 the gradients of PyTorch's two memory formats differ
# from float64 by 1 and 2 percent, so the measure is how far these two are apart.
RESNET_KEYS = {"model.width": 16, "batch": 32, "optim.lr": 1e-4, "slices": 1,
               "schedule.name": "constant", "schedule.warmup_steps": 0}
RESNET_STEPS = 10
# torchvision's ResNet-50 with its zero_init_residual=True, as it is trained in earnest:
# every block begins as the identity, and rounding does not grow.
RESNET50_KEYS = {**RESNET_KEYS, "model.name": "resnet50", "model.stem": "large",
                 "model.width": 64, "optim.lr": 1e-3}
GOLDEN_CASES = {"plain": {}, "nesterov": NESTEROV}
GOLDEN_STEPS = 10
GOLDEN_VALUES = 24  # of a tensor


class Cnn(nn.Module):
    """The network of the recipe fashion-mnist."""

    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 32, 3, padding=1)
        self.c2 = nn.Conv2d(32, 64, 3, padding=1)
        self.f1 = nn.Linear(64 * 7 * 7, 128)
        self.f2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2)
        return self.f2(F.relu(self.f1(x.flatten(1))))


def write_cifar(folder):
    """Random images in the six files of CIFAR-10."""
    generator = torch.Generator().manual_seed(1)
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        records = torch.randint(256, (10_000, 3073), dtype=torch.uint8, generator=generator)
        records[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(records.numpy().tobytes())


def load_cifar(folder):
    files = [(Path(folder) / f"data_batch_{i}.bin").read_bytes() for i in range(1, 6)]
    records = torch.frombuffer(bytearray(b"".join(files)), dtype=torch.uint8).view(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()


def pixels(images, config):
    images = images.float() / 255
    if not config["data.normalize"]:
        return images
    mean = torch.tensor([0.4914, 0.4822, 0.4465]).view(3, 1, 1)
    return (images - mean) / torch.tensor([0.2470, 0.2435, 0.2616]).view(3, 1, 1)


def load_data(folder):
    def read(name, skip):
        with gzip.open(Path(folder) / f"{name}-ubyte.gz") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)[skip:]

    images = read("train-images-idx3", 16).view(-1, 1, 28, 28)
    return images, read("train-labels-idx1", 8).long()


def make_optimizer(model, config):
    rate, decay = config["optim.lr"], config["optim.weight_decay"]
    if config["optim.name"] == "sgd":
        return torch.optim.SGD(
            model.parameters(), lr=rate, momentum=config["optim.momentum"],
            nesterov=config["optim.nesterov"], weight_decay=decay)
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config["optim.name"]]
    return kind(model.parameters(), lr=rate, weight_decay=decay, eps=config["optim.eps"],
                betas=(config["optim.beta1"], config["optim.beta2"]))


def to_tensors(weights):
    return {name: torch.tensor(values).view(shape)
            for name, (shape, values) in weights.items()}


def run_cohort(folder, ranks, steps, keys, recipe="fashion-mnist"):
    """One run, and PyTorch's part of it: start, samples and rate of each step."""
    initial, final, log = (folder / name for name in ("initial", "final", "log"))
    keys = dict(keys)
    layout = keys.pop("layout", "shard=0")
    run = train_run.cohort(
        "train", recipe, "-n", ranks, "--json", "--max-steps", steps,
        "--layout", layout, *train_run.assignments({**keys, "log.every_steps": 1}),
        "--save-initial", initial, "--save-final", final, "--sample-log", log)
    if run.code != 0:
        sys.exit(f"cohort: exit code {run.code}: {run.err.strip()}")
    (begin,) = run.of("start")
    samples = train_run.read_samples(log)
    hash_of_file = train_run.weights_hash(final)
    assert run.done["weights_hash"] == hash_of_file, (run.done, hash_of_file)
    return {"config": begin["config"], "steps": run.of("step"),
            "initial": train_run.read_weights(initial),
            "final": train_run.read_weights(final),
            "samples": train_run.samples_of_steps(samples),
            "ranks": [[[sample for _, at, of, sample in samples if (at, of) == (step, rank)]
                       for rank in range(ranks)] for step in range(1, steps + 1)]}


def backward(model, images, labels, samples, config):
    """Adds the gradient of these samples' share of the mean loss, and returns it."""
    outputs = model(pixels(images[samples], config))
    loss = F.cross_entropy(outputs, labels[samples], reduction="sum") / config["batch"]
    loss.backward()
    return loss.item()


def run_pytorch(run, reverse=False, model=None, apart=False, form=None):
    """One process, the mean loss of the global batch: final weights, losses. `apart`:
    batch norm sees the samples of one rank at a time."""
    config = run["config"]
    images, labels = (load_cifar if model else load_data)(config["data.dir"])
    model = model or Cnn()
    if form:
        model = model.to(memory_format=form)
    model.load_state_dict(to_tensors(run["initial"]))
    optimizer = make_optimizer(model, config)
    losses = []
    for samples, step in zip(run["samples"], run["steps"], strict=True):
        assert len(samples) == config["batch"] and len(set(samples)) == len(samples)
        samples = samples[::-1] if reverse else samples
        optimizer.param_groups[0]["lr"] = step["lr"]
        optimizer.zero_grad()
        parts = run["ranks"][len(losses)] if apart else [samples]
        losses.append(sum(backward(model, images, labels, part, config)
                          for part in parts))
        optimizer.step()
    return {name: value.detach() for name, value in model.state_dict().items()
            if not name.endswith("num_batches_tracked")}, losses


def distance(a, b):
    """Of the trained tensors; running statistics follow the activations."""
    assert a.keys() == b.keys(), (a.keys(), b.keys())
    return max((a[name] - b[name]).abs().max().item() for name in a
               if "running" not in name)


def typical_distance(a, b):
    return torch.cat([(a[name] - b[name]).abs().flatten() for name in a]).median().item()


def check_resnet(folder):
    write_cifar(folder)
    run = run_cohort(folder, 1, RESNET_STEPS, {**RESNET_KEYS, "data.dir": folder},
                     "cifar-resnet50v2")
    results = []
    for form in (torch.contiguous_format, torch.channels_last):
        model = ResNetV2((3, 4, 6, 3), RESNET_KEYS["model.width"], 10, True)
        results.append(run_pytorch(run, model=model.to(memory_format=form)))
    return report("ResNet-50V2", 1, run, *results[0], results[1:])


def check_resnet50(folder, layout, ranks):
    torch.manual_seed(1)
    model = torchvision.models.resnet50(num_classes=10, zero_init_residual=True)
    start = folder / "resnet50.safetensors"
    save_file({name: value.contiguous() for name, value in model.state_dict().items()
               if not name.endswith("num_batches_tracked")}, start)
    with tempfile.TemporaryDirectory(dir=folder) as saved:
        keys = {**RESNET50_KEYS, "data.dir": folder, "model.weights": start,
                "slices": ranks, "layout": layout, "checkpoint.dir": saved,
                "checkpoint.every_steps": 1, "checkpoint.keep": RESNET_STEPS}
        run = run_cohort(folder, ranks, RESNET_STEPS, keys, "cifar-resnet50v2")
        steps_ok = check_steps(run, Path(saved), copy.deepcopy(model))
    other = run_pytorch(run, model=copy.deepcopy(model), apart=True,
                        form=torch.channels_last)
    expected = run_pytorch(run, model=model, apart=True)
    return steps_ok & report(f"ResNet-50, {layout}", ranks, run, *expected, [other],
                             may_part=steps_ok)


def load_step(saved, step):
    """Weights and momentum of a checkpoint."""
    exported = saved / "exported.safetensors"
    run = train_run.cohort("checkpoint", "export", saved / f"step-{step:08}", exported,
                           "--all")
    if run.code != 0:
        sys.exit(f"cohort: exit code {run.code}: {run.err.strip()}")
    tensors, prefix = load_file(exported), "optimizer.momentum."
    momentum = {name[len(prefix):]: value for name, value in tensors.items()
                if name.startswith(prefix)}
    return {name: value for name, value in tensors.items()
            if not name.startswith("optimizer.")}, momentum


def check_steps(run, saved, model):
    """Each step after the first by itself: PyTorch makes it from Cohort's own weights and
    momentum, so that no step inherits what the one before it rounded."""
    config = run["config"]
    images, labels = load_cifar(config["data.dir"])
    weight = loss = 0
    weights, momentum = load_step(saved, 1)
    for index in range(1, len(run["steps"])):
        model.load_state_dict(weights, strict=False)
        optimizer = make_optimizer(model, config)
        for name, parameter in model.named_parameters():
            optimizer.state[parameter]["momentum_buffer"] = momentum[name].clone()
        optimizer.param_groups[0]["lr"] = run["steps"][index]["lr"]
        optimizer.zero_grad()
        made = sum(backward(model, images, labels, part, config)
                   for part in run["ranks"][index])
        optimizer.step()
        weights, momentum = load_step(saved, index + 1)
        weight = max(weight, distance(weights, {name: value for name, value in
                                                model.state_dict().items()
                                                if name in weights}))
        loss = max(loss, abs(made - run["steps"][index]["loss"]))
    ok = weight < STEP_BOUND and loss < STEP_LOSS_BOUND
    print(f"{'ok  ' if ok else 'FAIL'} {'':24} each step from the same weights: weights "
          f"differ by up to {weight:.1e}, losses {loss:.1e}", flush=True)
    return ok


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


def largest_loss_gap(a, b):
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def report(name, ranks, run, expected, losses, others=(), may_part=False):
    """`others`: weights and losses of PyTorch in another order or memory format; the
    nearest counts, for two formats may part from one another by more than the bound.
    `may_part`: every step was shown to be PyTorch's own; how far the runs are apart at
    the end is told, but does not count."""
    final = to_tensors(run["final"])
    made = [step["loss"] for step in run["steps"]]
    gaps = [(distance(final, weights), largest_loss_gap(made, other))
            for weights, other in [(expected, losses), *others]]
    weight, loss = min(gaps)
    moved = distance(final, to_tensors(run["initial"]))
    bound, loss_bound, note = BOUND, LOSS_BOUND, ""
    if others:
        own = max(distance(expected, other) for other, _ in others)
        own_loss = max(largest_loss_gap(losses, other) for _, other in others)
        bound, loss_bound = max(bound, 3 * own), max(loss_bound, 3 * own_loss)
        note = (f"; from PyTorch's other format or order {max(gaps)[0]:.1e}; PyTorch from "
                f"itself {own:.1e}, {own_loss:.1e}")
    # Weights that did not move agree, too, and prove nothing.
    near = weight < bound and loss < loss_bound
    ok = (near or may_part) and moved > 10 * BOUND
    print(f"{'ok  ' if near and ok else 'part' if ok else 'FAIL'} {name:24} {ranks} ranks, "
          f"{len(losses)} steps: weights differ by up to {weight:.1e} (moved {moved:.1e}), "
          f"losses {loss:.1e}{note}", flush=True)
    return ok


def check_parity(folder, steps):
    return all([check_case(folder, steps, *case) for case in CASES])


def check_epochs(folder):
    """Two whole epochs: each sample once an epoch, in an order of its own."""
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
