"""Writes quantised.json: blocks of every GGUF type that is read, and the numbers that the `gguf` package reads in them.

Run by hand, never in CI:

    python -m venv venv && venv/bin/pip install gguf numpy
    venv/bin/python make_quantised.py

Types that the package can write are quantised from random numbers; the others are random bytes with tame scales.
"""

import json
import pathlib

import gguf
import numpy
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

ROWS, COLS = 2, 256
WRITTEN = [Type.F32, Type.F16, Type.BF16, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0]
# Where a block of the others has its halves.
OTHERS = {Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208]}

random = numpy.random.default_rng(7)


def random_blocks(kind):
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = random.integers(0, 256, (ROWS * COLS // 256, size), dtype=numpy.uint8)
    for at in OTHERS[kind]:
        scale = (random.uniform(-0.1, 0.1, len(blocks))).astype(numpy.float16)
        blocks[:, at : at + 2] = scale.view(numpy.uint8).reshape(-1, 2)
    return blocks.reshape(ROWS, -1)


def main():
    values = (random.standard_normal((ROWS, COLS)) * 0.7).astype(numpy.float32)
    out = {}
    for kind in [*WRITTEN, *OTHERS]:
        blocks = quantize(values, kind) if kind in WRITTEN else random_blocks(kind)
        read = dequantize(blocks, kind).astype("<f4")
        assert read.shape == (ROWS, COLS) and numpy.isfinite(read).all()
        out[kind.name] = {
            "number": int(kind),
            "bytes": blocks.tobytes().hex(),
            "values": read.tobytes().hex(),
        }
    path = pathlib.Path(__file__).with_name("quantised.json")
    path.write_text(json.dumps(out, separators=(",", ":")) + "\n")


main()
