"""A start for a block whose rows are bounded in norm.

Rows far out, which show directions alone, cannot be sent. But what follows the attention sees directions at
any size, but for eps: moved along y = x + attention + c it stays as it is, Γ(y)·y = 0, Γ the slopes of what a
norm passes on. So with the value path known, slopes at a few rows give the constant c by least squares, and
with c the sphere of directions is reached from rows of any size.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.computed_block.circles import Sphere, has_kinks
from unsoftmax.learners.computed_block.kinked_neurons import find_kinked_neurons
from unsoftmax.learners.computed_block.outer_layer import Layers, kinked_layers
from unsoftmax.learners.computed_block.post_norm_start import smooth_start
from unsoftmax.learners.computed_block.post_norm_start import with_heads as with_post_norm_heads
from unsoftmax.learners.computed_block.pre_norm_start import with_heads
from unsoftmax.learners.computed_block.row_fit import RowFit, row_state
from unsoftmax.learners.computed_block.sphere_start import sphere_start
from unsoftmax.learners.computed_block.value_path import agreed, path_of, slopes_beside
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.last_norm import last_norm_of
from unsoftmax.learners.encoder_block.post_norm_rows import PostNormRows
from unsoftmax.learners.encoder_block.pre_norm_rows import PreNormRows
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.models.parts import RELU
from unsoftmax.outcomes import Unresolved

__all__ = ["find_bounded_start"]

_ROWS = 16  # at which slopes are read
_SHARE = 0.6  # of the bound: usual norm of such rows
_STEP = 1e-3  # of their entries: truncation 1e-6 meets rounding 1e-13
_INSIDE = 0.95  # of the bound: how long the rows may be that set y
_LEAST = 0.05  # of y: nearer to eps directions are not seen any more
_ELLIPSOID = 8  # answers over width for the last norm
_EXPLAINED = 1e-5  # of the network's values: an eps that is not known turns what it sees by so much
_FLAT = 1e-5  # of answers: how far they may be off a hyperplane


def find_bounded_start(
    asks: AsksSequences, width: int, bound: float, eps: float, rng: np.random.Generator
) -> tuple[BlockShape, BlockState]:
    """For LayerNorm blocks of either order, whose eps are about as told. Raises Unresolved for others."""
    shape = BlockShape(_norm_first(asks, width, bound, rng), True, RELU, width)
    rows = rng.standard_normal((_ROWS, width))
    rows *= _SHARE * bound / np.linalg.norm(rows, axis=1, keepdims=True)
    step = _STEP * _SHARE * bound / float(np.sqrt(width))
    slopes = [slopes_beside(asks, b, step) for b in rows]
    path = path_of(shape, eps, rows, slopes)
    constant = _constant(shape, path, eps, rows, slopes)
    if shape.norm_first:
        return _pre_norm(asks, PreNormRows(shape, path, shape.basis @ constant, eps, eps), bound, rng)
    return _post_norm(asks, PostNormRows(shape, path, constant, eps), bound, rng)


def _norm_first(asks: AsksSequences, width: int, bound: float, rng: np.random.Generator) -> bool:
    """Whether a shift of all columns passes straight through, as beside LayerNorms that come first."""
    row = rng.standard_normal(width)
    row *= 0.5 * bound / np.linalg.norm(row)
    shift = 0.3 * bound / float(np.sqrt(width))
    before, after = asks(np.stack([row, row + shift])[:, None])
    return float(np.abs(after - before - shift).max()) < 1e-9 * (shift + float(np.abs(before).max()))


def _constant(
    shape: BlockShape, path: Array, eps: float, rows: Array, slopes: list[tuple[Array, Array]]
) -> Array:
    """c in seen coordinates (k,), from Γ·(y + c) = 0 at the rows that agree best."""
    basis, d = shape.basis, shape.width
    outer = np.array([alone - copies for alone, copies in slopes])  # (n, m, d)
    if shape.norm_first:
        seen = rows @ basis
        normed = seen / np.sqrt((seen**2).sum(axis=1, keepdims=True) / d + eps)
        outer, y = outer - np.eye(d), (rows + normed @ path.T) @ basis
    else:
        y = rows @ (basis.T + path).T
    design = outer @ basis
    size = rms(design) * float(np.linalg.norm(y, axis=1).mean())  # c may be zero
    return agreed(design, -(design @ y[..., None]), size)[:, 0]


def _reach(longest: float, added: float, steepness: float, width: int) -> float:
    """Size of y that rows of this norm reach in every direction."""
    size = (_INSIDE * longest / steepness - added) / float(np.sqrt(width))
    if size < _LEAST * longest / float(np.sqrt(width)):
        raise Unresolved(
            f"rows of norm {longest:.2g} at most (input_bound) do not reach every direction of what follows "
            "the attention, which adds about as much to them; a larger bound would help"
        )
    return size


def _pre_norm(
    asks: AsksSequences, rows: PreNormRows, bound: float, rng: np.random.Generator
) -> tuple[BlockShape, BlockState]:
    path, constant = rows.path, rows.constant
    d, basis = rows.shape.width, rows.shape.basis
    added = float(np.linalg.norm(path, 2)) * float(np.sqrt(d)) + float(np.linalg.norm(constant))
    size = _reach(bound, added, 1.0, d)

    def ask(points: Array) -> Array:
        x = rows.far_rows(size * points @ basis.T)
        return np.asarray(asks(x[:, None]) - rows.stream(x))

    def fitted(shape: BlockShape, layers: Layers) -> tuple[BlockShape, BlockState]:
        state = row_state(shape, path, layers, (np.empty(0), np.empty(0)), rows.eps)
        return shape, _fitted(asks, shape, state, np.column_stack([path, constant]), bound, rng)

    sphere = Sphere(ask, d - 1, float(np.sqrt(d)), directions=False)
    shape, state = sphere_start(sphere, rows.shape, fitted, _EXPLAINED, rng)
    return shape, with_heads(asks, shape, state, rng, asking=_INSIDE * bound / float(np.sqrt(d)))


def _post_norm(
    asks: AsksSequences, rows: PostNormRows, bound: float, rng: np.random.Generator
) -> tuple[BlockShape, BlockState]:
    path, constant = rows.path, rows.constant
    d, basis = rows.shape.width, rows.shape.basis
    steepness = 1.0 / float(np.linalg.svd(rows.matrix, compute_uv=False)[-1])
    size = _reach(bound, float(np.linalg.norm(constant)), steepness, d)

    def answers(points: Array) -> Array:
        return asks(rows.rows_of(size * points)[:, None])

    plain = Sphere(answers, d - 1, float(np.sqrt(d)), directions=True)
    norm = last_norm_of(answers(plain.random_points(_ELLIPSOID * d, rng)), basis, flat=_FLAT)
    sphere = replace(plain, ask=lambda points: norm.normed(answers(points))[0])

    def fitted(shape: BlockShape, layers: Layers) -> tuple[BlockShape, BlockState]:
        state = row_state(shape, path, layers, norm.parameters(), rows.eps)
        return shape, _fitted(asks, shape, state, np.column_stack([path, constant]), bound, rng)

    if has_kinks(sphere, rng):
        layers = kinked_layers(sphere, find_kinked_neurons(sphere, rng), basis, rng)
        shape, state = fitted(rows.shape, layers)
    else:
        shape, state = smooth_start(sphere, rows.shape, fitted, rng)
    return shape, with_post_norm_heads(asks, shape, state, norm, rng, reach=bound / 3.0)


def _fitted(
    asks: AsksSequences,
    shape: BlockShape,
    state: BlockState,
    outputs: Array,
    bound: float,
    rng: np.random.Generator,
) -> BlockState:
    fit = RowFit.ask(asks, state, shape, FloatFormat.FLOAT32, rng, bound)
    return fit.fitted(fit.with_constant(replace(state, outputs=outputs)))
