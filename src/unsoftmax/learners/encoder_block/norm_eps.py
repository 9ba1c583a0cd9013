"""The eps of a norm, from how what follows it turns along rays.

On a ray y = τ·v a norm passes on u = t·v, t = τ/√(τ² + eps). Over a short piece of the ray what follows is
nearly affine in t, whatever it is, so its direction turns as that of r0 + r1·t does. Only the right eps makes
all pieces fit, those with a kink aside. Where lengths are known too, one more coordinate that stays the same
makes directions of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.tokens import unit_rows
from unsoftmax.outcomes import Unresolved

__all__ = ["norm_eps"]

_COARSE = 10.0 ** np.arange(-9.0, 2.01, 0.25)
_MOVED = 0.02  # of the way from y = 0 to the limit: outside, nothing turns any more
_PIECE = 7  # points
_STRIDES = (1, 2, 4, 8)  # between them: long pieces tell more, where no kink is on them
# of log τ: over a piece t bends by a third of a per cent, and measured directions are good to 1e-5
_SPACING = 0.05
_FLOOR = 1e-7  # misfits below do not count: errors of the last norm's centre leave as much
_FINE = 0.05  # decades
_SNAP = 0.4  # decades within which the nearest power of ten is taken, which refinement corrects
_AS_GOOD = 3.0  # of the score: pieces behind smooth networks tell eps to a tenth of a decade only
_FEW_RAYS = 2  # two rays: one gives a power of ten, the other confirms it
_FINEST = 1e3  # of the floor, in decades
_ROUNDS = 6  # a cap: reweighted least squares


def norm_eps(direction: Callable[[Array], Array], rays: Array, *, floor: float = _FLOOR) -> float:
    """eps, from directions (n, m) of r at points y (n, k) along rays (R, k) of norm √d; the first two must do
    where eps is a power of ten. floor: error of the directions."""
    sizes = _sizes(_along(direction, rays[:_FEW_RAYS], _COARSE))
    few = _along(direction, rays[:_FEW_RAYS], sizes)
    score = partial(_score, _Pieces.of(few, sizes), floor)
    logs = np.arange(2.0 * np.log10(sizes[0]) - 0.5, 2.0 * np.log10(sizes[-1]) + 0.5, _FINE)
    best = float(logs[int(np.argmin([score(float(log)) for log in logs]))])
    snapped = float(np.round(best))
    if abs(best - snapped) < _SNAP and score(snapped) < score(best) + _AS_GOOD:
        return float(10.0**snapped)
    more = np.concatenate([few, _along(direction, rays[_FEW_RAYS:], sizes)], axis=1)
    score = partial(_score, _Pieces.of(more, sizes), floor)
    step = _FINE
    while step > _FINEST * floor:
        step /= 2.0
        best = min((best - step, best, best + step), key=score)
    return float(10.0**best)


def _sizes(coarse: Array) -> Array:
    """Sizes between which the norm loses its scale, from directions at the coarse ones."""
    whole = np.linalg.norm(coarse[-1] - coarse[0], axis=-1)
    begun = np.linalg.norm(coarse - coarse[0], axis=-1) > _MOVED * whole
    ended = np.linalg.norm(coarse - coarse[-1], axis=-1) > _MOVED * whole
    between = np.flatnonzero((begun & ended).any(axis=1))
    if not len(between):
        raise Unresolved("the size of rows at which a norm loses its scale was not met")
    low = np.log(_COARSE[max(between[0] - 1, 0)])
    high = np.log(_COARSE[min(between[-1] + 1, len(_COARSE) - 1)])
    return np.asarray(np.exp(np.arange(low, high, _SPACING)))


def _score(pieces: _Pieces, floor: float, log: float) -> float:
    return pieces.misfit(10.0**log, floor)


def _along(direction: Callable[[Array], Array], rays: Array, sizes: Array) -> Array:
    """(sizes, R, k) unit vectors."""
    found = direction((sizes[:, None, None] * rays).reshape(-1, rays.shape[1]))
    return unit_rows(found).reshape(len(sizes), len(rays), -1)


@dataclass(frozen=True)
class _Pieces:
    """Short pieces of all rays: sizes (P, 7) of their points, directions (P, R, 7, 3) in the three dimensions
    that each piece fills, and what is beside them."""

    sizes: Array
    seen: Array

    @classmethod
    def of(cls, directions: Array, sizes: Array) -> _Pieces:
        reach = _PIECE - 1
        chosen = [
            start + stride * np.arange(_PIECE)
            for stride in _STRIDES
            for start in range(0, len(sizes) - stride * reach, stride * reach)
        ]
        pieces = directions[np.array(chosen)].transpose(0, 2, 1, 3)
        filled = np.linalg.svd(pieces, full_matrices=False)[2][:, :, :3]
        return cls(sizes[np.array(chosen)], pieces @ np.swapaxes(filled, 2, 3))

    def misfit(self, eps: float, floor: float) -> float:
        """Sum over all pieces of the logarithm of how far directions are from those of r0 + r1·t."""
        t = self.sizes / np.sqrt(self.sizes**2 + eps)
        moves = t[:, -1] > t[:, 0]
        t, seen = t[moves], self.seen[moves]
        places = 2.0 * (t - t[:, :1]) / (t[:, -1:] - t[:, :1]) - 1.0
        return float(np.log(_off_a_line(seen, places) + floor).sum())


def _off_a_line(seen: Array, places: Array) -> Array:
    """(P, R) rms angles of directions (P, R, 7, 3) to the best r0 + r1·place, weighed so that its length does
    not matter."""
    columns = np.stack([np.ones_like(places), places], axis=2)[:, None]  # (P, 1, 7, 2)
    beside = np.eye(3) - seen[..., :, None] * seen[..., None, :]
    weights = np.ones(seen.shape[:-1])
    for _ in range(_ROUNDS):
        system = weights[..., None, None, None] * columns[..., None, :, None] * beside[..., :, None, :]
        flat = system.reshape(*seen.shape[:2], -1, 6)
        line = columns @ np.linalg.svd(flat, full_matrices=False)[2][:, :, -1].reshape(*seen.shape[:2], 2, 3)
        weights = 1.0 / (np.linalg.norm(line, axis=-1) + 1e-12)
    along = (line * seen).sum(axis=-1) * weights
    sign = np.sign(np.median(along, axis=-1, keepdims=True))
    return np.asarray(np.sqrt(np.mean(1.0 - sign * along * np.abs(along), axis=-1)))
