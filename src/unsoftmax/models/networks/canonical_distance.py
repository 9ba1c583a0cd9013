"""How far apart are two canonical forms? All parameters together; hyperplanes that nearly coincide may be
compared by their sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.networks.canonical_network import CanonicalNetwork

__all__ = ["MeasuredNetwork", "fold_distance"]

# angles up to which folds are taken together whoever their partners are, each tried
_GAPS = (0.0, *10.0 ** np.arange(-12.0, -3.0))
_ROUNDS = 4  # most passes over folds without a partner; they end earlier when nothing changes
# two folds are partners when they differ, squared, by less than this part of what both count without
_AKIN = 0.5


@dataclass(frozen=True)
class MeasuredNetwork:
    """CanonicalNetwork as vectors whose differences are what a distance counts, in a given unit of length.

    folds: (J, d + 1), a normal and the place of its hyperplane, times its size; far from the origin places
    count by their logarithm, so that what counts is the error of a distance relative to itself. affine: (d +
    1,), gradient and value near the origin: there folds far out are part of the affine function, so that it
    does not depend on one that nobody sees. steepness and shift: sizes of all first d columns, and of all
    last ones.
    """

    folds: Array
    signs: Array
    affine: Array
    unit: float

    @classmethod
    def of(cls, form: CanonicalNetwork, unit: float) -> MeasuredNetwork:
        away = form.distances / unit
        side = form.signs * away / np.hypot(1.0, away)
        affine = np.append(form.linear + side @ form.normals, form.constant + float(side @ form.offsets))
        return cls(
            np.column_stack([form.normals, form.sizes * unit * np.arcsinh(away)]), form.signs, affine, unit
        )

    @property
    def steepness(self) -> float:
        return float(np.hypot(np.linalg.norm(self.folds[:, :-1]), np.linalg.norm(self.affine[:-1])))

    @property
    def shift(self) -> float:
        places = np.minimum(np.abs(self.folds[:, -1]), self.unit * np.linalg.norm(self.folds[:, :-1], axis=1))
        return float(np.hypot(np.linalg.norm(places), self.affine[-1]))

    def relative(self, steepness: float, shift: float) -> float:
        """Errors of steepness and shift (of this size, all parameters together) as one figure: root of the
        mean square of the relative ones.

        Where a network has no biases, or is constant, there is only one of them to speak of.
        """
        whole = [
            (error, size) for error, size in ((steepness, self.steepness), (shift, self.shift)) if size > 0.0
        ]
        if len(whole) < 2:
            return float(np.hypot(steepness, shift)) / (whole[0][1] if whole else 1.0)
        return float(np.sqrt(sum((error / size) ** 2 for error, size in whole) / 2.0))


def fold_distance(mine: CanonicalNetwork, theirs: CanonicalNetwork) -> float:
    """Relative error of theirs against `mine`, all parameters together: of normals and linear part, and of
    places and constant, equally weighed.

    CanonicalNetwork are matched as well as they can be. Lengths and answers may be scaled at will. A fold
    without partner counts whole, but folds on hyperplanes that nearly coincide may be given as one: then
    their sum is compared, and how far each lies from the largest of them, times its size, counts as well;
    that much is what it changes in the function.

    >>> one = CanonicalNetwork(np.array([[1.0]]), np.zeros(1), np.ones(1), np.zeros(1))
    >>> fold_distance(one, one.scaled(1.5))
    0.5
    >>> two = CanonicalNetwork(np.array([[0.3, 0.0], [0.7, 7e-8]]), np.zeros(2), np.ones(2), np.zeros(2))
    >>> sum_of_two = CanonicalNetwork(np.array([[1.0, 0.0]]), np.zeros(1), np.ones(1), np.zeros(2))
    >>> f"{fold_distance(two, sum_of_two):.0e}"
    '1e-07'
    """
    mine, theirs = mine.tidy(), theirs.tidy()
    own, other = (MeasuredNetwork.of(form, mine.unit) for form in (mine, theirs))
    weights = np.full(mine.width + 1, own.relative(1.0, 0.0))
    weights[-1] = own.relative(0.0, 1.0)
    affine = float(np.square((own.affine - other.affine) * weights).sum())
    furthest = own.unit * float(weights[-1] / weights[0])
    best, seen = np.inf, (-1, -1)
    for gap in _GAPS:
        (mine_folds, mine_sums, mine_spread), (their_folds, their_sums, their_spread) = (
            _taken_together(form.folds * weights, form.signs, float(gap)) for form in (own, other)
        )
        if (len(mine_sums), len(their_sums)) != seen:
            seen = (len(mine_sums), len(their_sums))
            pairs = _Pairs((mine_folds, their_folds), [mine_sums, their_sums], furthest)
            best = min(best, pairs.cost() + mine_spread + their_spread)
    return float(np.sqrt(affine + best))


def _taken_together(folds: Array, signs: Array, gap: float) -> tuple[Array, Array, float]:
    """CanonicalNetwork s|p·x| as p and s p, those less than an angle `gap` from a larger one added to it; and
    the summed squares of how far off they were."""
    length = np.linalg.norm(folds, axis=1)
    order = np.argsort(-length)
    folds, length, sums = folds[order], length[order], signs[order, None] * folds[order]
    directions = folds / length[:, None]
    taken, spread = np.zeros(len(folds), dtype=bool), 0.0
    for i in range(len(folds) if gap > 0.0 else 0):
        if taken[i]:
            continue
        along = directions[i + 1 :] @ directions[i]
        aside = np.linalg.norm(directions[i + 1 :] - along[:, None] * directions[i], axis=1)
        near = np.flatnonzero((aside < gap) & ~taken[i + 1 :])
        taken[i + 1 + near] = True
        sums[i] += np.sign(along[near]) @ sums[i + 1 + near]
        spread += float(np.square(aside[near] * length[i + 1 + near]).sum())
    return folds[~taken], sums[~taken], spread


class _Pairs:
    """CanonicalNetwork of two networks, matched; then those without partner are given to a neighbour where
    that costs less."""

    def __init__(self, folds: tuple[Array, Array], sums: list[Array], furthest: float) -> None:
        self.folds = folds  # as p, for their directions
        self.sums = sums  # as s p, and what is given to them added
        self.furthest = furthest  # the place, in sizes of a fold, that one without partner counts at most

    def whole(self, fold: Array) -> Array:
        """What folds without partner count, squared: their places only up to one unit, so that a faint fold
        counts little wherever it is."""
        size = np.linalg.norm(fold[..., :-1], axis=-1)
        return np.asarray(size**2 + np.minimum(np.abs(fold[..., -1]), self.furthest * size) ** 2)

    def cost(self) -> float:
        """Summed squares of all differences."""
        best, spread = np.inf, 0.0
        for _ in range(_ROUNDS):
            partners, matched = self._match()
            best = min(best, matched + spread)
            given = sum(self._given_away(side, partners) for side in (0, 1))
            if given == 0.0:
                break
            spread += given
        return best

    def _match(self) -> tuple[list[dict[int, int]], float]:
        """Partners on either side, and what all folds differ by."""
        from scipy.optimize import linear_sum_assignment

        apart = self.whole(self.sums[0])[:, None] + self.whole(self.sums[1])
        turns = np.where(self.folds[0] @ self.folds[1].T < 0, -1.0, 1.0)
        costs = np.empty(apart.shape)
        for row, (fold, turn) in enumerate(zip(self.sums[0], turns, strict=True)):
            costs[row] = np.square(self.sums[1] * turn[:, None] - fold).sum(axis=1)
        akin = costs < _AKIN * apart
        partners: list[dict[int, int]] = [{}, {}]
        for i, j in zip(*linear_sum_assignment(np.where(akin, costs, apart)), strict=True):
            if akin[i, j]:
                partners[0][int(i)], partners[1][int(j)] = int(j), int(i)
        left = [self.whole(np.delete(self.sums[side], list(partners[side]), axis=0)).sum() for side in (0, 1)]
        return partners, float(sum(left) + sum(costs[i, j] for i, j in partners[0].items()))

    def _given_away(self, side: int, partners: list[dict[int, int]]) -> float:
        """Gives folds without partner to others of their network where that lowers the cost, largest first;
        what it costs that they lie apart.

        Nothing given costs exactly 0.
        """
        folds, sums = self.folds[side], self.sums[side]
        if len(folds) < 2:
            return 0.0
        directions = folds / np.linalg.norm(folds, axis=1)[:, None]
        left = [i for i in np.argsort(-self.whole(sums)) if i not in partners[side]]
        spread = 0.0
        for i in left:
            along = directions @ directions[i]
            aside = np.square(
                np.linalg.norm(sums[i]) * np.linalg.norm(directions[i] - along[:, None] * directions, axis=1)
            )
            joined = sums + np.sign(along)[:, None] * sums[i]
            before, after = (
                np.array([self._alone_or_not(side, k, each[k], partners) for k in range(len(sums))])
                for each in (sums, joined)
            )
            gain = before + float(self.whole(sums[i])) - after - aside
            gain[i] = 0.0
            k = int(gain.argmax())
            if gain[k] > 0.0:
                sums[k], sums[i] = joined[k], 0.0
                spread += max(float(aside[k]), float(np.finfo(float).tiny))
        return spread

    def _alone_or_not(self, side: int, k: int, fold: Array, partners: list[dict[int, int]]) -> float:
        """What fold k of a side would count with this vector."""
        if k not in partners[side]:
            return float(self.whole(fold))
        j = partners[side][k]
        turn = -1.0 if self.folds[side][k] @ self.folds[1 - side][j] < 0 else 1.0
        return float(np.square(fold - turn * self.sums[1 - side][j]).sum())
