"""A pre-norm block from the answers of its last row: rows, network, heads, then everything together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.heads_by_copies import FoundHeads, find_heads, whole_path
from unsoftmax.learners.encoder_block.linear_part import oriented_neurons
from unsoftmax.learners.encoder_block.pre_norm_rows import PreNormRows, centre_row, read_rows
from unsoftmax.learners.encoder_block.responses import ExactResponses
from unsoftmax.learners.encoder_block.single_row_parts import one_row_parts
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState, head_factors
from unsoftmax.learners.encoder_block.tokens import SphereTokens
from unsoftmax.learners.relu_ball.find import find_relu_network
from unsoftmax.learners.smooth_network.asks import FunctionAsks
from unsoftmax.learners.smooth_network.find import find_network
from unsoftmax.learners.smooth_network.hessians import spread_points
from unsoftmax.models import Network
from unsoftmax.outcomes import Unresolved

__all__ = [
    "behind_readout",
    "find_any_network",
    "find_pre_norm",
    "is_smooth",
    "pre_norm_network",
    "pre_norm_responses",
    "state_of",
]

_BALL = 0.98  # of the radius of a norm's output: how far out its inside is asked
# second differences over first ones, at steps of a five-hundredth of the radius, of a straight line
_BENT = 1e-5
_NO_RANK = 1e-5  # of the weights: singular values of a linear part below are errors of the start
# singular value of responses, which are as good as the network: known by inputs whose error is that of y over
# the root of eps
_NEGLIGIBLE, _STREAM = 1e-5, 3e-10
_ASKING = 2048.0  # size of asking rows: behind it the network changes by its steepness over this
_NARROW_ASKING = 2.0**20  # where y is not seen whole, so that the network's change cannot be taken off


def find_pre_norm(
    asks: AsksSequences, shape: BlockShape, readout: Array | None, rng: np.random.Generator
) -> tuple[BlockShape, BlockState]:
    """A start for the joint refinement, good to about 1e-6. readout: (m, d), where the answers are not the
    residual stream itself."""
    rows = read_rows(asks, shape, readout, rng)
    network = pre_norm_network(asks, rows, rng)
    shape = replace(shape, activation=network.activation)
    tokens = SphereTokens(shape.basis.shape[1], float(np.sqrt(shape.width)))
    negligible = max(_NEGLIGIBLE, _STREAM / float(np.sqrt(rows.second_eps)))
    try:
        heads = find_heads(pre_norm_responses(asks, rows, network), tokens, rng, negligible=negligible)
    except Unresolved as stop:
        if readout is None:
            raise
        raise Unresolved(_hidden(len(readout), stop.reason)).with_parts(
            one_row_parts(asks, shape, state_of(rows, network, whole_path(rows.path)), rng)
        ) from None
    return shape, state_of(rows, network, behind_readout(rows, heads))


def _hidden(answers: int, reason: str) -> str:
    return (
        f"a linear readout of {answers} numbers follows the block, which hides what single heads add "
        f"({reason}); more numbers than heads are needed"
    )


def behind_readout(rows: PreNormRows, heads: FoundHeads) -> FoundHeads:
    """Heads with their whole outputs V_h, where C·V_h was seen: all that C hides is first given to all heads
    alike."""
    if rows.readout is None:
        return heads
    back = np.linalg.pinv(rows.readout)
    seen = np.asarray(back @ heads.values)
    hidden = rows.path - back @ (rows.readout @ rows.path)
    return replace(heads, values=seen + hidden / len(seen))


def pre_norm_network(asks: AsksSequences, rows: PreNormRows, rng: np.random.Generator) -> Network:
    """The network on the seen coordinates of its input, which any y near zero reaches."""
    d, basis = rows.shape.width, rows.shape.basis
    centre = centre_row(rows, rng)

    def inside(points: Array) -> Array:
        share = (points**2).sum(axis=1) / d
        y = points @ basis.T * np.sqrt(rows.second_eps / (1.0 - share))[:, None]
        x = rows.all_rows_of(y, centre, rng)
        return np.asarray(asks(x[:, None]) - rows.passed(x))

    outputs = d if rows.readout is None else len(rows.readout)
    network = FunctionAsks(inside, basis.shape[1], outputs, _BALL * float(np.sqrt(d)))
    return find_any_network(network, rng)


def find_any_network(network: FunctionAsks, rng: np.random.Generator) -> Network:
    """Without a linear part. With kinks, if second differences vanish at most points; else smooth."""
    smooth, steep, largest = is_smooth(network, rng)
    if smooth:
        found = find_network(network, rng).network
    else:
        found = find_relu_network(network, 1e-13 * largest, rng, faint=_BENT * steep).network
    return _without_linear(found, network.radius)


def _without_linear(network: Network, radius: float) -> Network:
    """A linear part as reflections, and neurons that are on inside the whole ball, as many as the rank of
    what is left: a neuron of the target that does not bend inside leaves one."""
    if network.linear is None:
        return network
    weights = np.vstack([network.U, network.linear, np.asarray(network.c)[None]])
    inner, k, m = np.column_stack([network.A, network.b]), network.width, network.U.shape[1]
    found = oriented_neurons(network.activation, inner, weights, np.empty((k, m, 0)), radius, _NO_RANK)
    if found.off > _NO_RANK and float(np.abs(found.rest).max()) > _NO_RANK * float(np.abs(network.U).max()):
        raise Unresolved(
            f"reflections, and neurons that are on everywhere, leave {found.off:.2g} of the linear part"
        )
    return Network(
        found.inner[:, :-1],
        found.outer[:, :-1].T,
        found.inner[:, -1],
        found.outer[:, -1],
        activation=network.activation,
    )


def is_smooth(network: FunctionAsks, rng: np.random.Generator) -> tuple[bool, float, float]:
    """Whether second differences in a ball vanish at few points only; the usual slope, and the largest
    answer."""
    points = spread_points(rng, 24, network.width, 0.9 * network.radius)
    along = rng.standard_normal(network.width)
    step = 2e-3 * network.radius * along / np.linalg.norm(along)
    answers = network(np.concatenate([points - step, points, points + step])).reshape(3, 24, -1)
    bends = np.abs(answers[0] - 2.0 * answers[1] + answers[2]).max(axis=1)
    slopes = np.abs(answers[2] - answers[0]).max(axis=1)
    steep = float(np.median(slopes)) / (4e-3 * network.radius)
    return bool(np.median(bends) > _BENT * np.median(slopes)), steep, float(np.abs(answers).max())


def pre_norm_responses(asks: AsksSequences, rows: PreNormRows, network: Network) -> ExactResponses:
    """What keys add to y of a large asking row, as far as answers show it; tokens given by seen coordinates
    on the sphere."""
    d, basis, readout = rows.shape.width, rows.shape.basis, rows.readout
    narrow = readout is not None and len(readout) < d
    size = _NARROW_ASKING if narrow else _ASKING
    back = None if readout is None else np.linalg.pinv(readout)

    def seen(y: Array) -> Array:
        coordinates = y @ basis
        size = np.sqrt((coordinates**2).sum(axis=-1, keepdims=True) / d + rows.second_eps)
        return np.asarray(coordinates / size)

    def respond(keys: Array, asking: Array) -> Array:
        last = size * asking @ basis.T
        answers = asks(np.concatenate([size * keys @ basis.T, last[:, None]], axis=1))
        alone, passed = rows.stream(last), rows.passed(last)
        added = np.zeros_like(passed)
        for _ in range(8):  # the network moves by a thousandth of what y does
            y = alone + (added if back is None else added @ back.T)
            added = answers - network(seen(y)) - passed
        return np.asarray(added)

    return ExactResponses(respond)


def state_of(rows: PreNormRows, network: Network, heads: FoundHeads) -> BlockState:
    """Heads as factors of the common rank, the network as its two layers."""
    queries, keys, values, outputs = head_factors(heads.values, heads.scores, heads.rank)
    outputs = np.column_stack([outputs, rows.constant])
    inner = np.column_stack([network.A, network.b])
    outer = np.column_stack([network.U.T, np.asarray(network.c)])
    eps = np.log(np.array([rows.eps, rows.second_eps]))
    readout = np.empty((0, 0)) if rows.readout is None else rows.readout
    return BlockState(queries, keys, values, outputs, inner, outer, eps, np.empty((3, 0)), readout)
