# SPDX-License-Identifier: Apache-2.0
"""Files of samples: images and tokens."""
import gzip
import struct


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
