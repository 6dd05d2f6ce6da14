#!/usr/bin/env python3
"""gguf_rows.py > data/gguf_rows.txt: what PyPI's package gguf (written with 0.19.0) makes of blocks
of random bytes and of rows of random floats.  test_dtype_gguf.c draws the same and compares; only
this script needs the package.

Lines: `decode FORMAT BLOCKS HASH`, of the bits of all weights; `block FORMAT BYTES WEIGHTS`, the
first of these blocks and its first 32 weights, in hex; `encode FORMAT BLOCKS HASH`, of the bytes,
for the formats that the package can write.  Hashes are FNV-1a.
"""
import sys

import gguf
import numpy

BLOCKS = 1000
FORMATS = ["q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k"]
MASK = (1 << 64) - 1
NAN = 0x7FC00000


def draw(seed, count):
    """count words of splitmix64, 64 bits each."""
    out = []
    for _ in range(count):
        seed = seed + 0x9E3779B97F4A7C15 & MASK
        z = (seed ^ seed >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        out.append(z ^ z >> 31)
    return out


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & MASK
    return h


def decode(name, kind):
    weights, size = gguf.GGML_QUANT_SIZES[kind]
    words = numpy.array(draw(kind, (BLOCKS * size + 7) // 8), dtype="<u8")
    data = words.view(numpy.uint8)[: BLOCKS * size].reshape(BLOCKS, size)
    bits = gguf.quants.dequantize(data, kind).reshape(-1).view(numpy.uint32).copy()
    bits[(bits & 0x7FFFFFFF) > 0x7F800000] = NAN  # whatever its payload
    bits = bits.astype("<u4")
    print("decode", name, BLOCKS, f"{fnv(bits.tobytes()):016x}")
    print("block", name, data[0].tobytes().hex(), "".join(f"{b:08x}" for b in bits[:32]))


def encode(name, kind):
    weights, _ = gguf.GGML_QUANT_SIZES[kind]
    words = numpy.array(draw(100 + kind, BLOCKS * weights), dtype=numpy.uint64)
    x = ((words >> numpy.uint64(40)).astype(numpy.float64) - 2**23) * 2**-23  # exact in float32
    try:
        data = gguf.quants.quantize(x.astype(numpy.float32).reshape(BLOCKS, weights), kind)
    except NotImplementedError:
        return
    print("encode", name, BLOCKS, f"{fnv(data.tobytes()):016x}")


def main():
    numpy.seterr(all="ignore")
    for name in FORMATS:
        kind = gguf.GGMLQuantizationType[name.upper()]
        decode(name, kind)
        encode(name, kind)


if __name__ == "__main__":
    sys.exit(main())
