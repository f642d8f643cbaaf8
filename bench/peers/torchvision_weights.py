#!/usr/bin/env python3
"""Weights of ResNets go to torchvision and come back, bit for bit.

Ours load into torchvision's model with strict=True; torchvision's state_dict, saved
with the package safetensors, loads into ours, and what we write then is what it saved.

Needs PyTorch, torchvision and safetensors (see README.md here) and a built
`model_weights` beside the program ($COHORT_BIN).
"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torchvision
from safetensors.torch import load_file, save_file

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("COHORT_BIN", ROOT / "build/release/bin/cohort"))


def weights(*args):
    subprocess.run([PROGRAM.with_name("model_weights"), *args], check=True,
                   stdout=subprocess.DEVNULL)


def check(folder, name):
    model = getattr(torchvision.models, name)()
    ours = folder / "ours.safetensors"
    weights(name, ours)
    state = load_file(ours)
    model.load_state_dict(state, strict=True)
    exported = all(torch.equal(model.state_dict()[key], state[key]) for key in state)

    torch.manual_seed(3)
    model = getattr(torchvision.models, name)()
    model(torch.randn(2, 3, 64, 64))  # running statistics that are not the first ones
    theirs, back = folder / "theirs.safetensors", folder / "back.safetensors"
    save_file(model.state_dict(), theirs)
    weights(name, back, theirs)
    state = {key: value for key, value in model.state_dict().items()
             if not key.endswith("num_batches_tracked")}
    returned = load_file(back)
    imported = (returned.keys() == state.keys()
                and all(torch.equal(returned[key], state[key]) for key in state))
    for good, what in ((exported, "ours load into torchvision's, strict"),
                       (imported, "torchvision's come back as they were")):
        print(f"{'ok  ' if good else 'FAIL'} {name}: {what} ({len(state)} tensors)")
    return exported and imported


def main():
    with tempfile.TemporaryDirectory() as name:
        results = [check(Path(name), model) for model in ("resnet18", "resnet50")]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
