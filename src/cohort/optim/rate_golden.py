#!/usr/bin/env python3
"""Golden values of rate_schedule_test.cpp, from stock PyTorch: rate_golden.py"""
import warnings

import torch
from torch.optim.lr_scheduler import (ConstantLR, CosineAnnealingLR, LinearLR,
                                      SequentialLR, StepLR)

BASE, TOTAL = 0.4, 20
warnings.simplefilter("ignore")


def after_warmup(optimizer, name, warmup, step_every, gamma, decay, floor):
    """The schedulers after the warm-up, with the step each begins at."""
    length = TOTAL - warmup
    if name == "constant":
        return [(ConstantLR(optimizer, factor=1.0), warmup)]
    if name == "step":
        return [(StepLR(optimizer, step_every, gamma), warmup)]
    if name == "cosine":
        return [(CosineAnnealingLR(optimizer, length, eta_min=floor * BASE), warmup)]
    if name == "linear":
        return [(LinearLR(optimizer, 1.0, floor, total_iters=length), warmup)]
    return [(ConstantLR(optimizer, factor=1.0), warmup),
            (LinearLR(optimizer, 1.0, floor, total_iters=decay), TOTAL - decay)]


def rates(warmup, **options):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE)
    parts = after_warmup(optimizer, warmup=warmup, **options)
    if warmup > 0:
        parts.insert(0, (LinearLR(optimizer, 1 / warmup, 1.0, warmup - 1), 0))
    scheduler = SequentialLR(optimizer, [part for part, _ in parts],
                             [begin for _, begin in parts[1:]])
    values = []
    for _ in range(TOTAL):
        values.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return values


CASES = [("constant", 0, 0, 1, 0, 0), ("constant", 4, 0, 1, 0, 0),
         ("step", 0, 6, 0.1, 0, 0), ("step", 3, 5, 0.5, 0, 0),
         ("cosine", 0, 0, 1, 0, 0), ("cosine", 4, 0, 1, 0, 0.1),
         ("linear", 0, 0, 1, 0, 0), ("linear", 5, 0, 1, 0, 0.2),
         ("warmup-stable-decay", 4, 0, 1, 6, 0), ("wsd", 0, 0, 1, 5, 0.1)]
for name, warmup, step_every, gamma, decay, floor in CASES:
    values = ", ".join(f"{v:.12g}" for v in rates(
        name=name, warmup=warmup, step_every=step_every, gamma=gamma, decay=decay,
        floor=floor))
    given = {"warmup_steps": warmup, "step_every": step_every, "decay_steps": decay,
             "floor": floor, **({"gamma": gamma} if name == "step" else {})}
    more = "".join(f", .{field} = {value}" for field, value in given.items() if value)
    print(f'    {{{{.name = "{name}"{more}}}, {{{values}}}}},')
