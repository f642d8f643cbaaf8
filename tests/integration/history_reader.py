# SPDX-License-Identifier: Apache-2.0
"""Reads a history and the order of samples by their pages in docs/formats alone.

A second implementation: nothing here is taken from the program.
"""
import ctypes
import struct

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
RUN, WORLD, STEP, ROLLBACK, END = range(1, 6)
HAS_LOSS, HAS_OLD_HASH, AFTERWARDS, DAMAGED, HAS_DRAWN, HAS_HASH = 1, 2, 4, 8, 16, 32


def mix(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & MASK
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def sample_key(seed, epoch):
    return mix(mix(seed + GOLDEN & MASK) + epoch & MASK)


def sample_sum(seed, epoch, ids):
    """Count and sum of samples, as docs/formats/sample_order.md has it."""
    key = sample_key(seed, epoch)
    terms = [mix(mix(key + i & MASK) + GOLDEN & MASK) for i in ids]
    return len(terms), sum(terms) & MASK


def permutation(seed, epoch, size):
    """Sample k of the epoch, for any k."""
    state = sample_key(seed, epoch)
    keys = []
    for _ in range(8):
        state = state + GOLDEN & MASK
        keys.append(mix(state))
    half = max(4, ((size - 1).bit_length() + 1) // 2)
    low = (1 << half) - 1

    def at(x):
        while True:
            left, right = x >> half, x & low
            for key in keys:
                left, right = right, left ^ (mix(right + key & MASK) & low)
            x = left << half | right
            if x < size:
                return x

    return at


def batch(run, step):
    """The ids that step `step`, counted from 1, has to use."""
    epoch, place = divmod(step - 1, run["steps_per_epoch"])
    at = permutation(run["seed"], epoch, run["samples"])
    begin = place * run["batch"]
    return epoch, [at(k) for k in range(begin, min(begin + run["batch"], run["samples"]))]


def xxh3(data, seed=0):
    one_shot = ctypes.CDLL("libxxhash.so.0").XXH3_64bits_withSeed
    one_shot.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]
    one_shot.restype = ctypes.c_uint64
    return one_shot(data, len(data), seed)


def text(data):
    (length,) = struct.unpack_from("<H", data)
    assert len(data) == 2 + length, data
    return data[2:].decode()


def body(kind, data):
    if kind == RUN:
        names = ("seed", "samples", "batch", "steps_per_epoch", "base", "slices", "exact")
        return dict(zip(names, struct.unpack_from("<Q4qii", data)), hash_of=text(data[48:]))
    if kind == WORLD:
        names = ("started_us", "generation", "ranks", "committed")
        return dict(zip(names, struct.unpack_from("<qiiq", data)), layout=text(data[24:]))
    if kind == STEP:
        return step_body(data)
    if kind == ROLLBACK:
        from_, to, flags = struct.unpack_from("<qqI", data)
        return {"from": from_, "to": to, "damaged": flags & DAMAGED != 0, "why": text(data[20:])}
    assert kind == END, kind
    step, signal, flags, weights = struct.unpack("<qiIQ", data)
    return {"step": step, "signal": signal, "weights": weights if flags & HAS_HASH else None}


def step_body(data):
    step, first, loss, state, generation, epoch, count, flags = struct.unpack_from(
        "<qqdQiiiI", data)
    drawn = None
    if flags & HAS_DRAWN:
        total, samples = struct.unpack("<Qq", data[48:])
        drawn = (samples, total)
    else:
        assert len(data) == 48, len(data)
    return {"step": step, "first": first, "generation": generation, "epoch": epoch,
            "count": count, "loss": loss if flags & HAS_LOSS else None,
            "hash": state if flags & HAS_HASH else None,
            "afterwards": flags & AFTERWARDS != 0, "drawn": drawn}


def read(path):
    """All records, as (kind, fields). A hash that is another is an error."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"COHORTH1", data[:8]
    records, at, previous = [], 8, 0
    while at < len(data):
        kind, length, guard = struct.unpack_from("<HHI", data, at)
        assert guard == xxh3(data[at:at + 4]) & 0xFFFFFFFF, at
        end = at + 8 + length
        (found,) = struct.unpack_from("<Q", data, end)
        assert found == xxh3(data[at:end], previous), at
        records.append((kind, body(kind, data[at + 8:end])))
        previous, at = found, end + 8
    return records


def steps_in_effect(records):
    """By number: what rollbacks have left."""
    steps = {}
    for kind, fields in records:
        if kind == STEP:
            steps[fields["step"]] = fields
        elif kind == ROLLBACK:
            steps = {n: s for n, s in steps.items() if n <= fields["to"]}
    return steps
