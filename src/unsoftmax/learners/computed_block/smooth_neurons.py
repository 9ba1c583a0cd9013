"""Smooth neurons on a sphere without derivatives: too many random neurons are fitted, then pruned.

With half as many neurons again as there are, a fit from a random start arrives at the rounding of the answers
(with just as many it does not). At such an end the true neurons are among those found, because translates and
dilations of one activation are independent; the others can be removed one by one at no loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.learners.computed_block.outer_layer import Layers
from unsoftmax.learners.encoder_block.linear_part import Oriented, column_gains, oriented_neurons
from unsoftmax.models.parts import GELU, GELU_TANH, SILU, SOFTPLUS, TANH, Activation
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.least_squares.joint_refinement import LeastSquares, Refined, RefinementOptions, refine

__all__ = [
    "ACTIVATIONS",
    "SmoothFit",
    "expanded_networks",
    "first_that_arrives",
    "oriented",
    "oriented_beside_gains",
    "points_needed",
    "pruned",
]

ACTIVATIONS = (GELU, SILU, GELU_TANH, TANH, SOFTPLUS)
_SIZES = (24, 48, 96, 160)  # neurons that are tried; a fit needs about half as many again as there are
_OVER_WIDTH = 8  # neurons over width that are tried at most: layers have four, and half as many again
_SURPLUS = 3.0  # answers over unknowns: with 1.6 fits stopped at ten times the rounding, with 3 they arrived
_STARTS = 2  # random weights may lead to a poor fit; the better of two is kept
# times what is explained: enough neurons of another activation leave up to 12 times as much, too few 100
_HOPELESS = 30.0
_STEEPNESS = 0.6  # |w| times |u|/√k of a start: activations bend at arguments of about one
_BIAS = 0.3  # half of _STEEPNESS: neurons begin with their bends well inside the points
_EXPAND = RefinementOptions(
    iterations=60, damping=1e-2, least_damping=1e-8, improvement=1e-2, dense_limit=5200
)
_TRIED = replace(_EXPAND, iterations=10)
_CLEARLY = 0.03  # of what is explained: no other activation leaves so little
_LEFT = 0.05  # what gains and sides of neurons may leave of the linear part
_EXACT = 3e-3  # of the linear part: what the right parts leave where answers are rounded to float32
_TRIED_FIRST = (
    3  # neurons that tell least: a fit without the first may stop short, and one without another not
)
_WORSE = 3.0  # times the residual before: what removing a neuron that is needed makes of it, at least


def points_needed(neurons: int, width: int, outputs: int) -> int:
    """Answers that fix so many neurons."""
    return int(_SURPLUS * neurons * (width + 1 + outputs) / outputs) + 4 * neurons


class SmoothFit(LeastSquares[Array], Protocol):
    """A fit whose state is the inner weights (J, k + 1), of answers or of their directions."""

    @property
    def activation(self) -> Activation: ...

    @property
    def points(self) -> Array: ...

    @property
    def outputs(self) -> int: ...

    def features(self, inner: Array) -> Array: ...

    def weights(self, inner: Array) -> Array: ...


Fit = TypeVar("Fit", bound=SmoothFit)
Found = TypeVar("Found")


def expanded_networks(
    fit_of: Callable[[Activation, int], Fit], explained: float, rng: np.random.Generator
) -> Iterator[tuple[Fit, Array]]:
    """Fits that leave about as little as `explained`, with more neurons than there are, the likeliest
    activation first. Sizes grow as far as the points allow. fit_of: the fit of an activation and a number of
    neurons."""
    left: dict[str, float] = {}
    widest = max(_SIZES[0], _OVER_WIDTH * fit_of(ACTIVATIONS[0], _SIZES[0]).points.shape[1])
    for neurons in (each for each in _SIZES if each <= widest):
        for activation in ACTIVATIONS:
            fit = fit_of(activation, neurons)
            if points_needed(neurons, fit.points.shape[1], fit.outputs) > len(fit.points):
                break
            found = _from_random_weights(fit, neurons, explained, rng)
            left[activation.name] = min(found.rms[-1], left.get(activation.name, np.inf))
            if found.rms[-1] <= explained:
                clearly = fit if found.rms[-1] <= _CLEARLY * explained else None
                yield from _all_activations(fit_of, neurons, found.state, clearly, explained)
                return
            if found.rms[-1] > _HOPELESS * explained:  # too few neurons, of whatever activation
                break
    name = min(left, key=lambda each: left[each])
    raise Unresolved(
        f"up to {neurons} neurons of any known activation leave {left[name]:.1g} of the network's values "
        f"({name}), where rounding explains {explained:.1g}"
    )


def _all_activations(
    fit_of: Callable[[Activation, int], Fit], neurons: int, start: Array, first: Fit | None, explained: float
) -> Iterator[tuple[Fit, Array]]:
    """Fits of every activation from weights with which one of them leaves little, what leaves least first:
    many neurons more than there are, or those of the other form of GELU, do as well up to what is explained.
    first: a fit that comes first, where one leaves clearly less."""
    if first is not None:
        yield first, start
    fits = [fit_of(each, neurons) for each in ACTIVATIONS if first is None or each is not first.activation]
    ends = [(refine(fit, start, _TRIED), fit) for fit in fits]
    for best, fit in sorted(ends, key=lambda end: end[0].rms[-1]):
        if best.rms[-1] <= _HOPELESS * explained:
            yield fit, refine(fit, best.state, _EXPAND).state


def first_that_arrives(networks: Iterator[tuple[Fit, Array]], finish: Callable[[Fit, Array], Found]) -> Found:
    """What `finish` makes of the first network that it does not refuse; the first refusal where it refuses
    all."""
    refused: Unresolved | None = None
    for fit, inner in networks:
        try:
            return finish(fit, inner)
        except Unresolved as stop:
            refused = refused or stop
    assert refused is not None  # an expansion without any network raises
    raise refused


def _from_random_weights(
    fit: SmoothFit, neurons: int, explained: float, rng: np.random.Generator
) -> Refined[Array]:
    """The better of two fits; one that is far off needs no second."""
    k = fit.points.shape[1]
    size = float(np.median(np.linalg.norm(fit.points, axis=1))) / np.sqrt(k)
    best: Refined[Array] | None = None
    for _ in range(_STARTS):
        w = rng.standard_normal((neurons, k))
        w *= _STEEPNESS / size / np.linalg.norm(w, axis=1, keepdims=True)
        found = refine(fit, np.column_stack([w, _BIAS * rng.standard_normal(neurons)]), _EXPAND)
        if best is None or found.rms[-1] < best.rms[-1]:
            best = found
        if not explained < best.rms[-1] <= _HOPELESS * explained:
            break
    assert best is not None
    return best


def pruned(fit: SmoothFit, inner: Array, explained: float) -> Array:
    """Without the neurons that are not needed: the one that tells least goes first, all others are fitted
    again, until what is left grows whichever of a few goes."""
    while len(inner) > 1:
        features = fit.features(inner)
        sizes = np.linalg.norm(features, axis=0) + 1e-300  # a neuron that saturates may be huge
        gram = (features / sizes).T @ (features / sizes)
        inverse = np.linalg.inv(gram + 1e-14 * len(gram) * np.eye(len(gram)))
        weights = (fit.weights(inner) * sizes[:, None])[: len(inner)]
        cost = (weights**2).sum(axis=1) / np.diag(inverse)[: len(inner)]
        before = rms(fit.residual(inner))
        allowed = explained if before <= explained else _WORSE * before
        for spare in np.argsort(cost)[:_TRIED_FIRST]:
            found = refine(fit, np.delete(inner, int(spare), axis=0), _EXPAND)
            if found.rms[-1] <= allowed:
                inner = found.state
                break
        else:
            return inner
    return inner


def oriented(fit: SmoothFit, inner: Array) -> Oriented:
    """Neurons reflected where that explains the linear part beside them, and others that are on everywhere;
    what is left of it is small."""
    weights = fit.weights(inner)
    k, m = inner.shape[1] - 1, weights.shape[1]
    return oriented_neurons(fit.activation, inner, weights, np.empty((k, m, 0)), _radius(fit), _EXACT)


def oriented_beside_gains(fit: SmoothFit, inner: Array, basis: Array) -> Layers:
    """The same where the linear part holds a gain of every column, too, and all of it is known up to one
    factor: with a gain of mean square one. basis: (d, k). Raises Unresolved where something else is left."""
    found = oriented_neurons(
        fit.activation, inner, fit.weights(inner), column_gains(basis), _radius(fit), _EXACT
    )
    if found.off > _LEFT:
        raise Unresolved(f"gains and sides of {len(inner)} neurons leave {found.off:.1g} of the linear part")
    scale = float(np.sqrt(np.mean(found.gain**2)))
    return Layers(found.inner, found.outer / scale, found.gain / scale)


def _radius(fit: SmoothFit) -> float:
    return float(np.linalg.norm(fit.points, axis=1).max())
