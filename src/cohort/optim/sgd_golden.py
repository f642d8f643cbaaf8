#!/usr/bin/env python3
"""Golden values of sgd_test.cpp, from stock PyTorch: sgd_golden.py"""
import torch

CASES = [(0.0, False, 0.0), (0.9, False, 0.0), (0.9, True, 0.01), (0.9, False, 0.01)]
for momentum, nesterov, decay in CASES:
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
    o = torch.optim.SGD([p], lr=0.1, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    for step in range(3):
        p.grad = torch.tensor([0.5, -0.25, 1.0]) * (step + 1)
        o.step()
    values = ", ".join(f"{v:.9g}f" for v in p.tolist())
    print(f"    {{{momentum}, {str(nesterov).lower()}, {decay}, {{{values}}}}},")
