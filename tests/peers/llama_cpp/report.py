"""The Markdown: every figure measured, and the limits it is held against."""

import pathlib
import statistics

# Name: (limit, "min" or "max", what it is of). Ratios are llama.cpp / ours where nothing else is said.
LIMITS = {
    "t1": (2.5, "min", "T(1), context 128"),
    "t8": (6.0, "min", "T(8), context 128"),
    "t5-growth": (1.35, "max", "our T(5)/T(1), context 128"),
    "t8-growth": (1.65, "max", "our T(8)/T(1), context 128"),
    "t1-bound": (1.25, "max", "our T(1) / memory-stream bound, context 128"),
    "t1-2048": (1.5, "min", "T(1), context 2048"),
    "t8-2048": (3.0, "min", "T(8), context 2048"),
    "prefill": (1.0, "min", "prefill, each at its best thread count"),
    "sessions": (2.0, "min", "sessions decoding plainly, total tok/s, ours / llama-server"),
    "shape-t1": (1.0, "min", "T(1), random weights"),
    "shape-t8": (1.5, "min", "T(8), random weights"),
}


class Report:
    """Collects figures, and says which limits they keep."""

    def __init__(self, limits, args):
        self.limits = limits
        self.args = args
        self.sections = []
        self.verdicts = []
        self.missed = False

    def passes(self, model, figures):
        """Passes of the model over rows, contexts and threads."""
        rows = [[threads, context, size, f"{one.our_ms:.2f}", f"{one.their_ms:.2f}", f"{one.ratio:.2f}",
                 f"{one.our_ms / figures[threads, context, min(self.args.rows)].our_ms:.2f}",
                 f"{one.our_ms / one.bound_ms:.2f}"]
                for (threads, context, size), one in sorted(figures.items())]
        base = f"ours / T({min(self.args.rows)})"
        header = ["threads", "context", "rows", "ours, ms", "llama.cpp, ms", "ratio", base, "ours / bound"]
        self.sections.append(f"### One pass, {pathlib.Path(model).name}\n\n" + table(header, rows))

        judged = {(context, size): one for (threads, context, size), one in figures.items()
                  if threads == self.args.judged_threads}
        for name, context, size in (("t1", 128, 1), ("t8", 128, 8), ("t1-2048", 2048, 1), ("t8-2048", 2048, 8)):
            if (context, size) in judged:
                self.judge(name, judged[context, size].ratio)
        if (128, 1) in judged:
            first = judged[128, 1]
            self.judge("t1-bound", statistics.median(ms / bound for ms, bound in zip(first.ours, first.bounds)))
            for name, size in (("t5-growth", 5), ("t8-growth", 8)):
                if (128, size) in judged:
                    growths = (ms / base for ms, base in zip(judged[128, size].ours, first.ours))
                    self.judge(name, statistics.median(growths))

    def prefill(self, figures):
        """Prefill at each thread count; judged is the best of either engine."""
        count = self.args.prefill
        rows = [[threads, f"{one.our_ms:.1f}", f"{one.their_ms:.1f}", f"{count / one.our_ms * 1e3:.0f}",
                 f"{count / one.their_ms * 1e3:.0f}", f"{one.ratio:.2f}"] for threads, one in sorted(figures.items())]
        header = ["threads", "ours, ms", "llama.cpp, ms", "ours, tok/s", "llama.cpp, tok/s", "ratio"]
        self.sections.append(f"### Prefill of {count} tokens\n\n" + table(header, rows))
        best_theirs = min(one.their_ms for one in figures.values())
        self.judge("prefill", best_theirs / min(one.our_ms for one in figures.values()))

    def sessions(self, rates):
        """Total rate of sessions that decode at once."""
        count, tokens = self.args.sessions, self.args.tokens
        ours, theirs = statistics.median(rates.ours), statistics.median(rates.theirs)
        text = table(["ours, tok/s", "llama-server, tok/s", "ratio"], [[f"{ours:.0f}", f"{theirs:.0f}", f"{rates.ratio:.2f}"]])
        if rates.shortest < tokens:
            text += f"\n\nA session of ours ended after {rates.shortest} tokens, which lowers our rate."
        self.sections.append(f"### {count} sessions of {tokens} tokens\n\n" + text)
        self.judge("sessions", rates.ratio)

    def shape(self, name, figures):
        """Passes of one random-weight model."""
        rows = [[size, f"{one.our_ms:.2f}", f"{one.their_ms:.2f}", f"{one.ratio:.2f}", f"{one.our_ms / one.bound_ms:.2f}"]
                for (_, _, size), one in sorted(figures.items())]
        header = ["rows", "ours, ms", "llama.cpp, ms", "ratio", "ours / bound"]
        self.sections.append(f"### Random weights, {name}\n\n" + table(header, rows))
        for (_, _, size), one in sorted(figures.items()):
            self.judge(f"shape-t{size}", one.ratio, name)

    def judge(self, name, value, of=""):
        """Holds a value against its limit."""
        limit, kind, what = LIMITS[name]
        limit = self.limits.get(name, limit)
        kept = value >= limit if kind == "min" else value <= limit
        self.missed |= not kept
        sign = "≥" if kind == "min" else "≤"
        self.verdicts.append([f"{what} {of}".strip(), f"{value:.2f}", f"{sign} {limit:g}", "PASS" if kept else "FAIL"])

    def markdown(self):
        """The whole text."""
        head = (f"llama.cpp of llama-cpp-python {self.args.version}; limits for {self.args.judged_threads} threads; medians of "
                f"{self.args.rounds} interleaved rounds of {self.args.repeats} passes; ratios are llama.cpp / ours")
        if self.args.load > 0.5:
            head += (f"\n\n**The machine was not idle**: its load was {self.args.load:.1f} before the first figure. llama.cpp's "
                     "threads wait for each other by spinning, which other work makes many times slower.")
        verdicts = table(["figure", "measured", "limit", ""], self.verdicts)
        return "\n\n".join([head, *self.sections, "### Limits\n\n" + verdicts])


def table(header, rows):
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
