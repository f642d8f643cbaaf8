#!/usr/bin/env python3
"""Golden values of layer_rule_test.cpp: layer_golden.py

Stock PyTorch has neither rule, so both are written down a second time, on whole tensors
and in float64: LARS (You, Gitman, Ginsburg 2017, algorithm 1; trust 1 where a norm is
zero) and LAMB (You et al. 2019, algorithm 2; phi is the identity).
"""
import torch

STEPS = 5
# Elements, does the tensor adapt, is it zero at first, are its gradients zero.
TENSORS = [(2500, True, False, False), (3, True, False, False), (5, False, False, False),
           (4, True, True, False), (1030, True, False, True), (2, True, True, True)]
LARS = [(0.9, False, 0.001, 0.0), (0.9, False, 0.02, 0.01), (0.9, True, 0.02, 0.01),
        (0.0, False, 0.02, 0.01)]
LAMB = [(0.9, 0.999, 1e-6, 0.0), (0.9, 0.999, 1e-6, 0.1), (0.8, 0.95, 1e-2, 0.3)]
LARS_EPS = 1e-8


def numbers(count, a, b, modulus, divisor):
    """Multiples of a power of two: the same in float32."""
    i = torch.arange(count)
    return ((i * a + b) % modulus - modulus // 2).double() / divisor


def parameter(t, count, zero):
    return numbers(count, 37, 11 * t, 101, 64) * (0 if zero else 1)


def gradient(t, step, count, zero):
    return numbers(count, 29, 17 * t + 7 * step, 89, 256) * (0 if zero else 1)


def lars(p, gradients, adapts, momentum, nesterov, trust, decay):
    v = torch.zeros_like(p)
    for step, g in enumerate(gradients):
        local = 4.0 / (step + 1)
        if adapts and p.norm() > 0 and g.norm() > 0:
            local = local * trust * p.norm() / (g.norm() + decay * p.norm() + LARS_EPS)
        g = g + decay * p
        v = momentum * v + local * g
        p = p - (momentum * v + local * g if nesterov else v)
    return p


def lamb(p, gradients, adapts, beta1, beta2, eps, decay):
    m, v = torch.zeros_like(p), torch.zeros_like(p)
    for step, g in enumerate(gradients):
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g ** 2
        r = (m / (1 - beta1 ** (step + 1))) / ((v / (1 - beta2 ** (step + 1))).sqrt() + eps)
        u = r + decay * p
        ratio = p.norm() / u.norm() if adapts and p.norm() > 0 and u.norm() > 0 else 1
        p = p - 0.1 / (step + 1) * ratio * u
    return p


def rows(rule, *options):
    """First element, last element and mean of squares, for each tensor."""
    for t, (count, adapts, zero, idle) in enumerate(TENSORS):
        decay = options[-1] if adapts else 0.0  # biases and norms are left out of both
        p = rule(parameter(t, count, zero),
                 [gradient(t, step, count, idle) for step in range(STEPS)],
                 adapts, *options[:-1], decay)
        print("     {" + ", ".join(
            repr(v.item()) for v in (p[0], p[-1], (p * p).mean())) + "},")


for momentum, nesterov, trust, decay in LARS:
    print(f'    {{{{.name = "lars", .momentum = {momentum}, '
          f".nesterov = {str(nesterov).lower()}, .eps = {LARS_EPS}, .trust = {trust}}},"
          f" {decay}, {{{{")
    rows(lars, momentum, nesterov, trust, decay)
    print("    }}},")
for beta1, beta2, eps, decay in LAMB:
    print(f'    {{{{.name = "lamb", .beta1 = {beta1}, .beta2 = {beta2}, .eps = {eps}}},'
          f" {decay}, {{{{")
    rows(lamb, beta1, beta2, eps, decay)
    print("    }}},")
