# SPDX-License-Identifier: Apache-2.0
"""What a run writes, and what its processes tell one another."""
import json
import struct


def number(n):
    """A whole number in a record (src/cohort/core/record_fields.h)."""
    out = bytearray()
    while n >= 128:
        out.append(n & 127 | 128)
        n >>= 7
    return bytes(out) + bytes([n])


def record(*fields):
    """Fields of a record without its mark, which the targets add. An int has a sign."""
    out = b""
    for field in fields:
        if isinstance(field, list):
            out += number(len(field)) + record(*field)
        elif isinstance(field, tuple):
            out += record(*field)
        elif isinstance(field, bytes):
            out += number(len(field)) + field
        elif isinstance(field, float):
            out += struct.pack("<d", field)
        else:
            out += number(field << 1 if field >= 0 else ~field << 1 | 1)
    return out


def record_seeds():
    some = b"\1" + record(-7) + number(2**64 - 1) + record(0.1, -1)
    end = number(300) + number(7) + record([(1, b"one", [1, -2]), (2, b"", [])],
                                           [(b"a", 1), (b"b", -2**63)])
    yield "whole", some + b"\1" + record(b"a\0\n\xff") + end
    yield "nothing", bytes(20)
    yield "absent", some + b"\0" + end
    yield "short", (some + b"\0" + end)[:-3]
    yield "giant-string", some + b"\1" + number(2**63)
    yield "giant-list", some + b"\0" + number(300) + number(7) + number(2**40)
    yield "long-number", b"\1" + b"\xff" * 12


def history_seeds():
    # [kind, length, body]: the target adds the hashes.
    def record(kind, body):
        return bytes([kind, len(body)]) + body

    def text(words):
        return struct.pack("<H", len(words)) + words

    run = record(1, struct.pack("<QqqqqiI", 1, 100, 32, 4, 0, 2, 1) + text(b"weights"))
    world = record(2, struct.pack("<qiiq", 5, 1, 2, 0) + text(b"dp=2"))

    def step(n, first, count, flags=3):
        return record(3, struct.pack("<qqdQiiiI", n, first, 0.5, 77, 1, 0, count, flags))

    back = record(4, struct.pack("<qqI", 2, 1, 0) + text(b"lost a rank"))
    end = record(5, struct.pack("<qiIQ", 2, 0, 2, 99))
    yield "run", run + world + step(1, 0, 32) + step(2, 32, 32) + end
    yield "rollback", run + world + step(1, 0, 32) + step(2, 32, 32) + back + step(2, 32, 32)
    yield "giant", record(1, struct.pack("<QqqqqiI", 1, 2**62, 1, 2**62, 2**62, 1, 0) +
                          text(b"weights")) + world + step(2**63 - 1, 2**62, 2**31 - 1)
    yield "no-run", world + step(1, 0, 1) + end
    yield "short", run[:20]
    yield "raw", b"COHORTH1" + bytes(40)


def snapshot_seeds():
    def part(tensors):
        return ('{"format":"cohort-checkpoint","version":1,"program":"","build":"","step":0,'
                '"epoch":0,"sample":0,"seed":0,"layout":"","world":1,"metrics":{},"state":{},'
                '"chunk_bytes":0,"files":[],"tensors":[' + tensors + ']}').encode()

    def tensor(begin, end, offset, dtype="F32"):
        return (f'{{"name":"w","kind":"parameter","dtype":"{dtype}","shape":[9],"chunks":'
                f'[[{begin},{end},0,{offset},"0000000000000000"]]}}')

    yield "one", part(tensor(0, 9, 64))
    yield "none", part("")
    yield "outside", part(tensor(0, 9, 2**40))
    yield "before", part(tensor(0, 9, -64))
    yield "giant", part(tensor(0, 2**62, 0, "F64"))
    yield "box", part(tensor(0, 3, 64).replace(
        '"chunks":', '"cut":[3,3],"boxes":[{"from":[0,1],"to":[3,2],"chunks":').replace(
            "]]}", "]]}]}"))
    yield "box-outside", part(tensor(0, 3, 64).replace(
        '"chunks":', '"cut":[3,3],"boxes":[{"from":[0,1],"to":[3,9],"chunks":').replace(
            "]]}", "]]}]}"))
    yield "no-chunk", part(tensor(0, 9, 0).replace('[[0,9,0,0,"0000000000000000"]]', "[]"))
    yield "pages", (struct.pack("<QQqqqqqqq", 0x31706E7374726F63, 1, 1, 0, 1, 0, 8, 8, 4096) +
                    bytes(4096 - 72) + bytes(100))


def link_seeds():
    def message(kind, text, size=None, mark=0xC0480001):
        return struct.pack("<IIiI", mark, kind, 1,
                           len(text) if size is None else size) + text

    yield "board", message(1, b"")
    yield "lost", message(11, b"rank 3 is gone")
    yield "wrong-size", message(2, b"abc", 2**31)
    yield "world", record(0, 2, 0, 2, 0, 1, 3, 2222, b"127.0.0.1", b"token", b"agent")
    yield "giant-world", record(0, 99999999999999, 0, 1, 0, 1, 0, 1, b"a", b"b", b"c")


def notes_seeds():
    yield "node", record(2, b"1:3", 5, b"host")
    yield "world", record(b"00ff", b"12ab", 2222, [(0, 2, b"host1"), (5, 4, b"host2")])
    yield "giant-world", record(b"t", b"r", 1) + number(2000000000) + record((0, 1, b"h"))
    yield "event", record(0, 3, b"host", 77, 1, 9, b"killed by\nSIGKILL")
    yield "stop", record(1, -1, b"", 0, 0, 15, b"")
    yield "port", b"29500"
    yield "endpoint", b"[::1]:29500"
    yield "card", record(1, 2, b"0.1.0+abc", b"host", 77)
    yield "token-sets", record(b"two\nlines", b"", [(b"/a b.bin", 0, 300)],
                               [(b"/a b.bin", 300, 333)])
    whole = ([], [], [])
    yield "listing", record([(b"fc.weight", whole, 0, 10, 4)],
                            [(b"fc.weight", whole, 0, 5, 4),
                             (b"fc.bias", ([3, 4], [0, 1], [3, 2]), 0, 3, 4)])
    yield "giant-listing", number(999999999999) + record((b"a", whole, 0, 1, 4))
    yield "giant-box", record([(b"a", ([2**32, 2**32], [0, 0], [1, 1]), 0, 1, 4)], [])
    yield "error-file", json.dumps({"message": {"message": "a\nb", "extraInfo": {
        "timestamp": "1700000000", "timestamp_ns": 1e300}}}).encode()


def events_seeds():
    # One record without its lengths and checksums: the target adds them.
    value = b"\x0a\x04loss\x15" + struct.pack("<f", 0.5)
    summary = b"\x0a" + bytes([len(value)]) + value
    yield "version", b"\x09" + struct.pack("<d", 1.0) + b"\x1a\x0dbrain.Event:2"
    yield "scalar", (b"\x09" + struct.pack("<d", 1.0) + b"\x10\x07\x2a" +
                     bytes([len(summary)]) + summary)
    yield "long", b"\x2a\xff\xff\xff\xff\x7f"
    yield "unknown", b"\x7a\x03abc\x0d1234"
