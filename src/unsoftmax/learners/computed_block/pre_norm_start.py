"""A start for a pre-norm block that computes in float32: value path, network on the sphere that a norm's
output fills, constant, heads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.computed_block.circles import Sphere, has_kinks
from unsoftmax.learners.computed_block.kinked_neurons import find_kinked_neurons
from unsoftmax.learners.computed_block.outer_layer import Layers, kinked_layers
from unsoftmax.learners.computed_block.row_fit import RowFit, row_state
from unsoftmax.learners.computed_block.smooth_neurons import (
    expanded_networks,
    first_that_arrives,
    oriented,
    points_needed,
    pruned,
)
from unsoftmax.learners.computed_block.sphere_start import sphere_start
from unsoftmax.learners.computed_block.value_path import value_path
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.heads_by_copies import find_heads
from unsoftmax.learners.encoder_block.pre_norm_rows import PreNormRows
from unsoftmax.learners.encoder_block.responses import ExactResponses
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState, head_factors
from unsoftmax.learners.encoder_block.tokens import SphereTokens
from unsoftmax.learners.smooth_network.network_fit import NetworkFit
from unsoftmax.models import Network
from unsoftmax.models.parts import RELU, Activation

__all__ = ["find_pre_norm_start", "with_heads"]

_EPS = 1e-5  # to begin with, for both norms: torch's own; rows of size one show little of it
# size of y on the sphere: an unknown constant turns it by its size over this, and rounding grows with it
_KINKED_SIZE, _FAR_SIZE, _NEAR_SIZE = 25.0, 300.0, 8.0
_ROUGH = 3e-3  # of the network's values: what an unknown constant leaves there; a missing neuron leaves 1e-2
_EXPLAINED = 20.0  # roundings of answers of this size that a network found with the constant leaves at most
_MOST_NEURONS = 160  # a cap: points for so many are asked before their number is known
_KNOWN = 1e-9  # of the network's values, where y of a single row is known: what an unfinished fit leaves
_ASKING = 16.0  # size of asking rows: behind it the network moves by a tenth of what y does
_NEGLIGIBLE = 1e-4  # singular value of responses, which are known to about 1e-6


def find_pre_norm_start(
    asks: AsksSequences,
    width: int,
    centred: bool,
    held: FloatFormat,
    rng: np.random.Generator,
    *,
    known: PreNormRows | None = None,
) -> tuple[BlockShape, BlockState]:
    """A start for the joint fit, good to about 1e-3. known: value path, constant and first eps, where answers
    are exact enough to tell them first."""
    shape = BlockShape(True, centred, RELU, width)
    if known is not None:
        shape, state = _from_known(asks, known, held, rng)
        return shape, with_heads(asks, shape, state, rng)
    path = value_path(asks, shape, _EPS, rng)
    rows = PreNormRows(shape, path, np.zeros(width), _EPS, _EPS)
    if has_kinks(_sphere(asks, rows, _KINKED_SIZE), rng):
        sphere = _sphere(asks, rows, _KINKED_SIZE)
        layers = kinked_layers(sphere, find_kinked_neurons(sphere, rng), shape.basis, rng)
        state = row_state(shape, path, layers, (np.empty(0), np.empty(0)), _EPS)
        fit = RowFit.ask(asks, state, shape, held, rng)
        state = fit.fitted(fit.with_constant(state))
    else:
        shape, state = _smooth(asks, rows, held, rng)
    return shape, with_heads(asks, shape, state, rng)


def _from_known(
    asks: AsksSequences, rows: PreNormRows, held: FloatFormat, rng: np.random.Generator
) -> tuple[BlockShape, BlockState]:
    """Everything but the heads, where y of a single row is known."""

    def fitted(shape: BlockShape, layers: Layers) -> tuple[BlockShape, BlockState]:
        state = row_state(shape, rows.path, layers, (np.empty(0), np.empty(0)), rows.eps)
        fit = RowFit.ask(asks, state, shape, held, rng, exact=True)
        return shape, fit.fitted(replace(state, outputs=np.column_stack([rows.path, rows.constant])))

    return sphere_start(_sphere(asks, rows, _NEAR_SIZE), rows.shape, fitted, _KNOWN, rng)


def _sphere(asks: AsksSequences, rows: PreNormRows, size: float) -> Sphere:
    """What the network adds to y = size·u, on the sphere of u."""
    basis, d = rows.shape.basis, rows.shape.width

    def ask(points: Array) -> Array:
        x = rows.far_rows(size * points @ basis.T)
        return np.asarray(asks(x[:, None]) - rows.stream(x))

    return Sphere(ask, basis.shape[1], float(np.sqrt(d)), directions=False)


def _smooth(
    asks: AsksSequences, rows: PreNormRows, held: FloatFormat, rng: np.random.Generator
) -> tuple[BlockShape, BlockState]:
    """Too many neurons far out, where the constant hardly counts; the constant; then nearer, the network
    again and without the neurons too many; then everything."""
    d, k = rows.shape.width, rows.shape.basis.shape[1]
    far = _sphere(asks, rows, _FAR_SIZE)
    points = far.random_points(points_needed(_MOST_NEURONS, k, d), rng)
    values = far.ask(points)
    networks = expanded_networks(
        lambda activation, _: NetworkFit(activation, points, values, skip=False),
        _ROUGH * rms(values - values.mean(axis=0)),
        rng,
    )

    def finish(rough: NetworkFit, inner: Array) -> tuple[BlockShape, BlockState]:
        shape = replace(rows.shape, activation=rough.activation)
        layers = Layers(inner, rough.weights(inner).T, np.empty(0))
        state = row_state(shape, rows.path, layers, (np.empty(0), np.empty(0)), _EPS)
        single = RowFit.ask(asks, state, shape, held, rng)
        state = single.with_constant(state)
        near = _sphere(asks, replace(rows, constant=state.outputs[:, -1]), _NEAR_SIZE)
        # its linear part is what A is off by
        fit = NetworkFit(rough.activation, points, near.ask(points), skip=True)
        inner = pruned(fit, inner, _EXPLAINED * held.unit * _NEAR_SIZE)
        found = oriented(fit, inner)
        outputs = state.outputs.copy()
        outputs[:, :-1] += found.rest.T
        return shape, single.fitted(replace(state, outputs=outputs, inner=found.inner, outer=found.outer))

    return first_that_arrives(networks, finish)


def with_heads(
    asks: AsksSequences,
    shape: BlockShape,
    state: BlockState,
    rng: np.random.Generator,
    asking: float = _ASKING,
) -> BlockState:
    """With the heads, from rows of this size."""
    d, basis = shape.width, shape.basis
    path, constant = state.outputs[:, :-1] @ state.values[0], state.outputs[:, -1]
    eps = np.exp(state.log_eps)
    rows = PreNormRows(shape, path, constant, float(eps[0]), float(eps[1]))
    network = _network(state, shape.activation)

    def respond(keys: Array, b: Array) -> Array:
        last = asking * b @ basis.T
        answers = asks(np.concatenate([asking * keys @ basis.T, last[:, None]], axis=1))
        alone = rows.stream(last)
        y = alone
        for _ in range(40):  # what is left falls by the network's steepness over the size of y, a tenth
            seen = y @ basis
            y = answers - network(seen / np.sqrt((seen**2).sum(axis=1, keepdims=True) / d + eps[1]))
        return np.asarray(y - alone)

    found = find_heads(
        ExactResponses(respond), SphereTokens(basis.shape[1], float(np.sqrt(d))), rng, negligible=_NEGLIGIBLE
    )
    queries, keys, values, outputs = head_factors(found.values, found.scores, found.rank)
    return replace(
        state, queries=queries, keys=keys, values=values, outputs=np.column_stack([outputs, constant])
    )


def _network(state: BlockState, activation: Activation) -> Network:
    return Network(
        state.inner[:, :-1],
        state.outer[:, :-1].T,
        state.inner[:, -1],
        state.outer[:, -1],
        activation=activation,
    )
