"""Targets whose rows are all alike: a mean or a maximum over rows was taken behind what asks."""

from __future__ import annotations

import numpy as np

from unsoftmax.answers import IDENTIFY, Finding, Seen, Subject
from unsoftmax.arrays import shortened
from unsoftmax.ledger import Ledger
from unsoftmax.oracles.domain import Space

__all__ = ["rows_alike"]

_SAME = (
    1e-3  # of what another row moves: rounding of float32 leaves 1e-6, an asking row changes about as much
)


def rows_alike(ledger: Ledger, rng: np.random.Generator) -> Finding | None:
    """Whether the last row is one like the others: three rows in three orders, each last once, and others in
    their place. Four queries; None where a row asks, and where this cannot be told."""
    if not isinstance(ledger.domain, Space) or (ledger.max_length or 3) < 3:
        return None
    before = ledger.bill.total
    rows, others = shortened(rng.standard_normal((2, 3, ledger.width)), ledger.input_bound)
    orders = np.stack([rows, rows[[1, 2, 0]], rows[[2, 0, 1]], others])
    with ledger.phase(IDENTIFY):
        answers = ledger.ask(orders)
    kept, moved = (float(np.abs(part - answers[0]).max()) for part in (answers[1:3], answers[3]))
    if not kept <= _SAME * moved or moved == 0.0:
        return None
    text = (
        f"three rows get the same answer whichever is last, to {kept:.1g}; other rows move it by {moved:.2g}"
    )
    return Finding(Subject.ASKING, Seen.ALIKE, text, ledger.bill.total - before)
