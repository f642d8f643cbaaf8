#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the weights_hash of a safetensors file (docs/formats/weights_hash.md).

The file is parsed here, by hand, so that this is a second, independent reading of both
formats. It needs nothing but Python, and about a second for each million elements.
"""

import json
import struct
import sys

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
BITS = 0xD6E8FEB86659FD93
UNSIGNED = {1: "B", 2: "H", 4: "I", 8: "Q"}


def mix(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def tensor_seed(name, dtype, shape):
    described = b"".join(
        struct.pack("<Q", len(field)) + field for field in (name.encode(), dtype.encode()))
    described += struct.pack(f"<{1 + len(shape)}Q", len(shape), *shape)
    seed = 0
    for byte in described:
        seed = mix(seed + GOLDEN + byte & MASK)
    return seed


def tensor_hash(name, dtype, shape, data):
    seed = total = tensor_seed(name, dtype, shape)
    count = 1
    for size in shape:
        count *= size
    if count == 0:
        return total
    elements = struct.iter_unpack("<" + UNSIGNED[len(data) // count], data)
    for number, (bits,) in enumerate(elements):
        total += mix(seed + GOLDEN * number + BITS * bits & MASK)
    return total


def weights_hash(path):
    with open(path, "rb") as file:
        (header_size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_size))
        data = memoryview(file.read())
    header.pop("__metadata__", None)

    total = 0
    for name, info in header.items():
        begin, end = info["data_offsets"]
        total += tensor_hash(name, info["dtype"], info["shape"], data[begin:end])
    return f"{total & MASK:016x}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: weights_hash.py FILE.safetensors")
    print(weights_hash(sys.argv[1]))
