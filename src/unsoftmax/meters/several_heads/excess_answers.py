"""What two rows [a+b; b] add to the answer of b alone, in coordinates where a query bias is one more column
of W."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.ledger import Asker

__all__ = ["Responses"]


class Responses:
    """F(a, b) = y - c - b·v̄ = Σ_h σ(aᵀW_h b)·(a·v_h), for several heads whose summed readout v̄ and constant
    c are known.

    With `biased`, b has d+1 coordinates κ(x, unit): the row x asks, and a is sent as κa, so that F(κa, x)/κ
    is the same sum with [W_h, w0_h/unit] in place of W_h. `flat` is the readout of a head with W = 0, which
    always takes half: it is subtracted.

    >>> from unsoftmax import Ledger
    >>> from unsoftmax import SingleHead
    >>> from unsoftmax.oracles import FunctionOracle
    >>> head = SingleHead(np.zeros((2, 2)), np.ones(2))
    >>> Responses(Ledger(FunctionOracle(head), width=2), head.v)(np.ones((1, 2)), np.zeros((1, 2)))
    array([1.])
    """

    def __init__(
        self, ledger: Asker, v: Array, c: float = 0.0, *, biased: bool = False, rounding: float = EPS
    ) -> None:
        self.ledger = ledger
        self.v = v
        self.c = c
        self.biased = biased
        self.rounding = rounding  # relative error of an answer
        self.unit = 1.0
        self.flat = np.zeros(len(v))

    def begin(self) -> None:
        """As at first: no unit of query biases, no head with W = 0."""
        self.unit = 1.0
        self.flat = np.zeros(len(self.v))

    def measure_biases_in(self, unit: float) -> None:
        """The last coordinate of b stands for so much of a query bias."""
        self.unit = unit

    def subtract(self, flat: Array) -> None:
        """The readout of a head with W = 0."""
        self.flat = flat

    @property
    def width(self) -> int:
        """Coordinates of a."""
        return len(self.v)

    @property
    def columns(self) -> int:
        """Coordinates of b."""
        return len(self.v) + self.biased

    def __call__(self, A: Array, B: Array, first: int = 1, last: int = 1) -> Array:
        """F for the rows of A and B (either may be a single row), with `first` copies of a+b and `last`
        copies of b."""
        A, B = np.atleast_2d(A), np.atleast_2d(B)
        n = max(len(A), len(B)) if min(len(A), len(B)) else 0
        if n == 0:
            return np.empty(0)
        A, B = np.broadcast_to(A, (n, A.shape[1])), np.broadcast_to(B, (n, B.shape[1]))
        answers = np.empty(n)
        step = self.ledger.batch_size(first + last)
        for start in range(0, n, step):
            part = slice(start, min(start + step, n))
            answers[part] = self._ask(A[part], B[part], first, last)
        return answers

    def _ask(self, A: Array, B: Array, first: int, last: int) -> Array:
        share = first / (first + last)
        flat = share * (A @ self.flat) if self.flat.any() else 0.0
        batch = self.ledger.blank(len(A), first + last)
        if not self.biased:
            batch[:, first:] = B[:, None]
            np.add(A, B, out=batch[:, 0])
            batch[:, 1:first] = batch[:, :1]
            return self.ledger.ask(batch) - self.c - B @ self.v - flat
        kappa = B[:, -1:] / self.unit
        asking = np.divide(B[:, :-1], kappa, out=batch[:, -1])
        batch[:, first:-1] = asking[:, None]
        np.multiply(A, kappa, out=batch[:, 0])
        batch[:, 0] += asking
        batch[:, 1:first] = batch[:, :1]
        alone = asking @ self.v
        return (self.ledger.ask(batch) - self.c - alone) / kappa[:, 0] - flat

    def longest_row(self, A: Array, B: Array) -> float:
        """The norm of the longest row that is sent for these."""
        if not self.biased:
            asking, first = B, A + B
        else:
            kappa = B[:, -1:] / self.unit
            asking = B[:, :-1] / kappa
            first = kappa * A + asking
        return float(max(np.linalg.norm(asking, axis=1).max(), np.linalg.norm(first, axis=1).max()))

    def blur(self, A: Array, B: Array) -> Array:
        """Size of the rounding error of F, for rows of A and B."""
        v_size = float(np.linalg.norm(self.v))
        a_size, b_size = np.linalg.norm(np.atleast_2d(A), axis=1), np.linalg.norm(np.atleast_2d(B), axis=1)
        if not self.biased:
            return np.asarray(self.rounding * (a_size * v_size + b_size * v_size + abs(self.c)))
        kappa = np.abs(np.atleast_2d(B)[:, -1]) / self.unit
        return np.asarray(self.rounding * (a_size * v_size + (b_size * v_size / kappa + abs(self.c)) / kappa))
