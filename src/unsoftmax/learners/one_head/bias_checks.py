"""Is there a query bias? Rows around an asking row of zeros share evenly only without one, which answers of
low precision and labels show too."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters.one_head.labels import Labeller
from unsoftmax.meters.probes.mirrored_rows import odd_rows
from unsoftmax.outcomes import OutsideClass, Test

__all__ = ["EVEN_TEST", "alike_labels", "moved_by_bias", "refused_bias", "refused_labels"]

EVEN_TEST = Test("rows around a row of zeros share evenly")
_ROWS = 4  # four random rows are all within 1e-3 of being across a bias once in 10^12 times
_TINY = 1e-11  # a bias so small against W does not show; shorter rows would be lost in rounding


def moved_by_bias(asker: Asker, v: Array, size: float, smallest: float, rng: np.random.Generator) -> float:
    """How far [a; -a; 0] is answered from zero; 0 where float64 rounding explains it. smallest: positive
    number that an answer can be."""
    A = _rows_that_hear(v, size, rng)
    with asker.phase(VERIFICATION):
        moved = float(np.abs(asker.ask(odd_rows(A, np.zeros_like(A)))).max())
    allowed = 64 * EPS * np.sqrt(len(v)) * size * float(np.linalg.norm(v)) + smallest
    return moved if moved > allowed else 0.0


def refused_bias(moved: float) -> OutsideClass:
    """What is said of a query bias that is not recovered."""
    return OutsideClass(
        EVEN_TEST,
        f"the answer is {moved:.3g} instead of zero: a query bias, which these answers are not enough for, "
        "or another family",
    )


def alike_labels(labeller: Labeller, v: Array, size: float, rng: np.random.Generator) -> int:
    """How often [b+a; b-a; b] is labelled like [-b+a; -b-a; -b], however short b is: never without a query
    bias."""
    A = _rows_that_hear(v, size, rng)
    B = rng.standard_normal(A.shape)
    B *= _TINY * size / np.linalg.norm(B, axis=1)[:, None]
    with labeller.ledger.phase(VERIFICATION):
        alike = labeller(odd_rows(A, B)) == labeller(odd_rows(A, -B))
    return int(alike.sum())


def refused_labels(alike: int) -> OutsideClass:
    """What is said of a query bias behind labels that is not recovered."""
    reason = (
        f"{alike} of {_ROWS} pairs of opposite tiny asking rows are labelled alike: a query bias, which "
        "labels are not enough for, "
    )
    return OutsideClass(EVEN_TEST, reason + "or another family")


def _rows_that_hear(v: Array, size: float, rng: np.random.Generator) -> Array:
    beside = rng.standard_normal((_ROWS, len(v)))
    A = v / np.linalg.norm(v) + 0.9 * beside / np.linalg.norm(beside, axis=1)[:, None]
    return np.asarray(A * (size / np.linalg.norm(A, axis=1))[:, None])
