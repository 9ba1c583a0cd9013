"""Answers rounded to a known grid: where an answer steps is an exact comparison, and a step can be bisected
to float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.ledger import Asker
from unsoftmax.meters.base import Meter
from unsoftmax.meters.probes.asking import in_parts
from unsoftmax.meters.probes.balanced_basis import columns_that_see
from unsoftmax.meters.probes.bisection import halve
from unsoftmax.meters.probes.mirrored_rows import odd_rows, odd_share, score_of_share
from unsoftmax.meters.probes.moderate_grid import MODERATE_SCORE
from unsoftmax.meters.probes.simplex import orthogonal_part, simplex
from unsoftmax.models.matrices import Matrix
from unsoftmax.outcomes import Unresolved

__all__ = ["RoundingMeter", "bracketed_step"]

# part of a probe that is not carrier: small, so that every probe has a score of the same sign and size
_PART = 0.15
_CHECK_PART = 0.5  # the same of a probe that checks: larger, so that all of W shows
# part of the usual product with `facing` below which an answer may hardly move with b's length
_UNSEEN = 0.25
_WIDENINGS = 9  # at 4 each, a bracket grows by 260,000
_BITS = 52  # of float64's fraction


def bracketed_step(
    above: Callable[[Array, NDArray[np.intp]], NDArray[np.bool_]],
    predicted: Array,
    spread: Array,
    low: Array,
    high: Array,
) -> tuple[Array, Array]:
    """Where `above` turns True, near `predicted`: brackets of relative half-width `spread`, widened where
    they miss, then bisected.

    Returns the points and a mask of those that were never bracketed between low and high.
    """
    spread = np.clip(spread, 2.0**-50, 0.5)
    first, last = np.clip(predicted * (1 - spread), low, high), np.clip(predicted * (1 + spread), low, high)
    missed = np.arange(len(predicted))
    for _ in range(_WIDENINGS):
        bad = above(first[missed], missed) | ~above(last[missed], missed)
        missed = missed[bad]
        if not len(missed):
            break
        spread[missed] *= 4.0
        first[missed] = np.clip(predicted[missed] * (1 - spread[missed]), low[missed], high[missed])
        last[missed] = np.clip(predicted[missed] * (1 + spread[missed]), low[missed], high[missed])
    everyone = np.arange(len(predicted))
    steps = max(1, int(np.ceil(np.log2(float(spread.max())) + _BITS)))
    first, last = halve(lambda x: above(x, everyone), first, last, steps)
    lost = np.zeros(len(predicted), dtype=bool)
    lost[missed] = True
    return (first + last) / 2, lost


class RoundingMeter(Meter):
    """Measures aᵀWb to float64 from answers rounded to multiples of `step`, given v exactly and a rough W
    (off by about `error`).

    The length of b is bisected until the answer steps. Every probe carries a direction p with large p·v and
    Wᵀp, so that all scores have one sign and size; `facing` is Wᵀp, which the solver's b's shall all see
    alike.
    """

    def __init__(
        self,
        ledger: Asker,
        v: Array,
        bound: float,
        step: float,
        near: Matrix,
        error: float,
        rng: np.random.Generator,
    ) -> None:
        self._ledger = ledger
        self._v = v
        self._bound = bound * (1.0 - 1e-9)
        self._step = step
        self._near = near
        self._error = error
        self._rng = rng
        along_v = v / np.linalg.norm(v)
        strongest = near.svd()[0][:, 0]
        strongest = strongest * (1.0 if strongest @ along_v >= 0.0 else -1.0)
        self.carrier = (along_v + 0.75 * strongest) / np.linalg.norm(along_v + 0.75 * strongest)
        self._facing = near.dense().T @ self.carrier

    @property
    def width(self) -> int:
        return len(self._v)

    @property
    def facing(self) -> Array | None:
        """Wᵀp for the carrier p, as far as W is known."""
        return self._facing

    @property
    def towards(self) -> Array:
        """The unit vector along `facing`."""
        return np.asarray(self._facing / np.linalg.norm(self._facing))

    def resolution(self) -> float:
        """Float64 rounding of a typical form."""
        return float(2.0**-42 * self._near.norm() / self.width)

    def project(self, basis: Array | None, B: Array, *, rest_is_zero: bool = False) -> Array:
        """See `Meter.project`. A b that hardly sees `facing` gets some of it added."""
        least = _UNSEEN / np.sqrt(self.width)
        return columns_that_see(lambda seen: self._project(basis, seen), B, self.towards, least)

    def _project(self, basis: Array | None, B: Array) -> Array:
        p = self.carrier
        whole = np.eye(self.width) if basis is None else basis
        inside = orthogonal_part(whole, p)
        k, n = inside.shape[1], B.shape[1]
        G = simplex(k, self._rng)
        rows = np.sqrt(1.0 - _PART**2) * p + _PART * (G @ inside.T)
        forms = self.pairs(np.tile(rows, (n, 1)), np.repeat(B.T, k + 1, axis=0)).reshape(n, k + 1)
        along = forms.mean(axis=1) / np.sqrt(1.0 - _PART**2)
        result = np.outer(p, along)
        if k:
            result += inside @ (forms @ G).T * (k / (k + 1)) / _PART
        return np.asarray(result if basis is None else basis.T @ result)

    def pairs(self, A: Array, B: Array) -> Array:
        """aᵀWb for unit rows a near the carrier and unit rows b."""
        query = _Crossing(self, A, B)
        spread = 4.0 * self._error / self.width / query.usual
        beta, lost = bracketed_step(query.above, query.predicted, spread, 0.1 * query.beta, 2.0 * query.beta)
        if lost.any():
            raise Unresolved(
                f"{int(lost.sum())} of {len(lost)} answers never step although their rows grow; answers "
                f"rounded to {self._step:g} are too coarse for rows of norm {self._bound:.3g}: longer rows "
                "(input_bound) would help"
            )
        return query.form_at(beta)

    def steps_where_predicted(self, margin: float, n: int) -> tuple[bool, float]:
        """Whether n fresh random probes step within a relative margin of where W says; and the size of form
        that the margin stands for.

        With -b for b everything changes its sign, unless there is a query bias: both are asked.
        """
        d = self.width
        A = np.tile(self.carrier, (n, 1))
        if d > 1:
            beside = self._rng.standard_normal((n, d))
            beside -= np.outer(beside @ self.carrier, self.carrier)
            A = (
                np.sqrt(1.0 - _CHECK_PART**2) * A
                + _CHECK_PART * beside / np.linalg.norm(beside, axis=1)[:, None]
            )
        B = self._rng.standard_normal((n, d))
        query = _Crossing(self, A, B / np.linalg.norm(B, axis=1)[:, None])
        everyone = np.arange(n)
        before, after = (
            query.predicted * (1 - margin),
            np.minimum(query.predicted * (1 + margin), 2.0 * query.beta),
        )
        steps = [
            above(after, everyone) & ~above(before, everyone) for above in (query.above, query.below_mirrored)
        ]
        return bool(np.all(steps)), margin * float(np.sqrt(np.mean(query.form_of_margin**2))) / _CHECK_PART

    def exceeds(self, A: Array, B: Array, threshold: Array) -> NDArray[np.bool_]:
        """Whether the rounded answer to [b+a; b-a; b] lies above the threshold, for every pair of rows."""

        def ask(part: slice) -> NDArray[np.bool_]:
            return np.asarray(self._ledger.ask(odd_rows(A[part], B[part])) > threshold[part])

        return in_parts(ask, len(A), self._ledger.batch_size(3))


class _Crossing:
    """For each pair (a, b): which step of the answer to wait for, at what length of b it is expected, and
    what it says about aᵀWb."""

    def __init__(self, meter: RoundingMeter, A: Array, B: Array) -> None:
        self._meter = meter
        expected = np.einsum("nd,nd->n", A, meter._near.apply(B))
        self._signs = np.where(expected < 0.0, -1.0, 1.0)
        self._A, self._B = A, B * self._signs[:, None]
        self._expected = np.abs(expected)
        self.usual = np.maximum(self._expected, 0.15 * float(np.median(self._expected)))
        self.beta = np.minimum(MODERATE_SCORE / (self.usual * meter._bound), meter._bound / 6)
        self._size = meter._bound - 2.0 * self.beta
        self._a_v = self._size * (A @ meter._v)
        self._b_v = self._B @ meter._v
        self._threshold = (np.round(self._answer(self.beta) / meter._step - 0.5) + 0.5) * meter._step
        low, high = halve(
            lambda beta: self._answer(beta) > self._threshold, 0.3 * self.beta, 2.0 * self.beta, 60
        )
        self.predicted = (low + high) / 2

    @property
    def form_of_margin(self) -> Array:
        """How much of aᵀWb a relative change of the step's place stands for: much where b·v moves the answer
        and the score hardly does."""
        growth = 2.0 * np.cosh(np.minimum(self.predicted * self._size * self._expected, 300.0))
        slope = self._a_v * (growth + 4.0) / (1.0 + growth) ** 2
        return np.asarray(np.abs(self._expected + self._b_v / (slope * self._size)))

    def _answer(self, beta: Array) -> Array:
        return np.asarray(beta * self._b_v + self._a_v * odd_share(beta * self._size * self._expected))

    def above(self, beta: Array, which: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Whether the answer is beyond the step when b has length beta."""
        return self._meter.exceeds(
            self._size[which, None] * self._A[which], beta[:, None] * self._B[which], self._threshold[which]
        )

    def below_mirrored(self, beta: Array, which: NDArray[np.intp]) -> NDArray[np.bool_]:
        """The same for -b, whose answer steps downwards."""
        return ~self._meter.exceeds(
            self._size[which, None] * self._A[which], -beta[:, None] * self._B[which], -self._threshold[which]
        )

    def form_at(self, beta: Array) -> Array:
        """aᵀWb, when the answer steps at beta."""
        share = (self._threshold - beta * self._b_v) / self._a_v
        return np.asarray(self._signs * score_of_share(share) / (beta * self._size))
