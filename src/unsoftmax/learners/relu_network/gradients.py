"""The gradient on every arc, one query per component. Steps that crossed a hyperplane are detected, and
asked again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.relu_network.arcs import Arcs
from unsoftmax.learners.relu_network.circle import HalfCircle
from unsoftmax.learners.relu_network.kinks import Flags, Indices
from unsoftmax.models import CanonicalNetwork

__all__ = ["Sketch", "measure_gradients"]

# how near to a kink an arc's queries are spread, as a part of the way from its middle, so that no bump hides
# between them
_NEAREST = 0.12
# so many directions measured, it is judged (again) how steep every hyperplane is off the plane
_KNOWN = (1, 4, 10)
_CAUTIOUS = 0.1  # length of the first steps, as a part of the way to the nearest kink
# a component is hardly ever this many times larger than usual; more where usual comes from few
_STEEPEST, _FEW = 3.3, 4.0
_LONGEST, _SHORTEST = 0.5, 1e-4  # length of all other steps, as parts of the way to the nearest kink
_CROSSED = 0.02  # a hyperplane nearer than this part of the way after the step was probably crossed
_IMPLAUSIBLE = 2.2  # a step away from a hyperplane that seems to end this many times further from it
_ALMOST = 0.4  # two hyperplanes that both seem to be nearer than this part of the way
_SHORTER = 0.25  # of a step that crossed a kink
_LOOPS, _TRIES = 12, 6  # rounds, and times a step may be shortened: to 1/4096
_FITS = 4.0  # rounding levels that the worst point of a good fit may be off


@dataclass
class Sketch:
    """Everything one circle tells: arcs, the gradients' components off the plane, and where and with which
    steps they were measured.

    angles, steps: of every component, (arcs, directions). reach: length of a step that is safe in the middle
    of each arc.
    """

    circle: HalfCircle
    arcs: Arcs
    gradients: Array
    angles: Array
    steps: Array
    noise: float
    reach: Array = field(init=False)

    def __post_init__(self) -> None:
        shortest = (
            1.0 / np.sqrt(np.mean(self.steps**-2.0, axis=1))
            if self.steps.size
            else np.full(len(self.angles), np.inf)
        )
        self.reach = np.minimum(shortest, 0.5 * self.arcs.clearances(self.arcs.middles))

    def rows(self, arc: Indices, direction: Indices) -> Array:
        """The rows that were sent for these components."""
        return self.circle.rows(
            self.angles[arc, direction], self.steps[arc, direction, None] * self.circle.others[direction]
        )

    def all_rows(self) -> Array:
        """The rows that were sent for all components."""
        arc, direction = (index.ravel() for index in np.indices(self.steps.shape))
        return self.rows(arc, direction)

    def gradient_rows(self) -> tuple[Array, Array]:
        """The J+1 gradients of the homogenised function: parts in R^d, and on z."""
        arcs = self.arcs
        cosine, sine = np.cos(arcs.middles), np.sin(arcs.middles)
        return self.circle.vectors(
            arcs.values * cosine - arcs.slopes * sine,
            arcs.values * sine + arcs.slopes * cosine,
            self.gradients,
        )

    def folds(self) -> CanonicalNetwork:
        """Half the jumps of the gradient are the folds, the mean of the outermost gradients is the affine
        part."""
        arcs = self.arcs
        jumps = np.diff(self.gradients, axis=0) / 2
        normals, offsets = self.circle.vectors(
            -arcs.jumps * np.sin(arcs.kinks), arcs.jumps * np.cos(arcs.kinks), jumps
        )
        rows, ends = self.gradient_rows()
        signs = np.where(arcs.jumps < 0, -1.0, 1.0)
        return CanonicalNetwork(
            normals, offsets, signs, (rows[0] + rows[-1]) / 2, float(ends[0] + ends[-1]) / 2
        )

    def uncertainty(self) -> Array:
        """Size of a component's error on each arc: the rounding, over the step; more where the arc's own fit
        is worse than rounding."""
        return np.asarray(np.maximum(self.noise, self.arcs.misfits / _FITS) / self.reach)


def measure_gradients(circle: HalfCircle, arcs: Arcs, noise: float, rng: np.random.Generator) -> Sketch:
    """One query per component, at places spread over the arc. The step has the same sign on all arcs along a
    direction.

    So when a step from one arc crosses the hyperplane next to it, the estimate of that hyperplane itself
    comes out as if the step ended on it, and the crossing shows. Such components are asked again with a
    quarter of the step. The first directions, with cautious steps, tell how steep each hyperplane is off the
    plane; the steps of all others are as long as that allows.
    """
    J, k = arcs.count, circle.dimensions
    angles = _spread(arcs, k, circle, rng)
    clear = (
        np.stack([arcs.clearances(angles[:, direction]) for direction in range(k)], axis=1)
        if k
        else np.ones((J + 1, 0))
    )
    signs = rng.choice([-1.0, 1.0], k)
    sketch = Sketch(
        circle, arcs, np.zeros((J + 1, k)), angles, (_CAUTIOUS if J else _LONGEST) * clear * signs, noise
    )
    for start, stop in pairwise(sorted({0, *(min(known, k) for known in _KNOWN), k}) if J else (0, k)):
        if start:
            seen = np.vstack([np.diff(sketch.gradients[:, :start], axis=0).T / 2, arcs.jumps])
            steep = _STEEPEST * np.sqrt((1.0 + _FEW / len(seen)) * np.mean(seen**2, axis=0))
            for direction in range(start, stop):
                room = (np.abs(_away(arcs, angles[:, direction])) / steep).min(axis=1)
                sketch.steps[:, direction] = signs[direction] * np.clip(
                    room, _SHORTEST * clear[:, direction], _LONGEST * clear[:, direction]
                )
        _measure(sketch, np.arange(start, stop))
    return replace(sketch)  # with the reach of the steps that were taken


def _spread(arcs: Arcs, k: int, circle: HalfCircle, rng: np.random.Generator) -> Array:
    """Angles for k queries on every arc, in random order: with jitter, the rarer the nearer to a kink, where
    steps are short."""
    width = np.diff(np.concatenate([[circle.low], arcs.kinks, [circle.high]]))
    order = rng.permuted(np.tile(np.arange(k, dtype=float), (len(width), 1)), axis=1)
    even = 2.0 * (order + rng.uniform(0.0, 1.0, order.shape)) / max(k, 1) - 1.0
    beside = np.sign(even) * (1.0 - np.sqrt(1.0 - (1.0 - _NEAREST**2) * np.abs(even)))
    return np.asarray(arcs.middles[:, None] + 0.5 * width[:, None] * beside)


def _measure(sketch: Sketch, directions: Indices) -> None:
    """Measures these components in place, until no step seems to have crossed a hyperplane."""
    arcs = sketch.arcs
    todo = np.zeros(sketch.steps.shape, dtype=bool)
    todo[:, directions] = True
    tries = np.zeros(sketch.steps.shape, dtype=int)
    for _ in range(_LOOPS):
        arc, direction = np.nonzero(todo)
        if len(arc) == 0:
            return
        angle, step = sketch.angles[arc, direction], sketch.steps[arc, direction]
        answers = sketch.circle(angle, step[:, None] * sketch.circle.others[direction])
        sketch.gradients[arc, direction] = (answers - arcs.at(angle, arc)) / step
        tries[arc, direction] += 1
        todo = np.zeros(todo.shape, dtype=bool)
        for d in directions:
            todo[:, d] = _crossed(sketch, d) & (tries[:, d] < _TRIES)
        sketch.steps[todo] *= _SHORTER


def _away(arcs: Arcs, angles: Array) -> Array:
    """Signed distances of points on the circle, one an arc, from all hyperplanes, times |c_j|."""
    return np.asarray(
        (np.outer(np.sin(angles), np.cos(arcs.kinks)) - np.outer(np.cos(angles), np.sin(arcs.kinks)))
        * arcs.jumps
    )


def _crossed(sketch: Sketch, direction: int) -> Flags:
    """On which arcs the step along a direction ends beyond, or almost on, some hyperplane, as far as the
    present estimates tell.

    The two hyperplanes next to an arc, crossed at once, can hide each other; then both look almost reached,
    or one much too steep.
    """
    away = _away(sketch.arcs, sketch.angles[:, direction])
    jumps = np.diff(sketch.gradients[:, direction]) / 2
    with np.errstate(over="ignore", invalid="ignore"):
        left = 1.0 + sketch.steps[:, direction, None] * jumps[None] / np.where(
            away == 0.0, np.finfo(float).tiny, away
        )
    crossed = np.asarray(~(left >= _CROSSED).all(axis=1))
    if len(jumps):
        # of the hyperplanes that begin and end an arc
        behind, ahead = (np.diagonal(left, -1), np.diagonal(left))
        crossed[1:] |= behind > _IMPLAUSIBLE
        crossed[:-1] |= ahead > _IMPLAUSIBLE
        crossed[1:-1] |= np.maximum(behind[:-1], ahead[1:]) < _ALMOST
    return crossed
