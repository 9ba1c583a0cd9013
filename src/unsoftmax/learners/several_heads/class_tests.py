"""Cheap tests that any sum of heads passes, and what they tell: biases, and how exact the answers are."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.families import Family
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.outcomes import OutsideClass, Test

__all__ = ["OPPOSITE_TEST", "answer_rounding", "check_opposite_rows", "has_query_bias", "largest_score"]

# a skip connection adds the asking row to what they share, and the one-row readout counts it too
OPPOSITE_TEST = Test(
    "opposite first rows share the whole readout", frozenset({Family.SINGLE_HEAD, Family.MULTI_HEAD})
)

_PAIRS = 8  # pairs of rows, whole and half as long, of which the largest score counts
_GROWS = 0.7  # a score of rows half as long is half as large with a query bias, and a quarter without


def check_opposite_rows(asker: Asker, v: Array, c: float, rng: np.random.Generator) -> float:
    """f([b+a; b]) - f([b-a; b]) = a·v̄ for every sum of heads, because σ(t) + σ(-t) = 1. Returns the rounding
    of the answers."""
    d = asker.width
    sizes = 2.0 ** np.array([-6.0, -2.0, 0.0, 1.0, 3.0, 6.0])
    if asker.input_bound is not None:
        sizes = asker.input_bound * np.array([0.01, 0.05, 0.1, 0.2, 0.3, 0.45])
    a, b = rng.standard_normal((2, len(sizes), d))
    a *= (sizes / np.linalg.norm(a, axis=1))[:, None]
    b *= (sizes / np.linalg.norm(b, axis=1))[:, None]
    with asker.phase(VERIFICATION):
        answers = asker.ask(np.concatenate([np.stack([b + a, b], axis=1), np.stack([b - a, b], axis=1)]))
    rounding = answer_rounding(answers)
    above, below = np.split(answers, 2)
    excess = np.abs(above - below - a @ v)
    # heads may cancel in one answer and be rounded at their own size
    largest = float(((np.abs(above) + np.abs(below)) / sizes).max())
    allowed = 1e5 * rounding * (abs(c) + sizes * (2 * float(np.linalg.norm(v)) + largest))
    worst = int(np.argmax(excess - allowed))
    if excess[worst] > allowed[worst]:
        raise OutsideClass(
            OPPOSITE_TEST,
            f"with rows b+a, b-a and b of norm about {sizes[worst]:.3g} the two answers differ by "
            f"{above[worst] - below[worst]:.6g}, and one row says {a[worst] @ v:.6g}; the weights of "
            "opposite rows add up to one in every head",
        )
    return rounding


def answer_rounding(answers: Array) -> float:
    """Relative rounding of the answers: that of float32 when all of them are float32 numbers, else that of
    float64."""
    moved = answers[answers != 0.0]
    with np.errstate(over="ignore"):
        single = len(moved) >= 8 and bool(np.all(moved == moved.astype(np.float32)))
    return float(np.finfo(np.float32).eps) / 2 if single and len(set(moved.tolist())) >= 8 else EPS


def has_query_bias(asker: Asker, v: Array, c: float, rounding: float, rng: np.random.Generator) -> bool:
    """Without query biases a row of zeros shares evenly with any first row, of any size."""
    sizes = 2.0 ** np.array([0.0, 16.0, 32.0])
    if asker.input_bound is not None:
        sizes = asker.input_bound * np.array([0.1, 0.5, 1.0])
    rows = rng.standard_normal((len(sizes), asker.width))
    rows *= (sizes / np.linalg.norm(rows, axis=1))[:, None]
    with asker.phase("bias"):
        answers = asker.ask(np.stack([rows, np.zeros_like(rows)], axis=1))
    excess = np.abs(answers - c - rows @ v / 2)
    return bool(
        np.any(excess > 1e4 * rounding * (abs(c) + np.abs(answers) + sizes * float(np.linalg.norm(v))))
    )


def largest_score(asker: Asker, v: Array, c: float, rng: np.random.Generator) -> float:
    """About the largest score of the longest rows that may be sent, where a first row a gets the weight 1/2 +
    s/4; infinite where weights do not grow with the rows as such scores do."""
    bound = np.inf if asker.input_bound is None else asker.input_bound
    sizes = 0.49 * bound * np.array([[1.0], [0.5]])
    a, b = rng.standard_normal((2, _PAIRS, asker.width))
    a, b = (
        np.concatenate(sizes * (rows / np.linalg.norm(rows, axis=1)[:, None])[:, None]) for rows in (a, b)
    )
    with asker.phase(VERIFICATION):
        answers = asker.ask(np.stack([a + b, b], axis=1))
    moved = np.abs(answers - c - b @ v - a @ v / 2.0) / np.linalg.norm(a, axis=1)
    long, half = moved.reshape(_PAIRS, 2).max(axis=0)
    small = half < _GROWS * long
    return float(4.0 * long / max(float(np.linalg.norm(v)), 1e-300)) if small else np.inf
