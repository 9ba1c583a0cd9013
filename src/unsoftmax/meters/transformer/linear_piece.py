"""A linear piece of a known ReLU network, with a point deep inside it and the room around that point."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models import CanonicalNetwork

__all__ = ["Piece", "choose_piece"]

_CANDIDATES = 2000  # points compared roughly, without a query
_FINALISTS = 20  # of them, compared by the room around them
_FURTHEST = 10.0  # room is not used beyond this many times the size of the point


@dataclass(frozen=True, eq=False)
class Piece:
    """Around `centre` the network is value + gradient·(x - centre), as far as `room` says."""

    folds: CanonicalNetwork
    centre: Array
    gradient: Array
    value: float
    limit: float

    def room(self, rows: Array) -> Array:
        """How far one can go from the centre along ± each row, in multiples of the row, without leaving the
        piece."""
        lengths = np.linalg.norm(rows, axis=1)
        furthest = self.limit / np.where(lengths > 0, lengths, 1.0)
        if self.folds.count == 0:
            return np.asarray(furthest)
        away = np.abs(self.folds.sides(self.centre[None])[0])
        towards = np.maximum(np.abs(rows @ self.folds.normals.T), np.finfo(float).tiny)
        with np.errstate(over="ignore"):
            return np.asarray(np.minimum((away / towards).min(axis=1), furthest))


def choose_piece(
    folds: CanonicalNetwork, size: float, rng: np.random.Generator, bound: float | None = None
) -> Piece:
    """The best of many random points of about this norm: much room, a steep gradient, small answers (their
    rounding is what hurts)."""
    d = folds.width
    points = rng.standard_normal((_CANDIDATES, d))
    points *= size * rng.uniform(0.5, 1.5, (_CANDIDATES, 1)) / np.linalg.norm(points, axis=1)[:, None]
    nearest, steep = np.ones(_CANDIDATES), np.full(_CANDIDATES, float(np.linalg.norm(folds.linear)))
    if folds.count:
        sides = folds.sides(points)
        nearest = (np.abs(sides) / folds.sizes).min(axis=1)
        steep = np.linalg.norm((np.sign(sides) * folds.signs) @ folds.normals + folds.linear, axis=1)
    promise = nearest**3 * steep / np.maximum(folds.magnitude(points), np.finfo(float).tiny)
    directions = np.linalg.qr(rng.standard_normal((d, d)))[0]
    best: tuple[float, Piece] | None = None
    for i in np.argsort(-promise)[:_FINALISTS]:
        centre = points[i]
        limit = (
            _FURTHEST * size
            if bound is None
            else min(_FURTHEST * size, 0.99 * max(bound - float(np.linalg.norm(centre)), 0.0))
        )
        value = float(folds(centre[None])[0])
        piece = Piece(folds, centre, folds.gradient(centre), value, limit)
        room = 1.0 / np.sqrt(np.mean(1.0 / np.maximum(piece.room(directions), np.finfo(float).tiny) ** 2))
        quality = (
            float(np.linalg.norm(piece.gradient))
            * room**3
            / max(float(folds.magnitude(centre[None])[0]), np.finfo(float).tiny)
        )
        if best is None or quality > best[0]:
            best = (quality, piece)
    assert best is not None
    return best[1]
