"""Second derivatives of an asked function, by central differences at the step that its rounding asks for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.smooth_network.asks import Asks
from unsoftmax.oracles import Array
from unsoftmax.outcomes import Unresolved

__all__ = ["Region", "Stencil", "symmetric_directions", "symmetric_from", "survey"]

# Σ w_i (f(+i) - 2 f(0) + f(-i)) / h², by order of the truncation error
_WEIGHTS = {2: np.ones(1), 4: np.array([4.0 / 3.0, -1.0 / 12.0])}
_CLEAN = 1e-13  # relative rounding up to which the second order is enough: its error is then below 1e-6
_LARGEST_RATIO = 2.0**1.5  # between 4, where the function is a parabola, and 2, where it is two straight lines
_LADDER = 2.0 ** np.arange(-12.0, 13.0)


@dataclass(frozen=True)
class Region:
    """Where a function is worth asking.

    size: a point's norm at which its neurons bend. noise: rounding of an answer, absolute. scale: largest answer there.
    """

    size: float
    noise: float
    scale: float


@dataclass(frozen=True)
class Stencil:
    """Central second differences: truncation grows with the step to the power of `order`, rounding with step⁻²."""

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
    """v_a and (v_a + v_b)/√2 for the rows of a basis (q, k): q(q + 1)/2 directions that show a whole quadratic form.

    A longer basis begins with the same directions.
    """
    i, j = np.tril_indices(len(basis))
    return np.where((i == j)[:, None], basis[i], (basis[i] + basis[j]) / np.sqrt(2.0))


def symmetric_from(seconds: Array, q: int) -> Array:
    """Quadratic forms (..., q, q) on the basis from second derivatives (..., q(q + 1)/2) along `symmetric_directions`."""
    i, j = np.tril_indices(q)
    square = seconds[..., i == j]
    mixed = seconds - 0.5 * (square[..., i] + square[..., j])
    forms = np.zeros((*seconds.shape[:-1], q, q))
    forms[..., i, j] = np.where(i == j, seconds, mixed)
    forms[..., j, i] = forms[..., i, j]
    return forms


def survey(asks: Asks, rng: np.random.Generator) -> Region:
    """The size at which the function bends, and the rounding of its answers: 150 queries.

    Second differences over a span s grow with s² below the bend and with s above; the size is where the growth is between.
    """
    k = asks.width
    lines = rng.standard_normal((3, k))
    lines /= np.linalg.norm(lines, axis=1, keepdims=True)
    sizes = _LADDER if np.isinf(asks.radius) else 0.9 * asks.radius * 2.0 ** np.arange(-12.0, 1.0)
    points = np.concatenate([np.zeros((1, k)), *(sign * s * lines for s in sizes for sign in (1.0, -1.0))])
    answers = asks(points)
    if not np.isfinite(answers).all():
        raise Unresolved("answers to rows of ordinary size are not finite; an input_bound would help")
    bends = answers[1:].reshape(len(sizes), 2, 3, -1).sum(axis=1) - 2.0 * answers[0]
    strength = np.sqrt((bends**2).sum(axis=(1, 2)))
    size = float(sizes[-1])
    floor = 1e-9 * np.abs(answers[0]).max() + 1e-300
    with np.errstate(divide="ignore", invalid="ignore"):
        growth = strength[1:] / strength[:-1]
    for i in range(len(growth)):
        if strength[i] > floor and growth[i] < _LARGEST_RATIO:
            size = float(sizes[i + 1])
            break
    size = min(size, 0.9 * asks.radius)
    near = size * lines[:1] * (0.5 + 1e-9 * np.arange(12.0))[:, None]
    close = asks(near)
    rows = np.vander(np.linspace(-1.0, 1.0, 12), 3)
    rest = close - rows @ np.linalg.lstsq(rows, close, rcond=None)[0]
    scale = float(np.abs(answers[1:].reshape(len(sizes), -1)[sizes <= 1.01 * size]).max(initial=1e-300))
    noise = max(float(np.sqrt((rest**2).mean())) * 1.2, 1e-17 * scale)
    return Region(size, noise, max(scale, noise))
