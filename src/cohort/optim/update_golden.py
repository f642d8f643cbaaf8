#!/usr/bin/env python3
"""Golden values of update_rule_test.cpp, from stock PyTorch: update_golden.py"""
import torch

STEPS = 5
SGD = [(0.0, False, 0.0), (0.9, False, 0.0), (0.9, True, 0.01), (0.9, False, 0.01)]
ADAM = [("Adam", 0.9, 0.999, 1e-8, 0.0), ("Adam", 0.9, 0.999, 1e-8, 0.1),
        ("Adam", 0.8, 0.95, 1e-2, 0.0), ("AdamW", 0.9, 0.999, 1e-8, 0.0),
        ("AdamW", 0.9, 0.999, 1e-8, 0.1), ("AdamW", 0.8, 0.95, 1e-2, 0.3)]


def run(make):
    """Parameters after the steps. The rate changes each step, as under a schedule."""
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5], dtype=torch.double))
    optimizer = make([p])
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = 0.1 / (step + 1)
        p.grad = torch.tensor([0.5, -0.25, 1.0], dtype=torch.double) * (step + 1)
        if step == 3:
            p.grad = -p.grad
        optimizer.step()
    return ", ".join(repr(v) for v in p.tolist())


def text(*values):
    return ", ".join(str(v).lower() if isinstance(v, bool) else str(v) for v in values)


for momentum, nesterov, decay in SGD:
    values = run(lambda p: torch.optim.SGD(
        p, lr=1, momentum=momentum, nesterov=nesterov, weight_decay=decay))
    print(f'    {{{{.name = "sgd", .momentum = {momentum}, '
          f".nesterov = {text(nesterov)}}}, {decay}, {{{values}}}}},")
for name, beta1, beta2, eps, decay in ADAM:
    values = run(lambda p: getattr(torch.optim, name)(
        p, lr=1, betas=(beta1, beta2), eps=eps, weight_decay=decay))
    print(f'    {{{{.name = "{name.lower()}", .beta1 = {beta1}, .beta2 = {beta2}, '
          f".eps = {eps}}}, {decay}, {{{values}}}}},")
