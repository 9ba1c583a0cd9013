"""A pre-norm block from the answers of its last row: rows, network, heads, then everything together."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.heads_by_copies import FoundHeads, find_heads
from unsoftmax.learners.encoder_block.pre_norm_rows import PreNormRows, centre_row, read_rows
from unsoftmax.learners.encoder_block.responses import ExactResponses
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState, head_factors
from unsoftmax.learners.encoder_block.tokens import SphereTokens
from unsoftmax.learners.relu_ball.find import find_relu_network
from unsoftmax.learners.smooth_network.asks import FunctionAsks
from unsoftmax.learners.smooth_network.find import find_network
from unsoftmax.learners.smooth_network.hessians import spread_points
from unsoftmax.models import Network
from unsoftmax.models.parts import GELU, RELU

__all__ = ["find_any_network", "find_pre_norm", "is_smooth", "state_of"]

_BALL = 0.98  # of the radius of a norm's output: how far out its inside is asked
_BENT = (
    1e-5  # second differences over first ones, at steps of a five-hundredth of the radius, of a straight line
)
_NO_RANK = 1e-5  # of the weights: singular values of a linear part below are errors of the start
_ASKING = 2048.0  # size of asking rows: behind it the network changes by its steepness over this


def find_pre_norm(
    asks: AsksSequences, width: int, centred: bool, rng: np.random.Generator
) -> tuple[BlockShape, BlockState]:
    """A start for the joint refinement, good to about 1e-6."""
    shape = BlockShape(True, centred, GELU, width)
    rows = read_rows(asks, shape, rng)
    network = _network(asks, rows, rng)
    shape = BlockShape(True, centred, network.activation, width)
    heads = find_heads(
        _responses(asks, rows, network), SphereTokens(shape.basis.shape[1], float(np.sqrt(width))), rng
    )
    return shape, state_of(rows, network, heads)


def _network(asks: AsksSequences, rows: PreNormRows, rng: np.random.Generator) -> Network:
    """The network on the seen coordinates of its input, which any y near zero reaches."""
    d, basis = rows.shape.width, rows.shape.basis
    centre = centre_row(rows, rng)

    def inside(points: Array) -> Array:
        share = (points**2).sum(axis=1) / d
        y = points @ basis.T * np.sqrt(rows.second_eps / (1.0 - share))[:, None]
        x = rows.all_rows_of(y, centre, rng)
        return np.asarray(asks(x[:, None]) - rows.stream(x))

    network = FunctionAsks(inside, basis.shape[1], d, _BALL * float(np.sqrt(d)))
    return find_any_network(network, rng)


def find_any_network(network: FunctionAsks, rng: np.random.Generator) -> Network:
    """With kinks, if second differences vanish at most points; else smooth."""
    smooth, steep, largest = is_smooth(network, rng)
    if smooth:
        return find_network(network, rng).network
    return find_relu_network(network, 1e-13 * largest, rng, faint=_BENT * steep).network


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


def _responses(asks: AsksSequences, rows: PreNormRows, network: Network) -> ExactResponses:
    """What keys add to y of a large asking row, tokens given by seen coordinates on the sphere."""
    d, basis = rows.shape.width, rows.shape.basis

    def seen(y: Array) -> Array:
        coordinates = y @ basis
        size = np.sqrt((coordinates**2).sum(axis=-1, keepdims=True) / d + rows.second_eps)
        return np.asarray(coordinates / size)

    def respond(keys: Array, asking: Array) -> Array:
        last = _ASKING * asking @ basis.T
        answers = asks(np.concatenate([_ASKING * keys @ basis.T, last[:, None]], axis=1))
        alone = rows.stream(last)
        y = alone
        for _ in range(8):  # the network moves by a thousandth of what y does
            y = answers - network(seen(y))
        return np.asarray(y - alone)

    return ExactResponses(respond)


def state_of(rows: PreNormRows, network: Network, heads: FoundHeads) -> BlockState:
    """Heads as factors of the common rank, the network as its two layers."""
    queries, keys, values, outputs = head_factors(heads.values, heads.scores, heads.rank)
    outputs = np.column_stack([outputs, rows.constant])
    network = _without_linear(network, float(np.sqrt(rows.shape.width)))
    inner = np.column_stack([network.A, network.b])
    outer = np.column_stack([network.U.T, np.asarray(network.c)])
    eps = np.log(np.array([rows.eps, rows.second_eps]))
    return BlockState(queries, keys, values, outputs, inner, outer, eps, np.empty((3, 0)))


def _without_linear(network: Network, radius: float) -> Network:
    """A linear part as ReLU neurons that are on inside the whole ball, as many as its rank: a neuron of the
    target whose kink lies outside the ball leaves one."""
    if network.linear is None or network.activation is not RELU:
        return network
    left, sizes, right = np.linalg.svd(np.asarray(network.linear), full_matrices=False)
    kept = sizes > _NO_RANK * max(float(sizes[0]), float(np.abs(network.U).max()))
    A, U = left[:, kept].T, sizes[kept, None] * right[kept]
    b = np.full(len(A), 2.0 * radius)
    return Network(
        np.vstack([network.A, A]),
        np.vstack([network.U, U]),
        np.concatenate([network.b, b]),
        np.asarray(network.c) - b @ U,
        activation=RELU,
    )
