"""Makes goldens.json: what Python's `tokenizers` says about each family's text rules.

Run by hand (`pip install tokenizers`, made with 0.23.3), never in CI. The pre-tokenizers are written down here a second
time, through the Python API and from the families' published tokenizer.json files, so that the Rust tests compare two
independent descriptions and two regex engines (Oniguruma here, fancy-regex there). The vocabularies are small and
trained on the texts below; `gguf` is the same vocabulary as the metadata of a GGUF file would hold it.
"""

import json
import pathlib

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(regex):
    return pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(regex), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])


FAMILIES = {
    "gpt-2": (None, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True), False),
    "smollm": (
        None,
        pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]),
        False,
    ),
    "llama-bpe": (None, split(LLAMA3), True),
    "qwen2": (normalizers.NFC(), split(QWEN2), False),
}

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
USER_DEFINED = ["<think>", "</think>"]

TEXTS = [
    "",
    " ",
    "a",
    "Hello, we can use speculative decoding: it's exact, isn't it? WE'LL SEE; they'Re sure, I'D say.",
    "The year 2024 had 366 days, 8784 hours and 31622400 seconds; pi is 3.14159265.",
    "  leading and trailing   spaces   ",
    "tabs\tand\t\ttwo, newlines\nand\n\nmore\r\nwindows\r\n\r\nend\n",
    "trailing newlines \n \n  \n",
    "    def f(x):\n        return {'a': x + 1, \"b\": [x*2, x**3]}  # comment\n\n\nprint(f(10))\n",
    "#include <vector>\nint main() { std::vector<int> v(1'000); for (auto& x : v) x += 0xFF; return v[0] == 1 ? 0 : 1; }\n",
    "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3067\u3059\u3002\u300c\u5f15\u7528\u300d\u3068\uff11\uff12\uff13\u3002",
    "\u4e2d\u6587\u6587\u672c\uff0c\u6570\u5b57123\u548c\u6807\u70b9\uff01\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8\ub3c4 \uc788\ub2e4.",
    "emoji \U0001f600 family \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 flag \U0001f1e9\U0001f1ea skin \U0001f44d\U0001f3fd heart \u2764\ufe0f",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd, \u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 \u0661\u0662\u0663",
    "\u092f\u0939 \u0939\u093f\u0928\u094d\u0926\u0940 \u0939\u0948\u0964 \u0e44\u0e17\u0e22 \u1019\u103c\u1014\u103a\u1019\u102c",
    "cafe\u0301 and caf\u00e9, A\u030angstro\u0308m, \u1e9b\u0323, \ufb01ne, \u2126",
    "\u00a0non\u2003breaking\u3000spaces\u2028line\u2029para\u0085nel",
    "zero\u200bwidth\ufeffbom\u00adsoft",
    "x\u00b2 \u00bd \u2167 \u2460 \u0be7 1\u0301",
    "\u00bfQu\u00e9? \u2014 \u00abOui\u00bb \u201cquotes\u201d \u2026 \u20ac100 \u00a35",
    "https://example.com/a?b=c&d=%20#e user@host.org C:\\dir\\file.txt",
    "don't DON'T can't\u2019ve y'all'd've 's 'S '\u017f",
    "a" * 40 + " " * 20 + "!" * 20 + "1" * 20,
    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>ok</think> done",
    "not special: <|im_start |> <|endoftext| > < think>",
    "mixed123abc456 a1b2c3 v1.2.3-rc4 10,000.00",
]


def tokenizer_of(family):
    normalizer, pre_tokenizer, ignore_merges = FAMILIES[family]
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=460,
        show_progress=False,
        special_tokens=CONTROL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(TEXTS[:-4] * 3, trainer)
    tokenizer.add_tokens([AddedToken(token, normalized=False, special=False) for token in USER_DEFINED])
    return tokenizer


def gguf_of(family, tokenizer):
    """The vocabulary as converters write it, with padding rows at the end in both styles in use."""
    vocab = sorted(tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda item: item[1])
    assert [index for _, index in vocab] == list(range(len(vocab)))
    tokens = [text for text, _ in vocab]
    kinds = [3 if text in CONTROL else 4 if text in USER_DEFINED else 1 for text in tokens]
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    size = len(tokens)
    return {
        "pre": family,
        "tokens": tokens + [f"[PAD{size}]", "unused"],
        "token_types": kinds + [4, 5],
        "merges": [" ".join(pair) for pair in merges],
    }


def main():
    out = {}
    for family in FAMILIES:
        tokenizer = tokenizer_of(family)
        cases = []
        for text in TEXTS:
            normal = tokenizer.normalizer.normalize_str(text) if tokenizer.normalizer else text
            words = [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal)]
            cases.append({"text": text, "words": words, "ids": tokenizer.encode(text, add_special_tokens=False).ids})
        out[family] = {
            "gguf": gguf_of(family, tokenizer),
            "tokenizer_json": json.loads(tokenizer.to_str()),
            "cases": cases,
        }
    path = pathlib.Path(__file__).with_name("goldens.json")
    path.write_text(json.dumps(out, ensure_ascii=True, separators=(",", ":")) + "\n")


main()
