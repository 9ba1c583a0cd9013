"""The last norm's sphere behind a smooth network: second derivatives of r span few dimensions for the right
one only.

An error of the square stretches r along itself, by more the longer it is. That adds to every Hessian, so that
they no longer span as many dimensions as there are neurons. Gauss-Newton on centre and square lowers what is
beyond.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.last_norm import LastNorm
from unsoftmax.learners.encoder_block.post_norm_centre import Centre
from unsoftmax.learners.smooth_network.asks import FunctionAsks
from unsoftmax.learners.smooth_network.curvature import Stencil, survey, symmetric_directions, symmetric_from
from unsoftmax.learners.smooth_network.hessians import spread_points
from unsoftmax.learners.smooth_network.rank_one import as_vectors
from unsoftmax.outcomes import Unresolved

__all__ = ["scaled"]

_FILLED = 0.6  # of all quadratic forms: the largest span that is tried for a subspace
_SPARE = 8  # equations beyond the forms, so that a tail of singular values exists
_STEPS = 30  # a cap: Gauss-Newton
_DIFFERENCE = 1e-9  # of the scale: near the square root of float64 rounding
_ROUGH = 1e-2  # a tail of a per cent: from here on smaller ranks are tried as well
_DROPPED = 1e-4  # tail over the largest singular value: right spheres leave 1e-6, full spans 1e-2


def scaled(
    answer: Callable[[Array], Array], centre: Centre, radius: float, rng: np.random.Generator
) -> LastNorm:
    """Centre and square of the sphere, from answers to points u inside the ball."""
    norm, k = _rough_square(answer, centre, radius, rng), len(centre.place)
    region = survey(FunctionAsks(lambda u: norm.stream(answer(u)), k, k, radius), rng)
    stencil = Stencil.for_region(region)
    size = min(region.size, 0.97 * radius - 1.5 * stencil.reach)
    whole = np.linalg.qr(rng.standard_normal((k, k)))[0].T
    q = min(k, 8)
    while True:
        forms = q * (q + 1) // 2
        count = int(np.ceil((_FILLED * forms + _SPARE) / k))
        points = spread_points(rng, count, q, size) @ whole[:q]
        asked = answer(stencil.points(points, symmetric_directions(whole[:q])))
        table = _Table(norm, stencil, asked, count, q)
        theta, tail = _lowest_tail(table, norm.theta, int(_FILLED * forms), range(k, k + 1))
        if tail < _ROUGH:
            theta, tail = _lowest_tail(table, theta, int(_FILLED * forms), range(k + 1))
        if tail < _DROPPED:
            return norm.at(theta)
        if q == k:
            raise Unresolved(
                "no sphere of the last norm makes second derivatives those of a network that the width can "
                "tell apart"
            )
        q = min(k, max(q + 1, int(np.ceil(1.25 * q))))


def _rough_square(
    answer: Callable[[Array], Array], centre: Centre, radius: float, rng: np.random.Generator
) -> LastNorm:
    """With the square that answers far out would show if r were affine."""
    k, norm = len(centre.place), centre.norm
    points = rng.standard_normal((2 * k, k))
    points *= 0.97 * radius / np.linalg.norm(points, axis=1, keepdims=True)
    size = ((points - centre.place) @ centre.slopes.T) ** 2
    variance = size.sum(axis=1) / len(norm.gain)
    share = 1.0 - norm.normed(answer(points))[1]
    return norm.at(np.append(norm.centre, norm.square * np.mean(share * (1.0 + 1.0 / variance))))


@dataclass(frozen=True)
class _Table:
    """Quadratic forms (count·k, q(q + 1)/2) of asked answers, for any sphere."""

    norm: LastNorm
    stencil: Stencil
    answers: Array
    count: int
    q: int

    def __call__(self, theta: Array) -> Array:
        stream = self.norm.at(theta).stream(self.answers)
        seconds = self.stencil.second(stream, self.count, self.q * (self.q + 1) // 2)
        forms = as_vectors(symmetric_from(seconds.transpose(0, 2, 1), self.q))
        return np.asarray(forms.reshape(-1, forms.shape[-1]))


def _lowest_tail(table: _Table, theta: Array, rank: int, free: range) -> tuple[Array, float]:
    """(centre and square, size of what is beyond `rank` dimensions over the largest singular value)."""
    last, best = np.inf, (theta, np.inf)
    norm = table.norm
    steps = _DIFFERENCE * np.append(np.full(len(theta) - 1, np.sqrt(norm.square)), norm.square)
    for round_ in range(_STEPS):
        now = table(theta)
        left, sizes, right = np.linalg.svd(now, full_matrices=False)
        tail = float(np.linalg.norm(sizes[rank:])) / float(sizes[0])
        if tail < best[1]:
            best = (theta, tail)
        if round_ > 5 and tail > 0.5 * last:
            break
        last = tail
        left, right = left[:, rank:], right[rank:]
        columns = []
        for j in free:
            moved = theta.copy()
            moved[j] += steps[j]
            columns.append((left.T @ (table(moved) - now) @ right.T).ravel())
        step = np.linalg.lstsq(np.stack(columns, axis=1), -(left.T @ now @ right.T).ravel(), rcond=1e-12)[0]
        theta = theta.copy()
        theta[free.start :] += step * steps[free.start :]
    return best
