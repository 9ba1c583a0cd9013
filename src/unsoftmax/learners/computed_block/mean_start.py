"""A start for a pre-norm block from the mean over its rows, with or without a linear readout behind it: heads
from huge rows, the network on the sphere that a norm's output fills, then all else from single rows.

Copies of a row say nothing here that the row alone does not, so that the value path comes from the heads, as
far as the readout shows it; how rows of moderate size move the network shows the rest. A single row is its
own mean, and is answered by the block itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.computed_block.circles import Sphere, has_kinks
from unsoftmax.learners.computed_block.kinked_neurons import find_kinked_neurons
from unsoftmax.learners.computed_block.outer_layer import Layers, kinked_layers
from unsoftmax.learners.computed_block.row_fit import RowFit, row_state
from unsoftmax.learners.computed_block.smooth_neurons import expanded_network, oriented, points_needed, pruned
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.mean_heads import find_mean_heads
from unsoftmax.learners.encoder_block.pre_norm import behind_readout
from unsoftmax.learners.encoder_block.pre_norm_rows import PreNormRows
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState, head_factors
from unsoftmax.learners.smooth_network.network_fit import NetworkFit
from unsoftmax.models.parts import RELU

__all__ = ["find_mean_start", "sphere_layers"]

_EPS = 1e-5  # to begin with, for both norms: torch's own; rows of size one show little of it
_HUGE = 2.0**20  # size of rows whose directions the network sees: what heads add turns them by 1e-6
_ROUGH = 1e-4  # of the network's values: what too many neurons leave of them
_EXPLAINED = 1e-5  # the same of the right number of neurons: the value path is known to 1e-6
_MOST_NEURONS, _OVER_WIDTH = 160, 8  # neurons that are tried at most, and the same over the width


def find_mean_start(
    asks: AsksSequences, shape: BlockShape, readout: Array | None, rng: np.random.Generator
) -> tuple[BlockShape, BlockState]:
    """A start for the joint fit. readout: (m, d), where answers are not the residual stream itself."""
    heads = find_mean_heads(asks, shape.basis, rng)
    C = np.eye(shape.width) if readout is None else readout
    seen_path = heads.values.sum(axis=0)
    shape, layers = sphere_layers(_sphere(asks, shape, C, seen_path), shape, rng)
    path = np.asarray(np.linalg.pinv(C) @ seen_path)
    state = row_state(shape, path, layers, (np.empty(0), np.empty(0)), _EPS)
    state = state if readout is None else replace(state, readout=readout)
    fit = RowFit.ask(asks, state, shape, FloatFormat.FLOAT32, rng)
    state = fit.with_constant(state)
    state = fit.fitted(fit.with_path(state) if len(C) < shape.width else state)
    path, constant = state.outputs[:, :-1], state.outputs[:, -1]
    heads = behind_readout(PreNormRows(shape, path, constant, _EPS, _EPS, readout), heads)
    queries, keys, values, outputs = head_factors(heads.values, heads.scores, heads.rank)
    outputs = np.column_stack([outputs, constant])
    return shape, replace(state, queries=queries, keys=keys, values=values, outputs=outputs)


def _sphere(asks: AsksSequences, shape: BlockShape, readout: Array, path: Array) -> Sphere:
    """What the network adds to huge rows, and a constant; path: (m, k), as the readout (m, d) shows it."""

    def ask(points: Array) -> Array:
        rows = _HUGE * points @ shape.basis.T
        return np.asarray(asks(rows[:, None]) - rows @ readout.T - points @ path.T)

    return Sphere(ask, len(shape.basis.T), float(np.sqrt(shape.width)), directions=False)


def sphere_layers(sphere: Sphere, shape: BlockShape, rng: np.random.Generator) -> tuple[BlockShape, Layers]:
    """The network on the sphere, with kinks or smooth."""
    if has_kinks(sphere, rng):
        layers = kinked_layers(sphere, find_kinked_neurons(sphere, rng), shape.basis, rng)
        return replace(shape, activation=RELU), layers
    k, outputs = sphere.width, sphere.ask(sphere.random_points(1, rng)).shape[1]
    most = min(_MOST_NEURONS, max(24, _OVER_WIDTH * k))
    points = sphere.random_points(points_needed(most, k, outputs), rng)
    values = sphere.ask(points)
    size = rms(values - values.mean(axis=0))
    fit, inner = expanded_network(
        lambda activation, _: NetworkFit(activation, points, values, skip=False), _ROUGH * size, rng
    )
    fit = replace(fit, skip=True)
    inner, outer, _ = oriented(fit, pruned(fit, inner, _EXPLAINED * size))
    return replace(shape, activation=fit.activation), Layers(inner, outer, np.empty(0))
