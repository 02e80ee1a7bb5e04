"""Writes gguf-mixed/: a tiny GGUF file of many tensor types, and the logits that `transformers` computes from it.

Run by hand, never in CI:

    python -m venv venv && venv/bin/pip install gguf torch transformers accelerate numpy
    venv/bin/python make_gguf.py

The file is written and quantised by the `gguf` package and read by `transformers` with its own code for GGUF, in double
precision, so that names, permuted rows, types and metadata are what others make of them. Its tokenizer is of the
SentencePiece kind.
"""

import json
import pathlib
from importlib.metadata import version

import gguf
import numpy
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from gguf.quants import quantize

FOLDER = pathlib.Path(__file__).parent / "gguf-mixed"
HIDDEN, HEADS, KV_HEADS, FEED_FORWARD, LAYERS, TOKENS, ROWS = 64, 4, 2, 96, 2, 64, 24
KINDS = {
    "attn_q": (Type.Q4_0, (HIDDEN, HIDDEN)),
    "attn_k": (Type.Q4_1, (HIDDEN * KV_HEADS // HEADS, HIDDEN)),
    "attn_v": (Type.Q5_0, (HIDDEN * KV_HEADS // HEADS, HIDDEN)),
    "attn_output": (Type.Q5_1, (HIDDEN, HIDDEN)),
    "ffn_gate": (Type.F16, (FEED_FORWARD, HIDDEN)),
    "ffn_up": (Type.BF16, (FEED_FORWARD, HIDDEN)),
    "ffn_down": (Type.Q8_0, (HIDDEN, FEED_FORWARD)),
}

random = numpy.random.default_rng(11)


def matrix(shape):
    return (random.standard_normal(shape) * 0.2).astype(numpy.float32)


def tokenizer(writer):
    pieces = ["<unk>", "<s>", "</s>", "<0x0A>", "<0xC3>", "<0xA9>", "\u2581"]
    pieces += [chr(ord("a") + i) for i in range(26)]
    merged = ["he", "\u2581the", "th", "\u2581t", "in", "ing", "an", "\u2581a"]
    pieces += merged + [chr(ord("A") + i) for i in range(TOKENS - len(pieces) - len(merged))]
    kinds = [2, 3, 3, 6, 6, 6] + [1] * (TOKENS - 6)
    scores = [0.0] * 6 + [-float(i) for i in range(TOKENS - 6)]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(pieces)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_space_prefix(True)


def main():
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(TOKENS)
    tokenizer(writer)

    def add(name, values, kind):
        blocks = values if kind == Type.F32 else quantize(values, kind)
        writer.add_tensor(f"{name}.weight", blocks, raw_dtype=kind)

    add("token_embd", matrix((TOKENS, HIDDEN)), Type.Q8_0)
    add("output", matrix((TOKENS, HIDDEN)), Type.Q4_0)
    add("output_norm", 1 + matrix(HIDDEN), Type.F32)
    for layer in range(LAYERS):
        for part, (kind, shape) in KINDS.items():
            add(f"blk.{layer}.{part}", matrix(shape), kind)
        for part in ["attn_norm", "ffn_norm"]:
            add(f"blk.{layer}.{part}", 1 + matrix(HIDDEN), Type.F32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    model = transformers.LlamaForCausalLM.from_pretrained(FOLDER, gguf_file=path.name, dtype=torch.float64).eval()
    tokens = torch.tensor(random.integers(0, TOKENS, (1, ROWS)))
    with torch.no_grad():
        logits = model(tokens).logits[0]
    record = dict(
        made_with=f"gguf {version('gguf')}, transformers {transformers.__version__}",
        tokens=tokens[0].tolist(),
        logits=[[float(f"{x:.7g}") for x in row] for row in logits.tolist()],
    )
    (FOLDER / "expected.json").write_text(json.dumps(record) + "\n")


main()
