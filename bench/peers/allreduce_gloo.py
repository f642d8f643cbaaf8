# SPDX-License-Identifier: Apache-2.0
"""PyTorch's all-reduce over Gloo, measured as `cohort bench comm` measures Cohort's.

  torchrun --standalone --nproc-per-node 2 allreduce_gloo.py [BYTES ...]

Each size has nine turns. A turn begins with a barrier and a call that is not timed; then
rank 0 times every call by itself, for about 60 ms. Rank 0 prints a JSON line for each
size, with the median of its calls in microseconds (p50).
"""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist

DEFAULT_BYTES = (4_000, 400_000, 4_000_000, 25_000_000, 100_000_000)
TURNS = 9
TURN_SECONDS = 0.06
MAX_CALLS_PER_TURN = 2000


def time_call(tensor):
    begin = time.perf_counter()
    dist.all_reduce(tensor)
    return time.perf_counter() - begin


def calls_per_turn(tensor):
    """Rank 0's estimate, which all ranks use."""
    shortest = min(time_call(tensor) for _ in range(3))
    calls = min(max(int(TURN_SECONDS / shortest), 1), MAX_CALLS_PER_TURN)
    count = torch.tensor([calls])
    dist.broadcast(count, src=0)
    return int(count)


def measure(size_bytes):
    tensor = torch.zeros(size_bytes // 4)
    calls = calls_per_turn(tensor)
    seconds = []
    for _ in range(TURNS):
        dist.barrier()
        dist.all_reduce(tensor)  # warm up
        seconds += [time_call(tensor) for _ in range(calls)]
    return seconds


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for size_bytes in [int(arg) for arg in sys.argv[1:]] or DEFAULT_BYTES:
        seconds = measure(size_bytes)
        if dist.get_rank() == 0:
            print(json.dumps({"op": "all_reduce", "bytes": size_bytes,
                              "ranks": dist.get_world_size(), "calls": len(seconds),
                              "p50": 1e6 * statistics.median_high(seconds)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
