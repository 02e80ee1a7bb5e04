"""Writes the tiny models of the tests and the logits that Hugging Face `transformers` computes for them.

Run by hand, never in CI; the outputs are stored beside this file:

    python -m venv venv && venv/bin/pip install torch transformers numpy
    venv/bin/python make_tiny.py [name ...]

Each folder holds config.json, model.safetensors, tokenizer.json and expected.json, which has the token ids of one
sequence and a row of logits for each of its positions, computed in float64 from the stored weights.
"""

import json
import pathlib
import shutil
import sys

import torch
import transformers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

HERE = pathlib.Path(__file__).parent
TOKENS = 64
ROWS = 24
COMMON = dict(
    vocab_size=TOKENS,
    hidden_size=48,
    intermediate_size=80,
    num_hidden_layers=2,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    bos_token_id=0,
    eos_token_id=1,
)
VARIANTS = {
    "gqa-tied-f32": (dict(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True), torch.float32),
    "mha-untied-f32": (dict(num_attention_heads=3, num_key_value_heads=3, tie_word_embeddings=False), torch.float32),
    # A head size that is not hidden / heads, and one that is no multiple of any vector width.
    "headdim-untied-bf16": (
        dict(num_attention_heads=4, num_key_value_heads=1, head_dim=20, tie_word_embeddings=False),
        torch.bfloat16,
    ),
    # Logits wider than the tokenizer, as many models pad them; and the rotary scaling of Llama 3.
    "padded-llama3-f16": (
        dict(
            vocab_size=72,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            rope_scaling=dict(
                rope_type="llama3",
                factor=4.0,
                low_freq_factor=1.0,
                high_freq_factor=4.0,
                original_max_position_embeddings=16,
            ),
        ),
        torch.float16,
    ),
    "linear-rope-f32": (
        dict(
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=True,
            rope_scaling=dict(rope_type="linear", factor=2.0),
        ),
        torch.float32,
    ),
    # Biases on three projections, and the rotary base of all Qwen models.
    "qwen2-tied-f32": (
        dict(num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, rope_theta=1e6),
        torch.float32,
    ),
    # Norms of heads, whose size is not hidden / heads.
    "qwen3-untied-bf16": (
        dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16, tie_word_embeddings=False, rope_theta=1e6),
        torch.bfloat16,
    ),
    # A rotary scaling that also scales what it rotates.
    "yarn-rope-f16": (
        dict(
            hidden_size=32,
            intermediate_size=64,
            num_attention_heads=2,
            num_key_value_heads=1,
            tie_word_embeddings=True,
            rope_scaling=dict(
                rope_type="yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=4.0, beta_slow=0.5
            ),
        ),
        torch.float16,
    ),
    # Every third layer sees all positions, the others six; a rotary base for each, one of them stretched; scaled
    # embeddings, four norms a layer stored less one, another gate, and a scale of attention of its own.
    "gemma3-tied-bf16": (
        dict(
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=4,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=24,
            query_pre_attn_scalar=10,
            sliding_window=6,
            layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
            rope_theta=None,
            rope_parameters=dict(
                full_attention=dict(rope_type="linear", rope_theta=1e6, factor=2.0),
                sliding_attention=dict(rope_type="default", rope_theta=1e3),
            ),
        ),
        torch.bfloat16,
    ),
}
FAMILIES = {
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}


def tokenizer():
    """A byte-level BPE tokenizer of 64 tokens without merges: printable ASCII and the space."""
    alphabet = [chr(c) for c in range(ord("!"), ord("!") + TOKENS - 3)] + ["Ġ"]
    vocab = {"<|begin|>": 0, "<|end|>": 1} | {token: i + 2 for i, token in enumerate(alphabet)}
    special = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [dict(id=i, content=c, **special) for c, i in list(vocab.items())[:2]],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": level,
        "decoder": level,
        "model": dict(
            type="BPE",
            dropout=None,
            unk_token=None,
            continuing_subword_prefix=None,
            end_of_word_suffix=None,
            fuse_unk=False,
            byte_fallback=False,
            vocab=vocab,
            merges=[],
        ),
    }


def write(name, seed, changes, dtype):
    torch.manual_seed(seed)
    config, causal = FAMILIES.get(name.split("-")[0], (LlamaConfig, LlamaForCausalLM))
    model = causal(config(**{k: v for k, v in (COMMON | changes).items() if v is not None}))
    centre = 0.0 if name.startswith("gemma3") else 1.0
    with torch.no_grad():
        for key, weight in model.named_parameters():
            # Wider than the usual start, so that attention and logits are far from uniform.
            weight.normal_(centre, 0.2) if "norm" in key else weight.normal_(0.0, 0.2)
    model = model.to(dtype).eval()
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer(), ensure_ascii=False) + "\n")

    tokens = torch.randint(0, TOKENS, (1, ROWS))
    reference = causal.from_pretrained(folder, dtype=torch.float64).eval()
    # Angles are computed in single precision whatever the weights are.
    frequencies = [buffer for key, buffer in reference.model.rotary_emb.named_buffers() if "inv_freq" in key]
    assert frequencies and all(buffer.dtype == torch.float32 for buffer in frequencies)
    with torch.no_grad():
        logits = reference(tokens).logits[0]
    record = dict(
        made_with=f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}",
        tokens=tokens[0].tolist(),
        logits=[[float(f"{x:.7g}") for x in row] for row in logits.tolist()],
    )
    (folder / "expected.json").write_text(json.dumps(record) + "\n")


for seed, (name, (changes, dtype)) in enumerate(VARIANTS.items()):
    if not sys.argv[1:] or name in sys.argv[1:]:
        write(name, seed, changes, dtype)
