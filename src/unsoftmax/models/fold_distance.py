"""How far apart are two canonical forms? All parameters together; hyperplanes that nearly coincide may be compared by their sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.models.folds import Folds
from unsoftmax.oracles import Array

__all__ = ["MeasuredFolds", "fold_distance"]

_GAPS = 10.0 ** np.arange(-10.0, -3.0)  # angles up to which hyperplanes are taken together, each tried


@dataclass(frozen=True)
class MeasuredFolds:
    """Folds as vectors whose differences are what a distance counts, in a given unit of length.

    folds: (J, d + 1), a normal and the place of its hyperplane, times its size; far from the origin places count by their logarithm, so that what counts
    is the error of a distance relative to itself. affine: (d + 1,), gradient and value near the origin: there folds far out are part of the affine
    function, so that it does not depend on one that nobody sees. steepness and shift: sizes of all first d columns, and of all last ones.
    """

    folds: Array
    signs: Array
    affine: Array
    unit: float

    @classmethod
    def of(cls, form: Folds, unit: float) -> MeasuredFolds:
        away = form.distances / unit
        side = form.signs * away / np.hypot(1.0, away)
        affine = np.append(form.linear + side @ form.normals, form.constant + float(side @ form.offsets))
        return cls(np.column_stack([form.normals, form.sizes * unit * np.arcsinh(away)]), form.signs, affine, unit)

    @property
    def whole(self) -> Array:
        """What a fold without partner counts: like `folds`, but no place for more than one unit, so that a faint fold counts little wherever it is."""
        most = self.unit * np.linalg.norm(self.folds[:, :-1], axis=1)
        return np.column_stack([self.folds[:, :-1], np.minimum(np.abs(self.folds[:, -1]), most)])

    @property
    def steepness(self) -> float:
        return float(np.hypot(np.linalg.norm(self.folds[:, :-1]), np.linalg.norm(self.affine[:-1])))

    @property
    def shift(self) -> float:
        return float(np.hypot(np.linalg.norm(self.whole[:, -1]), self.affine[-1]))

    def relative(self, steepness: float, shift: float) -> float:
        """Errors of steepness and shift (of this size, all parameters together) as one figure: root of the mean square of the relative ones.

        Where a network has no biases, or is constant, there is only one of them to speak of.
        """
        whole = [(error, size) for error, size in ((steepness, self.steepness), (shift, self.shift)) if size > 0.0]
        if len(whole) < 2:
            return float(np.hypot(steepness, shift)) / (whole[0][1] if whole else 1.0)
        return float(np.sqrt(sum((error / size) ** 2 for error, size in whole) / 2.0))


def fold_distance(mine: Folds, theirs: Folds) -> float:
    """Relative error of theirs against `mine`, all parameters together: of normals and linear part, and of places and constant, equally weighed.

    Folds are matched as well as they can be. Lengths and answers may be scaled at will. A fold without partner counts whole, but folds on
    hyperplanes that nearly coincide may be given as one: then their sum is compared, and how far each lies from the loudest of them, times its size,
    counts as well; that much is what it changes in the function.

    >>> one = Folds(np.array([[1.0]]), np.zeros(1), np.ones(1), np.zeros(1))
    >>> fold_distance(one, one.scaled(1.5))
    0.5
    >>> two = Folds(np.array([[0.3, 0.0], [0.7, 7e-8]]), np.zeros(2), np.ones(2), np.zeros(2))
    >>> f"{fold_distance(two, Folds(np.array([[1.0, 0.0]]), np.zeros(1), np.ones(1), np.zeros(2))):.0e}"
    '1e-07'
    """
    mine, theirs = mine.tidy(), theirs.tidy()
    own, other = (MeasuredFolds.of(form, mine.unit) for form in (mine, theirs))
    weights = np.full(mine.width + 1, own.relative(1.0, 0.0))
    weights[-1] = own.relative(0.0, 1.0)
    mine_rows, their_rows = own.folds * weights, other.folds * weights
    mine_size, their_size = (np.square(form.whole * weights).sum(axis=1) for form in (own, other))
    affine = float(np.square((own.affine - other.affine) * weights).sum())
    best = _matched(mine_rows, own.signs, mine_size, their_rows, other.signs, their_size)
    seen = (mine.count, theirs.count)
    for gap in _GAPS:
        *mine_sums, mine_spread = _taken_together(mine_rows, own.signs, mine_size, float(gap))
        *their_sums, their_spread = _taken_together(their_rows, other.signs, their_size, float(gap))
        if (len(mine_sums[1]), len(their_sums[1])) != seen:
            seen = (len(mine_sums[1]), len(their_sums[1]))
            best = min(best, _matched(*mine_sums, *their_sums) + mine_spread + their_spread)
    return float(np.sqrt(affine + best))


def _matched(own: Array, own_signs: Array, own_size: Array, other: Array, other_signs: Array, other_size: Array) -> float:
    """Summed squares of the differences of folds under the best matching; sizes are the squares that folds without partner count."""
    from scipy.optimize import linear_sum_assignment

    unmatched = own_size[:, None] + other_size[None]
    cost = np.where(own_signs[:, None] == other_signs[None], np.minimum(_squared_gaps(own, other), unmatched), unmatched)
    rows, columns = linear_sum_assignment(cost)
    return float(cost[rows, columns].sum() + np.delete(own_size, rows).sum() + np.delete(other_size, columns).sum())


def _taken_together(folds: Array, signs: Array, size: Array, gap: float) -> tuple[Array, Array, Array, float]:
    """Folds less than an angle `gap` from a louder one added to it; and the summed squares of how far they were from it."""
    length = np.linalg.norm(folds, axis=1)
    order = np.argsort(-length)
    folds, signs, size, length = folds[order], signs[order], size[order], length[order]
    directions = folds / length[:, None]
    sums, taken, spread = signs[:, None] * folds, np.zeros(len(signs), dtype=bool), 0.0
    for i in range(len(signs)):
        if taken[i]:
            continue
        along = directions[i + 1 :] @ directions[i]
        aside = np.linalg.norm(directions[i + 1 :] - along[:, None] * directions[i], axis=1)
        near = i + 1 + np.flatnonzero((aside < gap) & ~taken[i + 1 :])
        taken[near] = True
        sums[i] += (signs[near] * np.sign(along[near - i - 1])) @ folds[near]
        spread += float(np.square(aside[near - i - 1] * length[near]).sum())
    turned = np.where(np.einsum("jd,jd->j", sums, directions) < 0, -1.0, 1.0)
    shrunk = np.square(np.linalg.norm(sums, axis=1) / length)
    return (sums * turned[:, None])[~taken], turned[~taken], (size * shrunk)[~taken], spread


def _squared_gaps(own: Array, other: Array) -> Array:
    """|p - q|² up to the sign of q, for all pairs; accurate also where p and q nearly agree."""
    gaps = np.empty((len(own), len(other)))
    for i, row in enumerate(own):
        turn = np.where(other @ row < 0, -1.0, 1.0)
        gaps[i] = np.square(other * turn[:, None] - row).sum(axis=1)
    return gaps
