#!/usr/bin/env python3
"""Golden values of resnet_test.cpp, from stock PyTorch and torchvision.

resnet_golden.py prints them. Weights and input come from a hash, so that no file is needed. In
double: where ReLUs are near zero, float32 differs from itself by percents.
"""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision


class PreActivation(nn.Module):
    """A block of ResNet-50V2 (He et al. 2016b), written down a second time."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), nn.Conv2d(inputs, width, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn3, self.conv3 = nn.BatchNorm2d(width), nn.Conv2d(width, 4 * width, 1, bias=False)
        self.downsample = None
        if stride != 1 or inputs != 4 * width:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, 4 * width, 1, stride, bias=False))

    def forward(self, x):
        active = F.relu(self.bn1(x))
        y = self.conv2(F.relu(self.bn2(self.conv1(active))))
        return self.conv3(F.relu(self.bn3(y))) + (self.downsample(active) if self.downsample else x)


class ResNetV2(nn.Module):
    def __init__(self, depths, width, classes, small):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3 if small else 7, 1 if small else 2, 1 if small else 3, bias=False)
        self.small, self.stages, inputs = small, len(depths), width
        for k, depth in enumerate(depths):
            blocks = []
            for i in range(depth):
                blocks.append(PreActivation(inputs, width << k, 2 if k > 0 and i == 0 else 1))
                inputs = 4 * (width << k)
            setattr(self, f"layer{k + 1}", nn.Sequential(*blocks))
        self.bn, self.fc = nn.BatchNorm2d(inputs), nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.conv1(x)
        x = x if self.small else F.max_pool2d(x, 3, 2, 1)
        for k in range(self.stages):
            x = getattr(self, f"layer{k + 1}")(x)
        return self.fc(F.relu(self.bn(x)).mean((2, 3)))


def noise(shape, seed):
    """In [-1, 1): an integer hash, so that C++ makes the same numbers."""
    word = 0xFFFFFFFF
    x = torch.arange(torch.Size(shape).numel()) + 1_000_003 * seed
    for factor, shift in ((0x9E3779B1, 15), (0x85EBCA77, 13), (0xC2B2AE3D, 16)):
        x = (x * factor) & word
        x = x ^ (x >> shift)
    return (x.double() / 2**31 - 1).float().view(shape)


def set_weights(model):
    """Numbered in the order of names."""
    for number, (name, p) in enumerate(sorted(model.named_parameters())):
        values = noise(p.shape, number)
        if p.dim() == 1:
            values = 1 + 0.3 * values if name.endswith("weight") else 0.3 * values
        else:
            values = values * (6 / (p.numel() / p.shape[0])) ** 0.5
        p.data.copy_(values)


def show(tensor):
    """Length, and the product with noise: a change of any element is seen."""
    flat = tensor.detach().double().flatten()
    return f"{{{flat.norm().item():.12g}, {(flat * noise(flat.shape, 1)).sum().item():.12g}}}"


def golden(label, model, size, gradients, buffers):
    set_weights(model)
    model.double()
    x = noise((4, 3, size, size), 3).double()
    target = torch.tensor([1, 0, 3, 2])
    model.train()
    logits = model(x)
    loss = F.cross_entropy(logits, target)
    loss.backward()
    names, state = dict(model.named_parameters()), dict(model.named_buffers())
    rows = [f'{{"{n}", {show(names[n].grad)}}}' for n in gradients]
    rows += [f'{{"{n}", {show(state[n])}}}' for n in buffers]
    model.eval()
    print(f"// {label}")
    print(f"    .logits = {show(logits)}, .loss = {loss.item():.12g}, .evaluated = {show(model(x))},")
    print("    .tensors = {" + ", ".join(rows) + "}")


def main():
    torch.set_num_threads(1)
    ends = ["conv1.weight", "fc.weight", "fc.bias"]
    golden("resnet18", torchvision.models.resnet18(num_classes=4), 64,
           [*ends, "bn1.weight", "layer1.0.conv1.weight", "layer2.0.downsample.0.weight",
            "layer3.1.bn2.bias", "layer4.1.conv2.weight"],
           ["bn1.running_mean", "layer4.1.bn2.running_var"])
    golden("resnet50", torchvision.models.resnet50(num_classes=4), 64,
           [*ends, "bn1.weight", "layer1.0.conv1.weight", "layer2.0.downsample.1.weight",
            "layer3.5.bn3.bias", "layer4.0.conv2.weight"],
           ["bn1.running_mean", "layer4.2.bn3.running_var"])
    v2 = ["layer1.0.bn1.weight", "layer1.0.downsample.0.weight", "layer2.0.conv2.weight",
          "layer2.0.downsample.0.weight", "bn.bias"]
    golden("50V2, small", ResNetV2((2, 1), 8, 4, True), 16, [*ends, *v2],
           ["layer2.0.bn3.running_var", "bn.running_mean"])
    golden("50V2, large", ResNetV2((1, 2), 8, 4, False), 64, [*ends, *v2],
           ["layer2.0.bn3.running_var", "bn.running_mean"])


if __name__ == "__main__":
    main()
