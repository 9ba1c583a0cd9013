"""Vector answers: the readout of one row, and what n rows a_i + b add to the answer of b alone."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.ledger import Asker

__all__ = ["VectorResponses", "read_vector_values"]

_SIZE = 2.0**12  # of rows: a constant a thousand times V costs them three digits


def read_vector_values(asker: Asker) -> tuple[Array, Array]:
    """(V̄, c) with V̄ (d, m) from d + 1 one-row queries; rows are large, so that a constant does not hide
    the readout."""
    d = asker.width
    size = _SIZE if asker.input_bound is None else min(_SIZE, asker.input_bound)
    with asker.phase("values"):
        answers = asker.ask(np.concatenate([np.zeros((1, d)), size * np.eye(d)])[:, None])
    return (answers[1:] - answers[0]) / size, answers[0]


class VectorResponses:
    """F(a_1..a_n, b) = y - c - V̄ᵀb = Σ_h V_hᵀ Σ_i α_i^h a_i for sequences [a_1+b; ...; a_n+b; b]."""

    def __init__(self, asker: Asker, V: Array, c: Array, rounding: float) -> None:
        self.asker = asker
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
        step = self.asker.batch_size(rows.shape[1] + 1)
        for start in range(0, len(B), step):
            b = B[start : start + step]
            batch = np.concatenate([rows[start : start + step] + b[:, None], b[:, None]], axis=1)
            found.append(self.asker.ask(batch) - self.c - b @ self.V)
        return np.concatenate(found) if found else np.empty((0, len(self.c)))
