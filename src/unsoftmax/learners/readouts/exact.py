"""The readout v and the constant c, from one-row queries: f([x]) = c + x·v."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS
from unsoftmax.learners.base import Known, Readout
from unsoftmax.ledger import Asker

__all__ = ["read_constant", "read_values"]

_LARGEST = 2.0**60  # norm of a row: its square is far from the end of float64
_ABOVE_CONSTANT = 2.0**10  # the readout then has ten of the 52 bits more than the constant leaves it


def read_constant(asker: Asker, known: Known) -> float:
    """c = f([0]): one query, or none where it is known."""
    if known.constant is not None:
        return known.constant
    with asker.phase("values"):
        return float(asker.ask(np.zeros((1, 1, asker.width)))[0])


def read_values(asker: Asker, known: Known, rng: np.random.Generator) -> Readout:
    """v and c: none where they are known, else d + 1 queries, and a few more when the constant is so large
    that longer rows are needed.

    v comes back as zero when no row that may be sent moves the answer.
    """
    if known.readout is not None:
        return known.readout
    d = asker.width
    c = read_constant(asker, known)
    with asker.phase("values"):
        size = 1.0 if asker.input_bound is None else min(1.0, asker.input_bound)
        if c != 0.0:
            size = _size_beside(asker, c, rng)
        v = np.empty(d)
        step = asker.batch_size(1)
        for start in range(0, d, step):
            stop = min(start + step, d)
            rows = asker.blank(stop - start, 1)
            rows.fill(0.0)
            rows[np.arange(stop - start), 0, np.arange(start, stop)] = size
            v[start:stop] = (asker.ask(rows) - c) / size
    return Readout(v, c)


def _size_beside(asker: Asker, c: float, rng: np.random.Generator) -> float:
    """A power of two at which rows move the answer by a thousand times the constant."""
    largest = _LARGEST if asker.input_bound is None else asker.input_bound
    direction = rng.standard_normal(asker.width)
    direction /= np.linalg.norm(direction)
    size = min(1.0, largest)
    while True:
        moved = abs(float(asker.ask((size * direction)[None, None])[0]) - c)
        if moved > 1e6 * EPS * abs(c):
            return float(
                min(size * max(1.0, 2.0 ** np.ceil(np.log2(_ABOVE_CONSTANT * abs(c) / moved))), largest)
            )
        if size >= largest:
            return size
        size = min(size * 2.0**20, largest)
