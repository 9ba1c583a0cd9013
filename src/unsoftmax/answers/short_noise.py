"""Noisy answers that are numbers of a short format: beyond which rows their rounding exceeds the noise."""

from __future__ import annotations

import numpy as np

from unsoftmax.answers.along_rays import ask_rows, random_rows
from unsoftmax.answers.findings import IDENTIFY
from unsoftmax.arrays import Array, rms
from unsoftmax.float_formats import smallest_format
from unsoftmax.ledger import Asker

__all__ = ["ask_longest_row", "longest_row"]

# standard deviations of the noise: rounding by up to half of one adds a uniform error of 0.29, and makes the
# whole 1.04; larger steps would no longer be blurred by the noise
_HIDDEN = 0.5
_ROWS = 6  # show the size of v to a third


def longest_row(rows: Array, answers: Array, opposite: Array, sigma: float) -> float:
    """Norm of rows up to which noise hides how answers are rounded; infinite where they use all digits.

    rows: single ones, all about as long. answers, opposite: to them, and to their negatives.

    >>> rows = np.eye(2)
    >>> longest_row(rows, np.array([1.0, 2.0]), np.array([-1.0, -2.0]), 2.0**-5)
    1.78...
    >>> longest_row(rows, np.array([0.1, 0.2]), np.array([-0.1, -0.2]), 2.0**-5)
    inf
    """
    short = smallest_format(np.concatenate([answers, opposite]))
    if short is None:
        return np.inf
    norm = np.sqrt(rows.shape[1]) * rms((answers - opposite) / 2) / rms(np.linalg.norm(rows, axis=1))
    return float(_HIDDEN * sigma / (short.unit * norm)) if norm > 0.0 else np.inf


def ask_longest_row(asker: Asker, sigma: float, rng: np.random.Generator) -> float:
    """The same from 12 queries, where the size of the noise was told."""
    size = 1.0 if asker.input_bound is None else min(1.0, asker.input_bound / 4)
    rows = size * random_rows(rng, _ROWS, asker.width)
    with asker.phase(IDENTIFY):
        return longest_row(rows, ask_rows(asker, rows), ask_rows(asker, -rows), sigma)
