"""Views of an asker: shorter rows, a subspace, one readout of vector answers, answers without a skip
connection. The bill stays the asker's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.ledger.asker import Asker, Check, Exchange
from unsoftmax.ledger.bill import Bill

__all__ = ["BilledTo", "HasViews", "OnSubspace", "Readout", "WithinBound", "WithoutSkip"]

_KEPT = 8  # early queries of a view: as many as a certificate asks again


class HasViews:
    """The views of an asker that inherits from here."""

    def within(self: Asker, bound: float) -> Asker:
        """A view that sends rows of at most this norm."""
        return WithinBound(self, bound)

    def on(self: Asker, basis: Array) -> Asker:
        """A view of the subspace spanned by orthonormal columns (d, k)."""
        return OnSubspace(self, basis)

    def read(self: Asker, weights: Array) -> Asker:
        """A view of vector answers through one readout."""
        return Readout(self, weights)


class _View(HasViews):
    """Everything as in `inner`; what a view changes, it overrides."""

    def __init__(self, inner: Asker) -> None:
        self._inner = inner

    @property
    def width(self) -> int:
        return self._inner.width

    @property
    def outputs(self) -> int | None:
        return self._inner.outputs

    @property
    def input_bound(self) -> float | None:
        return self._inner.input_bound

    @property
    def max_length(self) -> int | None:
        return self._inner.max_length

    @property
    def bill(self) -> Bill:
        return self._inner.bill

    @property
    def early_queries(self) -> Sequence[Exchange]:
        return self._inner.early_queries

    def ask(self, batch: Array, *, check: Check | None = None) -> Array:
        return self._inner.ask(batch, check=check)

    def phase(self, name: str) -> AbstractContextManager[None]:
        return self._inner.phase(name)

    def expect(self, total: int | None) -> None:
        self._inner.expect(total)

    def batch_size(self, length: int) -> int:
        return self._inner.batch_size(length)

    def blank(self, n_queries: int, length: int) -> Array:
        return self._inner.blank(n_queries, length)


class WithinBound(_View):
    """Says that rows may be at most `bound` long, or less where the inner asker says less.

    >>> from unsoftmax.ledger import Ledger
    >>> from unsoftmax.oracles import FunctionOracle
    >>> Ledger(FunctionOracle(len), width=2, input_bound=5.0).within(3.0).input_bound
    3.0
    """

    def __init__(self, inner: Asker, bound: float) -> None:
        super().__init__(inner)
        self._bound = bound if inner.input_bound is None else min(bound, inner.input_bound)

    @property
    def input_bound(self) -> float | None:
        return self._bound


class BilledTo(_View):
    """Bills everything to one phase, whatever phases are named inside.

    >>> from unsoftmax.ledger import Ledger
    >>> from unsoftmax.oracles import FunctionOracle
    >>> ledger = Ledger(FunctionOracle(lambda X: X[:, -1, 0]), width=2)
    >>> with BilledTo(ledger, "verification").phase("identify"):
    ...     _ = BilledTo(ledger, "verification").ask(np.ones((1, 1, 2)))
    >>> dict(ledger.bill.by_phase)
    {'verification': 1}
    """

    def __init__(self, inner: Asker, phase: str) -> None:
        super().__init__(inner)
        self._phase = phase

    def ask(self, batch: Array, *, check: Check | None = None) -> Array:
        with self._inner.phase(self._phase):
            return self._inner.ask(batch, check=check)


class _Translated(_View):
    """A view whose queries or answers are others than the inner asker's, with early queries of its own."""

    def __init__(self, inner: Asker) -> None:
        super().__init__(inner)
        self._early: list[Exchange] = []

    @property
    def early_queries(self) -> Sequence[Exchange]:
        return tuple(self._early)

    def _keep(self, batch: Array, answers: Array) -> None:
        if len(self._early) < _KEPT and len(batch):
            self._early.append((np.array(batch[0], dtype=np.float64), np.asarray(answers[0])))


class OnSubspace(_Translated):
    """Sends z Uᵀ for every row z, with orthonormal columns in `basis` (d, k): a target of width k.

    >>> from unsoftmax.ledger import Ledger
    >>> from unsoftmax.oracles import FunctionOracle
    >>> base = Ledger(FunctionOracle(lambda X: X[:, -1, 1]), width=2)
    >>> base.on(np.array([[0.0], [1.0]])).ask(np.full((1, 1, 1), 7.0))
    array([7.])
    """

    def __init__(self, inner: Asker, basis: Array) -> None:
        super().__init__(inner)
        self._basis = basis

    @property
    def width(self) -> int:
        return int(self._basis.shape[1])

    def blank(self, n_queries: int, length: int) -> Array:
        return np.empty((n_queries, length, self.width))

    def ask(self, batch: Array, *, check: Check | None = None) -> Array:
        def check_inside(sent: Array, answers: Array) -> None:
            if check is not None:
                check(np.asarray(sent @ self._basis), answers)

        answers = self._inner.ask(np.asarray(batch) @ self._basis.T, check=check_inside)
        self._keep(batch, answers)
        return answers


class Readout(_Translated):
    """Returns answers @ weights, so that learners for scalar answers serve vector ones.

    >>> from unsoftmax.ledger import Ledger
    >>> from unsoftmax.oracles import FunctionOracle, OracleSpec
    >>> base = Ledger(FunctionOracle(lambda X: X[:, -1], OracleSpec(width=2, outputs=2)))
    >>> base.read(np.array([1.0, 10.0])).ask(np.ones((1, 1, 2))), base.bill.total
    (array([11.]), 1)
    """

    def __init__(self, inner: Asker, weights: Array) -> None:
        super().__init__(inner)
        self._weights = weights

    @property
    def outputs(self) -> int | None:
        return None

    def ask(self, batch: Array, *, check: Check | None = None) -> Array:
        def check_read(sent: Array, vectors: Array) -> None:
            if check is not None:
                check(sent, np.asarray(vectors @ self._weights))

        answers = np.asarray(self._inner.ask(batch, check=check_read) @ self._weights)
        self._keep(batch, answers)
        return answers


class WithoutSkip(_Translated):
    """Takes x_N·skip off every answer, so that learners of attention serve attention beside a skip
    connection. skip: (d,), or (d, m) for vector answers.

    >>> from unsoftmax.ledger import Ledger
    >>> from unsoftmax.oracles import FunctionOracle
    >>> base = Ledger(FunctionOracle(lambda X: X[:, -1, 0] + 5.0), width=2)
    >>> WithoutSkip(base, np.array([1.0, 0.0])).ask(np.full((1, 1, 2), 7.0))
    array([5.])
    """

    def __init__(self, inner: Asker, skip: Array) -> None:
        super().__init__(inner)
        self._skip = skip

    def ask(self, batch: Array, *, check: Check | None = None) -> Array:
        beside = np.asarray(batch)[:, -1] @ self._skip

        def check_rest(sent: Array, answers: Array) -> None:
            if check is not None:
                check(sent, np.asarray(answers - beside))

        answers = np.asarray(self._inner.ask(batch, check=check_rest) - beside)
        self._keep(batch, answers)
        return answers
