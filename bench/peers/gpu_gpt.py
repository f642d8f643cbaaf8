#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 124M in PyTorch on one GPU: the step of `cohort bench train gpt --device cuda`.

Usage: gpu_gpt.py [eager] [compile] [--kernels] [--vocabulary N]     needs PyTorch and a GPU

Prints the median of three turns of 20 steps each, as Cohort does; --kernels adds where the
time of a step goes. The default vocabulary is nanoGPT's 50,304: with GPT-2's own 50,257
rows PyTorch takes half as long again (--vocabulary 50257).
"""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from gpu_timing import median_step_seconds, print_kernels

BATCH, TOKENS, WIDTH, DEPTH, HEADS = 64, 1024, 768, 12, 12
MODES = ("eager", "compile")


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        parts = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, c // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x, y):
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.norm(h))
        return F.cross_entropy(logits.flatten(0, 1).float(), y.flatten())


def measure(mode, vocabulary, kernels):
    torch.manual_seed(0)
    model = Gpt(vocabulary).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    x = torch.randint(0, vocabulary, (BATCH, TOKENS), device="cuda")
    y = torch.randint(0, vocabulary, (BATCH, TOKENS), device="cuda")
    run = model if mode == "eager" else torch.compile(model)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    begin = time.time()
    step()
    torch.cuda.synchronize()
    first = time.time() - begin
    seconds = median_step_seconds(step)
    print(f"gpt, batch {BATCH} x {TOKENS}, bf16, {mode}: {1e3 * seconds:.2f} ms per step, "
          f"{BATCH * TOKENS / seconds:.0f} tokens/s, first step {first:.1f} s", flush=True)
    if kernels:
        print_kernels(step, seconds)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modes", nargs="*", metavar="mode",
                        help="eager or compile (default eager)")
    parser.add_argument("--kernels", action="store_true",
                        help="milliseconds of each kernel of a step")
    parser.add_argument("--vocabulary", type=int, default=50304,
                        help="rows of the token table (default 50304)")
    args = parser.parse_args()
    unknown = set(args.modes) - set(MODES)
    if unknown:
        parser.error(f"unknown mode {unknown.pop()}; expected one of: {', '.join(MODES)}")
    torch.backends.cuda.matmul.allow_tf32 = True
    for mode in args.modes or ["eager"]:
        measure(mode, args.vocabulary, args.kernels)


if __name__ == "__main__":
    main()
