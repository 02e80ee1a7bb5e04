"""Makes sentencepiece.json and texts.json: SentencePiece tokenizers, and what Python makes of 10,000 random texts.

Run by hand, never in CI:

    python -m venv venv && venv/bin/pip install sentencepiece tokenizers transformers protobuf
    venv/bin/python make_texts.py

The tokenizers are trained here on generated texts with `sentencepiece`, and brought into both file formats: `gguf` is
the metadata that llama.cpp's converter writes for such a model, `tokenizer_json` what `transformers` converts it to.

texts.json holds, per tokenizer, a 64-bit FNV-1a hash of each ten texts: of every text the number of its ids, the ids and
the decoded text with its length. The texts themselves are made by `text`, of which the Rust test has a twin.
"""

import io
import json
import pathlib
import random

import sentencepiece
import sentencepiece.sentencepiece_model_pb2 as model_pb2
import tokenizers
import transformers
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from transformers.convert_slow_tokenizer import generate_merges

HERE = pathlib.Path(__file__).parent
TEXTS = 10_000
BLOCK = 10
MASK = (1 << 64) - 1

# --- Random texts -------------------------------------------------------------------------------------------------------

WORDS = [
    " the", "The", " of", " and", " speculative", " decoding", "ing", "tion", " 2024", "3.14", "1,000,000", "don't", "it's",
    "WE'LL", " I'd", "http://", "example.com/a?b=c", "fn main() {", "    return x;", "\n\n", "\r\n", "\t\t", "  ", "     ",
    " \n ", "-->", "!!!", "...", "<s>", "<0x41>", "[PAD7]", "\u2581", "\ufb01ne", "na\u00efve", "Stra\u00dfe", "\u0130stanbul",
    "\u65e5\u672c\u8a9e", "\u4e2d\u6587\u6587\u672c", "\u3002", "\ud55c\uad6d\uc5b4", "\u041f\u0440\u0438\u0432\u0435\u0442", " \u05e9\u05dc\u05d5\u05dd",
    "\u0645\u0631\u062d\u0628\u0627", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e44\u0e17\u0e22", "\u1019\u103c\u1014\u103a\u1019\u102c", "cafe\u0301", "A\u030a", "\u1e9b\u0323",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "\U0001f1e9\U0001f1ea",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "\u202eabc\u202c", "\u200f", "\ufeff", "\ufffd", "\x00",
]
# Ranges of code points, and the longest run of them.
CLASSES = [
    ([(0x20, 0x7E)], 12),
    ([(0x61, 0x7A)], 8),
    ([(0x30, 0x39), (0x2C, 0x2E)], 6),
    ([(0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x3000, 0x3000)], 5),
    ([(0x00, 0x1F), (0x7F, 0x9F)], 2),
    ([(0xA1, 0x24F)], 5),
    ([(0x391, 0x3A1), (0x3B1, 0x3C9), (0x410, 0x44F)], 6),
    ([(0x5D0, 0x5EA), (0x627, 0x63A), (0x641, 0x64A), (0x660, 0x669)], 6),
    ([(0x905, 0x939), (0x93E, 0x94D)], 5),
    ([(0x4E00, 0x9FA5)], 4),
    ([(0x3041, 0x3096), (0x30A1, 0x30FA)], 5),
    ([(0xAC00, 0xD7A3), (0x1100, 0x1112), (0x1161, 0x1175)], 4),
    ([(0x61, 0x65), (0x300, 0x33F)], 5),
    ([(0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x200D, 0x200D), (0xFE0F, 0xFE0F)], 4),
    ([(0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x2064)], 2),
    ([(0x20000, 0x2A6D6), (0x10400, 0x1044F)], 2),
]


class Random:
    """SplitMix64."""

    def __init__(self, seed):
        self.state = seed

    def below(self, bound):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % bound


def text(seed):
    """The text of a seed; half of its pieces are words, the others runs of characters of one class."""
    source, out = Random(seed), []
    for _ in range(source.below(14)):
        if source.below(2) == 0:
            out.append(WORDS[source.below(len(WORDS))])
            continue
        ranges, longest = CLASSES[source.below(len(CLASSES))]
        for _ in range(1 + source.below(longest)):
            first, last = ranges[source.below(len(ranges))]
            out.append(chr(first + source.below(last - first + 1)))
    return "".join(out)


# --- Tokenizers ---------------------------------------------------------------------------------------------------------

SPACE = "\u2581"
CONTROL = ["<unk>", "<s>", "</s>"]
USER_DEFINED = ["<start_of_turn>", "<end_of_turn>", "\n\n", "\n\n\n", SPACE * 2, SPACE * 3, SPACE * 4]


def train(prefixed, user_defined):
    """A BPE model as those of Llama 2 and Gemma were trained, of few tokens."""
    sentences = [text(1_000_000 + seed).replace("\x00", "").replace("\n", " ") for seed in range(60)]
    random.seed(1)
    common = [word for word in WORDS if word.isprintable() and word.strip()]
    sentences += ["".join(random.choices(common, k=20)) for _ in range(3000)]
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=out,
        model_type="bpe",
        vocab_size=760,
        character_coverage=0.98,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=prefixed,
        allow_whitespace_only_pieces=True,
        split_digits=True,
        user_defined_symbols=user_defined,
        num_threads=1,
        minloglevel=2,
    )
    return out.getvalue()


def pieces_of(model):
    proto = model_pb2.ModelProto()
    proto.ParseFromString(model)
    return proto.pieces


def gguf_of(model, prefixed):
    """As convert_hf_to_gguf.py writes it: spaces of user-defined pieces are spaces, kinds are GGUF's, a padded end."""
    pieces = pieces_of(model)
    tokens = [p.piece.replace(SPACE, " ") if p.type == p.USER_DEFINED else p.piece for p in pieces]
    return {
        "tokens": tokens + [f"[PAD{len(tokens)}]"],
        "scores": [round(p.score, 4) for p in pieces] + [-1000.0],
        "token_types": [int(p.type) for p in pieces] + [5],
        "add_space_prefix": prefixed,
    }


def tokenizer_json_of(model, scheme):
    """The parts that `transformers` makes of such a model: `scheme` is how the space in front is put there."""
    pieces = pieces_of(model)
    vocab = {p.piece: index for index, p in enumerate(pieces)}
    merges = generate_merges(vocab, {p.piece: p.score for p in pieces})
    bpe = tokenizers.models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer = Tokenizer(bpe)
    added = [p.piece for p in pieces if p.type == p.USER_DEFINED]
    tokenizer.add_special_tokens(CONTROL)
    tokenizer.add_tokens([tokenizers.AddedToken(token, normalized=False, special=False) for token in added])
    replace = normalizers.Replace(" ", SPACE)
    back = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if scheme == "prepend":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), replace])
    elif scheme == "first":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="first", split=False)
    else:
        tokenizer.normalizer = replace
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    if scheme != "none":
        back.append(decoders.Strip(content=" ", left=1))
    tokenizer.decoder = decoders.Sequence(back)
    return json.loads(tokenizer.to_str())


# --- Hashes -------------------------------------------------------------------------------------------------------------


def fnv(data, state=0xCBF29CE484222325):
    for byte in data:
        state = ((state ^ byte) * 0x100000001B3) & MASK
    return state


def hashes(tokenizer):
    out = []
    for first in range(0, TEXTS, BLOCK):
        data = bytearray()
        for seed in range(first, first + BLOCK):
            ids = tokenizer.encode(text(seed), add_special_tokens=False).ids
            decoded = tokenizer.decode(ids, skip_special_tokens=True).encode()
            for number in [len(ids), *ids, len(decoded)]:
                data += number.to_bytes(4, "little")
            data += decoded
        out.append(f"{fnv(data):016x}")
    return "".join(out)


def main():
    llama, gemma = train(True, []), train(False, USER_DEFINED)
    models = {
        "llama": {"gguf": gguf_of(llama, True), "tokenizer_json": tokenizer_json_of(llama, "prepend")},
        # The same, read without the old behaviour: there is no GGUF file that says so.
        "llama-first": {"gguf": None, "tokenizer_json": tokenizer_json_of(llama, "first")},
        "gemma": {"gguf": gguf_of(gemma, False), "tokenizer_json": tokenizer_json_of(gemma, "none")},
    }
    dump = lambda value: json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n"
    (HERE / "sentencepiece.json").write_text(dump(models))
    byte_level = json.loads((HERE / "goldens.json").read_text())
    expected = {"made_with": f"tokenizers {tokenizers.__version__}, transformers {transformers.__version__}"}
    for name, model in [*byte_level.items(), *models.items()]:
        expected[name] = hashes(Tokenizer.from_str(json.dumps(model["tokenizer_json"])))
    (HERE / "texts.json").write_text(dump(expected))

    # A third opinion, not stored: sentencepiece itself.
    for name, model in [("llama", llama), ("gemma", gemma)]:
        own = sentencepiece.SentencePieceProcessor(model_proto=model)
        theirs = Tokenizer.from_str(json.dumps(models[name]["tokenizer_json"]))
        # It takes the names of special tokens for text.
        plain = [s for s in range(TEXTS) if not any(mark in text(s) for mark in CONTROL)]
        differ = [s for s in plain if own.encode(text(s)) != theirs.encode(text(s), add_special_tokens=False).ids]
        print(f"{name}: {len(pieces_of(model))} pieces; sentencepiece differs in {len(differ)} of {len(plain)}: {differ[:5]}")


main()
