#!/usr/bin/env python3
"""Weights of ResNets go to torchvision and come back, bit for bit.

Ours load into torchvision's model with strict=True; torchvision's state_dict, saved
with the package safetensors, loads into ours, and what we write then is what it saved.
The same through the program: `cohort train` goes on from torchvision's weights, and
torchvision reads what it saved.

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


def train(folder, name):
    """One step of `cohort train` from torchvision's weights."""
    torch.manual_seed(5)
    model = getattr(torchvision.models, name)(num_classes=10)
    model(torch.randn(2, 3, 64, 64))
    theirs, first, last = (folder / part for part in ("theirs", "first", "last"))
    save_file(model.state_dict(), theirs)
    keys = {"model.name": name, "model.stem": "large", "model.weights": theirs,
            "data.synthetic": "true", "batch": 4, "schedule.warmup_steps": 0}
    subprocess.run(
        [PROGRAM, "train", "cifar-resnet50v2", "--quiet", "--max-steps", "1",
         "--save-initial", first, "--save-final", last,
         *(part for key, value in keys.items() for part in ("--set", f"{key}={value}"))],
        check=True, stdout=subprocess.DEVNULL)
    before, after, state = load_file(first), load_file(last), model.state_dict()
    began = all(torch.equal(before[key], state[key]) for key in before)
    model.load_state_dict(after, strict=True)
    trained = all(not torch.equal(after[key], before[key]) for key in after)
    for good, what in ((began, "trains from torchvision's weights"),
                       (trained, "every tensor is trained, and loads there, strict")):
        print(f"{'ok  ' if good else 'FAIL'} {name}: cohort train: {what}")
    return began and trained


def main():
    with tempfile.TemporaryDirectory() as name:
        results = [test(Path(name), model) for model in ("resnet18", "resnet50")
                   for test in (check, train)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
