"""A box of the honesty fuzzer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from unsoftmax.arrays import Array
from unsoftmax.models import Model

__all__ = ["Case", "Function", "Maker"]

Function = Callable[[Array], Array]


@dataclass(frozen=True)
class Case:
    """A box as `recover` gets it.

    function: what it computes before answers are rounded or otherwise spoilt. truth: the model, when it is a
    member of a class. exact: whether its answers are exact and tell its parameters. member: whether it must
    not be OUTSIDE_CLASS, although not `exact`. steady: False for boxes whose answers depend on more than the
    sequence.
    labels: whether answers show signs only. width: None for boxes of token ids. also: a second model, for
    longer sequences, of which a bound on the parameters must be true as well.
    """

    box: object
    width: int | None
    function: Function
    truth: Model | None = None
    exact: bool = True
    steady: bool = True
    labels: bool = False
    options: dict[str, object] = field(default_factory=dict)
    also: Model | None = None
    member: bool = False


Maker = Callable[[int, int], Case]
