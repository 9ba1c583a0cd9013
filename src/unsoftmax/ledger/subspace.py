"""Questions inside a subspace: a ledger of smaller width, whose rows are coordinates, billed on the one
behind it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.ledger.ledger import Bill, Ledger

__all__ = ["SubspaceLedger"]


class SubspaceLedger(Ledger):
    """Sends z Uᵀ for every row z, with orthonormal columns in `basis` (d, k); so learners see a target of
    width k.

    >>> from unsoftmax.oracles import FunctionOracle, OracleSpec
    >>> base = Ledger(FunctionOracle(lambda X: X[:, -1, 1], OracleSpec(width=2)))
    >>> SubspaceLedger(base, np.array([[0.0], [1.0]])).ask(np.full((1, 1, 1), 7.0))
    array([7.])
    """

    def __init__(self, base: Ledger, basis: Array) -> None:
        self.base = base
        self.basis = basis
        self.oracle = base.oracle
        self.width = basis.shape[1]
        self.budget = base.budget
        self.input_bound = base.input_bound
        self.expected = base.expected
        self.known = {}
        self.witnesses = []

    @property
    def bill(self) -> Bill:
        return self.base.bill

    def phase(self, name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        return self.base.phase(name)

    def expect(self, total: int | None) -> None:
        self.base.expect(total)

    def batch_size(self, length: int) -> int:
        return self.base.batch_size(length)

    def ask(self, batch: Array, *, check: Callable[[Array, Array], None] | None = None) -> Array:
        def check_inside(sent: Array, answers: Array) -> None:
            if check is not None:
                check(np.asarray(sent @ self.basis), answers)

        answers = self.base.ask(np.asarray(batch) @ self.basis.T, check=check_inside)
        if len(self.witnesses) < 8 and len(batch):
            self.witnesses.append((np.array(batch[0], dtype=np.float64), np.asarray(answers[0])))
        return answers
