"""The readout v and the constant c, from one-row queries: f([x]) = c + x·v."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.ledger import Ledger

__all__ = ["read_constant", "read_values"]

_LARGEST = 2.0**60


def read_constant(ledger: Ledger) -> float:
    """c = f([0]), one query."""
    if "constant" not in ledger.known:
        with ledger.phase("values"):
            ledger.known["constant"] = float(ledger.ask(np.zeros((1, 1, ledger.width)))[0])
    return float(ledger.known["constant"])


def read_values(ledger: Ledger, rng: np.random.Generator) -> tuple[Array, float]:
    """(v, c) with d + 1 queries, and a few more when the constant drowns the readout, so that larger rows are
    needed.

    v comes back as zero when no row that may be sent moves the answer.
    """
    if "values" in ledger.known:
        v, c = ledger.known["values"]
        return v, c
    d = ledger.width
    c = read_constant(ledger)
    with ledger.phase("values"):
        size = 1.0 if ledger.input_bound is None else min(1.0, ledger.input_bound)
        if c != 0.0:
            size = _loud_enough(ledger, c, rng)
        v = np.empty(d)
        step = ledger.batch_size(1)
        for start in range(0, d, step):
            stop = min(start + step, d)
            rows = ledger.blank(stop - start, 1)
            rows.fill(0.0)
            rows[np.arange(stop - start), 0, np.arange(start, stop)] = size
            v[start:stop] = (ledger.ask(rows) - c) / size
    ledger.known["values"] = (v, c)
    return v, c


def _loud_enough(ledger: Ledger, c: float, rng: np.random.Generator) -> float:
    """A power of two at which the readout is heard a thousand times louder than the constant."""
    largest = _LARGEST if ledger.input_bound is None else ledger.input_bound
    direction = rng.standard_normal(ledger.width)
    direction /= np.linalg.norm(direction)
    size = min(1.0, largest)
    while True:
        moved = abs(float(ledger.ask((size * direction)[None, None])[0]) - c)
        if moved > 1e6 * EPS * abs(c):
            return float(min(size * max(1.0, 2.0 ** np.ceil(np.log2(2.0**10 * abs(c) / moved))), largest))
        if size >= largest:
            return size
        size = min(size * 2.0**20, largest)
