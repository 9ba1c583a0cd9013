"""Cheap class tests on rows: what any attention must show, whatever its parameters and however it computes.

Heads: two rows b + a and b - a weigh w and 1 - w beside the asking row b, in every head and under any query
bias, so that f([b + a; b]) - f([b - a; b]) = f([a]) - f([0]).

A network on top of one head: inside a linear piece of it, the rows b + ka and b share by σ(kt).
"""

from __future__ import annotations

import numpy as np

from unsoftmax.answers.bends import PLACES, Bends, bends
from unsoftmax.arrays import Array
from unsoftmax.ledger import Asker
from unsoftmax.outcomes import OutsideClass, Test

__all__ = ["QUERIES_OF_HEAD_TESTS", "refuse_other_networks", "refuse_other_sequences"]

ORDER_TEST = Test("the order of earlier rows does not matter, nor that every row is sent twice")
OPPOSITE_TEST = Test("opposite rows share one weight")
PIECES_TEST = Test("one-row answers are piecewise linear")
PIECE_TEST = Test("inside a linear piece of the network two rows share by one softmax")

_PAIRS = 4  # pairs of rows in a test: each alone would show another function
QUERIES_OF_HEAD_TESTS = 5 + 3 * _PAIRS  # what the tests below ask
_EXACT = 1e-9  # of the answers: float64 never loses so much in a few of them
# of answers that round at every step: scores ten times as strong as usual move them by a hundred
_ROUNDINGS = 1000.0
_FLOAT64 = 1e-13  # of the answers: how far second differences are off in float64
# of usual rows, where answers round: tanh over a layer as torch makes it bends there by ten times as much
_LONGER = 3.0
_STEP, _ROUNDED_STEP = 1e-3, 0.1  # of a row: bends are its square, far above rounding
_TRIES = 12  # sizes of rows around one place
_FAINT, _STRONG = 0.05, 0.45  # how far a weight must, and may, be from one half to tell a score
_FAR_ENOUGH = 100.0  # norm of an asking row that leaves no score faint beside those that _FAINT tells
_LEGIBLE = 100.0  # times the noise, that a row must move the answer
_NOTHING = 0.01  # weights of opposite rows that add up to less need no score
_PIECES, _ATTEMPTS = 3, 12  # of the network that are looked at behind rounding, and places tried
_ERRORS = 10.0  # times as far off as its error a weight may be
_FACTORS = np.array([1.0, -1.0, 2.0])  # of one row: a softmax answers all three from one score


def refuse_other_sequences(asker: Asker, rounding: float, rng: np.random.Generator) -> None:
    """Raises OutsideClass where answers are not those of heads. rounding: of one answer, relative.

    17 queries; sequences of up to four rows.
    """
    size = float(np.sqrt(asker.width))
    size = size if asker.input_bound is None else min(size, 0.5 * asker.input_bound)
    limit = max(_EXACT, _ROUNDINGS * rounding)
    longest = np.inf if asker.max_length is None else asker.max_length
    x, y, z = _rows(3, asker.width, size, rng)
    if longest >= 4:
        turned = asker.ask(np.stack([[x, y, z], [y, x, z]]))
        doubled = np.concatenate([asker.ask(np.array([[x, z]])), asker.ask(np.array([[x, x, z, z]]))])
        for answers, when in (
            (turned, "the first two of three rows change places"),
            (doubled, "both of two rows are sent twice"),
        ):
            moved, largest = float(np.abs(answers[0] - answers[1]).max()), float(np.abs(answers).max())
            if moved > limit * largest:
                raise OutsideClass(ORDER_TEST, f"the answer {largest:.3g} moves by {moved:.3g} when {when}")
    if longest < 2:
        return
    a, b = _rows(_PAIRS, asker.width, size, rng), _rows(_PAIRS, asker.width, size, rng)
    origin, alone = asker.ask(np.zeros((1, 1, asker.width)))[0], asker.ask(a[:, None])
    up, down = (asker.ask(np.stack([b + sign * a, b], axis=1)) for sign in (1.0, -1.0))
    off = np.abs((up - down) - (alone - origin)).reshape(_PAIRS, -1).max(axis=1)
    largest = float(max(np.abs(each).max() for each in (origin, alone, up, down)))
    if off.max() > limit * largest:
        raise OutsideClass(
            OPPOSITE_TEST,
            f"a row and its negative move the answer by {off.max():.3g} more or less than the row does alone "
            f"(answers are {largest:.3g}); any heads give the two rows one weight together",
        )


def refuse_other_networks(asker: Asker, rounding: float, rng: np.random.Generator) -> None:
    """Raises a stop where the target is not a ReLU network on top of one head: single rows bend wherever one
    looks (30 queries, 60 where answers round), or rows do not share by one softmax (seven queries for every
    size that is tried around a random row, about 40 in all).
    """
    step = _STEP if rounding == 0.0 else _ROUNDED_STEP
    seen = Bends(0, 0, 0)
    for size in (1.0,) if rounding == 0.0 else (1.0, _LONGER):
        seen += bends(
            lambda rows: asker.ask(rows[:, None]),
            rng.standard_normal((PLACES, asker.width)) * _bounded(asker, size),
            step,
            lambda answers: max(_FLOAT64, 4.0 * rounding) * float(np.abs(answers).max()),
        )
        if seen.smoothly:
            raise OutsideClass(
                PIECES_TEST,
                "answers to single rows curve everywhere; those of a ReLU network bend only at kinks",
            )
    wanted = 1 if rounding == 0.0 else _PIECES
    found = against = 0
    for _ in range(_ATTEMPTS):
        read = _weights_in_a_piece(asker, rounding, rng)
        if read is None:
            continue
        weights, error = read
        allowed = _ERRORS * error
        found += 1
        total = float(weights[0] + weights[1])
        predicted = 0.0
        if abs(total) > allowed:
            first, opposite = weights[:2] / total
            predicted = total * first**2 / (first**2 + opposite**2)  # σ(2t) where the first is σ(t)
        if abs(total) <= allowed or abs(weights[2] - predicted) > allowed:
            against += 1
        if against > (rounding > 0.0):  # in one place rounding may hide a kink
            shown = ", ".join(f"{weight:.4g}" for weight in weights)
            raise OutsideClass(
                PIECE_TEST,
                f"a row, its negative and its double weigh {shown}, which is not a single softmax (errors "
                f"explain {allowed:.1g})",
            )
        if found == wanted + against:
            return


def _weights_in_a_piece(
    asker: Asker, rounding: float, rng: np.random.Generator
) -> tuple[Array, float] | None:
    """Weights of a, -a and 2a beside b, where answers are linear around b and scores are neither faint nor
    saturated, and how far they may be off; None where no size shows that."""
    b, a = _rows(2, asker.width, 1.0, rng)
    far, near = _bounded(asker, 4.0), _bounded(asker, 1.0) / 4.0
    for _ in range(_TRIES):
        rows = far * b + near * np.concatenate([[0.0], _FACTORS])[:, None] * a
        alone = asker.ask(rows[:, None]).reshape(len(rows), -1)[:, 0]
        signal = alone[1] - alone[0]
        noise = max(_FLOAT64, rounding) * float(np.abs(alone).max())
        bend = np.abs(alone[1:] - alone[0] - _FACTORS * signal).max()
        if bend > noise + 1e-9 * abs(signal):
            near /= 4.0
            continue
        if abs(signal) <= _LEGIBLE * noise:
            if asker.input_bound is not None:
                return None
            far, near = far * 2.0, near * 4.0
            continue
        pairs = np.stack([np.stack([row, rows[0]]) for row in rows[1:]])
        weights = (asker.ask(pairs).reshape(3, -1)[:, 0] - alone[0]) / (_FACTORS * signal)
        total = float(weights[0] + weights[1])
        spread = 0.5 if total == 0.0 else float(np.abs(weights / total - 0.5).max())
        error = noise / abs(signal) + 1e-9
        even = spread <= error and far >= _FAR_ENOUGH  # no scores at all, as with a mean over rows
        if abs(total) < _NOTHING or _FAINT <= spread <= _STRONG or even:
            return weights, error
        if spread > _STRONG:
            near /= 3.0
        elif asker.input_bound is None:
            far *= 4.0
        else:
            return None
    return None


def _rows(count: int, width: int, size: float, rng: np.random.Generator) -> Array:
    rows = rng.standard_normal((count, width))
    return np.asarray(size * rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _bounded(asker: Asker, size: float) -> float:
    return size if asker.input_bound is None else min(size, 0.25 * asker.input_bound / np.sqrt(asker.width))
