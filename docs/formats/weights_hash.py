#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the weights_hash of a safetensors file (docs/formats/weights_hash.md).

Needs the PyPI package xxhash; the file is parsed here, by hand, so that this is a
second, independent reading of both formats.
"""

import json
import struct
import sys

import xxhash


def weights_hash(path):
    with open(path, "rb") as file:
        (header_size,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(header_size))
        data = file.read()
    header.pop("__metadata__", None)

    state = xxhash.xxh3_64()
    for name, info in sorted(header.items(), key=lambda item: item[0].encode()):
        for string in (name.encode(), info["dtype"].encode()):
            state.update(struct.pack("<Q", len(string)))
            state.update(string)
        shape = info["shape"]
        state.update(struct.pack(f"<{1 + len(shape)}Q", len(shape), *shape))
        begin, end = info["data_offsets"]
        state.update(data[begin:end])
    return f"{state.intdigest():016x}"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: weights_hash.py FILE.safetensors")
    print(weights_hash(sys.argv[1]))
