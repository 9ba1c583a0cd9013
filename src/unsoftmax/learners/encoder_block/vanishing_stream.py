"""Single rows whose stream y = x + attention + c is as small as the root of the eps of the norm that follows:
there that eps shows, however small it is, and an error of c counts for most. Behind a last norm the same is
true of the stream that it divides by.

A block without biases answers a row of zeros there, with y = 0: an error of c is divided by √eps.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.fit import Sequences
from unsoftmax.learners.encoder_block.post_norm_eps import single_rows, where_r_vanishes
from unsoftmax.learners.encoder_block.pre_norm_rows import PreNormRows, centre_row
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.outcomes import Unresolved

__all__ = ["vanishing_stream"]

_COUNT = 2  # rows over width: c has as many unknowns as the width, and an answer holds as many numbers
_SHOWS = 1e-7  # an eps from here on is known to 1e-8 from usual rows
_INSIDE = 0.98  # of the squared radius of the ball that a norm's output fills
_SIZES = 1.5  # logarithm of the largest y over √eps, and of the inverse of the smallest


def vanishing_stream(
    asks: AsksSequences, shape: BlockShape, state: BlockState, rng: np.random.Generator, bound: float | None
) -> tuple[Sequences, ...]:
    """Such rows of norm `bound` at most, with answers; none where no row leads there. An answer is rounded as
    the terms of y are, over the size that the norm divides by, and weighs so much less."""
    if not (shape.normed and shape.skip and len(state.inner)):
        return ()
    if not shape.norm_first:
        return _post_norm(asks, shape, state, rng, bound)
    path = np.einsum("dhr,hrk->dk", state.outputs[:, :-1].reshape(shape.width, state.heads, -1), state.values)
    eps = np.exp(state.log_eps)
    rows = PreNormRows(shape, path, state.outputs[:, -1], float(eps[0]), float(eps[1]))
    count, basis = _COUNT * shape.width, shape.basis
    sizes = np.sqrt(eps[1]) * np.exp(rng.uniform(-_SIZES, _SIZES, (count, 1)))
    y = sizes * rng.standard_normal((count, basis.shape[1])) @ basis.T
    try:
        x = rows.all_rows_of(y, centre_row(rows, rng), rng)
    except Unresolved:
        return ()
    x = x @ basis @ basis.T  # a mean that no norm sees would only round what they see
    x = x[np.linalg.norm(x, axis=1) <= (np.inf if bound is None else bound)]
    if not len(x):
        return ()
    terms = (x, rows.normed(x)[0] @ path.T, rows.constant)
    rounded = sum(_size(term @ basis, shape.width) for term in terms)
    weights = 1.0 / (1.0 + rounded / np.sqrt(_size(rows.stream(x) @ basis, shape.width) ** 2 + eps[1]))
    return (Sequences(x[:, None], asks(x[:, None]), weights),)


def _post_norm(
    asks: AsksSequences, shape: BlockShape, state: BlockState, rng: np.random.Generator, bound: float | None
) -> tuple[Sequences, ...]:
    """The same of both norms; of the last one where its eps is so small that usual rows hardly show it, and
    where its stream vanishes."""
    d, k, rows, eps = shape.width, shape.basis.shape[1], single_rows(shape, state), np.exp(state.log_eps)
    count = _COUNT * d

    def small(size: float) -> Array:
        sizes = np.sqrt(size) * np.exp(rng.uniform(-_SIZES, _SIZES, (count, 1)))
        return np.asarray(sizes * rng.standard_normal((count, k)))

    y = small(eps[0])
    divided = _size(y, d) ** 2 + eps[0]
    if eps[1] < _SHOWS:
        try:
            zero, slopes = where_r_vanishes(shape, state, rng)
        except Unresolved:
            pass
        else:
            r = small(eps[1])
            u = zero + np.linalg.solve(slopes, r.T).T
            inside = (u**2).sum(axis=1) < _INSIDE * d
            there = rows.inside(u[inside])
            y = np.concatenate([y, there])
            both = (_size(there, d) ** 2 + eps[0]) * np.minimum(_size(r[inside], d) ** 2 + eps[1], 1.0)
            divided = np.concatenate([divided, both])
    x = rows.rows_of(y)
    told = np.linalg.norm(x, axis=1) <= (np.inf if bound is None else bound)
    rounded = _size(x @ rows.matrix.T, d) + _size(rows.constant, d)
    weights = 1.0 / (1.0 + rounded / np.sqrt(divided))
    x = x[told, None]
    return (Sequences(x, asks(x), weights[told]),) if len(x) else ()


def _size(seen: Array, width: int) -> Array:
    return np.asarray(np.sqrt((seen**2).sum(axis=-1) / width))
