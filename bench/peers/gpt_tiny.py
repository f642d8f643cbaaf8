#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpt-tiny in Cohort and in stock PyTorch: one token file, the same first weights, the
same samples in the same order, the same steps. The validation losses at the end must be
within 1 percent.

Usage: .deps/peers/bin/python bench/peers/gpt_tiny.py [--steps 300] [--ranks 1] [--json]
"""
import argparse
import json
import math
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/integration"))
import train_run  # noqa: E402

BOUND = 0.01
HEADER = 256 * 4


class Linear(nn.Module):
    """GPT-2's files have weights as [in, out]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return F.linear(x, self.weight.t(), self.bias)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Linear(width, 3 * width)
        self.c_proj = Linear(width, width)

    def forward(self, x):
        parts = self.c_attn(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Linear(width, 4 * width)
        self.c_proj = Linear(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    """The names of Hugging Face's GPT2LMHeadModel, whose head is the token table."""

    def __init__(self, vocab, context, width, depth, heads):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocab, width), "wpe": nn.Embedding(context, width),
            "h": nn.ModuleList(Block(width, heads) for _ in range(depth)),
            "ln_f": nn.LayerNorm(width)})

    def forward(self, tokens):
        t = self.transformer
        x = t["wte"](tokens) + t["wpe"](torch.arange(tokens.shape[1]))
        for block in t["h"]:
            x = block(x)
        return F.linear(t["ln_f"](x), t["wte"].weight)


def read_tokens(path):
    data = bytearray(path.read_bytes()[HEADER:])
    return torch.frombuffer(data, dtype=torch.uint16).long()


def write_tokens(path, tokens):
    header = struct.pack("<256i", 20240520, 1, len(tokens), *[0] * 253)
    path.write_bytes(header + tokens.to(torch.uint16).numpy().tobytes())


def windows(tokens, ids, context):
    rows = torch.stack([tokens[i * context:i * context + context + 1] for i in ids])
    return rows[:, :-1], rows[:, 1:]


def bible():
    text = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], check=True, text=True,
                          capture_output=True).stdout
    lines = "".join(line.partition(" ")[2] for line in text.splitlines(keepends=True))
    return torch.tensor(list(lines.encode()), dtype=torch.long)


def write_corpus(folder, samples, context):
    """One epoch of exactly so many samples, and a validation set from the end."""
    tokens = bible()
    write_tokens(folder / "train.bin", tokens[:samples * context + 1])
    write_tokens(folder / "val.bin", tokens[-100 * context - 1:])


def run_cohort(folder, ranks, steps, batch):
    initial, log = folder / "initial.safetensors", folder / "samples"
    keys = {"data.tokenizer": "none", "data.vocab": 257, "data.dir": folder, "epochs": 1,
            "batch": batch, "log.every_steps": 1}
    run = train_run.cohort("train", "gpt-tiny", "-n", ranks, "--json",
                           "--max-steps", steps, *train_run.assignments(keys),
                           "--save-initial", initial, "--sample-log", log,
                           deadline_s=3600)
    if run.code != 0:
        sys.exit(f"cohort: exit code {run.code}: {run.err.strip()}")
    (begin,) = run.of("start")
    (valid,) = run.of("valid")
    return {"config": begin["config"], "steps": run.of("step"), "valid": valid["loss"],
            "initial": load_file(initial), "done": run.done,
            "samples": train_run.samples_of_steps(train_run.read_samples(log))}


def make_optimizer(model, config):
    """No decay for norms and biases: what optim.no_decay says."""
    spared = config["optim.no_decay"].split(",")
    groups = {True: [], False: []}
    for name, parameter in model.named_parameters():
        groups[any(part in name for part in spared)].append(parameter)
    return torch.optim.AdamW(
        [{"params": groups[False], "weight_decay": config["optim.weight_decay"]},
         {"params": groups[True], "weight_decay": 0.0}],
        betas=(config["optim.beta1"], config["optim.beta2"]), eps=config["optim.eps"])


def loss_of(model, tokens, ids, context):
    inputs, targets = windows(tokens, ids, context)
    return F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def run_pytorch(run, folder, context):
    config = run["config"]
    model = Gpt(257, context, 128, 6, 4)
    model.load_state_dict(run["initial"])
    optimizer = make_optimizer(model, config)
    tokens = read_tokens(folder / "train.bin")
    losses = []
    for samples, step in zip(run["samples"], run["steps"], strict=True):
        for group in optimizer.param_groups:
            group["lr"] = step["lr"]
        optimizer.zero_grad()
        loss = loss_of(model, tokens, samples, context)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), config["optim.clip"])
        optimizer.step()
        losses.append(loss.item())
    valid = read_tokens(folder / "val.bin")
    with torch.no_grad():
        return losses, loss_of(model, valid, range((len(valid) - 1) // context),
                               context).item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    context = 128
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder, args.steps * args.batch, context)
        run = run_cohort(folder, args.ranks, args.steps, args.batch)
        losses, valid = run_pytorch(run, folder, context)
    apart = abs(run["valid"] / valid - 1)
    gap = max(abs(step["loss"] - loss)
              for step, loss in zip(run["steps"], losses, strict=True))
    ok = apart < BOUND and math.isfinite(valid) and losses[-1] < losses[0] - 1
    if args.json:
        print(json.dumps({"steps": args.steps, "ranks": args.ranks, "valid": run["valid"],
                          "pytorch": valid, "apart": apart, "largest_gap": gap}))
    else:
        print(f"{'ok  ' if ok else 'FAIL'} {args.steps} steps on {args.ranks} ranks: loss "
              f"{losses[0]:.3f} -> {losses[-1]:.3f}, validation {run['valid']:.4f}, "
              f"PyTorch {valid:.4f}: {100 * apart:.3f} % apart; losses of steps differ by "
              f"up to {gap:.1e}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
