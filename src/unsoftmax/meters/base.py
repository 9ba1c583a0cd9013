"""What a meter is: it turns an oracle's answers into the hidden bilinear form aᵀWb, and knows nothing of W's
structure."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["Answers", "BoundedMeter", "FormMeter", "Meter"]


class Answers(Protocol):
    """Where a meter asks: a ledger, or something that asks one in its place."""

    @property
    def input_bound(self) -> float | None:
        """Largest norm of a row, if there is one."""

    def batch_size(self, length: int) -> int:
        """How many sequences of `length` rows make a good batch."""

    def blank(self, n_queries: int, length: int) -> Array:
        """A batch to fill and ask; its memory may serve again afterwards."""

    def ask(self, batch: Array) -> Array:
        """Answers to a batch."""


@runtime_checkable
class FormMeter(Protocol):
    """Measures aᵀWb for given pairs: what solvers need that choose their pairs in advance."""

    @property
    def width(self) -> int:
        """The d of W (d×d)."""

    def forms(self, A: Array, B: Array) -> Array:
        """a_kᵀ W b_k for the rows of A and B, of any size. NaN or infinite where a pair cannot be read."""


@runtime_checkable
class Meter(FormMeter, Protocol):
    """Measures aᵀWb inside subspaces, too. Solvers see this and never an oracle.

    A row sees a vector when their product is not small.
    """

    @property
    def facing(self) -> Array | None:
        """A vector that every b should see: a solver chooses its b's with b·facing well away from zero.
        None: any b will do."""
        return None

    def resolution(self) -> float:
        """Size below which aᵀWb (unit a, b) cannot be told from zero, as far as this meter knows by itself.
        May ask a few queries when first called."""
        raise NotImplementedError

    def forms(self, A: Array, B: Array) -> Array:
        """See `FormMeter.forms`; here pair by pair."""
        return _forms_by_projection(self, A, B)

    def project(self, basis: Array | None, B: Array, *, rest_is_zero: bool = False) -> Array:
        """basisᵀ W B, with orthonormal columns in `basis` (d×k; None: the identity) and unit columns in B
        (d×n).

        The meter chooses which combinations inside the span it measures: k a column, and what it must ask
        again. `rest_is_zero` promises that Wᵀ vanishes on everything orthogonal to `basis`, so the meter may
        add any of that.
        """
        raise NotImplementedError


@runtime_checkable
class BoundedMeter(Meter, Protocol):
    """A meter that says how far off it can be."""

    def project(self, basis: Array | None, B: Array, *, rest_is_zero: bool = False) -> Array:
        return self.measure(basis, B, rest_is_zero=rest_is_zero)[0]

    def measure(
        self, basis: Array | None, B: Array, *, rest_is_zero: bool = False, length: float | None = None
    ) -> tuple[Array, Array]:
        """As `project`, and for every column a bound on the length of its error. length: what to expect of a
        column's length."""
        raise NotImplementedError


def _forms_by_projection(meter: Meter, A: Array, B: Array) -> Array:
    """a_kᵀ W b_k one by one, for meters whose `project` adds to each a what makes it readable."""
    sizes = np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1)
    values = np.zeros(len(A))
    for k in np.flatnonzero(sizes):
        a, b = A[k] / np.linalg.norm(A[k]), B[k] / np.linalg.norm(B[k])
        values[k] = float(meter.project(a[:, None], b[:, None])[0, 0])
    return np.asarray(values * sizes)
