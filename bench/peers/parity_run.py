# SPDX-License-Identifier: Apache-2.0
"""One run in Cohort, the same run in stock PyTorch, and how far they are apart."""
import gzip
import sys
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/integration"))
import train_run  # noqa: E402

BOUND = 1e-4
LOSS_BOUND = 1e-5


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


def make_step(model, optimizer, data, parts, step, config):
    """One step of PyTorch over the samples of all parts, and its loss."""
    optimizer.param_groups[0]["lr"] = step["lr"]
    optimizer.zero_grad()
    loss = sum(backward(model, *data, part, config) for part in parts)
    optimizer.step()
    return loss


def run_pytorch(run, reverse=False, model=None, apart=False, form=None):
    """One process, the mean loss of the global batch: final weights, losses. `apart`:
    batch norm sees the samples of one rank at a time."""
    config = run["config"]
    data = (load_cifar if model else load_data)(config["data.dir"])
    model = model or Cnn()
    if form:
        model = model.to(memory_format=form)
    model.load_state_dict(to_tensors(run["initial"]))
    optimizer = make_optimizer(model, config)
    losses = []
    for samples, ranks, step in zip(run["samples"], run["ranks"], run["steps"],
                                    strict=True):
        assert len(samples) == config["batch"] and len(set(samples)) == len(samples)
        parts = ranks if apart else [samples[::-1] if reverse else samples]
        losses.append(make_step(model, optimizer, data, parts, step, config))
    return {name: value.detach() for name, value in model.state_dict().items()
            if not name.endswith("num_batches_tracked")}, losses


def distance(a, b):
    """How far trained tensors are apart at most; running statistics follow the activations."""
    assert a.keys() == b.keys(), (a.keys(), b.keys())
    return max((a[name] - b[name]).abs().max().item() for name in a
               if "running" not in name)


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
