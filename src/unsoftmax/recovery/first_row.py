"""Attention whose first row asks: found, and asked with the rows of every sequence in reverse."""

from __future__ import annotations

import numpy as np

from unsoftmax.answers import IDENTIFY, Computed, Finding, Stored, Subject
from unsoftmax.arrays import shortened
from unsoftmax.learners import Known
from unsoftmax.ledger import Ledger
from unsoftmax.models import AskingRow, Model, MultiHead, SingleHead
from unsoftmax.oracles.domain import Space
from unsoftmax.oracles.wrappers import Reversed

__all__ = ["asked_by_first_row", "reverse_for_first_row"]

_ROWS = 4  # the fewest of which a pair changes places beside the first and the last row
_SAME = 1e-3  # of what the first row moves: rounding of float32 leaves 1e-6, positions of the other rows more
_AFFINE = 1e-4  # of the answers: rounding of float32 leaves 1e-6, a block or a network bends by a hundredth


def reverse_for_first_row(ledger: Ledger, known: Known, rng: np.random.Generator) -> Finding | None:
    """Where the first row alone asks, and single rows are answered affinely, the ledger sends rows in reverse
    from now on, so that learners of the last row serve. Seven queries."""
    plain = known.exact or isinstance(known.answers, Computed | Stored)
    short = ledger.max_length is not None and ledger.max_length < _ROWS
    if not plain or short or not isinstance(known.domain, Space) or isinstance(ledger.oracle, Reversed):
        return None
    before = ledger.bill.total
    rows = shortened(rng.standard_normal((_ROWS, ledger.width)), ledger.input_bound)
    orders = [[0, 1, 2, 3], [0, 3, 2, 1], [0, 2, 3, 1], [1, 0, 2, 3]]
    with ledger.phase(IDENTIFY):
        plain_order, last, others, first = ledger.ask(np.stack([rows[order] for order in orders]))
        moved = float(np.abs(first - plain_order).max())
        kept = max(float(np.abs(answer - plain_order).max()) for answer in (last, others))
        if not kept <= _SAME * moved:
            return None
        zero, up, down = ledger.ask(np.stack([0.0 * rows[:1], rows[:1], -rows[:1]]))
    bend = float(np.abs(up + down - 2.0 * zero).max())
    if bend > _AFFINE * float(np.abs(np.stack([zero, up, down])).max()):
        return None
    ledger.reverse_rows()
    text = (
        f"the answer moves by {moved:.2g} when the first two of {_ROWS} rows change places, and by "
        f"{kept:.1g} when the others do"
    )
    return Finding(Subject.ASKING, AskingRow.FIRST.value, text, ledger.bill.total - before)


def asked_by_first_row(model: Model | None) -> MultiHead | None:
    """Heads that were learnt from reversed rows, as heads whose first row asks; None for other models."""
    if isinstance(model, SingleHead) and model.clip is None:
        model = MultiHead([model])
    return model.asked_by(AskingRow.FIRST) if isinstance(model, MultiHead) else None
