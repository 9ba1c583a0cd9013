"""Which row of a sequence asks, from a few answers, and what stands in the way where none does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, shortened
from unsoftmax.float_formats import smallest_format
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.models import AskingRow
from unsoftmax.outcomes import Unresolved

__all__ = ["OrderMatters", "RowRoles", "row_roles"]

# of the answers: sums over rows in another order are off by 1e-15 in float64, by 1e-6 in float32
_SAME, _SAME_SHORT = 1e-9, 1e-5


class OrderMatters(Unresolved):
    """The order of the rows matters beside the one that asks."""


@dataclass(frozen=True)
class RowRoles:
    """asking: the row that is answered, or the mean over all. skips_zeros: whether rows of zeros are left
    out, as padding is."""

    asking: AskingRow
    skips_zeros: bool

    def last_asks(self, asks: AsksSequences) -> AsksSequences:
        """The same target, asked by its last row, or by all."""
        return (lambda batch: asks(batch[:, ::-1].copy())) if self.asking is AskingRow.FIRST else asks


def row_roles(
    asks: AsksSequences,
    width: int,
    rng: np.random.Generator,
    *,
    bound: float | None = None,
    short: bool = False,
) -> RowRoles:
    """Which row asks, or all. Raises unless the first or the last row asks or all do, the order of the others
    does not matter, and rows see each other and nothing else. bound: largest norm of a row. short: whether
    the target is known to compute in float32; where it is not, answers must have float64 digits."""
    rows = shortened(rng.standard_normal((4, width)), bound)
    orders = [[0, 1, 2, 3], [0, 2, 1, 3], [1, 0, 2, 3], [0, 1, 3, 2], [0, 1, 2, 3]]
    answers = asks(np.stack([rows[order] for order in orders]))
    if not short and (held := smallest_format(answers)) is not None:
        raise Unresolved(
            f"all answers are {held.value} numbers: a block is recovered from differences that their "
            "rounding hides; ask the same block in float64 (torch: module.double())"
        )
    plain = answers[0]
    limit = (_SAME_SHORT if short else _SAME) * float(np.abs(plain).max())

    def differs(one: Array, other: Array) -> bool:
        return float(np.abs(one - other).max()) > limit

    middle, first, last, again = (differs(there, plain) for there in answers[1:])
    if again:
        raise Unresolved(
            "one sequence, asked twice, was answered differently, as with dropout that is on; switch it off "
            "(torch: module.eval())"
        )
    if middle or (first and last):
        raise OrderMatters(
            "the order of the rows matters beside the one that asks, as with positions that are added to "
            "rows, with windows, or with a second layer behind a causal mask: such a block is not recovered; "
            "take positions out, or subtract them from the rows that you send"
        )
    asking = rows[0] if first else rows[3]
    alone = asks(np.stack([asking])[None])[0]
    if differs(asks(np.stack([asking] * 3)[None])[0], alone):
        raise Unresolved(
            "three copies of a row are answered differently from the row alone, which self-attention cannot "
            "do: rows see something that is not sent, as with cross attention to a memory, attention sinks "
            "or a class token that the target adds itself, or they are counted; such a block is not recovered"
        )
    if not differs(alone, plain):
        raise Unresolved(
            "other rows do not change the answer: each row is answered by itself, as by a network alone, or "
            "by cross attention to a memory that is always the same; `recover_network` learns functions of "
            "one row"
        )
    padded = asks(np.insert(rows, 2, 0.0, axis=0)[None])[0]
    row = AskingRow.LAST if last else AskingRow.FIRST if first else AskingRow.MEAN
    return RowRoles(row, not differs(padded, plain))
