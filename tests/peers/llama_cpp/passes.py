"""Times of passes of both engines, taken in turns: a slow minute of the machine falls on both."""

import dataclasses
import json
import statistics
import subprocess

from build import note


@dataclasses.dataclass
class Engines:
    """The programs to measure."""

    ours: str
    theirs: str

    def run_ours(self, model, threads, contexts, rows, repeats, logits="all"):
        """({(context, rows): ms}, {context: bound in ms})."""
        words = [self.ours, "bench", "pass", "--json", "--model", model, "--threads", str(threads), "--context",
                 joined(contexts), "--rows", joined(rows), "--repeats", str(repeats), "--logits", logits]
        told = output(words)
        told = told if isinstance(told, list) else [told]
        times = {(item["context"], one["rows"]): one["ms"] for item in told for one in item["passes"]}
        return times, {item["context"]: item["bound_ms"] for item in told}

    def run_theirs(self, model, threads, contexts, rows, repeats, logits="all"):
        """{(context, rows): ms}."""
        told = output([self.theirs, model, str(threads), joined(contexts), joined(rows), str(repeats), logits])
        return {(item["context"], one["rows"]): statistics.median(one["samples"])
                for item in told for one in item["passes"]}


@dataclasses.dataclass
class Figure:
    """One kind of pass: what each round gave, in ms."""

    ours: list = dataclasses.field(default_factory=list)
    theirs: list = dataclasses.field(default_factory=list)
    bounds: list = dataclasses.field(default_factory=list)

    @property
    def our_ms(self):
        return statistics.median(self.ours)

    @property
    def their_ms(self):
        return statistics.median(self.theirs)

    @property
    def bound_ms(self):
        return statistics.median(self.bounds)

    @property
    def ratio(self):
        """llama.cpp / ours: the median of the rounds' own ratios, each from two neighbouring moments."""
        return statistics.median(theirs / ours for ours, theirs in zip(self.ours, self.theirs))


def compare(engines, model, args, contexts=None, rows=None, threads=None):
    """{(threads, context, rows): Figure}."""
    contexts, rows, threads = contexts or args.contexts, rows or args.rows, threads or args.threads
    figures = {}
    for count in threads:
        for turn in range(args.rounds):
            note(f"{model.rsplit('/', 1)[-1]}, {count} threads: round {turn + 1} of {args.rounds}")
            ours, bounds, theirs = one_round(engines, turn, model, count, contexts, rows, args.repeats)
            for (context, size), ms in ours.items():
                figure = figures.setdefault((count, context, size), Figure())
                figure.ours.append(ms)
                figure.theirs.append(theirs[context, size])
                figure.bounds.append(bounds[context])
    return figures


def prefill(engines, model, args):
    """{threads: Figure} of reading `args.prefill` tokens into an empty cache, for the last token's logits."""
    figures = {count: Figure() for count in args.threads}
    for turn in range(args.rounds):
        note(f"prefill of {args.prefill} tokens: round {turn + 1} of {args.rounds}")
        for count, figure in figures.items():
            ours, _, theirs = one_round(engines, turn, model, count, [0], [args.prefill], args.repeats, "last")
            figure.ours.append(ours[0, args.prefill])
            figure.theirs.append(theirs[0, args.prefill])
    return figures


def one_round(engines, turn, *what):
    """Both engines one after the other; who goes first changes with each turn."""
    if turn % 2 == 1:
        theirs = engines.run_theirs(*what)
        return *engines.run_ours(*what), theirs
    ours, bounds = engines.run_ours(*what)
    return ours, bounds, engines.run_theirs(*what)


def joined(values):
    return ",".join(map(str, values))


def output(words):
    return json.loads(subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE).stdout)
