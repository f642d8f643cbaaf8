# SPDX-License-Identifier: Apache-2.0
"""PyTorch DDP over Gloo on CPUs: the models and batches of `cohort bench train`.

  torchrun --standalone --nproc-per-node 2 ddp_cpu.py CASE [--steps N]

CASE is fashion, mlp100 or resnet50-cifar. Rank 0 prints one JSON line: the median of the
measured steps in milliseconds, and the seconds until the first step was complete. These
count from COMMAND_BEGAN (Unix time), or else from the time this script has imported PyTorch.
"""
import argparse
import gzip
import itertools
import json
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

BEGAN = float(os.environ.get("COMMAND_BEGAN") or time.time())
FASHION_MNIST = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
IMAGE_HEADER_BYTES, LABEL_HEADER_BYTES = 16, 8


class Cnn(nn.Module):
    """The model of the recipe fashion-mnist."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.hidden = nn.Linear(64 * 7 * 7, 128)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.head(F.relu(self.hidden(x.flatten(1))))


def make_linear_stack():
    """100 MB of gradients and little computation."""
    return nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(6)])


def make_resnet50():
    import torchvision  # the other cases do without it
    return torchvision.models.resnet50(num_classes=10)


def read_idx(name, header_bytes):
    with gzip.open(FASHION_MNIST / name) as file:
        return torch.frombuffer(bytearray(file.read()[header_bytes:]), dtype=torch.uint8)


def fashion_batches(batch):
    """Endless batches of Fashion-MNIST, in a new order every epoch."""
    images = read_idx("train-images-idx3-ubyte.gz", IMAGE_HEADER_BYTES)
    labels = read_idx("train-labels-idx1-ubyte.gz", LABEL_HEADER_BYTES)
    dataset = TensorDataset(images.view(-1, 1, 28, 28), labels.long())
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=batch, sampler=sampler, drop_last=True)
    for epoch in itertools.count():
        sampler.set_epoch(epoch)
        for pixels, targets in loader:
            yield pixels.float() / 255, targets


def linear_stack_batches(batch):
    return itertools.repeat((torch.randn(batch, 2048), None))


def cifar_batches(batch):
    return itertools.repeat((torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))))


def mean_square(output, _):
    return output.square().mean()


@dataclass
class Case:
    make_model: Callable
    batches: Callable
    loss: Callable
    batch: int  # samples per rank
    rate: float
    warmup: int  # steps before the measured ones
    steps: int  # measured steps


CASES = {
    "fashion": Case(Cnn, fashion_batches, F.cross_entropy, 64, 0.05, 20, 150),
    "mlp100": Case(make_linear_stack, linear_stack_batches, mean_square, 8, 0.01, 3, 30),
    "resnet50-cifar": Case(make_resnet50, cifar_batches, F.cross_entropy, 16, 0.01, 3, 9),
}


def time_steps(case, steps):
    """Seconds of each step after the warm-up, and seconds until the first step ended."""
    model = DistributedDataParallel(case.make_model(), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=case.rate, momentum=0.9)
    batches = case.batches(case.batch)
    seconds = []
    first_step_s = None
    for _ in range(case.warmup + steps):
        begin = time.perf_counter()
        inputs, targets = next(batches)
        loss = case.loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
        if first_step_s is None:
            first_step_s = time.time() - BEGAN
    return seconds[case.warmup:], first_step_s


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--steps", type=int, help="measured steps (default: the case's own)")
    args = parser.parse_args()
    case = CASES[args.case]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    seconds, first_step_s = time_steps(case, args.steps or case.steps)
    if dist.get_rank() == 0:
        median_s = statistics.median(seconds)
        samples = case.batch * dist.get_world_size()
        print(json.dumps({"case": args.case, "ranks": dist.get_world_size(),
                          "step_ms": 1e3 * median_s,
                          "samples_per_second": samples / median_s,
                          "first_step_s": first_step_s}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
