# SPDX-License-Identifier: Apache-2.0
"""How long a step takes on a GPU, for the scripts beside this one."""
import time

import torch


def seconds_a_step(step, count=20, warmup=5):
    for _ in range(warmup):
        step()
    torch.cuda.synchronize()
    begin = time.time()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.time() - begin) / count
