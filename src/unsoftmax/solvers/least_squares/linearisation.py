"""What a least-squares problem offers to be solved: its residual, and the Jacobian there.

What a model supplies (`LeastSquares[State]`; State is whatever type holds its parameters):

    residual(state)     -> (n,)   weight · (predicted − answered), for all n answers
    linearise(state)    -> Linearisation, the Jacobian J of `residual` at state
    moved(state, step)  -> State  state + step (p,), and, if the model has symmetries, put back into a fixed
    gauge

What J must offer (`Linearisation`): `unknowns`, `forward(x)` = Jx, `backward(y)` = Jᵀy, `normal()` = JᵀJ as a
dense array, `diagonal()` of JᵀJ, and `preconditioner(damping)`, an approximate inverse of JᵀJ +
diag(damping), or None. `DenseJacobian(J)` makes all of it from an array (n, p); `Products(...)` from
functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["DenseJacobian", "Inverse", "LeastSquares", "Linearisation", "Products"]

State = TypeVar("State")
Inverse = Callable[[Array], Array]


class Linearisation(Protocol):
    """The Jacobian J (n, p) of the weighted residual at one state."""

    @property
    def unknowns(self) -> int: ...

    def forward(self, step: Array, /) -> Array: ...

    def backward(self, residual: Array, /) -> Array: ...

    def normal(self) -> Array: ...

    def diagonal(self) -> Array: ...

    def preconditioner(self, damping: Array, /) -> Inverse | None: ...


class LeastSquares(Protocol[State]):
    """A model, its answers and their weights."""

    def residual(self, state: State, /) -> Array: ...

    def linearise(self, state: State, /) -> Linearisation: ...

    def moved(self, state: State, step: Array, /) -> State: ...


@dataclass(frozen=True)
class DenseJacobian:
    """A Jacobian held as an array.

    >>> DenseJacobian(np.array([[3.0, 0.0], [4.0, 1.0]])).diagonal()
    array([25.,  1.])
    """

    jacobian: Array

    @property
    def unknowns(self) -> int:
        return int(self.jacobian.shape[1])

    def forward(self, step: Array, /) -> Array:
        return np.asarray(self.jacobian @ step)

    def backward(self, residual: Array, /) -> Array:
        return np.asarray(self.jacobian.T @ residual)

    def normal(self) -> Array:
        return np.asarray(self.jacobian.T @ self.jacobian)

    def diagonal(self) -> Array:
        return np.asarray(np.einsum("np,np->p", self.jacobian, self.jacobian))

    def preconditioner(self, damping: Array, /) -> Inverse | None:
        return None


@dataclass(frozen=True)
class Products:
    """A Jacobian known by its products. The dense normal matrix is built from them column by column where one
    is asked for."""

    unknowns: int
    forward: Callable[[Array], Array]
    backward: Callable[[Array], Array]
    squares: Array  # diagonal of JᵀJ
    inverse: Callable[[Array], Inverse | None] = field(default=lambda damping: None)

    def normal(self) -> Array:
        columns = [self.backward(self.forward(unit)) for unit in np.eye(self.unknowns)]
        found = np.array(columns)
        return np.asarray((found + found.T) / 2)

    def diagonal(self) -> Array:
        return self.squares

    def preconditioner(self, damping: Array, /) -> Inverse | None:
        return self.inverse(damping)
