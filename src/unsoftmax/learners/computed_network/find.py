"""A ReLU network that computes in float32, one number a row: neurons by kinks, the strongest first, then
those of what these leave; all together by a joint fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.learners.computed_block.asking import usual_size
from unsoftmax.learners.computed_block.smooth_neurons import pruned
from unsoftmax.learners.computed_network.neurons import RADII, new_neurons
from unsoftmax.learners.smooth_network.network_fit import NetworkFit
from unsoftmax.models.parts import RELU
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.held_parameters import Held
from unsoftmax.solvers.joint_refinement import RefinementOptions, refine

__all__ = ["FittedNetwork", "find_network"]

_ROUNDS = 24
_CIRCLES = 2  # of one round
_EMPTY = 3  # rounds without a kink, one of every radius
_SURPLUS = 4.0  # answers over unknowns of the joint fit
_WHOLE = 0.03  # of the answers: what neurons leave that are all found, each to a hundredth
_FEW = 2  # new neurons of a round, from which a joint fit sharpens those that are known
_ARRIVED = 3.0  # times the rounding
_SAME = 1.05  # times the residual: what a fit without a neuron that was none leaves at most
_FAINT = 1e-3  # of the usual outer weight: neurons whose weight is less were none
_FIT = RefinementOptions(iterations=12, damping=1e-4, least_damping=1e-9, improvement=3e-2, dense_limit=6000)
_SIZES = (0.5, 2.0)  # entries of rows of the fit


@dataclass(frozen=True)
class FittedNetwork:
    """fit: points and answers. inner: (J, d + 1). left: residual over the rounding of the answers."""

    fit: NetworkFit
    inner: Array
    left: float


def find_network(
    ask: Callable[[Array], Array],
    width: int,
    rounding: Callable[[Array, Array], float],
    rng: np.random.Generator,
) -> FittedNetwork:
    """ask: (n, width) -> (n, 1). rounding: of these answers (n, 1) to points (n, width), absolute."""
    inner = np.empty((0, width + 1))
    fit = NetworkFit(RELU, np.empty((0, width)), np.empty((0, 1)), skip=True)
    best = np.inf
    for number in range(_ROUNDS):
        radii = [RADII[(number * _CIRCLES + i) % len(RADII)] for i in range(_CIRCLES)]
        found = new_neurons(_rest(ask, fit, inner), inner, radii, rng)
        inner = np.vstack([inner, found])
        if not len(inner) and number < _EMPTY:
            continue
        if not len(inner):
            raise Unresolved(
                "no kink was met along circles of several radii; smooth networks are recovered in float64 "
                "arithmetic"
            )
        fit = _with_points(ask, fit, inner, rng)
        if rms(fit.residual(inner)) < _WHOLE * rms(fit.answers) or len(found) <= _FEW:
            inner = _kept(fit, refine(fit, inner, _FIT).state)
            noise = rounding(fit.points, fit.answers)
            best = min(best, usual_size(fit.residual(inner)) / noise)
            if best < _ARRIVED:
                inner = _without_biases(fit, pruned(fit, inner, _SAME * rms(fit.residual(inner))))
                return FittedNetwork(fit, inner, usual_size(fit.residual(inner)) / noise)
    raise Unresolved(
        f"{len(inner)} neurons were found by their kinks, and leave {best:.1g} times the rounding of the "
        "answers"
    )


def _with_points(
    ask: Callable[[Array], Array], fit: NetworkFit, inner: Array, rng: np.random.Generator
) -> NetworkFit:
    """As many more points as the unknowns need: rows whose entries have these sizes, or reach twice as far as
    the hyperplanes."""
    width = inner.shape[1] - 1
    reach = float(np.abs(inner[:, -1] / np.linalg.norm(inner[:, :-1], axis=1)).max()) / np.sqrt(width)
    count = int(_SURPLUS * (len(inner) * (width + 2) + width + 1)) + 64 - len(fit.points)
    if count <= 0:
        return fit
    points = rng.standard_normal((count, width))
    points *= np.exp(rng.uniform(np.log(_SIZES[0]), np.log(max(_SIZES[1], 2.0 * reach)), (count, 1)))
    points = points.astype(np.float32).astype(np.float64)
    return replace(fit, points=np.vstack([fit.points, points]), answers=np.vstack([fit.answers, ask(points)]))


def _rest(ask: Callable[[Array], Array], fit: NetworkFit, inner: Array) -> Callable[[Array], Array]:
    """What the neurons leave."""
    if not len(inner):
        return ask
    weights = fit.weights(inner)

    def rest(points: Array) -> Array:
        features = NetworkFit(RELU, points, np.empty((len(points), 1)), skip=True).features(inner)
        return np.asarray(ask(points) - features @ weights)

    return rest


def _without_biases(fit: NetworkFit, inner: Array) -> Array:
    """With biases of zero, where answers are explained as well."""
    free = np.ones(inner.shape, dtype=bool)
    free[:, -1] = False
    plain = inner.copy()
    plain[:, -1] = 0.0
    found = refine(Held(fit, free.ravel()), plain, _FIT)
    return found.state if found.rms[-1] <= _SAME * rms(fit.residual(inner)) else inner


def _kept(fit: NetworkFit, inner: Array) -> Array:
    """Without neurons that add nothing."""
    sizes = np.linalg.norm(fit.weights(inner)[: len(inner)], axis=1) * np.linalg.norm(inner[:, :-1], axis=1)
    return np.asarray(inner[sizes > _FAINT * float(np.median(sizes))])
