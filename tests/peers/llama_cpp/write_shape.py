"""Writes an F16 GGUF file with random weights in the shape of a known model.

    write_shape.py SHAPE FILE

Needs the `gguf` package. The vocabulary has the family's size and a byte-level BPE that any text passes through: the 256
bytes, one merge, and names that no text contains. All of them count as normal tokens, so that engines that leave unused
ones out compute as many logits as those that do not.
"""

import dataclasses
import os
import sys

import gguf
import numpy as np


@dataclasses.dataclass(frozen=True)
class Shape:
    """The hyperparameters, as the model's own files have them."""

    architecture: str
    pre_tokenizer: str
    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_size: int
    vocabulary: int
    context: int
    rope_base: float
    epsilon: float
    biases: bool = False
    head_norms: bool = False
    llama3_scaling: bool = False


SHAPES = {
    "qwen2.5-0.5b": Shape("qwen2", "qwen2", layers=24, hidden=896, feed_forward=4864, heads=14, kv_heads=2, head_size=64,
                          vocabulary=151936, context=32768, rope_base=1e6, epsilon=1e-6, biases=True),
    "llama-3.2-1b": Shape("llama", "llama-bpe", layers=16, hidden=2048, feed_forward=8192, heads=32, kv_heads=8, head_size=64,
                          vocabulary=128256, context=131072, rope_base=5e5, epsilon=1e-5, llama3_scaling=True),
    "qwen3-0.6b": Shape("qwen3", "qwen2", layers=28, hidden=1024, feed_forward=3072, heads=16, kv_heads=8, head_size=128,
                        vocabulary=151936, context=40960, rope_base=1e6, epsilon=1e-6, head_norms=True),
}


def main(name, path):
    shape = SHAPES[name]
    part = f"{path}.part"
    writer = gguf.GGUFWriter(part, shape.architecture)
    write_metadata(writer, name, shape)
    tensors = list(tensor_list(shape))
    for tensor, dims, kind in tensors:
        dtype = np.float16 if kind == "matrix" else np.float32
        writer.add_tensor_info(tensor, dims, np.dtype(dtype), int(np.prod(dims)) * np.dtype(dtype).itemsize)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    random = np.random.default_rng(1)
    for _, dims, kind in tensors:
        writer.write_tensor_data(values(random, shape, dims, kind))
    writer.close()
    os.replace(part, path)


def write_metadata(writer, name, shape):
    writer.add_name(f"random-{name}")
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.epsilon)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)

    tokens = byte_alphabet() + ["ab"]
    tokens += [f"\u0120unused{number:06}" for number in range(len(tokens), shape.vocabulary - 1)] + ["<|end|>"]
    types = [gguf.TokenType.NORMAL] * (shape.vocabulary - 1) + [gguf.TokenType.CONTROL]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(shape.pre_tokenizer)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(shape.vocabulary - 1)
    writer.add_eos_token_id(shape.vocabulary - 1)
    writer.add_add_bos_token(False)


def byte_alphabet():
    """The character that stands for each byte in byte-level BPE: itself if it can be seen, else one from U+0100 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(hidden)) for byte in range(256)]


def tensor_list(shape):
    """(name, dimensions, kind), rows first as numpy has it."""
    query, key = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    yield "token_embd.weight", (shape.vocabulary, shape.hidden), "matrix"
    yield "output_norm.weight", (shape.hidden,), "norm"
    if shape.llama3_scaling:
        yield "rope_freqs.weight", (shape.head_size // 2,), "divisors"
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        yield f"{block}.attn_norm.weight", (shape.hidden,), "norm"
        for part, width in (("q", query), ("k", key), ("v", key)):
            yield f"{block}.attn_{part}.weight", (width, shape.hidden), "matrix"
            if shape.biases:
                yield f"{block}.attn_{part}.bias", (width,), "bias"
            if shape.head_norms and part != "v":
                yield f"{block}.attn_{part}_norm.weight", (shape.head_size,), "norm"
        yield f"{block}.attn_output.weight", (shape.hidden, query), "matrix"
        yield f"{block}.ffn_norm.weight", (shape.hidden,), "norm"
        yield f"{block}.ffn_gate.weight", (shape.feed_forward, shape.hidden), "matrix"
        yield f"{block}.ffn_up.weight", (shape.feed_forward, shape.hidden), "matrix"
        yield f"{block}.ffn_down.weight", (shape.hidden, shape.feed_forward), "matrix"


def values(random, shape, dims, kind):
    """Numbers of the size that trained ones have."""
    if kind == "divisors":
        return llama3_divisors(shape)
    noise = random.standard_normal(dims, dtype=np.float32) * np.float32(0.02)
    if kind == "matrix":
        return noise.astype(np.float16)
    return noise + np.float32(1.0) if kind == "norm" else noise


def llama3_divisors(shape):
    """What Llama 3.1 and later divide their rotary frequencies by: long waves by 32, short ones by 1, smoothly between."""
    factor, low, high, trained = 32.0, 1.0, 4.0, 8192.0
    exponents = np.arange(0, shape.head_size, 2, dtype=np.float64) / shape.head_size
    waves = 2 * np.pi * shape.rope_base**exponents
    smooth = np.clip((trained / waves - low) / (high - low), 0.0, 1.0)
    return (1.0 / ((1.0 - smooth) / factor + smooth)).astype(np.float32)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
