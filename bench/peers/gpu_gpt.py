#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 124M in PyTorch on one GPU, as `cohort bench train gpt --device cuda` has it.

The vocabulary is 50,304, as in nanoGPT: with 50,257 rows PyTorch takes half as long again.

Usage: gpu_gpt.py [eager] [compile]      needs torch and a GPU
"""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from gpu_timing import seconds_a_step

BATCH, TOKENS, VOCABULARY, WIDTH, DEPTH, HEADS = 64, 1024, 50304, 768, 12, 12


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(DEPTH)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, x, y):
        h = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(self.head(self.norm(h)).view(-1, VOCABULARY).float(), y.view(-1))


def measure(mode):
    torch.manual_seed(0)
    model = Gpt().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    x = torch.randint(0, VOCABULARY, (BATCH, TOKENS), device="cuda")
    y = torch.randint(0, VOCABULARY, (BATCH, TOKENS), device="cuda")
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
    seconds = seconds_a_step(step)
    print(f"gpt, batch {BATCH} x {TOKENS}, bf16, {mode}: {1e3 * seconds:.2f} ms per step, "
          f"{BATCH * TOKENS / seconds:.0f} tokens/s, first step {first:.1f} s", flush=True)


def main():
    torch.backends.cuda.matmul.allow_tf32 = True
    for mode in sys.argv[1:] or ["eager"]:
        measure(mode)


if __name__ == "__main__":
    main()
