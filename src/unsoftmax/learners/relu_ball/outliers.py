"""What known neurons leave at points of a sample, and the hyperplane of a neuron that is missing there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.relu_ball.courses import EDGE
from unsoftmax.learners.smooth_network.asks import Asks

__all__ = ["Sample", "beside_affine", "missing_hyperplane"]

_TURNS = 10  # of the power method; with 7 of 256 neurons missing it ends at a cosine of 0.9 to 0.97
_SPLITS = 6  # fits of both sides of a hyperplane, each with the sides of the last: cosines of 0.99
_EACH_SIDE = 2.0  # points over unknowns of a side, from which a fit tells where the hyperplane is


@dataclass(frozen=True)
class Sample:
    """Points near the surface of the ball, where neurons far from its middle are on, and their answers."""

    points: Array
    answers: Array

    @classmethod
    def on_shell(cls, asks: Asks, count: int, rng: np.random.Generator) -> Sample:
        points = _shell(asks, count, rng)
        return cls(points, asks(points))

    @property
    def scale(self) -> float:
        return float(np.abs(self.answers).max())

    def grown_to(self, asks: Asks, count: int, rng: np.random.Generator) -> Sample:
        """With more points; a third of the new ones spread over the inside."""
        more = count - len(self.points)
        if more <= 0:
            return self
        points = _shell(asks, more, rng)
        points[::3] *= rng.uniform(0.3, 1.0, len(points[::3]))[:, None]
        return Sample(np.concatenate([self.points, points]), np.concatenate([self.answers, asks(points)]))


def _shell(asks: Asks, count: int, rng: np.random.Generator) -> Array:
    points = rng.standard_normal((count, asks.width))
    return np.asarray(EDGE * asks.radius * points / np.linalg.norm(points, axis=1, keepdims=True))


def beside_affine(points: Array, rest: Array) -> Array:
    """What an affine function of the points leaves of `rest`, row by row."""
    design = np.column_stack([points, np.ones(len(points))])
    left = rest
    weight = np.ones(len(points))
    for _ in range(8):  # least absolute deviations, so that the few points beyond a kink stand out
        solved = np.linalg.lstsq(design * weight[:, None], rest * weight[:, None], rcond=None)[0]
        left = rest - design @ solved
        off = np.linalg.norm(left, axis=1)
        weight = 1.0 / np.sqrt(off + 1e-3 * np.median(off) + 1e-14)
    return np.asarray(left)


def missing_hyperplane(points: Array, left: Array, worst: int) -> Array | None:
    """[a, b], a of length one, of a neuron that adds much to `left` at the worst point; None where too few
    points lie on one side of it.

    Σ_n left_n ⊗ x_n x_nᵀ is about a sum of u_j ⊗ a_j a_jᵀ over the missing neurons, and the power method
    leaves one of them. Linear fits on both sides of its hyperplane then move it to where they meet.
    """
    design = np.column_stack([points, np.ones(len(points))])
    amounts = left @ _unit(left[worst])
    normal = points[worst]
    for _ in range(_TURNS):
        values, vectors = np.linalg.eigh((points * amounts[:, None]).T @ points)
        normal = vectors[:, int(np.abs(values).argmax())]
        squares = (points @ normal) ** 2
        amounts = left @ _unit(left.T @ (squares - squares.mean()))
    row = np.append(normal, 0.0)
    for _ in range(_SPLITS):
        beyond = design @ row > 0.0
        if min(int(beyond.sum()), int((~beyond).sum())) < _EACH_SIDE * design.shape[1]:
            return None
        sides = np.column_stack([design, design * beyond[:, None]])
        row = np.linalg.lstsq(sides, amounts, rcond=None)[0][design.shape[1] :]
        row /= np.linalg.norm(row[:-1])
    return np.asarray(row)


def _unit(vector: Array) -> Array:
    return np.asarray(vector / np.linalg.norm(vector))
