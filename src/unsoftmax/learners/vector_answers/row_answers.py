"""Vector answers: the readout of one row, and what n rows a_i + b add to the answer of b alone."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.ledger import Ledger

__all__ = ["VectorResponses", "read_vector_values"]

_SIZE = 2.0**12


def read_vector_values(ledger: Ledger) -> tuple[Array, Array]:
    """(V̄, c) with V̄ (d, m) from d + 1 one-row queries; rows are large, so that a constant does not drown
    the readout."""
    if "vector values" in ledger.known:
        V, c = ledger.known["vector values"]
        return V, c
    d = ledger.width
    size = _SIZE if ledger.input_bound is None else min(_SIZE, ledger.input_bound)
    with ledger.phase("values"):
        answers = ledger.ask(np.concatenate([np.zeros((1, d)), size * np.eye(d)])[:, None])
    V, c = (answers[1:] - answers[0]) / size, answers[0]
    ledger.known["vector values"] = (V, c)
    return V, c


class VectorResponses:
    """F(a_1..a_n, b) = y - c - V̄ᵀb = Σ_h V_hᵀ Σ_i α_i^h a_i for sequences [a_1+b; ...; a_n+b; b]."""

    def __init__(self, ledger: Ledger, V: Array, c: Array, rounding: float) -> None:
        self.ledger = ledger
        self.V = V
        self.c = c
        self.rounding = rounding

    @property
    def width(self) -> int:
        return len(self.V)

    def __call__(self, rows: Array, B: Array) -> Array:
        """Responses (Q, m) to rows (Q, n, d), or (n, d) for all, and asking rows B (Q, d)."""
        B = np.atleast_2d(B)
        rows = np.broadcast_to(rows, (len(B), *rows.shape[-2:]))
        found = []
        step = self.ledger.batch_size(rows.shape[1] + 1)
        for start in range(0, len(B), step):
            b = B[start : start + step]
            batch = np.concatenate([rows[start : start + step] + b[:, None], b[:, None]], axis=1)
            found.append(self.ledger.ask(batch) - self.c - b @ self.V)
        return np.concatenate(found) if found else np.empty((0, len(self.c)))
