#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of tests/fuzz/corpus/: good files and known attacks, for each reader.

Usage: tests/fuzz/make_corpus.py [DIR]

What a fuzzer found lies beside them under the name found-*, and stays.
"""

import gzip
import json
import struct
import sys
import zipfile
from io import BytesIO
from pathlib import Path

HERE = Path(__file__).resolve().parent


def u32(n):
    return struct.pack("<I", n)


# ---- Checkpoints -------------------------------------------------------------------
def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_seeds():
    two = {"__metadata__": {"format": "pt"}, "b.weight": entry("F32", [2, 2], 0, 16),
           "mask": entry("BOOL", [3], 16, 19)}
    yield "two", safetensors(two, bytes(16) + b"\1\0\1")
    yield "none", safetensors({})
    yield "empty", safetensors({"e": entry("F16", [0, 4], 0, 0)})
    yield "scalar", safetensors({"s": entry("I64", [], 0, 8)}, bytes(8))
    yield "giant-shape", safetensors({"g": entry("U8", [2**40, 2**40], 0, 0)})
    yield "giant-header", safetensors({}, length=2**40)
    yield "overlap", safetensors({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)},
                                 bytes(3))
    yield "deep", safetensors(b'{"a":' + b"[" * 300)
    yield "line-end", safetensors({"a\nb": entry("Q4", [1], 0, 1)}, b"\0")


def pickled(size, stride, numel=b"K\x01", name=b"w"):
    return (b"\x80\x02}X" + u32(len(name)) + name +
            b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
            b"X\x01\0\0\x000X\x03\0\0\0cpu" + numel + b"tQK\0" + size + stride + b"\x89}tRs.")


ONE = b"K\x01\x85"
STATE_DICT = (
    b"\x80\x02ccollections\nOrderedDict\nq\0)Rq\1(X\1\0\0\0wq\2"
    b"ctorch._utils\n_rebuild_tensor_v2\nq\3((X\7\0\0\0storageq\4ctorch\nFloatStorage\nq\5"
    b"X\1\0\0\x000q\6X\3\0\0\0cpuq\7K\6tq\x08QK\0K\2K\3\x86q\x09K\3K\1\x86q\x0a\x89"
    b"ccollections\nOrderedDict\nq\x0b)Rq\x0ctq\rRq\x0eX\1\0\0\0nq\x0fK\7u}q\x10"
    b"X\x09\0\0\0_metadataq\x11}sb.")
EXPANDED = pickled(b"J\0\0\1\0J\0\0\1\0K\x10\x87", b"K\0K\0K\0\x87")


def pickle_seeds():
    yield "state-dict", STATE_DICT
    yield "one", pickled(ONE, ONE)
    yield "expanded", EXPANDED
    yield "deep", b")" + b"\x85" * 200 + b"."
    yield "long-name", b"X" + u32(600) + b"n" * 600 + b"q\0" + b"h\0\x93" * 5 + b"."
    yield "protocol-4", b"\x80\x04\x95" + bytes(8) + b"}\x94(\x8c\1a\x94K\1u."
    yield "list-in-itself", b"]q\1h\1a."


def torch_zip(records, method=zipfile.ZIP_STORED):
    out = BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in records:
            archive.writestr(zipfile.ZipInfo(name), data, compress_type=method)
    return out.getvalue()


def torch_file_seeds():
    good = [("x/data.pkl", STATE_DICT), ("x/byteorder", b"little"),
            ("x/data/0", bytes(24)), ("x/version", b"3\n")]
    yield "state-dict", torch_zip(good)
    yield "expanded", torch_zip([("x/data.pkl", EXPANDED), ("x/data/0", b"abcd")])
    yield "packed", torch_zip(good, zipfile.ZIP_DEFLATED)
    inner = pickled(ONE, ONE)[2:-1]
    yield "model", torch_zip([("x/data.pkl", b"\x80\x02}X\5\0\0\0model" + inner + b"s."),
                              ("x/data/0", b"abcd")])
    # One storage under many names: as large as many.
    whole = bytearray(torch_zip([("x/data/0", bytes(400)), ("x/data.pkl", inner)]))
    directory = whole.index(b"PK\1\2")
    first = bytes(whole[directory:whole.index(b"PK\1\2", directory + 4)])
    rest, end = bytes(whole[directory:-22]), bytearray(whole[-22:])
    more = b"".join(first.replace(b"data/0", b"data/%d" % i) for i in range(1, 9))
    end[8:12] = struct.pack("<HH", 10, 10)
    end[12:16] = u32(len(rest) + len(more))
    yield "overlap", bytes(whole[:directory]) + rest + more + bytes(end)
    golden = HERE.parents[1] / "src/cohort/checkpoint/torch_file_golden.pt"
    yield "golden", golden.read_bytes()


MANIFEST = (
    '{"format":"cohort-checkpoint","version":1,"program":"0.1.0","build":"unknown",'
    '"step":7,"epoch":1,"sample":64,"seed":18446744073709551615,"layout":"dp=2","world":2,'
    '"metrics":{"loss":0.5,"none":null},"state":{"raw":{"hex":"00ff"},"text":"{}"},'
    '"chunk_bytes":8,"files":[{"name":"m-1.safetensors","bytes":200,'
    '"header_hash":"0000000000000001","hash":"0000000000000002"}],'
    '"tensors":[{"name":"w","kind":"parameter","dtype":"F32","shape":[3,1],"order":[1,0],'
    '"chunks":[[0,2,0,100,"0000000000000abc"],[2,3,0,108,"0000000000000def"]]}]')


def manifest_seeds():
    # Without the closing brace: the target puts the hash behind it.
    yield "whole", MANIFEST.encode()
    yield "part", (MANIFEST + "}").encode()
    yield "no-tensors", MANIFEST.replace(MANIFEST[MANIFEST.index('"tensors"'):],
                                         '"tensors":[]').encode()
    yield "elsewhere", MANIFEST.replace("m-1.", "../m.").encode()
    yield "giant-number", MANIFEST.replace('"step":7', '"step":1e300').encode()
    yield "same-bytes", MANIFEST.replace(
        "[3,1]", "[99,1]").replace("]]}]", "]" + "".join(
            f',[{3 + 24 * i},{27 + 24 * i},0,100,"0000000000000abc"]' for i in range(4)) +
                                   "]}]").encode()


    # Two boxes of columns; then some that do not cover the tensor once.
    boxes = MANIFEST.replace('"version":1', '"version":2').replace(
        MANIFEST[MANIFEST.index('"shape"'):],
        '"shape":[2,3],"cut":[2,3],"boxes":[{"from":[0,0],"to":[2,1],'
        '"chunks":[[0,2,0,100,"0000000000000abc"]]},{"from":[0,1],"to":[2,3],'
        '"chunks":[[0,4,0,108,"0000000000000def"]]}]}]')
    yield "boxes", boxes.encode()
    yield "boxes-part", (boxes + "}").encode()
    yield "boxes-overlap", boxes.replace('"from":[0,1]', '"from":[0,0]').encode()
    yield "boxes-giant", boxes.replace('"cut":[2,3]', '"cut":[4294967296,4294967296]').encode()


def weight_map_seeds():
    yield "two", json.dumps({"metadata": {"total_size": 8}, "weight_map": {
        "a": "model-1.safetensors", "b": "model-2.safetensors"}}).encode()
    yield "none", b'{"weight_map":{}}'
    yield "elsewhere", b'{"weight_map":{"a":"../../etc/passwd"}}'
    yield "deep", b'{"weight_map":' + b"[" * 100
    yield "kinds", b'{"weight_map":{"a":1,"b":null}}'


# ---- Data --------------------------------------------------------------------------
def idx(shape, data):
    return bytes([0, 0, 8, len(shape)]) + b"".join(struct.pack(">I", n) for n in shape) + data


def packed(data):
    return gzip.compress(data, mtime=0)


def idx_seeds():
    yield "labels", idx([5], b"\0\1\2\3\4")
    yield "images", idx([2, 3, 2], bytes(range(12)))
    yield "packed", packed(idx([2, 3, 2], bytes(range(12))))
    yield "members", packed(idx([5], b"")) + packed(b"\0\1") + packed(b"\2\3\4")
    yield "giant", idx([2**32 - 1, 2**32 - 1, 2**32 - 1], b"abc")
    yield "bomb", packed(idx([5], b"\0\1\2\3\4") + bytes(200_000))
    yield "truncated", packed(idx([5], b"\0\1\2\3\4"))[:-6]


def gzip_seeds():
    # The last byte is how much is wanted, in units of 256 bytes.
    yield "text", packed(b"some text, some text") + b"\1"
    yield "plain", b"not packed at all" + b"\1"
    yield "none-wanted", packed(b"abc") + b"\0"
    yield "members", packed(b"a" * 300) + packed(b"") + packed(b"b" * 300) + b"\4"
    yield "bomb", packed(bytes(100_000)) + b"\2"
    yield "altered", packed(b"some text")[:-8] + bytes(8) + b"\1"


def cifar10_seeds():
    record = b"\7" + bytes(i % 251 for i in range(3072))
    yield "record", record
    yield "packed", packed(record)
    yield "two", packed(record + record)
    yield "class-11", b"\x0b" + record[1:]


def tokens_seeds():
    def llmc(tokens, magic=20240520, version=1, count=None):
        count = len(tokens) if count is None else count
        return struct.pack("<256i", magic, version, count, *[0] * 253) + plain(tokens)

    def plain(tokens):
        return struct.pack(f"<{len(tokens)}H", *tokens)

    yield "llmc", llmc([1, 2, 50256])
    yield "plain", plain([1, 2, 3])
    yield "empty", b""
    yield "odd", b"abc"
    yield "short_header", llmc([])[:100]
    yield "other_version", llmc([1], version=7)
    yield "too_many", llmc([1, 2], count=2**31 - 1)
    yield "negative", llmc([1, 2], count=-2)
    yield "beyond", plain([1, 65535])


# ---- Runs --------------------------------------------------------------------------
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


# ---- Text --------------------------------------------------------------------------
SCHEDULE = ("role,ranks,slices,id,kind,lane,group,block,slice,buckets,bytes,takes,frees,"
            "scratch,needs,waits\n")


def schedule_seeds():
    rows = ["Forward,0,,0,0,0,0,100,0,0,,", "Backward,0,,0,0,0,0,0,100,0,,0",
            "Reduce,1,dp:2x1,,,0;loss,400,0,0,0,,1", "Update,0,,0,,0,400,0,0,0,,2",
            "Commit,0,dp:2x1,,,0,0,0,0,0,,3"]
    yield "step", (SCHEDULE + "".join(f"0,0-1,1,{i},{row}\n"
                                      for i, row in enumerate(rows))).encode()
    yield "times", (SCHEDULE.strip() + ",start_us,end_us\n0,0,1,0,Commit,0,,,,,0,0,0,0,,,"
                    "0.000,1.500\n").encode()
    yield "ranks", (SCHEDULE + "".join(f"{i},0-1048575,1,0,Commit,0,,,,,0,0,0,0,,\n"
                                       for i in range(5))).encode()
    yield "slices", (SCHEDULE + "0,0-1048575,16777216,0,Commit,0,,,,,0,0,0,0,,\n").encode()
    yield "header", SCHEDULE.encode()
    yield "numbers", (SCHEDULE + "0,0,1,0,Commit,0,,1073741824,1073741824,1073741824,"
                      "9999999999999999999,0,0,0,,\n").encode()


def costs_seeds():
    head = "what,name,fixed_us,per_sample_us,gb_per_s,hidden\n"
    yield "table", (head + "samples,8,,,,\nforward,0,1.5,2.5,,\nbackward,0,3,4,,\n"
                    "update,,1,,10,\nlink,dp,5,,12.5,1\nlink,*,5,,1,0\n").encode()
    yield "blocks", (head + "forward,1000000,1,1,,\n").encode()
    yield "numbers", (head + "forward,0,1e308,inf,,\nlink,dp/Gather,nan,,0,2\n").encode()
    yield "header", head.encode()
    yield "cluster", (head + "ranks_per_node,4,,,,\nbackward_input,0,1,2,,\n"
                      "backward_weight,0,0,0,,\nlink,0>1,2,,20,false\n"
                      "link,*/AllReduce@nodes,9,,,true\nlink,pp@nodes,9,,1,\n").encode()
    yield "links", (head + "update,,1,,,\nlink,dp@nodes/Gather,1,,1,\n").encode()


def events_seeds():
    # One record without its lengths and checksums: the target adds them.
    value = b"\x0a\x04loss\x15" + struct.pack("<f", 0.5)
    summary = b"\x0a" + bytes([len(value)]) + value
    yield "version", b"\x09" + struct.pack("<d", 1.0) + b"\x1a\x0dbrain.Event:2"
    yield "scalar", (b"\x09" + struct.pack("<d", 1.0) + b"\x10\x07\x2a" +
                     bytes([len(summary)]) + summary)
    yield "long", b"\x2a\xff\xff\xff\xff\x7f"
    yield "unknown", b"\x7a\x03abc\x0d1234"


def aliases(levels=10, width=9):
    lines = ["a0: &a0 {" + ",".join(f"{chr(97 + i)}: 1" for i in range(width)) + "}"]
    for n in range(1, levels):
        lines.append(f"a{n}: &a{n} {{" + ",".join(
            f"{chr(97 + i)}: *a{n - 1}" for i in range(width)) + "}")
    return "\n".join(lines).encode() + b"\n"


def yaml_seeds():
    yield "settings", b"batch: 64\noptim:\n  lr: 0.1\n  name: sgd\nblocks: [1, 2]\n"
    yield "aliases", aliases()
    yield "alias-in-itself", b"a: &a {b: *a}\n"
    yield "long-alias", b"a: &a " + b"x" * 2000 + b"\n" + b"".join(
        b"b%d: *a\n" % i for i in range(600))
    yield "deep", b"[" * 1000
    yield "documents", b"a: 1\n---\nb: 2\n"
    yield "twice", b"a.b: 1\na:\n  b: 2\n"
    yield "tabs", b"a:\t- 1\n\t\tb: |\n  text\n"


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "corpus"
    for name, make in sorted(globals().items()):
        if not name.endswith("_seeds"):
            continue
        folder = root / name.removesuffix("_seeds")
        folder.mkdir(parents=True, exist_ok=True)
        for seed, data in make():
            (folder / seed).write_bytes(data)


if __name__ == "__main__":
    main()
