"""Labels only, 1 when f > 0: the sign of the answer says on which side of λ the zero lies, so λ is
bisected."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import EPS, Array
from unsoftmax.ledger import Asker
from unsoftmax.meters.one_head.sign_change import EDGE, CrossingMeter, crossing_rows, crossing_size
from unsoftmax.meters.probes.asking import in_parts
from unsoftmax.meters.probes.bisection import Locator
from unsoftmax.meters.probes.ladder import climb

__all__ = ["LabelMeter", "Labeller"]

_REACH = 1.02 * EDGE  # so that a score at the edge is told from one beyond
_SPREAD = 5.0  # standard deviations of an error that is looked for near an expected value
_TOO_MANY, _TOO_FEW = 0.5, 0.15  # parts of scores beyond ±1 at which c is too large, and too small
_FEW, _MORE = 6, 16  # scores at each size: first within a factor of four, then of two
_VOTES = 3  # at most, while only a size is looked for
_LADDER = 100  # looks, in steps of 2 or 4: more than c has octaves on either side of one
_LARGEST_C = 1e60  # rows of 1e30: products of two of them are far from float64's limit


class Labeller:
    """Asks for labels through the ledger: True where the answer is above `middle`; the majority of `votes`.

    >>> from unsoftmax import Ledger
    >>> from unsoftmax import Labels, as_oracle
    >>> labeller = Labeller(Ledger(Labels(as_oracle("demo:single-head?d=4"))))
    >>> labeller(np.zeros((1, 1, 4)))
    array([False])
    """

    def __init__(self, ledger: Asker, middle: float = 0.5, votes: int = 1) -> None:
        self.ledger = ledger
        self.middle = middle
        self.votes = votes

    def __call__(self, batch: Array) -> NDArray[np.bool_]:
        return self.ask(batch, self.votes)

    def once(self, batch: Array) -> NDArray[np.bool_]:
        """Single labels, however unreliable."""
        return self.ask(batch, 1)

    def ask(self, batch: Array, votes: int) -> NDArray[np.bool_]:
        """The majority of so many labels."""
        return np.asarray(
            np.sum([self.ledger.ask(batch) > self.middle for _ in range(votes)], axis=0) * 2 > votes
        )


class LabelMeter(CrossingMeter):
    """Measures aᵀWb from labels: c·gᵀWb lies above m exactly when the sequence whose zero is at m is labelled
    1.

    >>> from unsoftmax import Ledger
    >>> from unsoftmax import Labels, SingleHead, as_oracle
    >>> from unsoftmax.meters.probes.bisection import Bisection
    >>> head = SingleHead(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([0.6, 0.8]))
    >>> meter = LabelMeter(Labeller(Ledger(Labels(as_oracle(head)))), head.v, np.random.default_rng(0),
    ...     Bisection(48))
    >>> np.round(meter.project(None, np.eye(2)), 9)
    array([[1., 2.],
           [3., 4.]])
    """

    def __init__(self, labeller: Labeller, v: Array, rng: np.random.Generator, locator: Locator) -> None:
        super().__init__(labeller.ledger, v, rng)
        self._labeller = labeller
        self._locator = locator
        self.widest = 0.0  # the largest error of a form that was seen

    def resolution(self) -> float:
        """Half the last interval, and float64 rounding."""
        return float(self.widest + 64.0 * EPS * self.typical_score())

    def above(
        self, G: Array, B: Array, c: Array, points: Array, *, votes: int | None = None
    ) -> NDArray[np.bool_]:
        """Whether c·gᵀWb lies above the point, for every pair; `votes` instead of the labeller's own
        number."""
        lam = crossing_size(points, c, G @ self._v, B @ self._v)
        votes = self._labeller.votes if votes is None else votes

        def ask(part: slice) -> NDArray[np.bool_]:
            return self._labeller.ask(crossing_rows(G[part], B[part], c[part], lam[part]), votes)

        return in_parts(ask, len(G), self._ledger.batch_size(2))

    def _solve(self, G: Array, B: Array, c: Array) -> Array:
        def above(points: Array, which: NDArray[np.intp]) -> NDArray[np.bool_]:
            return self.above(G[which], B[which], c[which], points, votes=1)

        scores, widths = self._locator.locate(above, len(G), _REACH)
        inside = np.abs(scores) < EDGE
        self.widest = max(self.widest, float((widths / c)[inside].max(initial=0.0)))
        return scores

    def _solve_near(self, G: Array, B: Array, c: Array, expected: Array, error: float) -> Array:
        """Only the missing bits are asked for; a score that ends at the edge of where it was looked for is
        looked for farther away."""
        finest = _REACH * 2.0**-self._locator.bits
        reach = max(_SPREAD * error, 8.0 * finest)
        scores, missed = expected.copy(), np.arange(len(G))

        def above(points: Array, which: NDArray[np.intp]) -> NDArray[np.bool_]:
            index = missed[which]
            return self.above(G[index], B[index], c[index], expected[index] + points, votes=1)

        while len(missed) and reach < _REACH:
            moved = self._locator.locate(above, len(missed), reach, int(np.ceil(np.log2(reach / finest))))[0]
            scores[missed] = expected[missed] + moved
            missed = missed[np.abs(moved) > 0.98 * reach]
            reach *= 8.0
        return scores

    def _find_typical(self) -> float:
        """A size of c at which a fair part of random scores lies beyond ±1: roughly first, then with more
        pairs and smaller steps."""
        votes = min(self._labeller.votes, _VOTES)
        largest = min(self._largest_c(), _LARGEST_C)

        def look(c: float, count: int, step: float) -> float:
            G, B = self.random_pairs(count)
            scale = np.full(count, c)
            sides = [self.above(G, B, scale, np.full(count, side), votes=votes) for side in (1.0, -1.0)]
            beyond = float(np.mean(sides[0] | ~sides[1]))
            return 1.0 / step if beyond > _TOO_MANY else step if beyond < _TOO_FEW else 1.0

        c = climb(lambda c: look(c, _FEW, 4.0), 1.0, largest, tries=_LADDER, until_turn=True)
        return 1.0 / climb(lambda c: look(c, _MORE, 2.0), c, largest, tries=_LADDER, until_turn=True)
