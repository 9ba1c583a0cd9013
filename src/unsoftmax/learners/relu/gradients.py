"""The gradient on every arc, one query a component; steps that crossed a hyperplane betray themselves and are asked again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.learners.relu.arcs import Arcs
from unsoftmax.learners.relu.circle import HalfCircle
from unsoftmax.learners.relu.kinks import Flags
from unsoftmax.models import Folds
from unsoftmax.oracles import Array

__all__ = ["Sketch", "measure_gradients"]

_LONGEST, _SHORTEST = 0.1, 0.03  # length of a step, as parts of the way to the nearest kink
_CROSSED = 0.02  # a hyperplane nearer than this part of the way after the step was probably crossed
_SHORTER = 0.25
_LOOPS, _TRIES = 12, 6


@dataclass
class Sketch:
    """Everything one circle tells: arcs, the gradients' components off the plane, and the steps they were measured with."""

    circle: HalfCircle
    arcs: Arcs
    gradients: Array
    steps: Array
    noise: float

    def gradient_rows(self) -> tuple[Array, Array]:
        """The J+1 gradients of the homogenised function: parts in R^d, and on z."""
        arcs = self.arcs
        cosine, sine = np.cos(arcs.middles), np.sin(arcs.middles)
        return self.circle.vectors(arcs.values * cosine - arcs.slopes * sine, arcs.values * sine + arcs.slopes * cosine, self.gradients)

    def folds(self) -> Folds:
        """Half the jumps of the gradient are the folds, the mean of the outermost gradients is the affine part."""
        arcs = self.arcs
        jumps = np.diff(self.gradients, axis=0) / 2
        normals, offsets = self.circle.vectors(-arcs.jumps * np.sin(arcs.kinks), arcs.jumps * np.cos(arcs.kinks), jumps)
        rows, ends = self.gradient_rows()
        signs = np.where(arcs.jumps < 0, -1.0, 1.0)
        return Folds(normals, offsets, signs, (rows[0] + rows[-1]) / 2, float(ends[0] + ends[-1]) / 2)

    def uncertainty(self) -> Array:
        """Size of a component's error on each arc: the rounding, over the step."""
        return np.asarray(self.noise / self.steps)

    def expected_error(self) -> float:
        """Error of the function that rounding explains, all arcs together."""
        return float(np.sqrt(np.square(self.uncertainty()).sum()))


def measure_gradients(
    circle: HalfCircle, arcs: Arcs, noise: float, rng: np.random.Generator, *, longest: float = _LONGEST, shortest: float = _SHORTEST
) -> Sketch:
    """One query a component. The step has the same sign on all arcs along a direction.

    So when a step from one arc crosses the hyperplane next to it, the estimate of that hyperplane itself comes out as if the step
    ended on it, and the crossing shows. Such components are asked again with a quarter of the step.
    """
    J, k = arcs.count, circle.dimensions
    clear = arcs.clearances()
    if J == 0:
        longest = shortest = 0.3
    usual = 0.3 * float(np.median(clear))
    lengths = np.minimum(longest * clear, np.maximum(shortest * clear, usual))
    steps = lengths[:, None] * rng.choice([-1.0, 1.0], k)[None]
    gradients = np.zeros((J + 1, k))
    away = arcs.jumps[None] * np.sin(arcs.middles[:, None] - arcs.kinks[None]) if J else np.zeros((1, 0))
    todo = np.ones((J + 1, k), dtype=bool)
    tries = np.zeros((J + 1, k), dtype=int)
    for _ in range(_LOOPS):
        arc, direction = np.nonzero(todo)
        if len(arc) == 0:
            break
        step = steps[arc, direction]
        answers = circle(arcs.middles[arc], step[:, None] * circle.others[direction])
        gradients[arc, direction] = (answers - arcs.values[arc]) / step
        tries[arc, direction] += 1
        todo = _crossed(np.diff(gradients, axis=0) / 2, away, steps) & (tries < _TRIES)
        steps = np.where(todo, steps * _SHORTER, steps)
    shortest_steps = np.minimum(np.abs(steps).min(axis=1, initial=np.inf), 0.5 * clear)
    return Sketch(circle, arcs, gradients, shortest_steps, noise)


def _crossed(jumps: Array, away: Array, steps: Array) -> Flags:
    """Which (arc, direction) end beyond, or almost on, some hyperplane, as far as the present estimates tell."""
    crossed = np.zeros(steps.shape, dtype=bool)
    if away.shape[1] == 0:
        return crossed
    inverse = 1.0 / np.where(away == 0.0, np.finfo(float).tiny, away)
    for direction in range(steps.shape[1]):
        with np.errstate(over="ignore", invalid="ignore"):
            left = 1.0 + steps[:, direction, None] * (jumps[None, :, direction] * inverse)
        crossed[:, direction] = ~(left >= _CROSSED).all(axis=1)
    return crossed
