#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Exchanges files with PyTorch, both ways. Needs a Python with torch.

  torch_exchange.py golden DIR     writes torch_file_golden.pt for torch_file_test.cpp
  torch_exchange.py check COHORT   torch.save -> import -> export -> torch.load
"""

import subprocess
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path

import torch


def state():
    shared = torch.arange(12, dtype=torch.float32)
    return OrderedDict(
        [
            ("b.weight", torch.tensor([[1.0, -2.5, 3.25], [0.0, 5.0, 6.0]])),
            ("view", shared.view(3, 4).t()[1:3]),
            ("a.steps", torch.tensor(7)),
            ("half", torch.arange(5).half()),
            ("bfloat", torch.arange(5).bfloat16()),
            ("mask", torch.tensor([True, False, True])),
            ("none", torch.empty(0, 4)),
        ]
    )


def equal(a, b):
    assert a.keys() == b.keys(), (a.keys(), b.keys())
    for name in a:
        assert a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]), name


def golden(folder):
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    with torch.no_grad():
        for i, value in enumerate(model.state_dict().values()):
            value.copy_(torch.arange(value.numel()).view_as(value) + i)
    # A state_dict carries _metadata, which plain dictionaries do not.
    torch.save(model.state_dict(), folder / "torch_file_golden.pt")


def check(program):
    def cohort(*args):
        subprocess.run([program, "checkpoint", *map(str, args)], check=True)

    def load(path):
        return torch.load(path, weights_only=True)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for i, saved in enumerate((state(), torch.nn.LSTM(3, 5).state_dict())):
            source, root, back = folder / "a.pt", folder / f"run{i}", folder / "b.pt"
            torch.save(saved, source)
            cohort("import", source, root)
            cohort("export", root, back, "--to", "pt")
            equal(load(back), dict(saved))
            cohort("diff", source, back)
        torch.save({"model": state(), "epoch": 3}, folder / "c.pt")
        cohort("import", folder / "c.pt", folder / "run_c", "--key", "model")
        cohort("export", folder / "run_c", folder / "d.pt", "--to", "pt")
        equal(load(folder / "d.pt"), state())
        torch.save(state(), folder / "old.pt", _use_new_zipfile_serialization=False)
        refused = subprocess.run(
            [program, "checkpoint", "import", folder / "old.pt", folder / "run_d"],
            capture_output=True, text=True)
        assert refused.returncode == 5 and refused.stderr.count("\n") == 1, refused
        huggingface(cohort, folder)
    print("equal both ways")


def huggingface(cohort, folder):
    from safetensors.torch import load_file

    root = folder / "run_c"
    cohort("export", root, folder / "one", "--to", "hf")
    equal(load_file(folder / "one" / "model.safetensors"), state())
    cohort("export", root, folder / "many", "--to", "hf", "--max-shard", "40")
    loaded = {}
    for path in (folder / "many").glob("model-*-of-*.safetensors"):
        loaded.update(load_file(path))
    equal(loaded, state())
    cohort("import", folder / "many", folder / "run_many")
    cohort("diff", folder / "run_many", root)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("golden", "check"):
        sys.exit(__doc__)
    if sys.argv[1] == "golden":
        golden(Path(sys.argv[2]))
    else:
        check(sys.argv[2])
