"""What is asked of a block that computes in a short format: rows that the format holds, and its rounding."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.encoder_block.asking import AsksSequences, sequences_of
from unsoftmax.ledger import Asker

__all__ = ["local_rounding", "stored_sequences", "usual_size"]

_NEARBY = 2.0**-13  # of a row: a smooth answer bends by its square, 1.5e-8, which float32 does not show
_KINKED = 0.02  # of second differences are left out as kinks: 32 neurons meet one in a hundred such steps


def stored_sequences(asker: Asker, held: FloatFormat) -> AsksSequences:
    """The target's answers to rows as its format holds them, so that no row is rounded inside it."""
    asks = sequences_of(asker)
    return lambda batch: asks(held.store(batch))


def local_rounding(
    asks: AsksSequences, rows: Array, weights: Array, held: FloatFormat, rng: np.random.Generator
) -> float:
    """Root mean square of the weighted rounding of answers to sequences (n, N, d), from second differences of
    answers nearby. Three queries per sequence."""
    sizes = 2.0 ** np.ceil(np.log2(np.abs(rows).max(axis=2, keepdims=True)))
    grid = sizes * 2.0 ** (1 - held.mantissa_bits)  # what all three sequences are made of, without rounding
    step = np.round(_NEARBY * sizes * rng.choice([-1.0, 1.0], rows.shape) / grid) * grid
    middle = np.round(rows / grid) * grid
    before, there, after = asks(np.concatenate([middle - step, middle, middle + step])).reshape(
        3, len(rows), -1
    )
    # a second difference holds four units of variance of the middle answer and one of each end
    bends = np.abs(before - 2.0 * there + after) * weights[:, None]
    return float(usual_size(bends) / np.sqrt(6.0))


def usual_size(errors: Array) -> float:
    """Root mean square without the largest few, as rounding is measured."""
    sizes = np.sort(np.abs(errors), axis=None)
    return rms(sizes[: max(1, int((1.0 - _KINKED) * sizes.size))])
