"""A post-norm block from the answers of its last row: rows, last norm, network, heads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.far_neurons import beyond_rare_hyperplanes
from unsoftmax.learners.encoder_block.fit import BlockFit, Sequences
from unsoftmax.learners.encoder_block.heads_by_copies import FoundHeads, find_heads, whole_path
from unsoftmax.learners.encoder_block.last_norm import LastNorm, last_norm_of
from unsoftmax.learners.encoder_block.last_norm_scale import scaled
from unsoftmax.learners.encoder_block.norm_eps import norm_eps
from unsoftmax.learners.encoder_block.post_norm_centre import find_centre, sharpen_centre
from unsoftmax.learners.encoder_block.post_norm_network import Middle, find_middle
from unsoftmax.learners.encoder_block.post_norm_rows import PostNormRows, read_post_norm_rows
from unsoftmax.learners.encoder_block.responses import DirectionResponses
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState, head_factors
from unsoftmax.learners.encoder_block.tokens import FreeTokens
from unsoftmax.models.parts import GELU
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine

__all__ = ["direction_responses", "find_post_norm"]

# of eps: below, rounding hides the length of what the last norm divides by, but for a tiny part of the ball;
# then the network is found by directions alone, as behind float32 arithmetic, whose rows will do
_SHOWS_LENGTHS = 1e-9
_FAR = 1e8  # size of y for the last norm's ellipsoid
_ELLIPSOID = 4  # answers over width for it; d + 1 unknowns
_RAYS = 6  # two for an eps that is a power of ten, four more where it is not
_NEWTON = 40  # a cap: Newton
_INVERTED = 1e-11  # of r: an answer whose input was found
_SURPLUS = 1.5  # answers over unknowns of the fit to single rows, inside the ball
_OUTSIDE = RefinementOptions(
    iterations=6,
    damping=1e-8,
    least_damping=1e-15,
    improvement=1e-3,
    dense_limit=1200,
    inner_iterations=1000,
    inner_tolerance=1e-4,
)
_REACH = 0.2  # size of differences: scores of layers as torch draws them differ by about one then
_ASKING = 30.0  # size of asking rows: in trained layers ones of size one led to other streams of an answer
_NEGLIGIBLE = 1e-5  # singular value of responses: they are known to about 1e-8


def find_post_norm(
    asks: AsksSequences, width: int, rng: np.random.Generator
) -> tuple[BlockShape, BlockState]:
    """A start for the joint refinement, good to about 1e-4."""
    shape = BlockShape(False, True, GELU, width)
    rows, norm = _rows_and_norm(asks, shape, rng)
    if rows.eps < _SHOWS_LENGTHS:
        from unsoftmax.learners.computed_block.post_norm_start import find_post_norm_start

        return find_post_norm_start(asks, width, FloatFormat.FLOAT32, rng, known=rows)
    middle = _middle(asks, rows, norm, rng)
    shape = replace(shape, activation=middle.activation)
    rows, middle = _refined_outside(asks, shape, rows, middle, rng)
    heads = find_heads(
        direction_responses(asks, rows, middle),
        FreeTokens(width, _REACH * float(np.sqrt(width)), asking=_ASKING / _REACH),
        rng,
        negligible=_NEGLIGIBLE,
    )
    return shape, _state(rows, middle, heads)


def _rows_and_norm(
    asks: AsksSequences, shape: BlockShape, rng: np.random.Generator
) -> tuple[PostNormRows, LastNorm]:
    """What single rows make of the stream y, with the first eps; the last norm as rows far out tell it."""
    d, k = shape.width, shape.basis.shape[1]
    rows = read_post_norm_rows(asks, shape, rng)
    far = _FAR * rng.standard_normal((_ELLIPSOID * d, k))
    norm = last_norm_of(asks(rows.rows_of(far)[:, None]), shape.basis)
    rays = rng.standard_normal((_RAYS, k))
    rays *= np.sqrt(d) / np.linalg.norm(rays, axis=1, keepdims=True)
    eps = norm_eps(lambda y: norm.normed(asks(rows.rows_of(y)[:, None]))[0], rays)
    return replace(rows, eps=eps), norm


def _middle(asks: AsksSequences, rows: PostNormRows, norm: LastNorm, rng: np.random.Generator) -> Middle:
    """The network inside the ball that the first norm fills, and the last norm's sphere."""
    radius = float(np.sqrt(rows.shape.width))

    def inside(u: Array) -> Array:
        return asks(rows.rows_of(rows.inside(u))[:, None])

    centre, kinked = sharpen_centre(inside, find_centre(inside, norm, radius, rng), radius, rng)
    norm = centre.norm if kinked else scaled(inside, centre, radius, rng)
    return find_middle(inside, norm, kinked, radius, rng)


def _refined_outside(
    asks: AsksSequences, shape: BlockShape, rows: PostNormRows, middle: Middle, rng: np.random.Generator
) -> tuple[PostNormRows, Middle]:
    """Everything but the heads, fitted to single rows: what a length of y is read from must be known to
    1e-11."""
    d, k = shape.width, shape.basis.shape[1]
    state = _state(rows, middle, whole_path(rows.path))
    free = state.outputs.size + state.inner.size + state.outer.size + state.gains.size
    count = int(_SURPLUS * free / k) + 20
    u = rng.standard_normal((count, k))
    u *= (np.sqrt(d) * rng.uniform(0.05, 1.0, count) ** 0.125 / np.linalg.norm(u, axis=1))[:, None]
    u = np.concatenate([u, beyond_rare_hyperplanes(middle.inner, u, float(np.sqrt(d)), rng)])
    inside = rows.rows_of(rows.inside(0.9999 * u))
    outside = rng.standard_normal((count // 2, d)) * np.exp(rng.uniform(-1.5, 1.5, (count // 2, 1)))
    single = np.concatenate([inside, outside])[:, None]
    fit = BlockFit(shape, (Sequences(single, asks(single), np.ones(len(single))),))
    state = refine(fit, state, _OUTSIDE).state
    eps = float(np.exp(state.log_eps[0]))
    path = state.outputs[:, :-1] @ state.values[0]
    scale = float(np.exp(-0.5 * state.log_eps[1]))
    norm = middle.norm.with_parameters(state.gains[1], state.gains[2])
    found = Middle(shape.activation, scale * state.gains[0], state.inner, scale * state.outer, norm)
    return PostNormRows(shape, path, state.outputs[:, -1], eps), found


def direction_responses(asks: AsksSequences, rows: PostNormRows, middle: Middle) -> DirectionResponses:
    """y of what keys and asking rows make: an answer shows the direction of r, and that the direction of
    u."""

    def respond(keys: Array, asking: Array) -> Array:
        answers = asks(np.concatenate([keys, asking[:, None]], axis=1))
        share = keys.shape[1] / (keys.shape[1] + 1.0)
        near = rows.stream(asking) + share * (keys.mean(axis=1) - asking) @ rows.path.T
        return _stream_of(answers, near, rows, middle)

    return DirectionResponses(respond, rows.stream)


def _stream_of(answers: Array, near: Array, rows: PostNormRows, middle: Middle) -> Array:
    """y of answers but for its length, which is that of a point nearby: r(u) = ρ·n with |u| given, by
    Newton's method for u and ρ. NaN where it does not arrive."""
    d, k = rows.shape.width, near.shape[1]
    n = middle.norm.normed(answers)[0]
    n /= np.linalg.norm(n, axis=1, keepdims=True)
    u = rows.normed(near)
    square = (u**2).sum(axis=1)
    rho = (middle.stream(u)[0] * n).sum(axis=1)
    system = np.zeros((len(u), k + 1, k + 1))
    off = np.full(len(u), np.inf)
    for _ in range(_NEWTON):
        r, slopes = middle.stream(u)
        rest = np.column_stack([rho[:, None] * n - r, (square - (u**2).sum(axis=1)) / 2.0])
        off = np.abs(rest).max(axis=1) / np.abs(rho)
        if float(off.max()) < 0.01 * _INVERTED:
            break
        system[:, :k, :k], system[:, :k, k], system[:, k, :k] = slopes, -n, u
        step = np.linalg.solve(system, rest[..., None])[..., 0]
        length = np.linalg.norm(step[:, :k], axis=1, keepdims=True)
        step *= np.minimum(1.0, 0.3 * np.sqrt(d) / np.maximum(length, 1e-300))
        u, rho = u + step[:, :k], rho + step[:, k]
    y = u * (np.linalg.norm(near, axis=1) / np.sqrt(square))[:, None]
    y[(off > _INVERTED) | (rho <= 0.0)] = np.nan
    return np.asarray(y)


def _state(rows: PostNormRows, middle: Middle, heads: FoundHeads) -> BlockState:
    """With a first gain of mean square one."""
    queries, keys, values, outputs = head_factors(heads.values, heads.scores, heads.rank)
    scale = float(np.sqrt(np.mean(middle.gain**2)))
    gain, bias = middle.norm.parameters()
    return BlockState(
        queries,
        keys,
        values,
        np.column_stack([outputs, rows.constant]),
        middle.inner,
        middle.outer / scale,
        np.array([np.log(rows.eps), -2.0 * np.log(scale)]),
        np.stack([middle.gain / scale, gain, bias]),
    )
