"""What networks of single rows share: the constant, the sizes, and what they take for a batch."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.models.base import Model

__all__ = ["RowNetwork", "as_constant"]


class RowNetwork(Model):
    """A network of rows (n, d): a first layer (J, d), a last one (J,) or (J, m), and a constant."""

    _c: Array

    @property
    def _first(self) -> Array:
        """The first layer, one row a unit."""
        raise NotImplementedError  # pragma: no cover - abstract

    @property
    def _last(self) -> Array:
        """The last layer, one row a unit."""
        raise NotImplementedError  # pragma: no cover - abstract

    @property
    def c(self) -> float | Array:
        """The output bias."""
        return float(self._c) if self._c.ndim == 0 else self._c

    @property
    def width(self) -> int:
        return int(self._first.shape[1])

    @property
    def outputs(self) -> int | None:
        return None if self._last.ndim == 1 else int(self._last.shape[1])

    @property
    def ranks(self) -> list[int]:
        return []

    def _rows(self, batch: Array) -> Array:
        """The rows of (n, d), or of one-row sequences (n, 1, d)."""
        X = np.asarray(batch, dtype=np.float64)
        if X.ndim == 3 and X.shape[1] == 1:
            X = X[:, 0]
        if X.ndim != 2 or X.shape[1] != self.width:
            d = self.width
            raise UsageError(
                f"a network of width {d} takes (n, {d}) or one-row sequences (n, 1, {d}), not {X.shape}"
            )
        return X


def as_constant(c: object, answer: tuple[int, ...]) -> Array:
    """The constant of an answer of this shape; a number stands for all of its entries."""
    constant = np.array(c, dtype=np.float64)
    return np.broadcast_to(constant, answer).copy() if constant.shape == () else constant
