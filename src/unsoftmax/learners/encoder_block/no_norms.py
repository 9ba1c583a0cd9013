"""Blocks without norms: attention, a skip connection around it or none, and a two-layer network behind both.

f(X) = G(y), y = x + Σ_h V_h Σ_i α_i x_i, or without x. G is a two-layer network with a linear part, which
holds the network's own residual connection and any linear readout. A single row shows G(M·x) with M = 1 + A,
and A = Σ V_h is read by copies of rows. Without a skip connection one matrix between all V_h and G is free:
A = 1. With G known, every answer with at least as many numbers as rows gives y, and so the heads.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.heads_by_copies import FoundHeads, find_heads, whole_path
from unsoftmax.learners.encoder_block.pre_norm import is_smooth
from unsoftmax.learners.encoder_block.responses import ExactResponses
from unsoftmax.learners.encoder_block.single_row_parts import one_row_parts
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState, head_factors
from unsoftmax.learners.encoder_block.tokens import FreeTokens
from unsoftmax.learners.encoder_block.value_path import has_skip, value_path
from unsoftmax.learners.relu_ball.find import find_relu_network
from unsoftmax.learners.smooth_network.asks import FunctionAsks
from unsoftmax.learners.smooth_network.find import find_network
from unsoftmax.models import Network
from unsoftmax.outcomes import Unresolved

__all__ = ["find_without_norms", "one_row_network"]

_BALLS = (4.0, 100.0)  # over √d: where kinks are looked for, before far rows say whether all were found
_FAR = (1e3, 1e6)  # over the ball: rows beyond every kink
_FAR_OFF = 1e-5  # of the answers there: a neuron that is missing leaves its share, about 1/J
_ROUNDING = 1e-13  # of the largest answer in the ball
_NEWTON = 40  # a cap: Newton
_INVERTED = 1e-11  # of an answer: one whose y was found
_TOKENS = (1.0, 4.0, 0.25)  # over √d: sizes of rows at which heads are told apart, in the order of trying
_STEPS = (1, 6)  # of keys on their way from the asking row; one is enough where the network has one inverse
_FLAT = 1e-7  # smallest over largest singular value of the network's slopes where a direction is lost
_SEEN = 64  # rows at which that is looked at
_METRIC = 6  # rows at which slopes are measured
# central differences of rows of entries about 1: 1e-8 of bending, 1e-12 of rounding, enough for a metric
_STEP = 1e-4
_LEAST_SLOPE = 1e-6  # of the steepest direction's square: flatter ones are left as flat as this
_SINGULAR = 1e8  # condition of 1 + A from which y does not show


def find_without_norms(
    asks: AsksSequences, width: int, rng: np.random.Generator
) -> tuple[BlockShape, BlockState]:
    """A start for the joint refinement, good to about 1e-6."""
    skip = has_skip(asks, width, rng)
    path = value_path(asks, np.eye(width), rng) if skip else np.eye(width)
    alone = np.eye(width) + path if skip else np.eye(width)
    if np.linalg.cond(alone) > _SINGULAR:
        raise Unresolved(
            "a row and what attention adds to it cancel in some direction, which hides the heads"
        )
    back = np.asarray(np.linalg.inv(alone), dtype=np.float64)
    network = one_row_network(asks, width, rng).after(back, np.zeros(width))
    shape = BlockShape(True, False, network.activation, width, normed=False, skip=skip)
    try:
        _check_inverse(network, rng)
    except Unresolved as stop:
        parts = one_row_parts(asks, shape, _state(network, whole_path(path)), rng)
        raise stop.with_parts(parts) from None
    heads = _heads([_responses(asks, alone, path, network, steps) for steps in _STEPS], width, rng)
    return shape, _state(network, heads)


def _check_inverse(network: Network, rng: np.random.Generator) -> None:
    """Raises where answers do not show y at most rows."""
    if network.U.shape[1] < network.width:
        raise Unresolved(
            f"answers hold {network.U.shape[1]} numbers where rows have {network.width}: the network behind "
            "attention hides what single heads add"
        )
    sizes = np.linalg.svd(network.jacobian(rng.standard_normal((_SEEN, network.width))), compute_uv=False)
    if float(np.mean(sizes[:, -1] > _FLAT * sizes[:, 0])) < 0.5:
        raise Unresolved(
            "at most rows the network behind attention passes on fewer directions than a row has, which "
            "hides what single heads add"
        )


def one_row_network(asks: AsksSequences, width: int, rng: np.random.Generator) -> Network:
    """What single rows show, as a network with a linear part: found in coordinates in which answers are about
    as steep in every direction, because neurons that point alike are hard to tell apart."""
    outputs = asks(np.zeros((1, 1, width))).shape[1]
    even = _even_coordinates(asks, width, rng)
    every = FunctionAsks(lambda points: asks((points @ even.T)[:, None]), width, outputs)
    back = np.asarray(np.linalg.inv(even), dtype=np.float64)
    return _any_network(every, rng).after(back, np.zeros(width))


def _even_coordinates(asks: AsksSequences, width: int, rng: np.random.Generator) -> Array:
    """(d, d): x = matrix·x', such that slopes by x' have the same size in all directions, on average."""
    points = rng.standard_normal((_METRIC, width))
    around = np.concatenate([points[:, None] + sign * _STEP * np.eye(width) for sign in (1.0, -1.0)], axis=0)
    answers = asks(around.reshape(-1, 1, width)).reshape(2, _METRIC * width, -1)
    slopes = ((answers[0] - answers[1]) / (2.0 * _STEP)).reshape(_METRIC, width, -1)
    sizes, turned = np.linalg.eigh(np.einsum("pio,pjo->ij", slopes, slopes))
    sizes = np.maximum(sizes, _LEAST_SLOPE * sizes[-1])
    scale = 1.0 / np.sqrt(sizes)
    return np.asarray(turned * (scale / np.exp(np.mean(np.log(scale)))) @ turned.T)


def _any_network(every: FunctionAsks, rng: np.random.Generator) -> Network:
    """Smooth, or with kinks in balls that grow until far rows show that none is missing."""
    root = float(np.sqrt(every.width))
    if is_smooth(replace(every, radius=_BALLS[0] * root), rng)[0]:
        network = find_network(every, rng).network
        if _far_rows_agree(every, network, _BALLS[0], rng):
            return network
        raise Unresolved("rows a thousand times as long as usual are answered by another function")
    for size in _BALLS:
        ball = replace(every, radius=size * root)
        scale = float(np.abs(every(size * rng.standard_normal((8, every.width)))).max())
        network = find_relu_network(ball, _ROUNDING * scale, rng).network
        if _far_rows_agree(every, network, size, rng):
            return network
    raise Unresolved("neurons of the network bend only at rows that are hundreds of times as long as others")


def _far_rows_agree(every: FunctionAsks, network: Network, size: float, rng: np.random.Generator) -> bool:
    """Whether rows beyond every kink are answered as the network answers them."""
    far = np.concatenate([each * size * rng.standard_normal((8, every.width)) for each in _FAR])
    answers = every(far)
    off = np.abs(network(far) - answers).max(axis=1)
    return bool((off < _FAR_OFF * np.abs(answers).max(axis=1)).all())


def _responses(
    asks: AsksSequences, alone: Array, path: Array, network: Network, steps: int
) -> ExactResponses:
    """What keys add to y: the answer's network inverted. It may have several inverses: keys leave the asking
    row in steps, and each step begins where the last one ended."""

    def respond(keys: Array, asking: Array) -> Array:
        share = keys.shape[1] / (keys.shape[1] + 1.0)
        by_itself = asking @ alone.T
        added = share * (keys.mean(axis=1) - asking) @ path.T / steps
        y, before = by_itself + added, by_itself
        for step in range(1, steps + 1):
            moved = asking[:, None] + (keys - asking[:, None]) * (step / steps)
            answers = asks(np.concatenate([moved, asking[:, None]], axis=1))
            found = _inverse(network, answers, y)
            y, before = 2.0 * found - before, found
        return np.asarray(before - by_itself)

    return ExactResponses(respond)


def _inverse(network: Network, answers: Array, starts: Array) -> Array:
    """y with network(y) = answers, by Newton's method with halved steps; NaN where it does not arrive."""
    y, scale = np.nan_to_num(starts), np.abs(answers).max(axis=1)
    rest = answers - network(y)
    off = np.abs(rest).max(axis=1) / scale
    for _ in range(_NEWTON):
        todo = np.flatnonzero(off > 0.01 * _INVERTED)
        if not len(todo):
            break
        inverse = np.linalg.pinv(network.jacobian(y[todo]))
        step = np.einsum("nij,nj->ni", inverse, rest[todo])
        better = np.zeros(len(todo), dtype=bool)
        for length in 0.5 ** np.arange(8):
            trial = y[todo] + length * step
            left = answers[todo] - network(trial)
            now = np.abs(left).max(axis=1) / scale[todo]
            taken = ~better & (now < off[todo])
            y[todo[taken]], rest[todo[taken]], off[todo[taken]] = trial[taken], left[taken], now[taken]
            better |= taken
        if not better.any():
            break
    sizes = np.linalg.svd(network.jacobian(y), compute_uv=False)
    y[(off > _INVERTED) | (sizes[:, -1] < _FLAT * sizes[:, 0])] = np.nan
    return y


def _heads(responses: list[ExactResponses], width: int, rng: np.random.Generator) -> FoundHeads:
    """At the first size of rows at which they are told apart."""
    reasons = []
    for respond in responses:
        for size in _TOKENS:
            try:
                return find_heads(respond, FreeTokens(width, size * float(np.sqrt(width))), rng)
            except Unresolved as stop:
                reasons.append(stop.reason)
    raise Unresolved(reasons[0])


def _state(network: Network, heads: FoundHeads) -> BlockState:
    d, m = network.width, network.U.shape[1]
    queries, keys, values, outputs = head_factors(heads.values, heads.scores, heads.rank)
    return BlockState(
        queries,
        keys,
        values,
        np.column_stack([outputs, np.zeros(d)]),
        np.column_stack([network.A, network.b]),
        np.column_stack([network.U.T, np.asarray(network.c)]),
        np.zeros(2),
        np.empty((3, 0)),
        np.zeros((m, d)) if network.linear is None else network.linear.T,
    )
