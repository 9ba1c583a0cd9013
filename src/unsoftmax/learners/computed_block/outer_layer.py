"""Outer weights of found ReLU neurons, and which of their two sides is on: linear in values on the sphere,
or, where only directions are seen, the null vector of what is across them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.learners.computed_block.circles import Sphere
from unsoftmax.learners.computed_block.direction_fit import DirectionFit
from unsoftmax.learners.encoder_block.far_neurons import beyond_rare_hyperplanes
from unsoftmax.learners.encoder_block.linear_part import column_gains, oriented_neurons
from unsoftmax.learners.encoder_block.tokens import unit_rows
from unsoftmax.learners.smooth_network.network_fit import NetworkFit
from unsoftmax.models.parts import RELU
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine

__all__ = ["Layers", "kinked_layers"]

_SURPLUS = 3.0  # equations over unknowns
_LEFT = 0.05  # of the linear part: what gains and sides of neurons may leave of it
_MOST_WEIGHTS = 4000  # outer weights that are solved for at every step, in seconds for so many
_LOOKED = 1500  # points at least: five lie beyond a hyperplane at three quarters of the radius, at width 11
_MISSED = 8  # a cap: neurons that no circle met
_BETTER = 0.5  # times what is left without a neuron: one that is there explains most of it
_MOST_LEFT = 50  # of the points, a fiftieth shows where most is left
_PLACES = (0.0, 0.3, 0.5, 0.65, 0.8)  # of the radius: where the kink of such a neuron may be
_SHARPEN = RefinementOptions(iterations=20, damping=1e-3, improvement=1e-2, dense_limit=5200)
_EXACT = 3e-3  # of the linear part: what the right parts leave where answers are rounded to float32


@dataclass(frozen=True)
class Layers:
    """inner (J, k + 1) and outer (m, J + 1) of a network on the sphere, biases last. gain (d,): of the skip
    beside it, of mean square one, where only directions are seen; else empty."""

    inner: Array
    outer: Array
    gain: Array


def kinked_layers(sphere: Sphere, inner: Array, basis: Array, rng: np.random.Generator) -> Layers:
    """values = L·u + Σ x_j |z_j|/2 + e first; then L = skip + Σ ±x_j w_jᵀ/2 tells the sides."""
    inner = _sharpened(sphere, inner, rng)
    J, k = len(inner), sphere.width
    count = int(_SURPLUS * (J + k + 1)) + 64
    points = sphere.random_points(count, rng)
    values = sphere.ask(points)
    features = np.column_stack(
        [points, np.abs(points @ inner[:, :-1].T + inner[:, -1]) / 2.0, np.ones(count)]
    )
    solve = _null_vector if sphere.directions else _least_squares
    found = solve(features, values)  # (m, k + J + 1)
    linear, outer, constant = found[:, :k], found[:, k:-1], found[:, -1]
    relu_linear = linear - outer @ inner[:, :-1] / 2.0  # |z|/2 = relu(z) - z/2
    weights = np.vstack([outer.T, relu_linear.T, (constant - outer @ inner[:, -1] / 2.0)[None]])
    gains = column_gains(basis) if sphere.directions else np.empty((k, len(outer), 0))
    if gains.shape[2] + J > relu_linear.size:
        raise Unresolved(f"{J} neurons are too many to be oriented by a linear part of {linear.size} numbers")
    oriented = oriented_neurons(RELU, inner, weights, gains, sphere.radius, _EXACT)
    if oriented.off > _LEFT:
        raise Unresolved(f"sides of {J} neurons leave {oriented.off:.1g} of the linear part unexplained")
    scale = float(np.sqrt(np.mean(oriented.gain**2))) if sphere.directions else 1.0
    return Layers(oriented.inner, oriented.outer / scale, oriented.gain / scale)


def _sharpened(sphere: Sphere, inner: Array, rng: np.random.Generator) -> Array:
    """The same neurons, fitted to values at random points together with all that is linear in them, because
    kinks tell weights to a thousandth; and neurons that no circle met, where values are not explained."""
    J, k = len(inner), sphere.width
    m = sphere.ask(sphere.random_points(1, rng)).shape[1]
    if m * (J + k + 1) > _MOST_WEIGHTS:
        return inner
    points = sphere.random_points(max(_LOOKED, int(_SURPLUS * J * (k + 1 + m) / m) + 4 * J), rng)
    values = sphere.ask(points)
    found = refine(_fit_of(sphere, points, values), inner, _SHARPEN)
    for _ in range(_MISSED):
        fit = _fit_of(sphere, points, values)
        trial = refine(fit, np.vstack([found.state, _missed(fit, found.state, sphere.radius)]), _SHARPEN)
        if trial.rms[-1] > _BETTER * rms(fit.residual(found.state)):
            break
        beyond = beyond_rare_hyperplanes(trial.state, points, sphere.radius, rng)
        if len(beyond):
            points, values = np.vstack([points, beyond]), np.vstack([values, sphere.ask(beyond)])
        found = refine(_fit_of(sphere, points, values), trial.state, _SHARPEN)
    return np.asarray(found.state / np.linalg.norm(found.state[:, :-1], axis=1, keepdims=True))


def _fit_of(sphere: Sphere, points: Array, values: Array) -> DirectionFit | NetworkFit:
    if sphere.directions:
        return DirectionFit(RELU, points, unit_rows(values))
    return NetworkFit(RELU, points, values, skip=True)


def _missed(fit: DirectionFit | NetworkFit, inner: Array, radius: float) -> Array:
    """(1, k + 1): the neuron that explains most of what is left, of some whose side that is on lies about
    where most is left."""
    left = fit.residual(inner)[: fit.points.shape[0] * (len(fit.weights(inner).T))]
    sizes = np.linalg.norm(left.reshape(len(fit.points), -1), axis=1)
    worst = np.argsort(-sizes)[: max(4, len(sizes) // _MOST_LEFT)]
    normal = sizes[worst] @ fit.points[worst]
    normal /= np.linalg.norm(normal)
    trials = [np.append(normal, -place * radius) for place in _PLACES]
    leaves = [rms(fit.residual(np.vstack([inner, trial]))) for trial in trials]
    return trials[int(np.argmin(leaves))][None]


def _least_squares(features: Array, values: Array) -> Array:
    return np.asarray(np.linalg.lstsq(features, values, rcond=1e-8)[0].T)


def _null_vector(features: Array, values: Array) -> Array:
    """Θ of norm one with Θ·features along the values, as well as can be."""
    m = values.shape[1]
    along = values / np.linalg.norm(values, axis=1, keepdims=True)
    size = np.sqrt((features**2).mean(axis=0))
    scaled = features / size
    both = (along[:, :, None] * scaled[:, None]).reshape(len(features), -1)
    across = np.kron(np.eye(m), scaled.T @ scaled) - both.T @ both
    found = np.linalg.eigh(across)[1][:, 0].reshape(m, -1) / size
    return np.asarray(found * np.sign(np.median(((features @ found.T) * along).sum(axis=1))))
