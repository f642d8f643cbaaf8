# SPDX-License-Identifier: Apache-2.0
"""Files that hold weights: those of Cohort, safetensors, pickles, PyTorch, Hugging Face."""
import json
import struct
import zipfile
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def u32(n):
    return struct.pack("<I", n)


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
    golden = ROOT / "src/cohort/checkpoint/torch_file_golden.pt"
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
