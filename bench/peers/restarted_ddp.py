# SPDX-License-Identifier: Apache-2.0
"""A small DDP training without end, whose ranks recovery.py kills and torchrun restarts.

Each rank prints a JSON line after every step. It saves no checkpoint, so each restart begins
at step 0, and it loads no data: a real training takes longer to come back.
"""
import itertools
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEP_SECONDS = 0.05  # pause between steps, about as long as a step of fashion-mnist

torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(256, 256))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in itertools.count():
    loss = model(torch.randn(8, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    line = json.dumps({"step": step, "rank": dist.get_rank(), "pid": os.getpid(),
                       "restart": int(os.environ["TORCHELASTIC_RESTART_COUNT"])})
    sys.stdout.write(line + "\n")  # one write: the ranks share a pipe, without a buffer
    sys.stdout.flush()
    time.sleep(STEP_SECONDS)
