"""A ReLU network that computes in float32, one number per row: neurons by kinks, the strongest first, then
those of what these leave; all together by a joint fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.learners.computed_block.asking import usual_size
from unsoftmax.learners.computed_block.smooth_neurons import pruned
from unsoftmax.learners.computed_network.crowded_kinks import told_apart
from unsoftmax.learners.computed_network.neurons import RADII, Neurons
from unsoftmax.learners.smooth_network.network_fit import NetworkFit
from unsoftmax.models.parts import RELU
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.least_squares.held_parameters import Held
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine

__all__ = ["FittedNetwork", "find_network"]

_ROUNDS = 24  # a cap: rounds that find no new neuron end the search earlier
_CIRCLES = 2  # of one round
_QUIET = 3  # rounds without a new kink: two circles of every radius
_SURPLUS = 4.0  # answers over unknowns of the joint fit
_WHOLE = 100.0  # times the rounding: neurons that are all found and sharpened left 5 to 40
_FEW = 2  # new neurons of a round, from which those that are known may hide the others
_FEW_POINTS = 4.0  # for each neuron: whether all are found
_ARRIVED = 3.0  # times the rounding
_SAME = 1.05  # times the residual: what a fit without a neuron that was none leaves at most
_NEAR_ZERO = 1e-3  # distance of hyperplanes from the origin, below which biases of zero are tried
_CHANCE = 4.0  # what a neuron explains of answers to which it adds nothing is one, for each of its unknowns
_SURELY = 1e3  # a neuron that explains a thousand times what is left would not go
_TRIES = 3  # joint fits that do not arrive
_MOST_FAINT, _STARTS = 4, 3  # caps: faint neurons that are added, and starts of a fit to each
_FIT_FAINT = RefinementOptions(iterations=40, damping=1e-2, improvement=1e-2, dense_limit=6000)
_FIT = RefinementOptions(iterations=12, damping=1e-4, least_damping=1e-9, improvement=3e-2, dense_limit=6000)
_LAST = replace(_FIT, improvement=1e-3)  # kinks that crowd are told apart by what is small
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
    neurons = Neurons(np.empty((0, width + 2)))
    fit = NetworkFit(RELU, np.empty((0, width)), np.empty((0, 1)), skip=True)
    best, quiet, tries = np.inf, 0, 0
    for number in range(_ROUNDS):
        radii = [RADII[(number * _CIRCLES + i) % len(RADII)] for i in range(_CIRCLES)]
        before = len(neurons)
        neurons = neurons.more(ask, radii, rng)
        if len(neurons) <= before + _FEW and neurons.settled < len(neurons):
            neurons = neurons.sharper(ask, rng)
        quiet = 0 if len(neurons) > before else quiet + 1
        if not len(neurons) and quiet < _QUIET:
            continue
        if not len(neurons):
            raise Unresolved(
                "no kink was met along circles of several radii: the function is smooth, or coarser steps "
                "inside hide them; smooth networks are recovered in float64 arithmetic"
            )
        fit = _with_points(ask, fit, neurons.inner, _FEW_POINTS, rng)
        noise = rounding(fit.points, fit.answers)
        whole = usual_size(fit.residual(neurons.inner)) <= _WHOLE * noise
        if not whole and quiet < _QUIET:
            continue  # a joint fit without some neurons would bend the others
        fit = _with_points(ask, fit, neurons.inner, _SURPLUS * (width + 2), rng)
        inner = neurons.inner if whole else _with_faint(fit, neurons.inner, _WHOLE * noise, rng)
        found = _fitted(fit, inner, noise, rng)
        if found.left < _ARRIVED:
            return _told_apart(ask, found, noise, rng)
        best, quiet, tries = min(best, found.left), 0, tries + 1
        if tries == _TRIES:
            break
    raise Unresolved(
        f"{len(neurons)} neurons were found by their kinks, and leave {best:.1g} times the rounding of the "
        "answers"
    )


def _fitted(fit: NetworkFit, inner: Array, noise: float, rng: np.random.Generator) -> FittedNetwork:
    """All neurons together, with fainter ones beside them while something is left."""
    for _ in range(_TRIES):
        inner = _kept(fit, refine(fit, inner, _FIT).state)
        left = usual_size(fit.residual(inner)) / noise
        if left < _ARRIVED:
            inner = _without_biases(fit, _needed(fit, inner))
            return FittedNetwork(fit, inner, usual_size(fit.residual(inner)) / noise)
        if left > _WHOLE:
            break
        inner = _with_faint(fit, inner, _ARRIVED * noise, rng)
    return FittedNetwork(fit, inner, left)


def _told_apart(
    ask: Callable[[Array], Array], found: FittedNetwork, noise: float, rng: np.random.Generator
) -> FittedNetwork:
    """Checked around every kink."""
    fit, inner = told_apart(ask, found.fit, found.inner, rng)
    if inner is found.inner:
        return found
    inner = _without_biases(fit, refine(fit, _needed(fit, inner), _LAST).state)
    return FittedNetwork(fit, inner, usual_size(fit.residual(inner)) / noise)


def _with_faint(fit: NetworkFit, inner: Array, explained: float, rng: np.random.Generator) -> Array:
    """With a few more neurons, each fitted from random starts to what the others leave: kinks of faint ones
    are lost beside what the others are off by."""
    for _ in range(_MOST_FAINT):
        rest = replace(fit, answers=fit.residual(inner)[:, None])
        if usual_size(rest.answers) <= explained:
            break
        starts = rng.standard_normal((_STARTS, 1, inner.shape[1]))
        starts /= np.linalg.norm(starts[:, :, :-1], axis=2, keepdims=True)
        found = [refine(rest, start, _FIT_FAINT) for start in starts]
        inner = np.vstack([inner, min(found, key=lambda each: each.rms[-1]).state])
    return inner


def _with_points(
    ask: Callable[[Array], Array], fit: NetworkFit, inner: Array, each: float, rng: np.random.Generator
) -> NetworkFit:
    """With so many points for each neuron at least: rows whose entries have these sizes, or reach twice as
    far as the hyperplanes."""
    width = inner.shape[1] - 1
    reach = float(np.abs(inner[:, -1] / np.linalg.norm(inner[:, :-1], axis=1)).max()) / np.sqrt(width)
    count = int(each * (len(inner) + 1)) + 4 * width + 64 - len(fit.points)
    if count <= 0:
        return fit
    points = rng.standard_normal((count, width))
    points *= np.exp(rng.uniform(np.log(_SIZES[0]), np.log(max(_SIZES[1], 2.0 * reach)), (count, 1)))
    points = points.astype(np.float32).astype(np.float64)
    return replace(fit, points=np.vstack([fit.points, points]), answers=np.vstack([fit.answers, ask(points)]))


def _explains(fit: NetworkFit, inner: Array) -> Array:
    """(J,): what the squared residual grows by without each neuron, for each unknown of it and in units of
    what is left of an answer."""
    features = fit.features(inner)
    inverse = np.linalg.pinv(features.T @ features, hermitian=True)
    lost = fit.weights(inner)[: len(inner), 0] ** 2 / np.diag(inverse)[: len(inner)]
    return np.asarray(lost / (inner.shape[1] + 1) / rms(fit.residual(inner)) ** 2)


def _needed(fit: NetworkFit, inner: Array) -> Array:
    """Without neurons that are not needed; none is tried where each of them explains far more than what is
    left."""
    if float(_explains(fit, inner).min()) > _SURELY:
        return inner
    return pruned(fit, inner, _SAME * rms(fit.residual(inner)))


def _without_biases(fit: NetworkFit, inner: Array) -> Array:
    """With biases of zero, where answers are explained as well."""
    if float(np.abs(inner[:, -1] / np.linalg.norm(inner[:, :-1], axis=1)).max()) > _NEAR_ZERO:
        return inner
    free = np.ones(inner.shape, dtype=bool)
    free[:, -1] = False
    plain = inner.copy()
    plain[:, -1] = 0.0
    found = refine(Held(fit, free.ravel()), plain, _FIT)
    return found.state if found.rms[-1] <= _SAME * rms(fit.residual(inner)) else inner


def _kept(fit: NetworkFit, inner: Array) -> Array:
    """Without neurons that explain no more than rounding would."""
    return np.asarray(inner[_explains(fit, inner) > _CHANCE])
