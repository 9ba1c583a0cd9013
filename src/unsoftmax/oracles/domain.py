"""What may be sent to a target: rows of numbers, rows within a ball, rows of a finite list, or sequences of
token ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.errors import UsageError

__all__ = ["Ball", "Domain", "FiniteRows", "Ids", "Space", "TokenIds", "check_vocabulary"]

# a target turns every id into a row; batches are sized as if these rows had 64 columns
_COLUMNS_OF_AN_ID = 64


@dataclass(frozen=True)
class Space:
    """All rows of `width` numbers.

    >>> Space(2).checked([[[1, 2]]])
    array([[[1., 2.]]])
    """

    width: int

    @property
    def bound(self) -> float | None:
        """Largest norm of a row; None when there is none."""
        return None

    @property
    def columns(self) -> int:
        """Numbers that one row of a sequence takes in the target's memory."""
        return self.width

    def checked(self, batch: object) -> Array:
        """The batch as it is sent, or a `UsageError`."""
        rows = np.asarray(batch, dtype=np.float64)
        if rows.ndim != 3 or rows.shape[2] != self.width or rows.shape[1] < 1:
            raise UsageError(f"a batch must be (B, N, {self.width}), not {rows.shape}")
        return rows


@dataclass(frozen=True)
class Ball(Space):
    """Rows of `width` numbers whose norm is at most `radius`. The ledger refuses longer rows.

    >>> Ball(2, 3.0).bound
    3.0
    """

    radius: float

    @property
    def bound(self) -> float | None:
        return self.radius


@dataclass(frozen=True, eq=False)
class FiniteRows(Space):
    """Rows of a finite list (V, d), such as the embeddings of a vocabulary. Nothing else may be sent.

    >>> FiniteRows.of([[1.0, 0.0], [0.0, 1.0]]).ids(np.array([[[0.0, 1.0], [1.0, 0.0]]]))
    array([[1, 0]])
    """

    rows: Array

    @classmethod
    def of(cls, rows: object) -> FiniteRows:
        """The domain of a list of rows, checked."""
        table = np.array(rows, dtype=np.float64)
        if table.ndim != 2 or table.size == 0 or not np.isfinite(table).all():
            raise UsageError(f"the rows of a finite domain must be a finite array (V, d), not {table.shape}")
        return cls(table.shape[1], table)

    @cached_property
    def _places(self) -> dict[bytes, int]:
        # + 0.0: -0.0 and 0.0 are one row
        return {row.tobytes(): place for place, row in enumerate(self.rows + 0.0)}

    def checked(self, batch: object) -> Array:
        rows = super().checked(batch)
        self.ids(rows)
        return rows

    def ids(self, batch: Array) -> Ids:
        """The place of every row in the list, (B, N)."""
        flat = np.ascontiguousarray(batch + 0.0).reshape(-1, self.width)
        places = [self._places.get(row.tobytes(), -1) for row in flat]
        if -1 in places:
            raise UsageError(
                f"row {places.index(-1)} of the batch is none of the {len(self.rows)} rows that the target "
                "takes"
            )
        return np.array(places, dtype=np.int64).reshape(batch.shape[:2])


@dataclass(frozen=True)
class TokenIds:
    """Sequences of whole numbers from 0 to vocabulary - 1. A batch is an integer array (B, N).

    >>> TokenIds(10).checked([[1, 2, 9]])
    array([[1, 2, 9]])
    """

    vocabulary: int

    def __post_init__(self) -> None:
        check_vocabulary(self.vocabulary)

    @property
    def width(self) -> int:
        """Columns in one-hot coordinates: the size of the vocabulary."""
        return self.vocabulary

    @property
    def bound(self) -> float | None:
        """Ids have no norm."""
        return None

    @property
    def columns(self) -> int:
        """Numbers that one id takes in the target's memory, roughly."""
        return _COLUMNS_OF_AN_ID

    def checked(self, batch: object) -> Array:
        """The batch as int64 (B, N), or a `UsageError`. Its declared type is that of all batches."""
        ids = np.asarray(batch)
        if ids.ndim != 2 or ids.shape[1] < 1:
            raise UsageError(f"a batch of token ids must be (B, N) with N >= 1, not {ids.shape}")
        if ids.dtype.kind not in "iu":
            raise UsageError(f"token ids must be whole numbers, not {ids.dtype}")
        if ids.size and (int(ids.min()) < 0 or int(ids.max()) >= self.vocabulary):
            raise UsageError(
                f"token ids must be from 0 to {self.vocabulary - 1}, not {int(ids.min())} to "
                f"{int(ids.max())}; pass the true size as vocabulary=V"
            )
        return cast(Array, ids.astype(np.int64, copy=False))


Domain = Space | TokenIds


def check_vocabulary(vocabulary: object) -> int:
    """The number of token ids as a positive int, or a `UsageError`.

    >>> check_vocabulary(100)
    100
    """
    if isinstance(vocabulary, bool) or not isinstance(vocabulary, int | np.integer) or vocabulary < 1:
        raise UsageError(
            f"vocabulary must be a whole number >= 1, the number of token ids, not {vocabulary!r}"
        )
    return int(vocabulary)
