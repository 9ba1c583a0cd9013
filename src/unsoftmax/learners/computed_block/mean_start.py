"""A start for a pre-norm block from the mean over its rows, with or without a linear readout behind it: heads
from huge rows, the network on the sphere that a norm's output fills, then all else from single rows.

Copies of a row say nothing here that the row alone does not, so that the value path comes from the heads, as
far as the readout shows it; how rows of moderate size move the network shows the rest. A single row is its
own mean, and is answered by the block itself.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.computed_block.circles import Sphere
from unsoftmax.learners.computed_block.outer_layer import Layers
from unsoftmax.learners.computed_block.row_fit import RowFit, row_state
from unsoftmax.learners.computed_block.sphere_start import sphere_start
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.mean_heads import find_mean_heads
from unsoftmax.learners.encoder_block.pre_norm import behind_readout
from unsoftmax.learners.encoder_block.pre_norm_rows import PreNormRows
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState, head_factors

__all__ = ["find_mean_start"]

_EPS = 1e-5  # to begin with, for both norms: torch's own; rows of size one show little of it
_HUGE = 2.0**20  # size of rows whose directions the network sees: what heads add turns them by 1e-6
_EXPLAINED = 1e-5  # of the network's values: the value path is known to 1e-6


def find_mean_start(
    asks: AsksSequences, shape: BlockShape, readout: Array | None, rng: np.random.Generator
) -> tuple[BlockShape, BlockState]:
    """A start for the joint fit. readout: (m, d), where answers are not the residual stream itself."""
    heads = find_mean_heads(asks, shape.basis, rng)
    C = np.eye(shape.width) if readout is None else readout
    seen_path = heads.values.sum(axis=0)
    path = np.asarray(np.linalg.pinv(C) @ seen_path)

    def fitted(found: BlockShape, layers: Layers) -> tuple[BlockShape, BlockState]:
        state = row_state(found, path, layers, (np.empty(0), np.empty(0)), _EPS)
        state = state if readout is None else replace(state, readout=readout)
        fit = RowFit.ask(asks, state, found, FloatFormat.FLOAT32, rng)
        state = fit.with_constant(state)
        return found, fit.fitted(fit.with_path(state) if len(C) < found.width else state)

    shape, state = sphere_start(_sphere(asks, shape, C, seen_path), shape, fitted, _EXPLAINED, rng)
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
