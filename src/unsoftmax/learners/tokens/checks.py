"""Is it attention over tokens? A few sequences that a head must answer alike, or as pairs predict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.answers import Answers, Computed, Exact, Rounded, Stored, Within
from unsoftmax.arrays import EPS, Array, rms
from unsoftmax.float_formats import smallest_format
from unsoftmax.meters.tokens import PairRequest, TokenPairMeter, TokenSequences
from unsoftmax.oracles import Ids
from unsoftmax.outcomes import OutsideClass, Test, Unresolved

__all__ = [
    "COPIES_TEST",
    "EQUAL_SEQUENCES",
    "MIXING_TEST",
    "ORDER_TEST",
    "ROUNDING",
    "Agreement",
    "agreement",
    "mixes_as_one_head",
    "refuse_lengths",
    "refuse_means",
    "refuse_other_functions",
]

ORDER_TEST = Test("answers do not depend on the order of tokens before the last")
COPIES_TEST = Test("answers do not depend on doubling every token")
MIXING_TEST = Test("three tokens are answered as their scores in pairs predict")
_SEQUENCES = 8  # what moves every other sequence escapes eight once in 256 times
EQUAL_SEQUENCES = 4 * _SEQUENCES  # queries of `agreement`
ROUNDING = 4.0  # an answer of float64 arithmetic is usually within a few units of the last place
_MARGIN = 3.0  # of a root mean square over 16 to 32 differences
_MOST_DECIMALS = 8  # answers of size 1 with more have the digits of float32 (6e-8), and no fewer
_MANY = 9  # tokens: sums of so many round otherwise in another order
_FLOAT64 = 64.0 * EPS  # relative: float64 arithmetic differs by less
_MIXTURES = 4  # as many answers in few digits are not chance
_SHORT_FLOATS = 3e-6  # relative: float32 arithmetic in a layer of usual size stays below 1e-6
_SHORT_ANSWERS = 3e-7  # relative: an answer alone may be stored in float32
_COPIES = 30.0  # times the rounding that orders show: copies add up more tokens
_TRIPLES = 10  # of three queries each
_LEGIBLE = 4  # triples out of ten that have to be readable
_FIT = 100.0  # a prediction may be off by so many error bars


@dataclass(frozen=True)
class Agreement:
    """noise: how far answers to equal sequences are apart, with a margin. swapped, doubled: the largest
    difference between sequences in another order, and between sequences and all their tokens twice.

    answers: what kind of answers these are. evidence: how that was seen.
    """

    noise: float
    swapped: float
    doubled: float
    answers: Answers
    evidence: str


def agreement(sequences: TokenSequences, values: Array, rng: np.random.Generator) -> Agreement:
    """Asks sequences that a head cannot tell apart: tokens in another order, and all of them twice.

    Four queries for each of 8 samples, half of them with three tokens and half with up to nine.
    """
    size = float(np.abs(values).max())
    answers, differences = [], []
    pairs = rng.integers(0, len(values), (_SEQUENCES, 2))
    answers.append(sequences.raw(pairs))
    if sequences.longest >= 3:
        for tokens in (3, min(_MANY, sequences.longest)):
            ids = rng.integers(0, len(values), (_SEQUENCES // 2, tokens))
            turned = np.column_stack([np.roll(ids[:, :-1], 1, axis=1), ids[:, -1]])
            both = sequences.raw(ids), sequences.raw(turned)
            answers += both
            differences.append(both[0] - both[1])
    if sequences.longest >= 4:
        answers.append(sequences.raw(np.repeat(pairs, 2, axis=1)))
        differences.append(answers[0] - answers[-1])
    read = [sequences.read(each) for each in differences]
    swapped, doubled = (
        max((float(np.abs(each).max()) for each in part), default=0.0) for part in (read[:2], read[2:])
    )
    spread = rms(np.concatenate(read)) if read else 0.0
    kind, off, evidence = _kind(np.concatenate(answers), spread, sequences, values)
    return Agreement(max(ROUNDING * EPS * size, _MARGIN * spread, off), swapped, doubled, kind, evidence)


def _kind(answers: Array, off: float, sequences: TokenSequences, values: Array) -> tuple[Answers, float, str]:
    """What kind of answers these are, how far they are off because of it at least, and how that was seen.

    off: usual difference of answers that should be equal.
    Answers that are not the value of any token are mixtures, which float64 would not give in so few digits.
    """
    size = float(np.abs(values).max())
    mixed = answers.ravel()[~np.isin(sequences.read(answers), values).repeat(answers[0].size)]
    if len(mixed) < _MIXTURES:
        return Exact(), 0.0, "too few answers are mixtures of values to tell"
    for decimals in range(_MOST_DECIMALS + 1):
        scaled = mixed * 10.0**decimals
        if np.abs(scaled - np.round(scaled)).max() <= 4.0 * EPS * np.abs(scaled).max():
            return Rounded(decimals), 0.5 * 10.0**-decimals, f"all answers have at most {decimals} decimals"
    stored = smallest_format(mixed)
    rounds = off > _FLOAT64 * size
    if stored is None and not rounds:
        return Exact(), 0.0, "sequences that a head answers alike differ by no more than float64 rounds"
    seen = f"sequences that a head answers alike differ by {off / size:.1g} of the largest value"
    if rounds and stored is not None:
        # the root of two: both answers of a difference are off
        return Computed(stored, off / np.sqrt(2.0) / size), 0.0, seen
    if stored is None:
        return Within(_MARGIN * off), 0.0, seen
    return Stored(stored), 2.0 * stored.unit * size, f"all answers are {stored} numbers, and equal ones agree"


def mixes_as_one_head(meter: TokenPairMeter, rng: np.random.Generator) -> tuple[bool, str]:
    """Whether [i, k, j] is answered as [i, j] and [k, j] predict, with the evidence. 30 queries.

    Raises `Unresolved` when scores cannot be read.
    """
    tokens, thirds, asking = _triples(meter, rng)
    first, second = (meter.compare(PairRequest.plain(each, asking)) for each in (tokens, thirds))
    answers = meter.sequences.ask(np.stack([tokens, thirds, asking], axis=1))
    legible = np.isfinite(first.errors) & np.isfinite(second.errors)
    if legible.sum() < min(_LEGIBLE, len(tokens)):
        outside = _outside_values(meter, tokens, asking)
        if outside is not None:
            return False, outside
        raise Unresolved(
            f"in {len(tokens) - int(legible.sum())} of {len(tokens)} sequences of three tokens one outweighs "
            "the others completely, so scores cannot be read: too strong for float64, or no attention at all"
        )
    scores = np.stack([first.values, second.values, np.zeros(len(tokens))], axis=1)[legible]
    bars = np.stack([first.errors, second.errors], axis=1)[legible]
    held = np.stack([tokens, thirds, asking], axis=1)[legible]
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    values = meter.values[held]
    predicted = np.einsum("bn,bn->b", weights, values)
    moves = np.abs(weights * (values - predicted[:, None]))[:, :2]
    allowed = _FIT * (meter.noise + np.einsum("bn,bn->b", moves, bars))
    off = np.abs(answers[legible] - predicted)
    worst = int(np.argmax(off / allowed))
    evidence = (
        f"a sequence of three tokens is answered {float(answers[legible][worst]):.6g}, where its pairs "
        f"predict {float(predicted[worst]):.6g} to within {float(allowed[worst]):.1g}"
    )
    return bool((off <= allowed).all()), evidence


def refuse_lengths(meter: TokenPairMeter, rng: np.random.Generator) -> None:
    """Raises `OutsideClass` where pairs are answered otherwise when both tokens fill a long sequence. 8
    queries."""
    half = meter.sequences.longest // 2
    pairs = rng.integers(0, meter.vocabulary, (_SEQUENCES // 2, 2))
    short, long = (meter.sequences.ask(np.repeat(pairs, copies, axis=1)) for copies in (1, max(half, 1)))
    off = float(np.abs(short - long).max())
    if off > max(_FIT * meter.noise, _SHORT_FLOATS * float(np.abs(meter.values).max())):
        raise OutsideClass(COPIES_TEST, f"{half} copies of both tokens are answered {off:.3g} away from one")


def refuse_means(meter: TokenPairMeter, rng: np.random.Generator) -> None:
    """Raises `Unresolved` where it does not matter which token comes last. 16 queries."""
    pairs = np.stack([rng.permutation(meter.vocabulary)[:2] for _ in range(_SEQUENCES)])
    answers, turned = meter.sequences.ask(pairs), meter.sequences.ask(pairs[:, ::-1])
    if float(np.abs(answers - turned).max()) <= _FIT * meter.noise:
        raise Unresolved(
            f"{_SEQUENCES} pairs of tokens are answered alike in either order, as where a mean over tokens "
            "is answered, and not the last one's row: such heads are not learnt"
        )


def _outside_values(meter: TokenPairMeter, tokens: Ids, asking: Ids) -> str | None:
    """Evidence that two tokens are answered beyond the values of both, which no single head does."""
    answers = meter.sequences.ask(np.stack([tokens, asking], axis=1))
    both = np.stack([meter.values[tokens], meter.values[asking]])
    beyond = np.maximum(answers - both.max(axis=0), both.min(axis=0) - answers)
    worst = int(beyond.argmax())
    if beyond[worst] <= _FIT * meter.noise:
        return None
    return (
        f"a sequence of two tokens is answered {float(answers[worst]):.6g}, and the tokens alone "
        f"{float(both[0, worst]):.6g} and {float(both[1, worst]):.6g}"
    )


def _triples(meter: TokenPairMeter, rng: np.random.Generator) -> tuple[Ids, Ids, Ids]:
    """Tokens i, k and askers j whose values differ: of many random triples those that show most."""
    drawn = rng.integers(0, meter.vocabulary, (40 * _TRIPLES, 3))
    u = meter.values[drawn]
    apart = np.minimum(np.abs(u[:, 0] - u[:, 2]), np.abs(u[:, 1] - u[:, 2]))
    best = drawn[np.argsort(-apart, kind="stable")[:_TRIPLES]]
    return best[:, 0], best[:, 1], best[:, 2]


def refuse_other_functions(found: Agreement, spread: float, size: float) -> None:
    """Raises `OutsideClass` when order or copies matter more than the arithmetic of short floats explains."""
    # sums of more tokens round more, so that order tells what rounding explains of copies
    copies = min(_SHORT_FLOATS * size, max(_COPIES * found.swapped, _SHORT_ANSWERS * size))
    copies = copies if isinstance(found.answers, Computed | Within) else _SHORT_FLOATS * size
    for test, apart, limit in (
        (ORDER_TEST, found.swapped, _SHORT_FLOATS * size),
        (COPIES_TEST, found.doubled, copies),
    ):
        if apart > limit:
            text = f"answers to equal sequences differ by {apart:.3g}; values spread over {spread:.3g}"
            raise OutsideClass(test, text)
