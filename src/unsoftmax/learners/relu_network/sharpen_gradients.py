"""More digits for more queries: gradients measured once more where there is room, solved together with the
first ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.relu_network.gradients import Sketch
from unsoftmax.learners.relu_network.kinks import Indices
from unsoftmax.models import CanonicalNetwork

__all__ = ["Polished", "polish"]

_CANDIDATES, _OCTAVES = 6000, 4.0  # rows drawn without a query, half of them up to 16 times as long
_URGENT = 1e-9  # relative error from which another pass is worth its queries
_ROOM = 0.7  # of the way to the nearest hyperplane
# a second measurement this many expected errors away crossed something unknown: leave it out
_IMPLAUSIBLE = 1e4


@dataclass(frozen=True)
class Polished:
    """The better folds, and the size of a gradient component's error on each arc that is left."""

    folds: CanonicalNetwork
    errors: Array


def polish(
    sketch: Sketch,
    folds: CanonicalNetwork,
    size: float,
    rng: np.random.Generator,
    *,
    share: float,
    goal: float,
) -> Polished:
    """The narrowest arcs carry the error. For each of the worst ones one more gradient: at most `share` of
    all, until `goal`·size would be reached.

    More than that only while 1e-9·size would not be.

    It is measured at a point far from all hyperplanes, whose gradient contains the arc's; then least squares
    for the errors of all arcs, each weighed by its expected size.
    """
    errors = sketch.uncertainty()
    J = folds.count
    worst = np.argsort(-errors)
    left = np.sqrt(np.cumsum(np.square(errors[worst])[::-1])[::-1])
    needed, urgent = (int((left > limit * size).sum()) for limit in (goal, max(goal, _URGENT)))
    count = min(max(min(needed, max(1, int(share * J))), urgent), J + 1)
    if count == 0 or not np.isfinite(errors).all():
        return Polished(folds, errors)
    places, patterns = _places(sketch, folds, worst[:count], rng)
    differences, weights = _measure(sketch, folds, places, rng)
    expected = np.sqrt(np.square(patterns * errors).sum(axis=1) + weights**2)
    unit = sketch.circle.unit * np.sqrt(folds.width)
    plausible = np.abs(differences[:, :-1]).max(axis=1) * unit < _IMPLAUSIBLE * expected
    patterns, differences, weights = patterns[plausible], differences[plausible], weights[plausible]
    design = np.vstack([patterns * errors / weights[:, None], np.eye(J + 1)])
    target = np.vstack([differences / weights[:, None], np.zeros((J + 1, folds.width + 1))])
    shift = errors[:, None] * np.linalg.lstsq(design, target, rcond=None)[0]
    # at least 1, because the identity is part of the design
    _, strengths, axes = np.linalg.svd(design, full_matrices=False)
    spread = errors * np.linalg.norm(axes / np.maximum(strengths, 1.0)[:, None], axis=0)
    halves = np.diff(shift, axis=0) / 2
    ends = (shift[0] + shift[-1]) / 2
    better = CanonicalNetwork(
        folds.normals + halves[:, :-1],
        folds.offsets + halves[:, -1] if sketch.circle.biased else folds.offsets,
        folds.signs,
        folds.linear + ends[:-1],
        folds.constant + (float(ends[-1]) if sketch.circle.biased else 0.0),
    )
    return Polished(better, spread)


def _places(
    sketch: Sketch, folds: CanonicalNetwork, arcs: Indices, rng: np.random.Generator
) -> tuple[Array, Array]:
    """For each arc a point, if there is one, that sees it and is far from all hyperplanes; and how much of
    each arc's gradient is in the point's."""
    unit = sketch.circle.unit
    X = unit * rng.standard_normal((_CANDIDATES, folds.width))
    if sketch.circle.biased:  # some hyperplanes are far out
        X[::2] *= 2.0 ** rng.uniform(0.0, _OCTAVES, (_CANDIDATES // 2, 1))
    sides = folds.sides(X)
    clear = (np.abs(sides) / folds.sizes).min(axis=1) / np.sqrt(1.0 + np.mean(X**2, axis=1) / unit**2)
    # the gradient at x is l + Σ ± n_j with n_j = (G_j - G_{j-1})/2 and l = (G_0 + G_J)/2: a combination of
    # the arcs' gradients
    across = np.sign(sides) * folds.signs / 2
    patterns = np.zeros((_CANDIDATES, folds.count + 1))
    patterns[:, 1:] += across
    patterns[:, :-1] -= across
    patterns[:, [0, -1]] += 0.5
    chosen: list[int] = []
    for arc in arcs:
        quality = np.where(np.abs(patterns[:, arc]) > 0.4, clear, -1.0)
        quality[chosen] = -2.0
        if quality.max() > 0.0:
            chosen.append(int(quality.argmax()))
    return X[chosen], patterns[chosen]


def _measure(
    sketch: Sketch, folds: CanonicalNetwork, places: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Measured minus predicted gradient (and value at the origin of the piece), and the expected error of the
    measurement."""
    circle, d = sketch.circle, folds.width
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0].T
    towards = np.maximum(np.abs(basis @ folds.normals.T), np.finfo(float).tiny)
    differences, weights = np.empty((len(places), d + 1)), np.empty(len(places))
    length = circle.unit * np.sqrt(d)
    for i, x in enumerate(places):
        room = (np.abs(folds.sides(x[None])[0]) / towards).min(axis=1)
        steps = np.minimum(_ROOM * room, length) * rng.choice([-1.0, 1.0], d)
        answers = circle.function(np.vstack([x, x + steps[:, None] * basis]))
        gradient = ((answers[1:] - answers[0]) / steps) @ basis
        at_origin = float(answers[0] - x @ gradient)
        predicted = folds.gradient(x)
        differences[i, :-1] = gradient - predicted
        differences[i, -1] = at_origin - (float(folds(x[None])[0]) - float(x @ predicted))
        weights[i] = (
            sketch.noise
            * np.sqrt(1.0 + np.mean(x**2) / circle.unit**2)
            * np.sqrt(np.mean(1.0 / steps**2))
            * length
        )
    return differences, weights
