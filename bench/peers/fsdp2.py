# SPDX-License-Identifier: Apache-2.0
"""PyTorch FSDP2 over Gloo on the model of `cohort bench train mlp100`.

  torchrun --standalone --nproc-per-node 2 fsdp2.py

Rank 0 prints one JSON line with the median of the measured steps in milliseconds.
"""
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

WARMUP, STEPS = 3, 30

torch.set_num_threads(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = nn.Sequential(*[nn.Linear(2048, 2048) for _ in range(6)])
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
batch = torch.randn(8, 2048)
seconds = []
for _ in range(WARMUP + STEPS):
    begin = time.perf_counter()
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seconds.append(time.perf_counter() - begin)
if dist.get_rank() == 0:
    print(json.dumps({"case": "mlp100", "ranks": dist.get_world_size(),
                      "step_ms": 1e3 * statistics.median(seconds[WARMUP:])}), flush=True)
dist.destroy_process_group()
