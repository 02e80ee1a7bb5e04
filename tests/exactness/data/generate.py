"""Makes the data of the enumerated exactness suite: the tables of the 4-token models and, for every wrong rule, the
total variation it must show. Exact rationals, plain Python 3.11, no packages. Run by hand when rules are added:

    python3 tests/exactness/data/generate.py

It writes tables.txt and wrong.txt beside itself. The suite reads the files and never runs this.
"""

import pathlib
import random
from fractions import Fraction as F

V = 4
HERE = pathlib.Path(__file__).parent


# Models: every prefix has its own distribution, from a generator seeded with the model's name and the prefix.


class Model:
    def __init__(self, name, zero=0.0):
        self.name, self.zero, self.cache = name, zero, {}

    def weights(self, prefix):
        rng = random.Random(f"{self.name}|{prefix}")
        w = [rng.randint(1, 20) if rng.random() > self.zero else 0 for _ in range(V)]
        if sum(w) == 0:
            w[rng.randrange(V)] = 1
        return w

    def __call__(self, prefix):
        if prefix not in self.cache:
            w = self.weights(prefix)
            self.cache[prefix] = [F(x, sum(w)) for x in w]
        return self.cache[prefix]


class Undrawn(Model):
    """Models of the Monte Carlo programs, whose generator draws nothing but the weights."""

    def weights(self, prefix):
        rng = random.Random(f"{self.name}|{prefix}")
        return [rng.randint(1, 20) for _ in range(V)]


def prefixes(up_to):
    level = [()]
    for _ in range(up_to + 1):
        yield from level
        level = [x + (t,) for x in level for t in range(V)]


# Outcomes: from texts to probabilities.


def add(outcomes, text, weight):
    if weight:
        outcomes[text] = outcomes.get(text, F(0)) + weight


def finish(outcomes, p, length):
    """Every text brought to `length`: cut, or sampled on from the target."""
    out, stack = {}, list(outcomes.items())
    while stack:
        x, w = stack.pop()
        if len(x) >= length:
            add(out, x[:length], w)
            continue
        stack.extend((x + (t,), w * pt) for t, pt in enumerate(p(x)) if pt)
    return out


def error(outcomes, p, length):
    ours, right = finish(outcomes, p, length), finish({(): F(1)}, p, length)
    assert sum(ours.values()) == 1
    return sum(abs(ours.get(k, 0) - right.get(k, 0)) for k in set(ours) | set(right)) / 2


# The pieces of a round.


def norm(v):
    s = sum(v)
    return [x / s for x in v] if s > 0 else None


def residual(P, Q):
    return norm([max(F(0), a - b) for a, b in zip(P, Q)]) or P


def likeliest(q, k):
    return sorted(range(V), key=lambda i: (-q[i], i))[:k]


def top_raw(q, k):
    return [q[i] if i in likeliest(q, k) else F(0) for i in range(V)]


def top(q, k):
    return norm(top_raw(q, k))


def onehot(a):
    return [F(int(j == a)) for j in range(V)]


def drafts(q, length):
    out = [((), F(1))]
    for _ in range(length):
        out = [(x + (t,), w * qt) for x, w in out for t, qt in enumerate(q(x)) if qt]
    return out


def ratio(P, Q, t):
    return min(F(1), P[t] / Q[t]) if Q[t] else F(0)


def verify(outcomes, p, x, w, accept, repair, bonus=None):
    """One block: accept(P, i) and repair(P, i) judge position i, bonus(x) follows a block that stands."""
    for i, t in enumerate(x):
        P = p(x[:i])
        a = accept(P, i)
        for j, r in enumerate(repair(P, i)):
            add(outcomes, x[:i] + (j,), w * (1 - a) * r)
        w *= a
    for j, b in enumerate((bonus or p)(x)):
        add(outcomes, x + (j,), w * b)


def right(outcomes, p, q, x, w):
    verify(outcomes, p, x, w, lambda P, i: ratio(P, q(x[:i]), x[i]), lambda P, i: residual(P, q(x[:i])))


# The wrong rules, each returning its error. `s` is the models' seed.


def models(s):
    return Model(f"p{s}"), Model(f"q{s}")


def scalar_residual(s):
    p, q = models(s)
    D = {}
    for x, w in drafts(q, 3):
        verify(D, p, x, w, lambda P, i: ratio(P, q(x[:i]), x[i]),
               lambda P, i: residual(P, [q(x[:i])[j] if j == x[i] else F(0) for j in range(V)]))
    return error(D, p, 4)


def repair_from_target(s):
    p, q = models(s)
    D = {}
    for x, w in drafts(q, 3):
        verify(D, p, x, w, lambda P, i: ratio(P, q(x[:i]), x[i]), lambda P, i: P)
    return error(D, p, 4)


def top_two_sent_raw(s):
    p, q = models(s)
    D = {}
    for x, w in drafts(q, 3):
        verify(D, p, x, w, lambda P, i: ratio(P, q(x[:i]), x[i]), lambda P, i: residual(P, top_raw(q(x[:i]), 2)))
    return error(D, p, 4)


def top_two_sent_renormalised(s):
    p, q = models(s)
    D = {}
    for x, w in drafts(q, 3):
        right(D, p, lambda z: top(q(z), 2), x, w)
    return error(D, p, 4)


def low_confidence_dropped(s):
    p, q = models(s)
    D, stack = {}, [((), F(1))]
    while stack:
        x, w = stack.pop()
        if len(x) == 3:
            right(D, p, q, x, w)
            continue
        for t, c in enumerate(q(x)):
            if c < F(1, 4):
                right(D, p, q, x, w * c)
            else:
                stack.append((x + (t,), w * c))
    return error(D, p, 5)


def proactive_untested(s):
    p, q = models(s)
    D = {}
    for x, w in drafts(q, 2):
        verify(D, p, x, w, lambda P, i: ratio(P, q(x[:i]), x[i]), lambda P, i: residual(P, q(x[:i])), bonus=q)
    return error(D, p, 5)


def ratio_inverted(s):
    p, q = models(s)
    D = {}
    for x, w in drafts(q, 1):
        verify(D, p, x, w, lambda P, i: ratio(q(()), P, x[i]), lambda P, i: residual(P, q(())))
    return error(D, p, 1)


def missing_q_by_argmax(s):
    p, _ = models(s)
    D = {}
    for d in range(V):
        verify(D, p, (d,), F(1, V), lambda P, i: F(int(d == likeliest(P, 1)[0])), lambda P, i: P)
    return error(D, p, 1)


def cut_at_forbidden(s):
    p, q = Model(f"pz{s}", 0.4), Model(f"q{s}")
    D = {}
    for x, w in drafts(q, 3):
        k = next((i for i in range(3) if p(x[:i])[x[i]] == 0), 3)
        right(D, p, q, x[:k], w)
    return error(D, p, 5)


def late_block_dropped(threshold):
    def rule(s):
        p, q = models(s)
        D, stack = {}, [((), F(1))]
        while stack:
            x, w = stack.pop()
            if len(x) == 3 or (x and max(q(x)) < threshold):
                if len(x) >= 2:
                    add(D, (), w)
                else:
                    right(D, p, q, x, w)
                continue
            stack.extend((x + (t,), w * c) for t, c in enumerate(q(x)))
        return error(D, p, 4)

    return rule


def plain_token_dropped(s):
    p, q = models(s)
    D = {}
    for j in range(1, V):
        add(D, (j,), p(())[j])
    for x, w in drafts(q, 2):
        right(D, p, q, x, w * p(())[0])
    return error(D, p, 5)


def lattice_liar(token):
    def rule(s):
        p, _ = models(s)
        claimed = [F(0)] * V
        claimed[token], claimed[(token + 1) % V] = F(1, 4096), F(4095, 4096)
        D = {}
        right(D, p, lambda x: claimed, (token,), F(1))
        return error(D, p, 1)

    return rule


def coin_known(s):
    """A one-hot drafter that knows the accept coin u sends the least likely token with p > u, else the likeliest."""
    p, _ = models(s)
    P, D = p(()), {}
    order = sorted(range(V), key=lambda j: P[j])
    cuts = sorted({F(0), F(1), *P})
    for low, high in zip(cuts, cuts[1:]):
        passing = [j for j in order if P[j] >= high]
        x = passing[0] if passing else order[-1]
        verify(D, p, (x,), high - low, lambda P, i: F(int(P[x] >= high)), lambda P, i: residual(P, onehot(x)))
    return error(D, p, 1)


def chain(P, Q, before, t):
    """P of the block rule behind token t."""
    return min(F(1), before * P[t] / Q[t])


def left(P, Q, before):
    return [max(F(0), before * a - b) for a, b in zip(P, Q)]


def block_half(p, q, x, base=()):
    """The verifier's half of the block rule: h of each position, and the residual for each number of tokens."""
    reach, h, closing = [F(1)], [], []
    for i, t in enumerate(x):
        P, Q = p(base + x[:i]), q(base + x[:i])
        rest = left(P, Q, reach[i])
        closing.append(norm(rest) or P)
        if i:
            whole = sum(rest) + 1 - reach[i]
            h.append(sum(rest) / whole if whole else F(1))
        reach.append(chain(P, Q, reach[i], t))
    return h + [reach[-1]], closing + [p(base + x)]


def block_read_as_token(s):
    p, q = models(s)
    D = {}
    for x, w in drafts(q, 3):
        h, closing = block_half(p, q, x)
        for k in range(4):
            here = w * (1 - h[k]) if k < 3 else w
            for j in range(V):
                add(D, x[:k] + (j,), here * closing[k][j])
            if k < 3:
                w *= h[k]
    return error(D, p, 5)


def block_with_token_residual(s):
    p, q = models(s)
    D = {}
    for x, w in drafts(q, 3):
        h, _ = block_half(p, q, x)
        for k in range(3, -1, -1):
            here = w * h[k - 1] if k else w
            P = p(x[:k])
            for j, y in enumerate(P if k == 3 else residual(P, q(x[:k]))):
                add(D, x[:k] + (j,), here * y)
            if k:
                w *= 1 - h[k - 1]
    return error(D, p, 5)


def block_coins_by_position(s):
    """Accept coins keyed by position, not by round: what a rejection taught of a coin is not forgotten. Blocks of two
    tokens, texts of three; the known lower bound of a coin is all that is carried over."""
    p, q = models(s)
    D, stack = {}, [((), F(0), F(1))]
    while stack:
        base, bound, weight = stack.pop()
        if len(base) >= 3:
            add(D, base[:3], weight)
            continue
        for x, w in drafts(lambda z: q(base + z), 2):
            h, closing = block_half(p, q, x, base)
            first = max(F(0), h[0] - bound) / (1 - bound)
            for k, here in ((2, h[1]), (1, (1 - h[1]) * first), (0, (1 - h[1]) * (1 - first))):
                for j, y in enumerate(closing[k]):
                    if weight * w * here * y:
                        # With no token standing, the second position is the next round's first.
                        stack.append((base + x[:k] + (j,), h[1] if k == 0 else F(0), weight * w * here * y))
    return error(D, p, 3)


def shared_uniform(s):
    """The uniform that drew a token also accepts it. Rounds until the text has four tokens."""
    p, q = Undrawn(f"p{s}"), Undrawn(f"q{s}")
    D, stack = {}, [((), 0, F(1))]
    while stack:
        x, accepted, w = stack.pop()
        if len(x) == 4:
            add(D, x, w)
            continue
        P, Q = p(x), q(x)
        if accepted == 3:
            stack.extend((x + (j,), 0, w * y) for j, y in enumerate(P))
            continue
        low = F(0)
        for t in range(V):
            high = low + Q[t]
            passes = max(F(0), min(high, P[t] / Q[t]) - low)
            if passes:
                stack.append((x + (t,), accepted + 1, w * passes))
            for j, y in enumerate(residual(P, Q)):
                if (high - low - passes) * y:
                    stack.append((x + (j,), 0, w * (high - low - passes) * y))
            low = high
    return error(D, p, 4)


def siblings_independent(s):
    """Two different tokens for one position, each tested as if it were alone; the second first."""
    p, q = models(s)
    P, Q, D = p(()), q(()), {}
    for a in range(V):
        for c in range(V):
            if a == c:
                continue
            w = Q[a] * Q[c] / (1 - Q[a])
            of_a, of_c = ratio(P, Q, a), ratio(P, Q, c)
            add(D, (c,), w * of_c)
            add(D, (a,), w * (1 - of_c) * of_a)
            for j, y in enumerate(residual(P, Q)):
                add(D, (j,), w * (1 - of_c) * (1 - of_a) * y)
    return error(D, p, 1)


def longest_of_two(s):
    """Two blocks of two tokens judged independently, without bonus; the one of which more stands is kept."""
    p, q = models(s)
    judged = []
    for x, w in drafts(q, 2):
        for i, t in enumerate(x):
            P, Q = p(x[:i]), q(x[:i])
            a = ratio(P, Q, t)
            judged.extend((i, x[:i] + (j,), w * (1 - a) * y) for j, y in enumerate(residual(P, Q)) if (1 - a) * y)
            w *= a
        if w:
            judged.append((2, x, w))
    D = {}
    for n, x, w in judged:
        for m, z, v in judged:
            add(D, x if n >= m else z, w * v)
    return error(D, p, 3)


WRONG = {
    "scalar_residual": scalar_residual,
    "repair_from_target": repair_from_target,
    "top_two_sent_raw": top_two_sent_raw,
    "top_two_sent_renormalised": top_two_sent_renormalised,
    "low_confidence_dropped": low_confidence_dropped,
    "proactive_untested": proactive_untested,
    "ratio_inverted": ratio_inverted,
    "missing_q_by_argmax": missing_q_by_argmax,
    "cut_at_forbidden": cut_at_forbidden,
    "late_block_dropped_0.40": late_block_dropped(F(2, 5)),
    "late_block_dropped_0.50": late_block_dropped(F(1, 2)),
    "plain_token_dropped": plain_token_dropped,
    "lattice_liar_0": lattice_liar(0),
    "lattice_liar_1": lattice_liar(1),
    "lattice_liar_2": lattice_liar(2),
    "lattice_liar_3": lattice_liar(3),
    "coin_known": coin_known,
    "block_read_as_token": block_read_as_token,
    "block_with_token_residual": block_with_token_residual,
    "block_coins_by_position": block_coins_by_position,
    "shared_uniform": shared_uniform,
    "siblings_independent": siblings_independent,
    "longest_of_two": longest_of_two,
}


def write(out, name, model, up_to):
    for x in prefixes(up_to):
        text = "".join(map(str, x)) or "-"
        out.write(f"{name} {text} {' '.join(map(str, model.weights(x)))}\n")


def main():
    with open(HERE / "tables.txt", "w") as out:
        out.write("# Weights of the models' next tokens, a line for each: model, prefix (- if empty), four weights.\n")
        for s in range(2):
            for model in (Model(f"p{s}"), Model(f"q{s}"), Model(f"pz{s}", 0.4)):
                write(out, model.name, model, 4)
            for name in ("p", "q"):
                write(out, f"u{name}{s}", Undrawn(f"{name}{s}"), 3)
    with open(HERE / "wrong.txt", "w") as out:
        out.write("# Total variation of each wrong rule: rule, the models' seed, value.\n")
        for name, rule in WRONG.items():
            for s in range(2):
                out.write(f"{name} {s} {float(rule(s)):.17g}\n")


if __name__ == "__main__":
    main()
