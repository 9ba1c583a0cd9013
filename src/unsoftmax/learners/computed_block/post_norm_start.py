"""A start for a post-norm block that computes in float32: value path, last norm, network on the sphere that
the first norm's output fills, constant, heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.computed_block.circles import Sphere, has_kinks
from unsoftmax.learners.computed_block.direction_fit import DirectionFit
from unsoftmax.learners.computed_block.kinked_neurons import find_kinked_neurons
from unsoftmax.learners.computed_block.outer_layer import Layers, kinked_layers
from unsoftmax.learners.computed_block.row_fit import RowFit, row_state
from unsoftmax.learners.computed_block.smooth_neurons import (
    expanded_networks,
    first_that_arrives,
    oriented_beside_gains,
    points_needed,
    pruned,
)
from unsoftmax.learners.computed_block.value_path import value_path
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.heads_by_copies import find_heads
from unsoftmax.learners.encoder_block.last_norm import LastNorm, last_norm_of
from unsoftmax.learners.encoder_block.post_norm import direction_responses
from unsoftmax.learners.encoder_block.post_norm_network import Middle
from unsoftmax.learners.encoder_block.post_norm_rows import PostNormRows
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState, head_factors
from unsoftmax.learners.encoder_block.tokens import FreeTokens, unit_rows
from unsoftmax.models.parts import RELU, Activation

__all__ = ["find_post_norm_start", "smooth_start", "with_heads"]

_EPS = 1e-5  # to begin with, for both norms: torch's own; rows of size one show little of it
_FAR = 1e4  # size of y on the sphere: a constant turns it by its size over this, and nothing else changes
_FURTHER = 1e6  # the same for smooth networks, whose fit shows it: there is no kink that stays where it is
_ROUGH = 3e-5  # of unit vectors: half as many neurons again of another activation leave 9e-5
_PRUNED = 3.0  # times what too many neurons leave: with just as many as there are it is about the same
_FAINT = 3e-6  # of unit vectors: what a neuron that is needed leaves is a hundred times larger
_MOST_NEURONS, _MOST_WEIGHTS = 96, 4000  # outer weights are solved for at once, in seconds a step for so many
_ELLIPSOID = 8  # answers over width for the last norm
_FLAT = 1e-5  # of answers: how far they may be off a hyperplane, rounding and what eps adds
# where answers are exact: size of differences, and of asking rows, as in the start without float32
_REACH, _ASKING = 0.2, 30.0
_NEGLIGIBLE = 1e-4  # singular value of responses, which are known to about 1e-6


def find_post_norm_start(
    asks: AsksSequences,
    width: int,
    held: FloatFormat,
    rng: np.random.Generator,
    *,
    known: PostNormRows | None = None,
    kinked: bool | None = None,
) -> tuple[BlockShape, BlockState]:
    """A start for the joint fit, good to about 1e-3. known: value path and constant, where answers are exact
    enough to tell them first. kinked: whether the network is straight but for kinks, where that is known."""
    shape = BlockShape(False, True, RELU, width)
    rows = known or PostNormRows(shape, value_path(asks, shape, _EPS, rng), np.zeros(width - 1), _EPS)
    k, radius = width - 1, float(np.sqrt(width))

    def answers(points: Array, far: float = _FAR) -> Array:
        return asks(rows.rows_of(far * points)[:, None])

    plain = Sphere(answers, k, radius, directions=True)
    norm = last_norm_of(answers(plain.random_points(_ELLIPSOID * width, rng)), shape.basis, flat=_FLAT)
    sphere = replace(plain, ask=lambda points: norm.normed(answers(points))[0])

    def fitted(found: BlockShape, layers: Layers) -> tuple[BlockShape, BlockState]:
        state = row_state(found, rows.path, layers, norm.parameters(), _EPS)
        fit = RowFit.ask(asks, state, found, held, rng, exact=known is not None)
        if known is None:
            return found, fit.fitted(fit.with_constant(state))
        return found, fit.fitted(replace(state, outputs=np.column_stack([rows.path, rows.constant])))

    if has_kinks(sphere, rng) if kinked is None else kinked:
        layers = kinked_layers(sphere, find_kinked_neurons(sphere, rng), shape.basis, rng)
        shape, state = fitted(shape, layers)
    else:
        further = replace(plain, ask=lambda points: norm.normed(answers(points, _FURTHER))[0])
        shape, state = smooth_start(further, shape, fitted, rng)
    if known is None:
        return shape, with_heads(asks, shape, state, norm, rng)
    return shape, with_heads(asks, shape, state, norm, rng, reach=_REACH * radius, asking=_ASKING / _REACH)


def smooth_start(
    sphere: Sphere,
    shape: BlockShape,
    fitted: Callable[[BlockShape, Layers], tuple[BlockShape, BlockState]],
    rng: np.random.Generator,
) -> tuple[BlockShape, BlockState]:
    """Too many neurons by directions alone, then without those that are not needed; of the activations that
    do, the first with which single rows are explained. fitted: everything but heads, fitted to those."""
    k = sphere.width
    most = min(_MOST_NEURONS, _MOST_WEIGHTS // k - k - 1)
    points = sphere.random_points(points_needed(most, k, k - 1), rng)
    directions = unit_rows(sphere.ask(points))

    def fit_of(activation: Activation, neurons: int) -> DirectionFit:
        count = points_needed(neurons, k, k - 1)
        return DirectionFit(activation, points[:count], directions[:count])

    def finish(fit: DirectionFit, inner: Array) -> tuple[BlockShape, BlockState]:
        inner = pruned(fit, inner, max(_FAINT, _PRUNED * rms(fit.residual(inner))))
        return fitted(
            replace(shape, activation=fit.activation), oriented_beside_gains(fit, inner, shape.basis)
        )

    return first_that_arrives(expanded_networks(fit_of, _ROUGH, rng), finish)


def with_heads(
    asks: AsksSequences,
    shape: BlockShape,
    state: BlockState,
    norm: LastNorm,
    rng: np.random.Generator,
    reach: float | None = None,
    asking: float = 1.0,
) -> BlockState:
    """With the heads, from differences of rows up to about this norm, that of usual rows unless told, and
    asking rows so many times as large."""
    path, constant = state.outputs[:, :-1] @ state.values[0], state.outputs[:, -1]
    rows = PostNormRows(shape, path, constant, float(np.exp(state.log_eps[0])))
    last = norm.with_parameters(state.gains[1], state.gains[2])
    middle = Middle(shape.activation, state.gains[0], state.inner, state.outer, last)
    found = find_heads(
        direction_responses(asks, rows, middle),
        FreeTokens(shape.width, float(np.sqrt(shape.width)) if reach is None else reach, asking),
        rng,
        negligible=_NEGLIGIBLE,
    )
    queries, keys, values, outputs = head_factors(found.values, found.scores, found.rank)
    return replace(
        state, queries=queries, keys=keys, values=values, outputs=np.column_stack([outputs, constant])
    )
