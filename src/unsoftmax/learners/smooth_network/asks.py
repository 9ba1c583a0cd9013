"""What the learners of networks ask: any function of points that answers with vectors, be it a whole target
or a part of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.ledger import Asker

__all__ = ["Asks", "CountedAsks", "FunctionAsks", "rows_of"]


class Asks(Protocol):
    """A function R^width -> R^outputs that may be asked anywhere in a ball of some radius around the
    origin."""

    @property
    def width(self) -> int: ...

    @property
    def outputs(self) -> int: ...

    @property
    def radius(self) -> float:
        """Points of this norm and beyond cannot be asked; infinite where all can."""

    def __call__(self, points: Array, /) -> Array:
        """(n, width) -> (n, outputs)."""


@dataclass(frozen=True)
class FunctionAsks:
    """A plain function as `Asks`.

    >>> FunctionAsks(lambda x: x[:, :1] ** 2, 3, 1)(np.full((2, 3), 2.0))
    array([[4.],
           [4.]])
    """

    function: Callable[[Array], Array]
    width: int
    outputs: int
    radius: float = np.inf

    def __call__(self, points: Array, /) -> Array:
        return np.asarray(self.function(points), dtype=np.float64).reshape(len(points), self.outputs)


@dataclass
class CountedAsks:
    """The same function; counts its points."""

    asks: Asks
    count: int = 0

    @property
    def width(self) -> int:
        return self.asks.width

    @property
    def outputs(self) -> int:
        return self.asks.outputs

    @property
    def radius(self) -> float:
        return self.asks.radius

    def __call__(self, points: Array, /) -> Array:
        self.count += len(points)
        return self.asks(points)


def rows_of(asker: Asker) -> FunctionAsks:
    """The one-row sequences of a target; a single number as answer becomes a vector of length 1."""

    def ask(points: Array) -> Array:
        size = asker.batch_size(1)
        parts = [asker.ask(points[i : i + size, None]) for i in range(0, len(points), size)]
        return np.concatenate(parts)

    bound = np.inf if asker.input_bound is None else asker.input_bound
    return FunctionAsks(ask, asker.width, 1 if asker.outputs is None else asker.outputs, bound)
