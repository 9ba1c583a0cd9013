"""The conformance suites over all meters and solvers of the library, and every pair that claims to fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.cases.meters import METERS
from unsoftmax.arrays import Array
from unsoftmax.meters import BoundedMeter, FormMeter, Meter
from unsoftmax.models.matrices import Dense
from unsoftmax.solvers import BoundedRangeFinder, Columns, NuclearNorm, RangeFinder, Solution, Solver
from unsoftmax.testing import MatrixMeter, NonConformance, check_meter, check_solver

SOLVERS: dict[str, tuple[type, Solver[Any], float]] = {
    # the meters that it fits, and by how much it may magnify their error
    "columns": (FormMeter, Columns(), 300.0),
    "nuclear norm": (FormMeter, NuclearNorm(), 1000.0),
    "range finder": (Meter, RangeFinder(), 300.0),
    "bounded range finder": (BoundedMeter, BoundedRangeFinder(), 300.0),
}


@pytest.mark.parametrize("name", METERS)
@pytest.mark.parametrize(("d", "r"), [(5, None), (8, 2)])
def test_every_meter_conforms(name: str, d: int, r: int | None) -> None:
    make, accuracy = METERS[name]
    case = make(d, r, 1)
    asked = [case.ledger]

    def fresh() -> FormMeter:
        again = make(d, r, 1)
        asked[0] = again.ledger
        return again.meter

    check_meter(fresh, case.W, accuracy=accuracy, asked=lambda: asked[0].bill.total)


@pytest.mark.parametrize("name", SOLVERS)
@pytest.mark.parametrize("facing", [False, True])
def test_every_solver_conforms(name: str, facing: bool) -> None:
    check_solver(SOLVERS[name][1], facing=facing)


def _pairs() -> list[tuple[str, str]]:
    """Meters and the solvers that can use them."""
    meters = {name: make(4, None, 2).meter for name, (make, _) in METERS.items()}
    return [
        (name, solver)
        for name in meters
        for solver in SOLVERS
        if isinstance(meters[name], SOLVERS[solver][0])
    ]


@pytest.mark.parametrize(("meter", "solver"), _pairs())
def test_every_pair_that_claims_to_fit_finds_W(meter: str, solver: str) -> None:
    make, accuracy = METERS[meter]
    _, method, magnified = SOLVERS[solver]
    case = make(4, None, 2)
    found = method.solve(case.meter, np.random.default_rng(0))
    error = float(np.linalg.norm(found.matrix.dense() - case.W)) / float(np.linalg.norm(case.W))
    assert error <= magnified * accuracy


def test_labels_and_the_nuclear_norm_find_a_low_rank() -> None:
    make, _ = METERS["labels"]
    case = make(8, 1, 3)
    found = NuclearNorm(measurements=48).solve(case.meter, np.random.default_rng(0))
    assert found.rank == 1
    assert np.linalg.norm(found.matrix.dense() - case.W) < 1e-8 * np.linalg.norm(case.W)


class _Writes(MatrixMeter):
    def forms(self, A: Array, B: Array) -> Array:
        A *= 1.0 + 1e-15
        return super().forms(A, B)


class _TooSure(MatrixMeter):
    def measure(
        self, basis: Array | None, B: Array, *, rest_is_zero: bool = False, length: float | None = None
    ) -> tuple[Array, Array]:
        values, error = super().measure(basis, B, rest_is_zero=rest_is_zero)
        return values + 1e-12, 0.1 * error


class _Asks(MatrixMeter):
    @property
    def strength(self) -> float:
        self.measured += 1
        return 1.0


class _Half:
    width = 3

    def forms(self, A: Array, B: Array) -> Array:
        return np.asarray(np.einsum("kd,kd->k", A, B))

    def project(self, basis: Array | None, B: Array, *, rest_is_zero: bool = False) -> Array:
        return B if basis is None else basis.T @ B


@pytest.mark.parametrize(
    ("meter", "message"),
    [
        (_Writes(np.eye(3)), "writes into its arguments"),
        (_TooSure(np.eye(3)), "its bound is"),
        (_Asks(np.eye(3)), "property `strength` asks 1 queries"),
        (MatrixMeter(np.eye(4)), "width is 4"),
        (MatrixMeter(np.eye(3), noise=1e-6), r"forms\(A, B\) is off by"),
        (MatrixMeter(np.full((3, 3), np.nan)), "reads only 0 of 6"),
        (MatrixMeter(np.eye(3), facing=np.ones(2)), "facing has the shape"),
        (_Half(), "not all that unsoftmax.meters.Meter asks for"),
    ],
)
def test_a_broken_meter_is_told_why(meter: FormMeter, message: str) -> None:
    def asked() -> int:
        return meter.measured if isinstance(meter, MatrixMeter) else 0

    with pytest.raises(NonConformance, match=message):
        check_meter(lambda: meter, np.eye(3), asked=asked)


class _Solver:
    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.runs = 0

    def __repr__(self) -> str:
        return f"{self.kind} {self.runs if self.kind == 'changes' else ''}"

    def solve(self, meter: FormMeter, rng: np.random.Generator, progress: object | None = None) -> Solution:
        self.runs += 1
        if self.kind == "random":
            rng = np.random.default_rng()
        found = Columns().solve(meter, rng)
        if self.kind == "too sure":
            return Solution(Dense((1.0 + 1e-10) * found.matrix.dense()), 0.0, found.rank)
        if self.kind == "wrong":
            return Solution(Dense(1.001 * found.matrix.dense()), np.inf, found.rank)
        if self.kind == "endless":
            for _ in range(1000):
                meter.forms(np.ones((1, meter.width)), np.ones((1, meter.width)))
        if self.kind == "no rank":
            return Solution(found.matrix, np.inf, 0)
        return found


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("random", "two runs with the same seed differ"),
        ("wrong", "the matrix is off by"),
        ("too sure", "and its bound is 0"),
        ("endless", "measurements; W has"),
        ("changes", "should be immutable"),
        ("no rank", "the solution has rank 0"),
    ],
)
def test_a_broken_solver_is_told_why(kind: str, message: str) -> None:
    with pytest.raises(NonConformance, match=message):
        check_solver(_Solver(kind))
