"""Fresh sequences against a head with a query bias: no answer may be further off than the errors of the
parameters and of the answers allow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.models import SingleHead
from unsoftmax.models.base import softmax
from unsoftmax.outcomes import OutsideClass, Test

__all__ = ["FRESH_TEST", "Explained", "check_fresh_sequences", "most_moved"]

FRESH_TEST = Test("fresh sequences are answered as far as the errors of the parameters explain")
_LENGTHS = (2, 3, 4, 7)  # of the sequences that are compared
_AROUND = np.geomspace(0.3, 8.0, 12)  # sizes of rows, against that at which scores are near one
_PLAIN = 4  # more sizes, from one to the longest row
_FARTHEST = 1e3  # norm of the longest rows where nothing bounds them
_TELLING = 0.1  # of the spread of a sequence's values: where errors explain more, an answer tells nothing
_CHANCE = 4.0  # random rows meet an error matrix within so many times the usual
_MOST = 50.0  # exponent beyond which an error explains anything; exp(50) is 5e21

Deviation = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Explained:
    """off: how far an answer may be from a value by itself, at most; `usual`: the part of it that is usual.
    deviation: of answers from what values become, where they become labels."""

    off: Callable[[Array], Array]
    usual: float = 1.0
    deviation: Deviation | None = None


def check_fresh_sequences(
    asker: Asker,
    head: SingleHead,
    error: float,
    by_answers: Explained,
    rng: np.random.Generator,
    *,
    v_error: float | None = None,
) -> None:
    """Raises `OutsideClass` when fresh answers contradict the head, whose parameters are known to a relative
    error of `error`.

    Weights that are off by a factor of at most e^s move the answer by at most (e^s - 1) Σ α_i |x_i·v - y|:
    sharp where scores are moderate and where they are saturated, which is where another family shows. Rows
    are random, so the error of a score is near its usual size: no answer may exceed that by far, nor all of
    them together by anything.

    by_answers: how far an answer may be from a value by itself. v_error: the error of v alone.
    """
    sizes = _sizes(head, asker.input_bound)
    off, usual, deviation = by_answers.off, by_answers.usual, by_answers.deviation
    ratios: list[Array] = []
    for length in _LENGTHS:
        if asker.max_length is not None and length > asker.max_length:
            continue
        rows = rng.standard_normal((len(sizes), length, head.width))
        along = rng.standard_normal((*rows.shape[:2], 1)) * head.v / np.linalg.norm(head.v)
        # half of the sequences move along v as much as across
        rows[1::2] += np.sqrt(head.width) * along[1::2]
        rows /= np.linalg.norm(rows, axis=2, keepdims=True)
        rows *= sizes[:, None, None] * rng.uniform(0.5, 1.0, rows.shape[:2])[:, :, None]
        with asker.phase(VERIFICATION):
            answers = asker.ask(rows)
        values = head(rows)
        deviations = np.abs(answers - values) if deviation is None else deviation(answers, values)
        typical, most = _explained(head, rows, values, error, error if v_error is None else v_error)
        left = deviations - off(values) - most
        worst = int(np.argmax(left))
        if not left[worst] <= 0.0:  # nor what cannot be computed
            raise OutsideClass(
                FRESH_TEST,
                f"a sequence of {length} rows of norm up to {float(sizes[worst]):.3g} is answered "
                f"{float(answers[worst]):.6g} instead of {float(values[worst]):.6g}, "
                f"{float(left[worst]):.2g} more than parameters known to {error:.1g} explain",
            )
        telling = typical <= _TELLING * _reach(head, rows)
        ratios.append((deviations / (usual * off(values) + typical))[telling])
    seen = np.concatenate(ratios) if ratios else np.empty(0)
    together = float(np.sqrt(np.mean(np.square(seen)))) if len(seen) else 0.0
    if not together <= 1.0:
        raise OutsideClass(
            FRESH_TEST,
            f"{len(seen)} sequences deviate {together:.2g} times as far as parameters known to {error:.1g} "
            "usually explain",
        )


def _explained(
    head: SingleHead, rows: Array, values: Array, error: float, v_error: float, *, unbiased: bool = False
) -> tuple[Array, Array]:
    """How far the head's values usually are off, and how far at most, when its parameters are off by so
    much."""
    d = head.width
    norms = np.linalg.norm(rows, axis=2)
    size = head.matrix.norm()
    bias = 0.0 if head.w0 is None else float(np.linalg.norm(head.w0))
    by_W, by_bias = size * norms[:, -1], 0.0 if unbiased else max(size, bias)
    typical = error * np.hypot(by_W / d, by_bias / np.sqrt(d))
    most = np.minimum(error * (by_W + by_bias), _CHANCE * error * (by_W / d + by_bias / np.sqrt(d)))
    apart = np.linalg.norm(rows - rows[:, -1:], axis=2).max(axis=1)
    scores = head.scores(rows)
    rounding = 64.0 * EPS * (1.0 + np.abs(scores).max(axis=1))
    spread = np.einsum("bn,bn->b", softmax(scores), np.abs(rows @ head.v - (values - head.c)[:, None]))
    along = float(np.linalg.norm(head.v)) * norms.max(axis=1)
    by_v = (v_error / np.sqrt(d) + 64.0 * EPS) * along, (v_error + 64.0 * EPS) * along
    moves = (
        np.expm1(np.minimum(times * off * apart + rounding, _MOST)) * spread
        for times, off in ((1.0, typical), (2.0, most))
    )
    usually, at_most = (np.asarray(move + value) for move, value in zip(moves, by_v, strict=True))
    return usually, at_most


def _reach(head: SingleHead, rows: Array) -> Array:
    """How far apart the values of a sequence's rows are."""
    return np.asarray(np.ptp(rows @ head.v, axis=1))


def most_moved(head: SingleHead, rows: Array, values: Array, error: float, v_error: float) -> Array:
    """How far the head's values for random rows are off at most, when its parameters are off by so much. A
    head without query bias has none."""
    return _explained(head, rows, values, error, v_error, unbiased=head.w0 is None)[1]


def _sizes(head: SingleHead, bound: float | None) -> Array:
    """Norms of rows: around where the head's scores are near one, and from one to the longest."""
    longest = _FARTHEST if bound is None else bound * (1.0 - 1e-9)
    sizes = np.concatenate([_usual_size(head) * _AROUND, np.geomspace(min(1.0, longest), longest, _PLAIN)])
    return sizes if bound is None else np.minimum(sizes, longest)


def _usual_size(head: SingleHead) -> float:
    """The norm of rows at which the scores between random ones are near one."""
    d = head.width
    size = head.matrix.norm() / np.sqrt(d)
    bias = 0.0 if head.w0 is None else float(np.linalg.norm(head.w0))
    # n² (bias² + n² size²) = d, solved for n²
    squared = 2.0 * d / (bias**2 + np.sqrt(bias**4 + 4.0 * d * size**2)) if max(size, bias) > 0.0 else 1.0
    return float(np.sqrt(squared))
