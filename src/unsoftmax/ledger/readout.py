"""One number out of a vector answer: a ledger that weighs the outputs, billed on the one behind it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.ledger.ledger import Bill, Ledger

__all__ = ["ReadoutLedger"]


class ReadoutLedger(Ledger):
    """Asks the ledger behind and returns answers @ weights, so that learners for scalar answers serve vector
    ones.

    >>> from unsoftmax.oracles import FunctionOracle, OracleSpec
    >>> base = Ledger(FunctionOracle(lambda X: X[:, -1], OracleSpec(width=2, outputs=2)))
    >>> view = ReadoutLedger(base, np.array([1.0, 10.0]))
    >>> view.ask(np.ones((1, 1, 2))), base.bill.total
    (array([11.]), 1)
    """

    def __init__(self, base: Ledger, weights: Array) -> None:
        self.base = base
        self.weights = weights
        self.oracle = base.oracle
        self.width = base.width
        self.budget = base.budget
        self.input_bound = base.input_bound
        self.expected = base.expected
        self.known = {}
        self.witnesses = []

    @property
    def bill(self) -> Bill:
        return self.base.bill

    @property
    def outputs(self) -> int | None:
        return None

    def phase(self, name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        return self.base.phase(name)

    def expect(self, total: int | None) -> None:
        self.base.expect(total)

    def batch_size(self, length: int) -> int:
        return self.base.batch_size(length)

    def blank(self, n_queries: int, length: int) -> Array:
        return self.base.blank(n_queries, length)

    def ask(self, batch: Array, *, check: Callable[[Array, Array], None] | None = None) -> Array:
        def check_read(sent: Array, vectors: Array) -> None:
            if check is not None:
                check(sent, np.asarray(vectors @ self.weights))

        answers = self.base.ask(batch, check=check_read) @ self.weights
        if len(self.witnesses) < 8 and len(batch):
            self.witnesses.append((np.array(batch[0], dtype=np.float64), np.asarray(answers[0])))
        return np.asarray(answers)
