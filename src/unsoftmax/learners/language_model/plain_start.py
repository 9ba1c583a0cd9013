"""Network and heads of a decoder without rotary positions, once single rows are known: starts of fits."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.heads_by_copies import FoundHeads, find_heads
from unsoftmax.learners.encoder_block.pre_norm import find_any_network
from unsoftmax.learners.encoder_block.pre_norm_rows import PreNormRows, centre_row
from unsoftmax.learners.encoder_block.responses import ExactResponses
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.learners.encoder_block.tokens import SphereTokens
from unsoftmax.learners.language_model.plain_fit import PlainState
from unsoftmax.learners.smooth_network.asks import FunctionAsks
from unsoftmax.meters.language_model.last_stream import LastStream
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.models import Network

__all__ = ["find_plain_heads", "find_plain_network", "rows_of_state"]

_BALL = 0.98  # of the radius of a norm's output: how far out its inside is asked
_HUGE_KEYS = 1e5  # size of key rows: their positions are known to 1e-6, which is lost beside it
# size of asking rows over how much the layer changes: the stream before the network follows from that behind
# it by iteration, which shrinks errors by a fourth
_ASKING = 4.0
_ITERATIONS = 60  # a cap: a network that halves changes arrives at 2^-60, beyond float64


def find_plain_network(
    stream: LastStream, rows: PreNormRows, position: Array, rng: np.random.Generator
) -> Network:
    """The network, from values inside the ball that the second norm fills where y is small."""
    k = stream.state.width
    centre = centre_row(rows, rng)

    def inside(points: Array) -> Array:
        share = (points**2).mean(axis=1)
        y = points * np.sqrt(rows.second_eps / (1.0 - share))[:, None]
        x = rows.all_rows_of(y, centre, rng)
        return np.asarray(stream((x - position)[:, None]) - rows.stream(x))

    return find_any_network(FunctionAsks(inside, k, k, _BALL * float(np.sqrt(k))), rng)


def rows_of_state(shape: BlockShape, state: PlainState) -> PreNormRows:
    """What single rows tell, of a fitted state."""
    block = state.block
    path = block.outputs[:, :-1] @ np.concatenate([*block.values])
    eps = np.exp(block.log_eps)
    return PreNormRows(shape, path, block.outputs[:, -1], float(eps[0]), float(eps[1]))


def find_plain_heads(
    stream: LastStream, rows: PreNormRows, block: BlockState, positions: Array, rng: np.random.Generator
) -> FoundHeads:
    """All heads, from what keys add to y of an asking row. positions: of nine rows."""
    k, activation = stream.state.width, rows.shape.activation

    def network(y: Array) -> Array:
        n = y / np.sqrt((y * y).mean(axis=-1, keepdims=True) + rows.second_eps)
        return np.asarray(
            activation(n @ block.inner[:, :-1].T + block.inner[:, -1]) @ block.outer[:, :-1].T
            + block.outer[:, -1]
        )

    asked = _ASKING * max(1.0, float(np.linalg.norm(rows.path, 2)), _steepness(rows.shape, block, rng))

    def respond(keys: Array, asking: Array) -> Array:
        last = asked * asking
        prompts = np.concatenate([_HUGE_KEYS * keys, last[:, None]], axis=1)
        behind = stream(prompts - positions[: prompts.shape[1]])
        alone = rows.stream(last)
        y = alone
        for _ in range(_ITERATIONS):
            y = behind - network(y)
        return np.asarray(y - alone)

    return find_heads(ExactResponses(respond), SphereTokens(k, float(np.sqrt(k))), rng)


def _steepness(shape: BlockShape, block: BlockState, rng: np.random.Generator) -> float:
    """Largest slope of the network at some normed rows."""
    inner = block.inner[:, :-1]
    bent = shape.activation.first(unit_rows(rng, 8, shape.width) @ inner.T + block.inner[:, -1])
    return max(float(np.linalg.norm(block.outer[:, :-1] * each @ inner, 2)) for each in bent)
