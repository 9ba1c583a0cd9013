"""Does a meter measure aᵀWb as `FormMeter`, `Meter` and `BoundedMeter` promise?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters import BoundedMeter, FormMeter, Meter
from unsoftmax.testing.violations import raise_if_any

__all__ = ["check_meter"]

_PAIRS = 6  # two of each size
_LONGER = (1.0, 0.25, 3.0)  # sizes of the pairs, in turn


def check_meter(
    make: Callable[[], FormMeter],
    W: Array,
    *,
    accuracy: float = 1e-9,
    asked: Callable[[], int] | None = None,
    seed: int = 0,
) -> None:
    """Runs a meter's promises against the matrix that it should measure; raises `NonConformance` with all
    that are broken.

    make: a fresh meter of W (d×d) at every call. It is taken for a `Meter` when it has `project`, and for a
    `BoundedMeter` when it has `measure`. accuracy: largest error of aᵀWb for unit a and b, relative to the
    norm of W. asked: how many queries were asked until now; with it, properties are checked to ask none.

    >>> from unsoftmax.testing import MatrixMeter
    >>> W = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> check_meter(lambda: MatrixMeter(W), W)
    >>> check_meter(lambda: MatrixMeter(1.01 * W), W)
    Traceback (most recent call last):
        ...
    unsoftmax.testing.violations.NonConformance: the meter breaks 4 of its promises:
    - forms(A, B) is off by 0.046 for unit vectors; 5.5e-09 is allowed
    - project(None, B) is off by 0.05 for unit vectors; 5.5e-09 is allowed
    - project(basis, B) is off by 0.032 for unit vectors; 5.5e-09 is allowed
    - measure(None, B) is off by 0.055 in length, and its bound is 1.6e-15
    """
    suite = _Suite(np.asarray(W, dtype=np.float64), accuracy, np.random.default_rng(seed))
    meter = make()
    raise_if_any("the meter", suite.shapes(meter))
    broken = suite.forms(make())
    if isinstance(meter, Meter):
        broken += suite.projections(meter)
    elif hasattr(meter, "project"):
        broken.append("it has `project`, but not all that unsoftmax.meters.Meter asks for")
    if isinstance(meter, BoundedMeter):
        broken += suite.bounds(meter)
    elif hasattr(meter, "measure"):
        broken.append("it has `measure`, but not all that unsoftmax.meters.BoundedMeter asks for")
    if asked is not None:
        broken += _properties(make(), asked)
    raise_if_any("the meter", broken)


class _Suite:
    """One matrix, and the checks of what a meter says of it."""

    def __init__(self, W: Array, accuracy: float, rng: np.random.Generator) -> None:
        self._W = W
        self._allowed = accuracy * float(np.linalg.norm(W))
        self._rng = rng

    def shapes(self, meter: FormMeter) -> list[str]:
        """What everything else relies on."""
        d = len(self._W)
        if meter.width != d:
            return [f"width is {meter.width}, and W is {d}×{d}"]
        if isinstance(meter, Meter) and meter.facing is not None and np.shape(meter.facing) != (d,):
            return [f"facing has the shape {np.shape(meter.facing)} instead of ({d},)"]
        return []

    def forms(self, meter: FormMeter) -> list[str]:
        """Pairs of several sizes, none at all, and arguments that must stay as they are."""
        A, B = (self._unit_rows(_PAIRS) * np.resize(_LONGER, _PAIRS)[:, None] for _ in range(2))
        before = A.copy(), B.copy()
        found = meter.forms(A, B)
        if not np.array_equal(A, before[0]) or not np.array_equal(B, before[1]):
            return ["forms(A, B) writes into its arguments"]
        if np.shape(found) != (_PAIRS,):
            return [f"forms(A, B) of {_PAIRS} pairs has the shape {np.shape(found)}"]
        broken = []
        sizes = np.linalg.norm(A, axis=1) * np.linalg.norm(B, axis=1)
        errors = np.abs(found - np.einsum("ki,ij,kj->k", A, self._W, B)) / sizes
        read = np.isfinite(found)
        if 2 * int(read.sum()) < _PAIRS:
            broken.append(f"forms(A, B) reads only {int(read.sum())} of {_PAIRS} pairs of moderate size")
        broken += self._within("forms(A, B)", errors[read])
        if np.shape(meter.forms(A[:0], B[:0])) != (0,):
            broken.append("forms(A, B) of no pairs is not an empty array")
        return broken

    def projections(self, meter: Meter) -> list[str]:
        """The identity, a subspace, and the range of W where its rank is low."""
        d, k = len(self._W), max(1, len(self._W) // 2)
        broken = []
        B = self._columns(meter, 3)
        basis = np.linalg.qr(self._rng.standard_normal((d, k)))[0]
        cases = [("project(None, B)", None, False), ("project(basis, B)", basis, False)]
        left, values, _ = np.linalg.svd(self._W)
        rank = int((values > 1e-12 * values[0]).sum())
        if 0 < rank < d:
            cases.append(("project(range of W, B, rest_is_zero=True)", left[:, :rank], True))
        for name, directions, rest in cases:
            found = meter.project(directions, B, rest_is_zero=rest)
            expected = self._W @ B if directions is None else directions.T @ self._W @ B
            if np.shape(found) != expected.shape:
                broken.append(f"{name} has the shape {np.shape(found)} instead of {expected.shape}")
            else:
                broken += self._within(name, np.abs(found - expected))
        resolution = meter.resolution()
        if not (np.isfinite(resolution) and resolution >= 0.0):
            broken.append(f"resolution() is {resolution!r} instead of a finite number >= 0")
        return broken

    def bounds(self, meter: BoundedMeter) -> list[str]:
        """Errors beside what the meter says of them."""
        B = self._columns(meter, 3)
        values, bars = meter.measure(None, B)
        if np.shape(bars) != (B.shape[1],):
            return [f"measure(None, B) gives bounds of the shape {np.shape(bars)}, one a column is promised"]
        errors = np.linalg.norm(values - self._W @ B, axis=0)
        worst = int(np.argmax(errors - bars))
        if errors[worst] <= bars[worst]:
            return []
        return [
            f"measure(None, B) is off by {errors[worst]:.2g} in length, and its bound is {bars[worst]:.2g}"
        ]

    def _within(self, name: str, errors: Array) -> list[str]:
        if errors.size and not float(errors.max()) <= self._allowed:
            return [
                f"{name} is off by {float(errors.max()):.2g} for unit vectors; {self._allowed:.2g} is allowed"
            ]
        return []

    def _unit_rows(self, n: int) -> Array:
        rows = self._rng.standard_normal((n, len(self._W)))
        return np.asarray(rows / np.linalg.norm(rows, axis=1)[:, None])

    def _columns(self, meter: Meter, n: int) -> Array:
        """Unit columns; where the meter names a vector to face, all see it, but for one."""
        rows = self._unit_rows(n)
        if meter.facing is not None and len(self._W) > 1:
            towards = meter.facing / np.linalg.norm(meter.facing)
            rows[1:] += np.sign(rows[1:] @ towards)[:, None] * towards
        return np.asarray(rows / np.linalg.norm(rows, axis=1)[:, None]).T


def _properties(meter: FormMeter, asked: Callable[[], int]) -> list[str]:
    """Public properties, each read once: none may ask a query."""
    broken = []
    for name in dir(type(meter)):
        if not name.startswith("_") and isinstance(getattr(type(meter), name), property):
            before = asked()
            getattr(meter, name)
            if asked() != before:
                broken.append(
                    f"reading the property `{name}` asks {asked() - before} queries; make it a method"
                )
    return broken
