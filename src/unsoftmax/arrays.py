"""What every room uses of arrays: their type, the unit of rounding, and a few small functions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "EPS",
    "Array",
    "Ids",
    "all_finite",
    "centred_basis",
    "complement",
    "expit",
    "largest",
    "logit",
    "longest_rows",
    "norm",
    "read_npy",
    "real_numbers",
    "rms",
    "shortened",
]

Array = NDArray[np.float64]
Ids = NDArray[np.int64]  # token ids
EPS = float(np.finfo(np.float64).eps)
_BEGINNINGS = (b"\x93NUMPY", b"PK")  # of .npy files, and of .npz files, which hold several arrays
_NOT_REAL = frozenset("cMmSU")  # numpy's letters for complex numbers, dates, spans of time, and text
_INSIDE = 0.98  # of a bound on norms: rows that are moved a little, or rounded, stay inside


def all_finite(numbers: Array) -> bool:
    """Whether none of them is NaN or infinite; in half the time of `np.isfinite(numbers).all()` for a few.

    >>> all_finite(np.array([1.0, 2.0])), all_finite(np.array([[1.0, np.inf]]))
    (True, False)
    """
    return bool(np.count_nonzero(np.isfinite(numbers)) == numbers.size)


def expit(scores: Array | float) -> Array:
    """σ(t) = 1 / (1 + exp(-t)), exact to rounding at both ends.

    >>> expit(np.array([0.0, -800.0]))
    array([0.5, 0. ])
    """
    with np.errstate(over="ignore"):
        return np.asarray(1.0 / (1.0 + np.exp(-np.asarray(scores, dtype=np.float64))))


def logit(weight: Array | float) -> Array:
    """log(p / (1 - p)); infinite at and beyond 0 and 1, where no score can be read.

    >>> logit(np.array([0.5, 1.0]))
    array([ 0., inf])
    """
    p = np.asarray(weight, dtype=np.float64)
    if p.size and p.min() > 0.0 and p.max() < 1.0:
        return np.asarray(np.log(p) - np.log1p(-p))
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.log(p) - np.log1p(-p)
    return np.asarray(np.where(p <= 0.0, -np.inf, np.where(p >= 1.0, np.inf, inner)))


def largest(answers: Array) -> Array:
    """The largest absolute value of every answer: of a number itself, of a vector over its entries.

    >>> largest(np.array([[3.0, -4.0], [1.0, 0.0]])), largest(np.array([-2.0]))
    (array([4., 1.]), array([2.]))
    """
    size = np.abs(answers)
    return size if size.ndim == 1 else np.asarray(size.max(axis=1))


def shortened(rows: Array, bound: float | None) -> Array:
    """Rows (..., d), all by the same factor shorter where one is longer than the bound.

    >>> shortened(np.array([[3.0, 4.0], [0.0, 1.0]]), 10.0).tolist()
    [[3.0, 4.0], [0.0, 1.0]]
    >>> float(np.linalg.norm(shortened(np.array([[3.0, 4.0], [0.0, 1.0]]), 1.0), axis=1).max()) <= 1.0
    True
    """
    longest = float(np.linalg.norm(rows, axis=-1).max())
    if bound is None or longest <= bound:
        return rows
    return np.asarray(rows * (_INSIDE * bound / longest))


def longest_rows(batch: Array) -> Array:
    """The norm of every sequence's longest row: (B,) of a batch (B, N, d).

    >>> longest_rows(np.array([[[3.0, 4.0], [0.0, 1.0]]]))
    array([5.])
    """
    return np.asarray(np.sqrt(np.einsum("bnd,bnd->bn", batch, batch).max(axis=1, initial=0.0)))


def norm(vector: Array) -> float:
    """The length of one vector, as np.linalg.norm gives it, in a third of its time for a short one.

    >>> norm(np.array([3.0, 4.0]))
    5.0
    """
    entries = vector.ravel()
    return math.sqrt(entries.dot(entries))


def rms(values: Array) -> float:
    """Root mean square.

    >>> rms(np.array([3.0, -3.0]))
    3.0
    """
    squares = np.square(values)
    return math.sqrt(squares.sum() / squares.size)


def complement(taken: Array) -> Array:
    """An orthonormal basis of what is orthogonal to a unit vector (d,), or to orthonormal columns (d, k).

    >>> abs(complement(np.array([1.0, 0.0, 0.0]))[0]).max() < 1e-15
    np.True_
    """
    columns = taken[:, None] if taken.ndim == 1 else taken
    d, k = columns.shape
    return np.asarray(np.linalg.qr(np.column_stack([columns, np.eye(d)]))[0][:, k:d])


def centred_basis(d: int) -> Array:
    """An orthonormal basis (d, d - 1) of the vectors whose entries add up to zero.

    >>> np.allclose(centred_basis(5).sum(axis=0), 0.0)
    True
    """
    return complement(np.full(d, 1.0 / np.sqrt(d)))


def real_numbers(values: object) -> Array:
    """An array in float64; a ValueError where that would lose something, as of complex numbers or dates.

    >>> real_numbers([1, 2])
    array([1., 2.])
    """
    found = np.asarray(values)
    if found.dtype.kind in _NOT_REAL or found.dtype.names is not None:
        raise ValueError(f"it holds {found.dtype}, not real numbers")
    return np.array(found, dtype=np.float64)


def read_npy(path: str | Path) -> NDArray[Any]:
    """The array of a .npy file. Nothing in it is run, and no more memory is taken than the file is long,
    whatever shape its header tells."""
    path = Path(path)
    if path.exists() and not path.is_file():  # a pipe would wait for ever
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        if not file.read(8).startswith(
            _BEGINNINGS
        ):  # numpy would advise to load it as a pickle, which runs code
            raise ValueError("it does not begin as a .npy file does")
    found = np.load(path, allow_pickle=False, mmap_mode="r")
    if not isinstance(found, np.ndarray):
        raise ValueError("it holds several arrays")
    return np.array(found)
