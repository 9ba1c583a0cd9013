"""Asking rows at which one head has a moderate score and all others are saturated, from the rows R_h = W_hᵀa
of all heads."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["CrowdedIsolation", "Isolation"]

_SCORE = -3.5  # score of the head that is read: in the tail, where the answer's relative precision holds
_REACH = 0.8  # typical change of a score by one measurement
_SPREAD = 1.5  # size of free directions against the part that holds the heads


class Isolation:
    """Points b with R_h·b near -3.5 and R_k·b below -margin for all others, as many as there are columns,
    well conditioned.

    rows: R (H, n), linearly independent. With `biased`, the last coordinate is kept away from zero.

    >>> isolation = Isolation(np.eye(2, 3), 2e-16)
    >>> points = isolation.points(0, np.random.default_rng(0))
    >>> bool(np.all(points[:, 0] > -9) and np.all(points[:, 1] < -40)), points.shape
    (True, (3, 3))
    """

    def __init__(self, rows: Array, rounding: float, *, biased: bool = False) -> None:
        self.rows = rows
        self.biased = biased
        self.sizes = np.linalg.norm(rows, axis=1)
        self._inverse = np.linalg.pinv(rows)
        self._span = np.linalg.qr(rows.T)[0]
        self._free: Array | None = None
        self._saturation = -np.log(max(1e-12, 64 * rounding))
        values = np.linalg.svd(rows / self.sizes[:, None], compute_uv=False)
        self.condition = float(values[0] / values[-1]) if values[-1] > 0 else np.inf

    def margins(self, head: int) -> Array:
        """How far below zero the others are held: saturation, the tail of the head that is read, and their
        drift when a moves."""
        ratio = np.maximum(1.0, self.sizes / self.sizes[head])
        return np.asarray(self._saturation + 16 - _SCORE + 7 * _REACH * ratio)

    def only(self, head: int, rng: np.random.Generator) -> Array:
        """A point where this head is on and all others are off (head -1: all off)."""
        margins = self.margins(head if head >= 0 else int(self.sizes.argmin()))
        wanted = -margins * (1 + 0.5 * rng.random(len(self.rows)))
        if head >= 0:
            wanted[head] = margins[head]
        return self._keep_last(self._inverse @ wanted)

    def points(self, head: int, rng: np.random.Generator) -> Array:
        """(n, n), one point per row: free directions first, then one that moves each head in turn."""
        H, n = self.rows.shape
        margins = -self.margins(head)
        margins[head] = _SCORE
        centre = self._inverse @ margins
        size = float(np.linalg.norm(centre))
        free, offset = self._free_directions(centre, rng)
        wanted = np.tile(margins, (n, 1))
        wanted[: n - H] *= 1 + 0.5 * rng.random((n - H, H))
        wanted[: n - H, head] = _SCORE * (0.1 + 1.8 * rng.random(n - H))
        wanted[n - H + np.arange(H), np.arange(H)] *= 1.6
        wanted[n - H + head, head] = _SCORE * 1.75
        points = wanted @ self._inverse.T + size * offset
        points[: n - H] += _SPREAD * size * free.T
        return np.asarray(points)

    def reach(self, point: Array) -> float:
        """How large a step of b leaves every head where it is."""
        return float((np.abs(self.rows @ point) / self.sizes).min())

    def _free_directions(self, centre: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Orthonormal directions that no R sees, all with the same share of the last coordinate; and a shift
        along it."""
        if self._free is None:
            self._free = self._draw_free(rng)
        axis = self._last_axis() if self.biased and len(self.rows) < self.rows.shape[1] else None
        if axis is None:
            return self._free, np.zeros(len(centre))
        sign = 1.0 if centre[-1] >= 0 else -1.0
        return sign * self._free, sign * axis

    def _draw_free(self, rng: np.random.Generator) -> Array:
        H, n = self.rows.shape
        free = rng.standard_normal((n, n - H))
        if n == H:
            return free
        for _ in range(2):
            free = np.linalg.qr(free - self._span @ (self._span.T @ free))[0]
        axis = self._last_axis() if self.biased else None
        if axis is None:
            return free
        share = free.T @ axis
        normal = share - np.linalg.norm(share) / np.sqrt(n - H)
        length = float(np.linalg.norm(normal))
        return free - 2 * np.outer(free @ (normal / length), normal / length) if length > 1e-12 else free

    def _last_axis(self) -> Array | None:
        """The last coordinate axis as far as no R sees it."""
        axis = np.zeros(self.rows.shape[1])
        axis[-1] = 1.0
        for _ in range(2):
            axis = axis - self._span @ (self._span.T @ axis)
        length = float(np.linalg.norm(axis))
        return axis / length if length > 1e-3 else None

    def _keep_last(self, point: Array) -> Array:
        if not self.biased:
            return point
        axis = self._last_axis()
        if axis is None:
            return point
        return np.asarray(point + float(np.linalg.norm(point)) * (1.0 if point[-1] >= 0 else -1.0) * axis)


class CrowdedIsolation:
    """The same for any number of heads, more than columns too: all others are saturated, on or off, whichever
    is nearer.

    >>> isolation = CrowdedIsolation(np.random.default_rng(1).standard_normal((6, 3)), 2e-16)
    >>> points = isolation.points(0, np.random.default_rng(0))
    >>> scores = isolation.rows @ points.T
    >>> bool(np.all(np.abs(scores[0]) < 2) and np.all(np.abs(scores[1:]) > 30))
    True
    """

    _POOL = 4000
    _FRESH = 0.35  # how much of a new point must lie outside the span of those before

    def __init__(self, rows: Array, rounding: float, *, biased: bool = False) -> None:
        self.rows = rows
        self.biased = biased
        self.sizes = np.linalg.norm(rows, axis=1)
        self._saturation = -np.log(max(1e-12, 64 * rounding)) + 14

    def points(self, head: int, rng: np.random.Generator) -> Array:
        """(n, n): short, well spread points on the head's own plane, its score alternately 1.8 and -1.8."""
        n = self.rows.shape[1]
        free, reach = self._pool(head, rng, 1.8)
        chosen: list[int] = []
        span = np.empty((0, n))
        for j in np.argsort(reach):
            fresh = free[j] - span.T @ (span @ free[j])
            length = float(np.linalg.norm(fresh))
            if length > self._FRESH or len(span) == n - 1:
                chosen.append(int(j))
                if len(span) < n - 1:
                    span = np.vstack([span, fresh / length])
            if len(chosen) == n:
                break
        else:
            chosen += [int(j) for j in np.argsort(reach) if int(j) not in set(chosen)][: n - len(chosen)]
        scores = np.where(np.arange(n) % 2 == 0, 1.8, -1.8)
        along = self.rows[head] / self.sizes[head] ** 2
        return np.asarray(
            free[chosen] * (reach[chosen] * (1 + 0.3 * rng.random(n)))[:, None] + np.outer(scores, along)
        )

    def switch(self, head: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Two points that differ in this head alone: on, and off."""
        score = self._saturation + 6
        free, reach = self._pool(head, rng, score)
        best = int(reach.argmin())
        along = score * self.rows[head] / self.sizes[head] ** 2
        return free[best] * reach[best] + along, free[best] * reach[best] - along

    def _pool(self, head: int, rng: np.random.Generator, score: float) -> tuple[Array, Array]:
        """Unit directions inside the head's plane, and how far to go along each until all others are
        saturated."""
        own = self.rows[head]
        free = rng.standard_normal((self._POOL, len(own)))
        if self.biased:
            free[:, -1] += np.where(free[:, -1] >= 0, 0.5, -0.5)
        free -= np.outer(free @ own, own) / self.sizes[head] ** 2
        free /= np.linalg.norm(free, axis=1)[:, None]
        reach = np.full(self._POOL, 2.0 / self.sizes[head])
        others = np.arange(len(self.rows)) != head
        if others.any():
            drift = 8 * _REACH * np.maximum(1.0, self.sizes[others] / self.sizes[head])
            shift = score * self.sizes[others] / self.sizes[head]
            with np.errstate(divide="ignore"):
                reach = np.maximum(
                    reach,
                    ((self._saturation + drift + shift) / np.abs(free @ self.rows[others].T)).max(axis=1),
                )
        if self.biased:
            reach = np.where(np.abs(free[:, -1]) < 0.02, np.inf, reach)
        return free, reach
