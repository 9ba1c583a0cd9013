"""The eps of a norm, from how what follows it turns along rays.

On a ray y = τ·v a norm passes on u = t·v, t = τ/√(τ² + eps). Over a short piece of the ray what follows is
nearly affine in t, whatever it is, so its direction turns as that of r0 + r1·t does. Only the right eps makes
all pieces fit, those with a kink aside. Where lengths are known too, one more coordinate that stays the same
makes directions of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.tokens import unit_rows
from unsoftmax.outcomes import Unresolved

__all__ = ["norm_eps"]

_COARSE = 10.0 ** np.arange(-9.0, 2.01, 0.25)
_MOVED = 0.02  # of the way from y = 0 to the limit: outside, nothing turns any more
_PIECE = 7  # points
_SPACING = (
    0.05  # of log τ: over a piece t bends by a third of a per cent, and measured directions are good to 1e-5
)
_FLOOR = 1e-7  # misfits below do not count: errors of the last norm's centre leave as much
_FINE = 0.05  # decades
_SNAP = 0.2  # decades within which the nearest power of ten is taken, which refinement corrects
_AS_GOOD = 3.0  # of the score: pieces behind smooth networks tell eps to a tenth of a decade only
_FINEST = 1e3  # of the floor, in decades
_ROUNDS = 6


def norm_eps(direction: Callable[[Array], Array], rays: Array, *, floor: float = _FLOOR) -> float:
    """eps, from directions (n, m) of r at points y (n, k) along rays (R, k) of norm √d. floor: error of the
    directions."""
    coarse = _along(direction, rays, _COARSE)
    whole = np.linalg.norm(coarse[-1] - coarse[0], axis=-1)
    begun = np.linalg.norm(coarse - coarse[0], axis=-1) > _MOVED * whole
    ended = np.linalg.norm(coarse - coarse[-1], axis=-1) > _MOVED * whole
    between = np.flatnonzero((begun & ended).any(axis=1))
    if not len(between):
        raise Unresolved("the size of rows at which a norm loses its scale was not met")
    low, high = (
        np.log(_COARSE[max(between[0] - 1, 0)]),
        np.log(_COARSE[min(between[-1] + 1, len(_COARSE) - 1)]),
    )
    sizes = np.exp(np.arange(low, high, _SPACING))
    there = _along(direction, rays, sizes)
    logs = np.arange(2.0 * np.log10(sizes[0]) - 0.5, 2.0 * np.log10(sizes[-1]) + 0.5, _FINE)

    def score(log: float) -> float:
        return _misfit(there, sizes / np.sqrt(sizes**2 + 10.0**log), floor)

    best = float(logs[int(np.argmin([score(float(log)) for log in logs]))])
    snapped = float(np.round(best))
    if abs(best - snapped) < _SNAP and score(snapped) < score(best) + _AS_GOOD:
        return float(10.0**snapped)
    step = _FINE
    while step > _FINEST * floor:
        step /= 2.0
        best = min((best - step, best, best + step), key=score)
    return float(10.0**best)


def _along(direction: Callable[[Array], Array], rays: Array, sizes: Array) -> Array:
    """(sizes, R, k) unit vectors."""
    found = direction((sizes[:, None, None] * rays).reshape(-1, rays.shape[1]))
    return unit_rows(found).reshape(len(sizes), len(rays), -1)


def _misfit(directions: Array, t: Array, floor: float) -> float:
    """Sum over all pieces of the logarithm of how far directions are from those of r0 + r1·t."""
    total = 0.0
    for start in range(0, len(t) - _PIECE, _PIECE - 1):
        piece = slice(start, start + _PIECE)
        span = t[piece][-1] - t[piece][0]
        if span <= 0.0:
            continue
        places = 2.0 * (t[piece] - t[start]) / span - 1.0
        for ray in range(directions.shape[1]):
            total += float(np.log(_off_a_line(directions[piece, ray], places) + floor))
    return total


def _off_a_line(directions: Array, places: Array) -> float:
    """rms angle to the best r0 + r1·place, weighed so that its length does not matter."""
    seen = directions @ np.linalg.svd(directions, full_matrices=False)[2][:3].T
    columns = np.column_stack([np.ones(len(places)), places])
    beside = np.eye(3) - seen[:, :, None] * seen[:, None]
    weights, along = np.ones(len(places)), np.zeros(len(places))
    for _ in range(_ROUNDS):
        system = np.einsum("t,tc,tab->tacb", weights, columns, beside).reshape(-1, 6)
        line = columns @ np.linalg.svd(system, full_matrices=False)[2][-1].reshape(2, 3)
        weights = 1.0 / (np.linalg.norm(line, axis=1) + 1e-12)
        along = (line * seen).sum(axis=1) * weights
    return float(np.sqrt(np.mean(1.0 - np.sign(np.median(along)) * along * np.abs(along))))
