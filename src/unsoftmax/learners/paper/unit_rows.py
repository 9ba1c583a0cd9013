"""The paper's way to read v: d one-row queries, f([e_i]) = v_i."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.ledger import Asker
from unsoftmax.outcomes import NotIdentifiable

__all__ = ["read_unit_rows", "refuse_zero"]


def read_unit_rows(asker: Asker) -> Array:
    """v from the answers to the unit vectors."""
    with asker.phase("values"):
        return asker.ask(np.eye(asker.width)[:, None])


def refuse_zero(v: Array) -> None:
    """Raises `NotIdentifiable` where v is zero."""
    if not v.any():
        raise NotIdentifiable(
            "v = 0: every answer is zero, so W leaves no trace in any answer and cannot be seen"
        )
