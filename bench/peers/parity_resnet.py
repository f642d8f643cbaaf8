# SPDX-License-Identifier: Apache-2.0
"""Parity of the ResNets: ten steps on files of the form of CIFAR-10."""
import copy
import sys
import tempfile
from pathlib import Path

import torch
import torchvision
from safetensors.torch import load_file, save_file

from parity_run import (distance, load_cifar, make_optimizer, make_step, report, run_cohort,
                        run_pytorch, train_run)

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src/cohort/nn"))
from resnet_golden import ResNetV2  # noqa: E402

# One step from the same weights and momentum: rounding, and at most such a unit or two.
STEP_BOUND = 1e-5
STEP_LOSS_BOUND = 1e-6
# A whole ResNet-50V2, narrow, on files of the form of CIFAR-10; one slice, as PyTorch's
# batch norm has it. In float32 the gradients of PyTorch's two memory formats differ
# from float64 by 1 and 2 percent, so the measure is how far these two are apart.
RESNET_KEYS = {"model.width": 16, "batch": 32, "optim.lr": 1e-4, "slices": 1,
               "schedule.name": "constant", "schedule.warmup_steps": 0}
RESNET_STEPS = 10
# torchvision's ResNet-50 with its zero_init_residual=True, as it is trained in earnest:
# every block begins as the identity, and rounding does not grow.
RESNET50_KEYS = {**RESNET_KEYS, "model.name": "resnet50", "model.stem": "large",
                 "model.width": 64, "optim.lr": 1e-3}


def write_cifar(folder):
    """Random images in the six files of CIFAR-10."""
    generator = torch.Generator().manual_seed(1)
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        records = torch.randint(256, (10_000, 3073), dtype=torch.uint8, generator=generator)
        records[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(records.numpy().tobytes())


def check_resnet(folder):
    write_cifar(folder)
    run = run_cohort(folder, 1, RESNET_STEPS, {**RESNET_KEYS, "data.dir": folder},
                     "cifar-resnet50v2")
    results = []
    for form in (torch.contiguous_format, torch.channels_last):
        model = ResNetV2((3, 4, 6, 3), RESNET_KEYS["model.width"], 10, True)
        results.append(run_pytorch(run, model=model.to(memory_format=form)))
    return report("ResNet-50V2", 1, run, *results[0], results[1:])


def check_resnet50(folder, layout, ranks):
    torch.manual_seed(1)
    model = torchvision.models.resnet50(num_classes=10, zero_init_residual=True)
    start = folder / "resnet50.safetensors"
    save_file({name: value.contiguous() for name, value in model.state_dict().items()
               if not name.endswith("num_batches_tracked")}, start)
    with tempfile.TemporaryDirectory(dir=folder) as saved:
        keys = {**RESNET50_KEYS, "data.dir": folder, "model.weights": start,
                "slices": ranks, "layout": layout, "checkpoint.dir": saved,
                "checkpoint.every_steps": 1, "checkpoint.keep": RESNET_STEPS}
        run = run_cohort(folder, ranks, RESNET_STEPS, keys, "cifar-resnet50v2")
        steps_ok = check_steps(run, Path(saved), copy.deepcopy(model))
    other = run_pytorch(run, model=copy.deepcopy(model), apart=True,
                        form=torch.channels_last)
    expected = run_pytorch(run, model=model, apart=True)
    return steps_ok & report(f"ResNet-50, {layout}", ranks, run, *expected, [other],
                             may_part=steps_ok)


def load_step(saved, step):
    """Weights and momentum of a checkpoint."""
    exported = saved / "exported.safetensors"
    run = train_run.cohort("checkpoint", "export", saved / f"step-{step:08}", exported,
                           "--all")
    if run.code != 0:
        sys.exit(f"cohort: exit code {run.code}: {run.err.strip()}")
    tensors, prefix = load_file(exported), "optimizer.momentum."
    momentum = {name[len(prefix):]: value for name, value in tensors.items()
                if name.startswith(prefix)}
    return {name: value for name, value in tensors.items()
            if not name.startswith("optimizer.")}, momentum


def check_steps(run, saved, model):
    """Each step after the first by itself: PyTorch makes it from Cohort's own weights and
    momentum, so that no step inherits what the one before it rounded."""
    config = run["config"]
    data = load_cifar(config["data.dir"])
    weight = loss = 0
    weights, momentum = load_step(saved, 1)
    for index in range(1, len(run["steps"])):
        step = run["steps"][index]
        model.load_state_dict(weights, strict=False)
        optimizer = make_optimizer(model, config)
        for name, parameter in model.named_parameters():
            optimizer.state[parameter]["momentum_buffer"] = momentum[name].clone()
        made = make_step(model, optimizer, data, run["ranks"][index], step, config)
        weights, momentum = load_step(saved, index + 1)
        weight = max(weight, distance(weights, {name: value for name, value in
                                                model.state_dict().items()
                                                if name in weights}))
        loss = max(loss, abs(made - step["loss"]))
    ok = weight < STEP_BOUND and loss < STEP_LOSS_BOUND
    print(f"{'ok  ' if ok else 'FAIL'} {'':24} each step from the same weights: weights "
          f"differ by up to {weight:.1e}, losses {loss:.1e}", flush=True)
    return ok
