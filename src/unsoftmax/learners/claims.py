"""What a learner promises, as data: where it comes from, what it assumes and checks, what it costs, what it
recovers."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from unsoftmax.errors import UsageError
from unsoftmax.models import Model, MultiHead, ReluNetwork, SingleHead, Transformer

__all__ = ["Assumption", "Claim", "QueryCount", "Size"]


@dataclass(frozen=True)
class Size:
    """What a number of queries depends on.

    width: columns of a sequence. ranks: of W, one entry per head. neurons: kinks of the network, where there
    is one. outputs: numbers in an answer; None for scalar answers. biased: whether there is a query bias, or
    a bias in the network. repeats: how often every query is asked. value_ranks: of the matrix V, one entry
    per head, for vector answers; left out, as in usual layers: width over heads.

    >>> Size(16, (4, 4)).matrix_parameters, Size(16, (4, 4)).heads
    (224, 2)
    """

    width: int
    ranks: tuple[int, ...] = ()
    neurons: int = 0
    outputs: int | None = None
    biased: bool = False
    repeats: int = 1
    value_ranks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, value, least in (
            ("width", self.width, 1),
            ("neurons", self.neurons, 0),
            ("outputs", 1 if self.outputs is None else self.outputs, 1),
            ("repeats", self.repeats, 1),
        ):
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise UsageError(f"{name} must be a whole number >= {least}, not {value!r}")
        if any(not 0 <= rank <= self.width for rank in (*self.ranks, *self.value_ranks)):
            raise UsageError(f"ranks must be between 0 and the width {self.width}, not {self.ranks}")
        if self.value_ranks and len(self.value_ranks) != len(self.ranks):
            raise UsageError(f"value_ranks has {len(self.value_ranks)} entries, ranks has {len(self.ranks)}")

    @classmethod
    def of(cls, model: Model, *, repeats: int = 1) -> Size:
        """The size of a model, as the claims count it.

        >>> import unsoftmax
        >>> Size.of(unsoftmax.random_single_head(8, 2, seed=0))
        Size(width=8, ranks=(2,), neurons=0, outputs=None, biased=False, repeats=1, value_ranks=())
        """
        heads = _heads(model)
        return cls(
            width=model.width,
            ranks=tuple(model.ranks),
            neurons=_neurons(model),
            outputs=model.outputs,
            biased=_biased(model),
            repeats=repeats,
            value_ranks=()
            if model.outputs is None
            else tuple(int(np.linalg.matrix_rank(h.v)) for h in heads),
        )

    @property
    def heads(self) -> int:
        """Number of heads."""
        return len(self.ranks)

    @property
    def rank(self) -> int:
        """The largest rank; the width where no rank is given."""
        return max(self.ranks, default=self.width)

    @property
    def matrix_parameters(self) -> int:
        """Degrees of freedom of all W: r(2d - r) a head."""
        return sum(r * (2 * self.width - r) for r in (self.ranks or (self.width,)))

    @property
    def weak_column(self) -> int:
        """Measurements that a range finder pays where one column of W, by chance, is too weak to build on:
        what the next rank has more."""
        return max(0, 2 * (self.width - self.rank) - 1)


@dataclass(frozen=True)
class _FormulaOnly:
    """What is left of a counting function after pickling: functions without a name cannot be written."""

    formula: str

    def __call__(self, size: Size) -> int:
        raise UsageError(
            f"this claim was pickled, which keeps its formula ({self.formula}) and not its function; ask the "
            "claim of the learner"
        )


def _writable(state: dict[str, Any], formula: str) -> dict[str, Any]:
    """The fields for pickling, functions that cannot be found again by their name replaced."""

    def kept(value: Any) -> Any:
        if not callable(value) or isinstance(value, QueryCount | _FormulaOnly):
            return value
        module = sys.modules.get(getattr(value, "__module__", ""))
        found = getattr(module, getattr(value, "__qualname__", ""), None)
        return value if found is value else _FormulaOnly(formula)

    return {name: kept(value) for name, value in state.items()}


_AGREES: dict[str, Callable[[int, int], bool]] = {"exact": operator.eq, "upper": operator.le}


@dataclass(frozen=True)
class QueryCount:
    """Number of queries without verification and identification: a formula for people, functions of a `Size`
    for machines.

    count: the number that is kept to, exactly or at most, by one attempt. usual: what targets usually take,
    where that is less (None: `count`). attempts: how often the learner begins again, and pays again, at most.

    >>> QueryCount("d + d^2", "exact", lambda size: size.width + size.width**2)(Size(4))
    20
    """

    formula: str
    kind: Literal["exact", "upper"]
    count: Callable[[Size], int]
    usual: Callable[[Size], int] | None = None
    attempts: int = 1

    def __getstate__(self) -> dict[str, Any]:
        return _writable(dict(self.__dict__), self.formula)

    def __call__(self, size: Size) -> int:
        return self.attempts * self.count(size)

    def expected(self, size: Size) -> int:
        """What is usually paid, for planning; no promise."""
        return self.count(size) if self.usual is None else self.usual(size)

    def holds(self, billed: int, size: Size) -> bool:
        """Whether a billed count agrees with the claim: equal for exact ones, at most for upper ones."""
        return _AGREES[self.kind](billed, self(size))


def _usual_verification(size: Size) -> int:
    """Checks, certificate and error bound of one head with exact answers; measured: 205 to 230, 16 more with
    a query bias."""
    return 256 if size.biased else 240


def _exact_answers(_: Size) -> int:
    """Queries that show exact answers; other answers take about 80, and a plan says so."""
    return 3


@dataclass(frozen=True)
class Claim:
    """A theorem as data. For planning: verification, what checks and certificate usually take, and
    identification, what it takes to see that the answers are of the kind that the learner is for. rows: the
    longest sequences have at least so many. Heads need three: of two rows, a head W, v is answered as the
    pair of heads -W, -v and 0, 2v. one_head: a learner of several heads that is for one as well."""

    title: str
    source: str
    assumptions: tuple[Assumption, ...]
    queries: QueryCount
    recovers: str
    symmetry: str
    verification: Callable[[Size], int] = _usual_verification
    identification: Callable[[Size], int] = _exact_answers
    rows: int = 3
    one_head: bool = False

    def too_short(self, longest: int | None) -> str:
        """Why sequences of at most that many rows are not enough; empty where they are."""
        if longest is None or not 1 < longest < self.rows:
            return ""
        return f"this takes sequences of {self.rows} rows, and the target takes at most {longest}"

    def __getstate__(self) -> dict[str, Any]:
        return _writable(dict(self.__dict__), "verification")


@dataclass(frozen=True)
class Assumption:
    """A condition on the target, and the check that tests it."""

    text: str
    check: str


def _heads(model: Model) -> tuple[SingleHead, ...]:
    match model:
        case SingleHead():
            return (model,)
        case MultiHead():
            return tuple(model.heads)
        case _:
            return ()


def _neurons(model: Model) -> int:
    match model:
        case Transformer():
            return _neurons(model.network)
        case ReluNetwork():
            return int(model.folds.count)
        case _:
            return 0


def _biased(model: Model) -> bool:
    match model:
        case Transformer():
            return model.w0 is not None or _biased(model.network)
        case ReluNetwork():
            return bool(model.folds.biased)
        case _:
            return any(head.w0 is not None for head in _heads(model))
