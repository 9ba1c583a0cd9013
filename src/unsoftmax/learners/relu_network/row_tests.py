"""Cheap looks at a function of single rows, before anything is searched: does it bend only at kinks, is it
homogeneous?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.learners.relu_network.circle import RowFunction
from unsoftmax.learners.relu_network.kinks import PIECES_TEST
from unsoftmax.ledger import Asker
from unsoftmax.outcomes import OutsideClass, Unresolved

__all__ = ["Shape", "ShortAnswers", "check_pieces", "look_along_rays", "one_row_function", "refuse_rounded"]

_DISTINCT = 2  # answers beside zero that tell a short format: no two of a float64 network are float32 numbers
# first looks, and further ones where both bend: kinks are rarely near, a curve bends everywhere
_PLACES, _MORE_PLACES = 2, 6
# of the bending lies nearer than the unit: one that is too long does less harm than one that is too short
_MOST = 0.95
# of a row's length: a smooth function bends by 1e-8 of itself, a piecewise linear one hardly ever has a kink
# there
_STEP = 1e-4


def one_row_function(asker: Asker) -> RowFunction:
    """x -> f([x]) on the rows of an array, in batches, billed."""

    def ask(rows: Array) -> Array:
        step = asker.batch_size(1)
        return np.concatenate(
            [asker.ask(rows[i : i + step, None]) for i in range(0, max(len(rows), 1), step)]
        )

    return ask


def check_pieces(function: RowFunction, width: int, unit: float, rng: np.random.Generator) -> None:
    """Second differences over tiny steps vanish almost everywhere, or the function is not piecewise
    linear."""
    bend, allowed = _bending(function, width, unit, rng, _PLACES)
    if (bend > allowed).all():  # perhaps kinks, or rows where nothing but rounding is answered: more of them
        bend, allowed = _bending(function, width, unit, rng, _MORE_PLACES)
        if (bend > allowed).all():
            raise OutsideClass(
                PIECES_TEST,
                f"at {_PLACES + _MORE_PLACES} of {_PLACES + _MORE_PLACES} random rows the answer bends by "
                f"{np.median(bend):.2g} over a step of {_STEP:g} of the row (allowed {allowed:.1g}); a ReLU "
                "network bends only at kinks",
            )


def _bending(
    function: RowFunction, width: int, unit: float, rng: np.random.Generator, count: int
) -> tuple[Array, float]:
    places = unit * rng.standard_normal((count, width))
    steps = _STEP * unit * rng.standard_normal((count, width))
    answers = function(np.concatenate([places, places + steps, places + 2 * steps]))
    refuse_rounded(answers)
    first, second, third = answers.reshape(3, count)
    return np.abs(first - 2.0 * second + third), 1e-12 * max(
        float(np.abs(answers).max()), float(np.finfo(float).tiny)
    )


class ShortAnswers(Unresolved):
    """All answers are numbers of a short format."""


def refuse_rounded(answers: Array) -> None:
    """Answers that all fit into fewer digits than float64 has are rounded, and a rounded function has a kink
    at every step. Zeros and constants, which rows without an active neuron get, tell nothing."""
    answers = np.setdiff1d(answers, [0.0])
    if len(answers) < _DISTINCT:
        return
    if (answers == answers.astype(np.float32)).all():
        raise ShortAnswers(
            "all answers are float32 numbers; the network's kinks are found from float64 answers only, so "
            "ask a float64 copy of the target"
        )
    for decimals in range(12):
        if 10.0**-decimals < 1e4 * EPS * np.abs(answers).max():
            return
        if (np.round(answers, decimals) == answers).all():
            raise Unresolved(
                f"all answers are rounded to {decimals} decimals; the network's kinks are found from "
                "unrounded answers only"
            )


@dataclass(frozen=True)
class Shape:
    """Whether g(t·x) = t·g(x), and the distance from the origin at which most of the bending happens (1 when
    homogeneous)."""

    homogeneous: bool
    unit: float


def look_along_rays(
    function: RowFunction, width: int, unit: float, largest: float, rng: np.random.Generator
) -> Shape:
    """The slopes of g along a ray, from 2^-24 to 2^24 times `unit` (up to norm `largest`), and on two more
    rays when they are all the same."""
    rows = unit * rng.standard_normal((2, width))
    ladder = 2.0 ** np.arange(-24.0, 25.0, 4.0)
    ladder = ladder[ladder * np.linalg.norm(rows, axis=1).max() <= largest]
    values = function(np.concatenate([np.zeros((1, width)), ladder[:, None] * rows[0]]))
    noise = 8.0 * EPS * np.maximum.accumulate(np.abs(values))
    steps = np.diff(np.concatenate([[0.0], ladder]))
    slopes = np.diff(values) / steps
    doubt = noise[1:] / steps
    if values[0] == 0.0:
        few = np.array([1.0, 2.0**-20, min(2.0**20, float(ladder[-1]))])
        rays = [values[1:] / ladder, *(function(few[:, None] * row) / few for row in (-rows[0], rows[1]))]
        # on a ray where neurons cancel there may be nothing but rounding
        largest_ratio = max(float(np.abs(ratios).max()) for ratios in rays)
        if largest_ratio > 0.0 and all(np.ptp(ratios) <= 1e-9 * largest_ratio for ratios in rays):
            return Shape(True, unit)
    ray, middle = rows[0], _most_of_change(slopes, doubt)
    if middle is None:  # nothing bends on this half of the line: look at the other
        ray = -ray
        values = function(np.concatenate([np.zeros((1, width)), ladder[:, None] * ray]))
        middle = _most_of_change(
            np.diff(values) / steps, 8.0 * EPS * np.maximum.accumulate(np.abs(values))[1:] / steps
        )
    if middle is None:
        return Shape(False, unit)
    # the two steps of the ladder around it, in finer ones
    finer = ladder[middle] * 4.0 ** np.arange(0.0, 5.0) / (16.0 if middle else 1.0)
    finer = finer[finer * float(np.linalg.norm(ray)) <= largest]
    values = function(finer[:, None] * ray)
    slopes, doubt = np.diff(values) / np.diff(finer), 8.0 * EPS * np.abs(values).max() / np.diff(finer)
    closer = _most_of_change(slopes, doubt)
    return Shape(False, unit * float(ladder[middle] if closer is None else finer[closer + 1]))


def _most_of_change(slopes: Array, doubt: Array) -> int | None:
    """The place that has most changes of slope before it, rounding left out; None when there are none.

    Changes of random sign add up in squares, so squares count the kinks between two points.
    """
    changes = np.abs(np.diff(slopes))
    changes = np.square(np.where(changes > 2.0 * (doubt[1:] + doubt[:-1]), changes, 0.0))
    if not changes.any():
        return None
    return int(np.searchsorted(np.cumsum(changes), _MOST * changes.sum()))
