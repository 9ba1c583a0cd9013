"""Second derivatives of an asked function, by central differences at the step that its rounding asks for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.smooth_network.asks import Asks
from unsoftmax.outcomes import OutsideClass, Test, Unresolved

__all__ = ["Region", "Stencil", "survey", "symmetric_directions", "symmetric_from"]

# Σ w_i (f(+i) - 2 f(0) + f(-i)) / h², by order of the truncation error
_WEIGHTS = {2: np.ones(1), 4: np.array([4.0 / 3.0, -1.0 / 12.0])}
_CLEAN = 1e-13  # relative rounding up to which the second order is enough: its error is then below 1e-6
_LADDER = 2.0 ** np.arange(-12.0, 13.0)  # sizes of rows at which curvature is looked for
_NODES = np.array([-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0])  # all of them on the ladder
_BENT = 0.4  # of the largest ratio: then arguments of the neurons spread over about two units


@dataclass(frozen=True)
class Region:
    """Where a function is worth asking.

    size: a point's norm at which its neurons bend. noise: rounding of an answer, absolute. scale: largest
    answer there.
    """

    size: float
    noise: float
    scale: float


@dataclass(frozen=True)
class Stencil:
    """Central second differences: truncation grows with the step to the power of `order`, rounding with
    step⁻²."""

    step: float
    order: int = 4

    @classmethod
    def for_region(cls, region: Region) -> Stencil:
        """The step at which truncation, (h/size)^order, meets rounding, noise/(scale·(h/size)²)."""
        relative = max(region.noise / region.scale, 1e-16)
        order = 2 if relative < _CLEAN else 4
        return cls(float(relative ** (1.0 / (order + 2))) * region.size, order)

    @property
    def _weights(self) -> Array:
        return _WEIGHTS[self.order]

    @property
    def reach(self) -> float:
        """How far from its point it asks."""
        return self.step * len(self._weights)

    def points(self, points: Array, directions: Array) -> Array:
        """All points to ask: (n + order·n·D, k), the points themselves first."""
        steps = self.step * np.arange(1.0, len(self._weights) + 1.0)
        offsets = np.concatenate([sign * step * directions for step in steps for sign in (1.0, -1.0)])
        around = points[:, None] + offsets[None]
        return np.concatenate([points, around.reshape(-1, points.shape[1])])

    def second(self, answers: Array, n_points: int, n_directions: int) -> Array:
        """(n, D, m) second derivatives from the answers to `points`."""
        m = answers.shape[1]
        middle, around = answers[:n_points], answers[n_points:].reshape(n_points, -1, 2, n_directions, m)
        bends = around.sum(axis=2) - 2.0 * middle[:, None, None]
        return np.asarray(np.einsum("s,nsdm->ndm", self._weights, bends) / self.step**2)

    def measure(self, asks: Asks, points: Array, directions: Array) -> Array:
        """Asks, and returns the second derivatives (n, D, m)."""
        return self.second(asks(self.points(points, directions)), len(points), len(directions))


def symmetric_directions(basis: Array) -> Array:
    """v_a and (v_a + v_b)/√2 for the rows of a basis (q, k): q(q + 1)/2 directions that show a whole
    quadratic form.

    A longer basis begins with the same directions.
    """
    i, j = np.tril_indices(len(basis))
    return np.where((i == j)[:, None], basis[i], (basis[i] + basis[j]) / np.sqrt(2.0))


def symmetric_from(seconds: Array, q: int) -> Array:
    """Quadratic forms (..., q, q) on the basis from second derivatives (..., q(q + 1)/2) along
    `symmetric_directions`."""
    i, j = np.tril_indices(q)
    square = seconds[..., i == j]
    mixed = seconds - 0.5 * (square[..., i] + square[..., j])
    forms = np.zeros((*seconds.shape[:-1], q, q))
    forms[..., i, j] = np.where(i == j, seconds, mixed)
    forms[..., j, i] = forms[..., i, j]
    return forms


def _beside(degree: int) -> Array:
    """What polynomials of this degree leave of values at the nodes."""
    basis = np.linalg.qr(np.vander(_NODES, degree + 1))[0]
    return np.asarray(np.eye(len(_NODES)) - basis @ basis.T)


def survey(asks: Asks, rng: np.random.Generator) -> Region:
    """The size at which the function bends, and the rounding of its answers: 163 queries.

    Along three lines, what a cubic leaves of the function is compared with what a straight line leaves. The
    ratio is small where the function is smooth, and levels off where its neurons have bent; the size is where
    it reaches a part of its largest value.
    """
    k = asks.width
    lines = rng.standard_normal((3, k))
    lines /= np.linalg.norm(lines, axis=1, keepdims=True)
    sizes = _LADDER if np.isinf(asks.radius) else 0.9 * asks.radius * _LADDER[: len(_LADDER) // 2 + 1]
    points = np.concatenate([np.zeros((1, k)), *(sign * s * lines for s in sizes for sign in (1.0, -1.0))])
    answers = asks(points)
    if not np.isfinite(answers).all():
        raise Unresolved("answers to rows of ordinary size are not finite; an input_bound would help")
    around = answers[1:].reshape(len(sizes), 2, -1)
    bent = np.zeros(len(sizes))
    for i in range(2, len(sizes)):
        stack = np.stack([around[i, 1], around[i - 1, 1], around[i - 2, 1], np.tile(answers[0], 3)])
        stack = np.concatenate([stack, around[i - 2 : i + 1, 0]])
        straight = float(np.linalg.norm(_beside(1) @ stack))
        if straight > 1e-9 * float(np.abs(stack).max()):
            bent[i] = float(np.linalg.norm(_beside(3) @ stack)) / straight
    if not bent.any():
        raise OutsideClass(
            Test("the function bends"), f"answers to rows of norm up to {sizes[-1]:.3g} are affine"
        )
    size = float(sizes[np.argmax(bent > _BENT * bent.max())])
    near = size * lines[:1] * (0.5 + 1e-9 * np.arange(12.0))[:, None]
    close = asks(near)
    rows = np.vander(np.linspace(-1.0, 1.0, 12), 3)
    rest = close - rows @ np.linalg.lstsq(rows, close, rcond=None)[0]
    scale = float(np.abs(answers[1:].reshape(len(sizes), -1)[sizes <= 1.01 * size]).max(initial=1e-300))
    noise = max(float(np.sqrt((rest**2).mean())) * 1.2, 1e-17 * scale)
    return Region(size, noise, max(scale, noise))
