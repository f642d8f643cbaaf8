# SPDX-License-Identifier: Apache-2.0
"""Times a training step on a GPU as `cohort bench train --device cuda` does."""
import statistics
import time

import torch
from torch.profiler import ProfilerActivity, profile

WARMUP_STEPS = 5
TURNS, STEPS_PER_TURN = 3, 20
PROFILED_STEPS = 5
SMALLEST_SHARE = 1e-3  # of the step, for a kernel to be printed


def run_steps(step, count):
    """Seconds per step. The GPU is idle before and after."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


def median_step_seconds(step):
    """The median turn; within a turn the host need not wait for the GPU."""
    run_steps(step, WARMUP_STEPS)
    return statistics.median(run_steps(step, STEPS_PER_TURN) for _ in range(TURNS))


def print_kernels(step, step_seconds):
    """Milliseconds per step of each kernel, longest first."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        run_steps(step, PROFILED_STEPS)
    kernels = sorted(profiler.key_averages(), key=lambda k: -k.self_device_time_total)
    for kernel in kernels:
        seconds = 1e-6 * kernel.self_device_time_total / PROFILED_STEPS
        if seconds < SMALLEST_SHARE * step_seconds:
            break
        print(f"  {1e3 * seconds:7.3f} ms {100 * seconds / step_seconds:5.1f} % "
              f"{kernel.count / PROFILED_STEPS:6.0f} x  {kernel.key}", flush=True)
