"""Is it attention over tokens? A few sequences that a head must answer alike, or as pairs predict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import EPS, Array, rms
from unsoftmax.float_formats import smallest_format
from unsoftmax.meters.tokens import PairRequest, TokenPairMeter, TokenSequences
from unsoftmax.oracles import Ids
from unsoftmax.outcomes import OutsideClass, Test, Unresolved

__all__ = [
    "COPIES_TEST",
    "MIXING_TEST",
    "ORDER_TEST",
    "ROUNDING",
    "Agreement",
    "agreement",
    "mixes_as_one_head",
    "refuse_other_functions",
]

ORDER_TEST = Test("answers do not depend on the order of tokens before the last")
COPIES_TEST = Test("answers do not depend on doubling every token")
MIXING_TEST = Test("three tokens are answered as their scores in pairs predict")
_SEQUENCES = 8
ROUNDING = 4.0  # an answer of float64 arithmetic is usually within a few units of the last place
_MARGIN = 3.0  # of a root mean square over 16 to 32 differences
_MOST_DECIMALS = 8
_MIXTURES = 4  # as many answers in few digits are no chance
_SHORT_FLOATS = 2e-5  # relative: float32 arithmetic in a layer of usual size stays below 2e-6
_TRIPLES = 10
_LEGIBLE = 4  # triples out of ten that have to be readable
_FIT = 100.0  # a prediction may be off by so many error bars


@dataclass(frozen=True)
class Agreement:
    """noise: how far answers to equal sequences are apart, with a margin. swapped, doubled: the largest
    difference between sequences in another order, and between sequences and all their tokens twice."""

    noise: float
    swapped: float
    doubled: float


def agreement(sequences: TokenSequences, values: Array, rng: np.random.Generator) -> Agreement:
    """Asks sequences that a head cannot tell apart: tokens in another order, and all of them twice.

    Four queries for each of 8 samples.
    """
    size = float(np.abs(values).max())
    ids = rng.integers(0, len(values), (_SEQUENCES, 3))
    pair = ids[:, 1:]
    answers = [sequences.ask(pair)]
    if sequences.longest >= 3:
        answers += [sequences.ask(ids), sequences.ask(ids[:, [1, 0, 2]])]
    if sequences.longest >= 4:
        answers.append(sequences.ask(np.repeat(pair, 2, axis=1)))
    swapped = answers[1] - answers[2] if len(answers) > 2 else np.zeros(1)
    doubled = answers[0] - answers[3] if len(answers) > 3 else np.zeros(1)
    asked = [each for each in (swapped, doubled) if len(each) == _SEQUENCES]
    spread = rms(np.concatenate(asked)) if asked else 0.0
    noise = max(ROUNDING * EPS * size, _MARGIN * spread, _stored_error(np.concatenate(answers), values))
    return Agreement(noise, float(np.abs(swapped).max()), float(np.abs(doubled).max()))


def _stored_error(answers: Array, values: Array) -> float:
    """How far answers are off because they are stored in a short format, or rounded; 0 if they are not.

    Answers that are no token's value are mixtures, which float64 would not give in so few digits.
    """
    size = float(np.abs(values).max())
    answers = answers[~np.isin(answers, values)]
    if len(answers) < _MIXTURES:
        return 0.0
    for decimals in range(_MOST_DECIMALS + 1):
        scaled = answers * 10.0**decimals
        if np.abs(scaled - np.round(scaled)).max() <= 4.0 * EPS * np.abs(scaled).max():
            return float(0.5 * 10.0**-decimals)
    stored = smallest_format(answers)
    return 0.0 if stored is None else 2.0 * stored.unit * size


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
    for test, apart in ((ORDER_TEST, found.swapped), (COPIES_TEST, found.doubled)):
        if apart > _SHORT_FLOATS * size:
            text = f"answers to equal sequences differ by {apart:.3g}; values spread over {spread:.3g}"
            raise OutsideClass(test, text)
