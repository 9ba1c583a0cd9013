"""A least-squares problem of which only some parameters move, while the others are held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.solvers.least_squares.linearisation import Inverse, LeastSquares, Linearisation

__all__ = ["Held"]

State = TypeVar("State")


@dataclass(frozen=True)
class Held(Generic[State]):
    """free: (p,), which entries of the parameter vector may move.

    >>> class Line:
    ...     def residual(self, state): return state - 1.0
    ...     def linearise(self, state):
    ...         from unsoftmax.solvers.least_squares.linearisation import DenseJacobian
    ...         return DenseJacobian(np.eye(len(state)))
    ...     def moved(self, state, step): return state + step
    >>> from unsoftmax.solvers.least_squares.joint_refinement import refine
    >>> np.round(refine(Held(Line(), np.array([True, False])), np.zeros(2)).state, 3)
    array([1., 0.])
    """

    problem: LeastSquares[State]
    free: NDArray[np.bool_]

    def residual(self, state: State, /) -> Array:
        return self.problem.residual(state)

    def moved(self, state: State, step: Array, /) -> State:
        return self.problem.moved(state, _spread(step, self.free))

    def linearise(self, state: State, /) -> Linearisation:
        return _HeldJacobian(self.problem.linearise(state), self.free)


@dataclass(frozen=True)
class _HeldJacobian:
    whole: Linearisation
    free: NDArray[np.bool_]

    @property
    def unknowns(self) -> int:
        return int(self.free.sum())

    def forward(self, step: Array, /) -> Array:
        return self.whole.forward(_spread(step, self.free))

    def backward(self, residual: Array, /) -> Array:
        return np.asarray(self.whole.backward(residual)[self.free])

    def normal(self) -> Array:
        return np.asarray(self.whole.normal()[np.ix_(self.free, self.free)])

    def diagonal(self) -> Array:
        return np.asarray(self.whole.diagonal()[self.free])

    def preconditioner(self, damping: Array, /) -> Inverse | None:
        return None


def _spread(step: Array, free: NDArray[np.bool_]) -> Array:
    whole = np.zeros(len(free))
    whole[free] = step
    return whole
