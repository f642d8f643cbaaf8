#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 in PyTorch on one GPU: the step of `cohort bench train resnet50 --device cuda`.

Usage: gpu_resnet.py [eager] [compile]      needs PyTorch, torchvision and a GPU

Prints the median of three turns of 20 steps each, as Cohort does.
"""
import sys

import torch
import torch.nn.functional as F
import torchvision

from gpu_timing import median_step_seconds

BATCH = 256


def measure(mode):
    torch.manual_seed(0)
    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9,
                                weight_decay=1e-4, foreach=True)
    x = torch.randn(BATCH, 3, 224, 224, device="cuda")
    x = x.to(memory_format=torch.channels_last)
    y = torch.randint(0, 1000, (BATCH,), device="cuda")
    run = model if mode == "eager" else torch.compile(model)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(run(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    seconds = median_step_seconds(step)
    print(f"resnet50, batch {BATCH}, bf16, {mode}: {1e3 * seconds:.2f} ms per step, "
          f"{BATCH / seconds:.0f} samples/s", flush=True)


def main():
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    for mode in sys.argv[1:] or ["eager"]:
        measure(mode)


if __name__ == "__main__":
    main()
