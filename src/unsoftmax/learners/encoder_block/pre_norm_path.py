"""The value path A = Σ V_h of a pre-norm block, from derivatives of its answers, and the first norm's eps.

A single row b shows Γ(1 + A·n'), n' the slopes of the first norm, and three copies of it beside b show
¾ΓA·n', whatever the scores are: so Γ is known, and A solves the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.state import BlockShape

__all__ = ["asked_beside", "pre_norm_path"]

_FAR = 300.0  # size of rows at which the value path is read: eps changes a norm by less than 1e-9
_NARROW_FAR = 6.0  # the same behind fewer answers than columns
_STEP = 2e-3  # of that size: rounding 1e-13/2e-3 meets truncation (2e-3)⁴ at about 1e-10
_NARROW_STEP = 5e-4  # truncation 6e-14 meets rounding 2e-12: each is magnified by the size of rows
_EPS_ROUNDS = 4  # of Newton's method; the second is right to 1e-6
_LEAST_EPS = 1e-12  # BERT's; rows this size show nothing of it
_PATH_ROWS = 3  # the fewest of which two outvote one that met a kink
_PATH_TRIES = 40  # a cap: so many rows may meet a kink
_PATH_SURPLUS = 1.6  # equations over unknowns of the path, behind fewer answers than columns
_AGREES = 1e-7  # rows without a kink nearby agree to 1e-9


def pre_norm_path(
    asks: AsksSequences, shape: BlockShape, readout: Array | None, rng: np.random.Generator
) -> tuple[Array, float | None]:
    """A from derivatives: of a single row b, and of three copies of it beside b, where every row gets a
    quarter. Behind fewer answers than columns only what the network adds to the slopes, which is more for
    shorter rows, shows all of A; the first eps is found together with it there."""
    d, basis = shape.width, shape.basis
    narrow = readout is not None and len(readout) < d
    size, step = (_NARROW_FAR, _NARROW_STEP) if narrow else (_FAR, _STEP)
    found: list[_Slopes] = []
    path: Array = np.zeros((d, basis.shape[1]))
    eps, needed = 0.0, _PATH_ROWS
    for _ in range(needed + _PATH_TRIES):
        b = rng.standard_normal(d) @ basis @ basis.T
        b *= size * np.sqrt(d) / np.linalg.norm(b)
        alone = _derivative(lambda rows: asks(rows[:, None]), b, step)
        copies = _derivative(partial(asked_beside, asks, b), b, step) * (4.0 / 3.0)
        found.append(_Slopes(alone - copies, copies, b @ basis, basis))
        needed = max(_PATH_ROWS, int(np.ceil(_PATH_SURPLUS * d / len(alone))) + 1)
        if len(found) < needed:
            continue
        path, eps = _narrow_path_of(found) if narrow else (_path_of(found), 0.0)
        off = [size * each.off(path, eps) for each in found]
        if max(off) < _AGREES * max(1.0, float(np.abs(path).max())):
            break
        del found[int(np.argmax(off))]  # a kink within the differences: this row tells nothing
    return np.asarray(path), eps if narrow else None


@dataclass(frozen=True)
class _Slopes:
    """At one row: outer (m, d) of the answer by y, copies (m, d), which is outer·A·inner, and the row's seen
    coordinates (k,)."""

    outer: Array
    copies: Array
    seen: Array
    basis: Array

    def inner(self, eps: float) -> Array:
        """(k, d): slopes of the first norm."""
        d, square = len(self.basis), float(self.seen @ self.seen)
        size = square / d + eps
        return np.asarray(
            (self.basis.T - np.outer(self.seen, self.basis @ self.seen) / (d * size)) / np.sqrt(size)
        )

    def inner_by_eps(self, eps: float) -> Array:
        """How they change with eps."""
        d, size = len(self.basis), float(self.seen @ self.seen) / len(self.basis) + eps
        along = np.outer(self.seen, self.basis @ self.seen) / (d * size)
        return np.asarray((1.5 * along - 0.5 * self.basis.T) / size**1.5)

    def off(self, path: Array, eps: float) -> float:
        """How far a path is from explaining the copies, in units of the path's own slopes."""
        if self.outer.shape[0] >= self.outer.shape[1]:
            return float(np.abs(path @ self.inner(eps) - self.through()).max())
        left = self.outer @ path @ self.inner(eps) - self.copies
        return float(np.abs(np.linalg.lstsq(self.outer, left, rcond=None)[0]).max())

    def through(self) -> Array:
        """A·inner, where the answers show all of y."""
        return np.asarray(np.linalg.lstsq(self.outer, self.copies, rcond=None)[0])


def _path_of(slopes: list[_Slopes]) -> Array:
    """A (d, k) by least squares, column by column."""
    inner = np.hstack([each.inner(0.0) for each in slopes])
    there = np.hstack([each.through() for each in slopes])
    return np.asarray(np.linalg.lstsq(inner.T, there.T, rcond=1e-9)[0].T)


def _narrow_path_of(slopes: list[_Slopes]) -> tuple[Array, float]:
    """A and eps: all entries together, because no row shows a whole column."""
    d, k = slopes[0].basis.shape
    path, eps = np.zeros((d, k)), 0.0
    for round_ in range(_EPS_ROUNDS):
        design = np.concatenate([np.kron(each.outer, each.inner(eps).T) for each in slopes])
        by_eps = np.concatenate([(each.outer @ path @ each.inner_by_eps(eps)).ravel() for each in slopes])
        there = np.concatenate([each.copies.ravel() for each in slopes])
        scale = np.append(
            np.full(d * k, np.linalg.norm(design) / np.sqrt(d * k)), np.linalg.norm(by_eps) + 1e-300
        )
        solved = np.linalg.lstsq(np.column_stack([design, by_eps]) / scale, there, rcond=1e-13)[0] / scale
        path = solved[:-1].reshape(d, k)
        eps = eps + float(solved[-1]) if round_ else eps
    return path, max(eps, _LEAST_EPS)


def asked_beside(asks: AsksSequences, b: Array, rows: Array) -> Array:
    """Answers to three copies of each row beside the asking row b."""
    last = np.broadcast_to(b, (len(rows), 1, len(b)))
    return asks(np.concatenate([np.repeat(rows[:, None], 3, axis=1), last], axis=1))


def _derivative(function: Callable[[Array], Array], b: Array, step: float) -> Array:
    """(m, d) derivatives along unit rows, by central differences of two steps."""
    d = len(b)
    h = step * float(np.linalg.norm(b)) / np.sqrt(d)
    eye = np.eye(d)
    answers = function(np.concatenate([b + s * h * eye for s in (1.0, -1.0, 2.0, -2.0)])).reshape(4, d, -1)
    one, two = (answers[0] - answers[1]) / (2.0 * h), (answers[2] - answers[3]) / (4.0 * h)
    return np.asarray(((4.0 * one - two) / 3.0).T)
