"""Functions of scipy, each loaded when it is first called: loading them takes longer than recovering a small
head, which needs none of them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = [
    "LinearOperator",
    "cho_factor",
    "cho_solve",
    "csr_matrix",
    "gammaln",
    "least_squares",
    "leastsq",
    "linear_sum_assignment",
    "lsqr",
    "lstsq",
    "ndtr",
    "qr",
    "solve_triangular",
]


def _late(module: str, name: str) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return getattr(import_module(module), name)(*args, **options)

    call.__name__ = name
    call.__doc__ = f"See {module}.{name}."
    return call


LinearOperator = _late("scipy.sparse.linalg", "LinearOperator")
cho_factor = _late("scipy.linalg", "cho_factor")
cho_solve = _late("scipy.linalg", "cho_solve")
csr_matrix = _late("scipy.sparse", "csr_matrix")
gammaln = _late("scipy.special", "gammaln")
least_squares = _late("scipy.optimize", "least_squares")
leastsq = _late("scipy.optimize", "leastsq")
linear_sum_assignment = _late("scipy.optimize", "linear_sum_assignment")
lsqr = _late("scipy.sparse.linalg", "lsqr")
lstsq = _late("scipy.linalg", "lstsq")
ndtr = _late("scipy.special", "ndtr")
qr = _late("scipy.linalg", "qr")
solve_triangular = _late("scipy.linalg", "solve_triangular")
