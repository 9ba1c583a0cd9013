"""The direction of v from labels: ratios of its entries, bisected; its length leaves no trace."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import EPS, Array
from unsoftmax.ledger import Asker
from unsoftmax.meters.one_head.labels import Labeller
from unsoftmax.meters.probes.bisection import Bisection, Locator
from unsoftmax.outcomes import OutsideClass, Test

__all__ = ["MORE_BITS", "error_of_direction", "read_labels", "smallest_margin"]

MORE_BITS = 5  # of v, beyond those of scores, in which an error of v counts up to 23 times (the longest rows)
_ROWS = 16  # see `_FACTOR`
# sixteen random products with an error vector all lie within a third of its size once in many thousand times
_FACTOR = 3.0


def read_labels(asker: Asker, labeller: Labeller, locator: Locator, rng: np.random.Generator) -> Array:
    """v/|v|: a tournament for the largest entry, then every other one as a part of it."""
    _check_zero(asker, labeller, rng)
    d = asker.width
    unit = np.eye(d) * _size(asker)
    signs = np.where(labeller(unit[:, None]), 1.0, -1.0)
    left = np.arange(d)
    while len(left) > 1:
        half = len(left) // 2
        first, second = left[:half], left[half : 2 * half]
        larger = labeller((signs[first, None] * unit[first] - signs[second, None] * unit[second])[:, None])
        left = np.concatenate([np.where(larger, first, second), left[2 * half :]])
    largest = int(left[0])
    others = np.flatnonzero(np.arange(d) != largest)

    def above(points: Array, which: NDArray[np.intp]) -> NDArray[np.bool_]:
        return labeller.once(
            (unit[others[which]] - (points * signs[largest])[:, None] * unit[largest])[:, None]
        )

    v = np.zeros(d)
    v[largest] = signs[largest]
    if d > 1:  # where labels are flipped, the largest entry may be the second largest
        v[others] = locator.locate(above, d - 1, 1.01 if isinstance(locator, Bisection) else 1.5)[0]
    return np.asarray(v / np.linalg.norm(v))


def error_of_direction(
    asker: Asker, labeller: Labeller, v: Array, bits: int, rng: np.random.Generator
) -> float:
    """How wrong v can be: fresh rows across it whose labels must turn within a margin that grows until they
    do."""
    d = asker.width
    across = rng.standard_normal((_ROWS, d))
    across -= np.outer(across @ v, v)
    length = np.linalg.norm(across, axis=1)[:, None]
    across = across / length if d > 1 else np.zeros((_ROWS, d))
    size = _size(asker)

    def turns(margin: float) -> bool:
        rows = size * np.concatenate([across + margin * v, across - margin * v])
        labels = labeller(rows[:, None])
        return bool(labels[:_ROWS].all() and not labels[_ROWS:].any())

    start = 2.0 ** -(bits + MORE_BITS - 2) + 4 * EPS
    return float(_FACTOR * np.sqrt(d) * smallest_margin(turns, start)) if d > 1 else 0.0


def smallest_margin(holds: Callable[[float], bool], start: float) -> float:
    """The first of start, 4·start, 16·start, ... that holds; infinite when none below one does."""
    margin = start
    while margin < 1.0:
        if holds(margin):
            return margin
        margin *= 4.0
    return np.inf


def _size(asker: Asker) -> float:
    """Norm of rows of which two may be added."""
    return 1.0 if asker.input_bound is None else min(1.0, asker.input_bound / 2)


def _check_zero(asker: Asker, labeller: Labeller, rng: np.random.Generator) -> None:
    """Opposite tiny rows get opposite labels; a constant would label them alike."""
    x = rng.standard_normal(asker.width)
    tiny = 1e-9 if asker.input_bound is None else min(1e-9, 1e-3 * asker.input_bound)
    x *= tiny / np.linalg.norm(x)
    first, second = labeller(np.stack([x, -x])[:, None])
    if first == second:
        evidence = (
            f"rows of norm {tiny:.0e} and opposite sign are both labelled {int(first)}: a constant, or v = 0"
        )
        raise OutsideClass(Test("opposite tiny rows get opposite labels"), evidence)
