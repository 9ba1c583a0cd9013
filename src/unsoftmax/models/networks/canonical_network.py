"""The canonical form of a two-layer ReLU network: a sum of folds along hyperplanes, and an affine part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["CanonicalNetwork"]

# hyperplanes closer than this (unit normals; distances from the origin, relative to their own or to the usual
# one) are one
_SAME = 1e-12
# folds farther away than this many times a row's norm look like affine functions from there
_NEAR_FOLDS = 5.0
_CANCELLED = 1e-12  # folds on one hyperplane that add up to less than this part of their sizes are none


@dataclass(frozen=True, eq=False)
class CanonicalNetwork:
    """g(x) = Σ_j s_j |n_j·x + o_j| + l·x + l0, with s_j = ±1.

    With |n_j| = |c_j| this is Σ_j c_j |u_j·x + β_j| + l·x + l0 for unit u_j. Once no two hyperplanes coincide
    and no n_j is zero, the form is unique up to order and the signs of (n_j, o_j): every fold shows itself as
    a jump of 2 n_j in the gradient.

    >>> folds = CanonicalNetwork.of_neurons(np.array([[1.0], [1.0]]), np.zeros(2), np.array([1.0, 2.0]))
    >>> folds.count, folds(np.array([[-1.0], [2.0]]))
    (1, array([0., 6.]))
    """

    normals: Array
    offsets: Array
    signs: Array
    linear: Array
    constant: float = 0.0

    @classmethod
    def of_neurons(
        cls, A: Array, b: Array, u: Array, linear: Array | None = None, constant: float = 0.0
    ) -> CanonicalNetwork:
        """The form of Σ u_k relu(a_k·x + b_k) + linear·x + constant: |z| = 2 relu(z) - z, equal hyperplanes
        merged."""
        d = A.shape[1]
        straight = 0.5 * u @ A + (0.0 if linear is None else linear)
        shift = 0.5 * float(u @ b) + constant
        size = np.linalg.norm(A, axis=1)
        flat = size == 0.0
        shift += 0.5 * float(u[flat] @ np.abs(b[flat]))
        normals, offsets, signs = _merged(A[~flat], b[~flat], 0.5 * u[~flat])
        return cls(normals.reshape(-1, d), offsets, signs, np.asarray(straight), shift)

    @property
    def count(self) -> int:
        """Number of folds."""
        return len(self.signs)

    @property
    def width(self) -> int:
        return len(self.linear)

    @property
    def sizes(self) -> Array:
        """|c_j|: half the jump of the gradient across each hyperplane."""
        return np.asarray(np.linalg.norm(self.normals, axis=1))

    @property
    def directions(self) -> Array:
        """The unit normals u_j."""
        return np.asarray(self.normals / self.sizes[:, None])

    @property
    def distances(self) -> Array:
        """β_j: signed distances of the hyperplanes from the origin."""
        return np.asarray(self.offsets / self.sizes)

    @property
    def biased(self) -> bool:
        """Whether anything but a positively homogeneous function is there."""
        return bool(self.offsets.any()) or self.constant != 0.0

    @property
    def reach(self) -> float:
        """Typical distance of the hyperplanes from the origin; 1 when all pass through it."""
        apart = np.abs(self.distances)
        apart = apart[apart > 0]
        return float(np.median(apart)) if len(apart) else 1.0

    @property
    def unit(self) -> float:
        """The distance from the origin at which folds lie, and at which the linear part outweighs the value
        there, large ones first; 1 without any.

        Unlike `reach` it hardly depends on faint folds: whether those were found does not change what a
        distance means.
        """
        sizes, slope = self.sizes, float(np.linalg.norm(self.linear))
        value = abs(self.constant + float(self.signs @ np.abs(self.offsets)))
        across = float(sizes @ np.abs(self.offsets)) + slope * value
        return across / (float(sizes @ sizes) + slope**2) if across > 0.0 else 1.0

    def __call__(self, X: Array) -> Array:
        return np.asarray(
            np.abs(X @ self.normals.T + self.offsets) @ self.signs + X @ self.linear + self.constant
        )

    def sides(self, X: Array) -> Array:
        """Signed distances of the rows of X from the hyperplanes, times |c_j|."""
        return np.asarray(X @ self.normals.T + self.offsets)

    def gradient(self, x: Array) -> Array:
        """The gradient of g in the linear piece of x."""
        return np.asarray(
            (self.signs * np.sign(self.normals @ x + self.offsets)) @ self.normals + self.linear
        )

    def magnitude(self, X: Array) -> Array:
        """Sum of the sizes of all terms: what rounding is relative to."""
        terms = np.abs(X @ self.normals.T).sum(axis=1) + np.abs(self.offsets).sum()
        return np.asarray(
            terms + np.linalg.norm(X, axis=1) * np.linalg.norm(self.linear) + abs(self.constant)
        )

    def spread(self, norms: Array) -> Array:
        """How far values can be apart for rows of these norms, or out to where folds usually lie; constants
        and folds far beyond do not count."""
        far = np.maximum(norms, self.reach if self.count and self.biased else 0.0)[:, None]
        near = np.minimum(far + np.abs(self.distances), _NEAR_FOLDS * far)
        return np.asarray(near @ self.sizes + far[:, 0] * np.linalg.norm(self.linear))

    def scaled(self, factor: float) -> CanonicalNetwork:
        """The form of x -> g(factor·x)."""
        return CanonicalNetwork(
            self.normals * factor, self.offsets, self.signs, self.linear * factor, self.constant
        )

    def plus(self, other: CanonicalNetwork) -> CanonicalNetwork:
        """The form of the sum of two functions; folds are joined, not merged."""
        return CanonicalNetwork(
            np.vstack([self.normals, other.normals]),
            np.concatenate([self.offsets, other.offsets]),
            np.concatenate([self.signs, other.signs]),
            self.linear + other.linear,
            self.constant + other.constant,
        )

    def tidy(self) -> CanonicalNetwork:
        """Equal hyperplanes merged, the largest entry of every normal positive, in a fixed order."""
        normals, offsets, signs = _merged(self.normals, self.offsets, self.signs)
        if len(signs):
            turn = np.sign(normals[np.arange(len(signs)), np.abs(normals).argmax(axis=1)])
            normals, offsets = normals * turn[:, None], offsets * turn
            order = np.lexsort((offsets, -np.linalg.norm(normals, axis=1)))
            normals, offsets, signs = normals[order], offsets[order], signs[order]
        return CanonicalNetwork(normals.reshape(-1, self.width), offsets, signs, self.linear, self.constant)


def _merged(normals: Array, offsets: Array, weights: Array) -> tuple[Array, Array, Array]:
    """CanonicalNetwork weights_k·|normal_k·x + offset_k| as sizes in the normals and signs apart; coinciding
    ones added up, cancelled ones dropped."""
    size = np.linalg.norm(normals, axis=1) * np.abs(weights)
    kept = size > 0.0
    normals, offsets, weights = normals[kept], offsets[kept], weights[kept]
    n = len(weights)
    if n == 0:
        return normals, offsets, weights
    length = np.linalg.norm(normals, axis=1)
    directions, apart = normals / length[:, None], offsets / length
    usual = float(np.median(np.abs(apart[apart != 0.0]))) if apart.any() else 1.0
    owner = np.arange(n)
    for i in range(n):
        if owner[i] != i:
            continue
        likely = i + 1 + np.flatnonzero(np.abs(directions[i + 1 :] @ directions[i]) > 1.0 - 1e-9)
        turn = np.sign(directions[likely] @ directions[i])
        same = np.linalg.norm(directions[likely] * turn[:, None] - directions[i], axis=1) < _SAME
        same &= np.abs(apart[likely] * turn - apart[i]) < _SAME * max(abs(apart[i]), usual)
        owner[likely[same]] = i
    strength = np.bincount(owner, weights * length, n)
    present = np.bincount(owner, np.abs(weights) * length, n)
    alive = np.flatnonzero(np.abs(strength) > _CANCELLED * np.maximum(present, np.finfo(float).tiny))
    factor = np.abs(strength[alive]) / length[alive]
    return normals[alive] * factor[:, None], offsets[alive] * factor, np.sign(strength[alive])
