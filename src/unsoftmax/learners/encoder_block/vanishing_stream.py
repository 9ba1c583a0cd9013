"""Single rows of a pre-norm block whose stream y = x + attention + c is as small as the root of the second
norm's eps: there that eps shows, however small it is, and an error of c counts for most.

A block without biases answers a row of zeros there, with y = 0: an error of c is divided by √eps.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.fit import Sequences
from unsoftmax.learners.encoder_block.pre_norm_rows import PreNormRows, centre_row
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.outcomes import Unresolved

__all__ = ["vanishing_stream"]

_COUNT = 2  # rows over width: c has as many unknowns as the width, and an answer holds as many numbers
_SIZES = 1.5  # logarithm of the largest y over √eps, and of the inverse of the smallest


def vanishing_stream(
    asks: AsksSequences, shape: BlockShape, state: BlockState, rng: np.random.Generator, bound: float | None
) -> tuple[Sequences, ...]:
    """Such rows of norm `bound` at most, with answers; none where no row leads there. An answer is rounded as
    the terms of y are, over the size that the norm divides by, and weighs so much less."""
    if not (shape.norm_first and shape.normed and shape.skip and len(state.inner)):
        return ()
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


def _size(seen: Array, width: int) -> Array:
    return np.asarray(np.sqrt((seen**2).sum(axis=-1) / width))
