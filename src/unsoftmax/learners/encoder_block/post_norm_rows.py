"""Post-norm blocks, one row at a time: the value path A and the constant c, so that the first norm's input is
set at will.

A single row x is answered with last(r(u)), u = y/size(y), y = P(x + A·x) + c. A and c come from answers
alone, through the unknown Jacobian of everything behind y.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.pre_norm_rows import least_misfit
from unsoftmax.learners.encoder_block.state import BlockShape
from unsoftmax.learners.encoder_block.value_path import value_path

__all__ = ["PostNormRows", "read_post_norm_rows"]

_FAR = 1e12  # of y: there only its direction counts
_RAYS = 3  # where m >= k one ray determines the k unknowns; the others average
_TANGENT = 1e-4  # radians, central: 1e-8 of bending beside 1e-12 of rounding
_SIZES = np.array([3.0, 6.0, 12.0, 24.0])
_ROUNDS = ((1000.0,), (100.0,), (30.0,), tuple(_SIZES), tuple(_SIZES), tuple(_SIZES))
_MISFIT = 3e-11  # of answers of size one: a kink between the sizes of a ray leaves more
_SETTLED = 1e-10  # a last change of c that is larger counts as misfit


@dataclass(frozen=True)
class PostNormRows:
    """path: (k, d), A in seen coordinates. constant: (k,). eps: of the first norm."""

    shape: BlockShape
    path: Array
    constant: Array
    eps: float

    @cached_property
    def matrix(self) -> Array:
        """(k, d): y of a single row is matrix·x + constant."""
        return np.asarray(self.shape.basis.T + self.path)

    @cached_property
    def _inverse(self) -> Array:
        return np.asarray(np.linalg.pinv(self.matrix), dtype=np.float64)

    def stream(self, rows: Array) -> Array:
        """y (n, k) of single rows."""
        return np.asarray(rows @ self.matrix.T + self.constant)

    def rows_of(self, y: Array) -> Array:
        """The shortest rows with this y."""
        return np.asarray((y - self.constant) @ self._inverse.T)

    def normed(self, y: Array) -> Array:
        """u of y."""
        size = np.sqrt((y**2).sum(axis=-1, keepdims=True) / self.shape.width + self.eps)
        return np.asarray(y / size)

    def inside(self, u: Array) -> Array:
        """y of points inside the ball of radius √d."""
        share = 1.0 - (u**2).sum(axis=-1, keepdims=True) / self.shape.width
        return np.asarray(u * np.sqrt(self.eps / share))


def read_post_norm_rows(asks: AsksSequences, shape: BlockShape, rng: np.random.Generator) -> PostNormRows:
    """Path and constant, eps left at one; about 40 d queries."""
    path = value_path(asks, shape.basis, rng)
    return _constant(asks, PostNormRows(shape, path, np.zeros(shape.basis.shape[1]), 1.0), rng)


def _constant(asks: AsksSequences, rows: PostNormRows, rng: np.random.Generator) -> PostNormRows:
    """c from rays y = τ·v: answers approach a limit, and c's error is the part that falls like 1/τ."""
    return least_misfit(lambda: _constant_from_rays(asks, rows, rng), _MISFIT, "post-norm", allowed=1e-6)


def _constant_from_rays(
    asks: AsksSequences, rows: PostNormRows, rng: np.random.Generator
) -> tuple[PostNormRows, float]:
    d, k = rows.shape.width, rows.shape.basis.shape[1]
    rays = rng.standard_normal((_RAYS, k))
    rays *= np.sqrt(d) / np.linalg.norm(rays, axis=1, keepdims=True)
    limit = asks(rows.rows_of(_FAR * rays)[:, None])
    tangents = np.array([_tangent(asks, rows, ray) for ray in rays])  # (R, outputs, k)
    m, misfit = limit.shape[1], np.inf
    for round_, sizes in enumerate(_ROUNDS):
        bends = round_ > 2  # eps and the second order in c's error fall like 1/τ²
        design = np.zeros((len(sizes), _RAYS, m, k + (_RAYS * m if bends else 0)))
        right = np.empty((len(sizes), _RAYS, m))
        for i, size in enumerate(sizes):
            right[i] = asks(rows.rows_of(size * rays)[:, None]) - limit
            design[i, ..., :k] = tangents / size
            for r in range(_RAYS if bends else 0):
                design[i, r, :, k + r * m : k + (r + 1) * m] = np.eye(m) / size**2
        flat, values = design.reshape(-1, design.shape[-1]), right.ravel()
        solved = np.linalg.lstsq(flat, values, rcond=1e-12)[0]
        moved = solved[:k]
        rows = replace(rows, constant=rows.constant + moved)
        misfit = float(np.abs(flat @ solved - values).max())
    if float(np.abs(moved).max()) > _SETTLED:
        misfit = max(misfit, float(np.abs(moved).max()))
    return rows, misfit


def _tangent(asks: AsksSequences, rows: PostNormRows, ray: Array) -> Array:
    """(outputs, k): how far answers change along the sphere."""
    radius = np.linalg.norm(ray)
    across = np.linalg.svd(ray[None])[2][1:]
    turned = np.concatenate(
        [np.cos(_TANGENT) * ray + s * np.sin(_TANGENT) * radius * across for s in (1.0, -1.0)]
    )
    ahead, back = asks(rows.rows_of(_FAR * turned)[:, None]).reshape(2, len(across), -1)
    return np.asarray(((ahead - back) / (2.0 * np.sin(_TANGENT) * radius)).T @ across)
