"""Solvers against a meter that is a plain matrix with noise: no oracle, no attention."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.fft import dct

from tests.cases import heads
from unsoftmax.models import Dense, Factors
from unsoftmax.solvers import (
    Columns,
    FacingBasis,
    RandomBasis,
    RangeFinder,
    gaussian_probes,
    structured_probes,
)
from unsoftmax.solvers.bases import _CosineTransform
from unsoftmax.testing import MatrixMeter

Array = NDArray[np.float64]


@pytest.mark.parametrize("d", [1, 2, 17, 64])
def test_random_basis_is_orthonormal_and_applied_as_stored(d: int) -> None:
    basis = RandomBasis(d, np.random.default_rng(d))
    G = basis.columns(0, d)
    np.testing.assert_allclose(G.T @ G, np.eye(d), atol=1e-12)
    x = np.random.default_rng(0).standard_normal((3, d))
    np.testing.assert_allclose(basis.apply(x), x @ G.T, atol=1e-12)
    np.testing.assert_allclose(basis.columns(d // 2, d), G[:, d // 2 :], atol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 3, 8, 9, 64])
def test_the_transform_inside_a_basis_is_the_cosine_transform(d: int) -> None:
    rows = np.random.default_rng(d).standard_normal((3, d))
    np.testing.assert_allclose(
        _CosineTransform(d)(rows), dct(rows, norm="ortho", axis=1), atol=1e-14 * np.sqrt(d)
    )


@pytest.mark.parametrize(
    ("d", "r"), [(1, 0), (1, 1), (6, 0), (6, 1), (6, 5), (6, 6), (40, 3), (40, 39), (40, 40)]
)
@pytest.mark.parametrize("seed", range(3))
def test_range_finder_pays_for_the_degrees_of_freedom(d: int, r: int, seed: int) -> None:
    rng = np.random.default_rng([seed, d, r])
    W = rng.standard_normal((d, r)) @ rng.standard_normal((r, d))
    meter = MatrixMeter(W)
    left: list[int] = []
    solution = RangeFinder().solve(meter, rng, left.append)
    found = solution.matrix
    assert solution.rank == r
    np.testing.assert_allclose(found.dense(), W, atol=1e-10 * (1 + float(np.linalg.norm(W))))
    assert meter.measured <= r * (2 * d - r) + r + 6
    assert left == [r * (d - r)]
    assert isinstance(found, Dense) if r == d else isinstance(found, Factors)
    if isinstance(found, Factors):
        assert found.left.shape[1] == r


@pytest.mark.parametrize("decades", [0, 3, 8])
@pytest.mark.parametrize("noise", [0.0, 1e-12])
def test_spectra_that_decay_are_followed_down_to_the_noise(decades: int, noise: float) -> None:
    d, r = 48, 12
    W = heads.low_rank(d, r, seed=2, decades=decades).W
    found = RangeFinder().solve(MatrixMeter(W, noise=noise), np.random.default_rng(0)).matrix
    assert np.linalg.norm(found.dense() - W) <= 1e-13 * np.linalg.norm(W) + 300 * noise * d


def test_repeated_singular_values() -> None:
    Q = np.linalg.qr(np.random.default_rng(1).standard_normal((30, 30)))[0]
    for W in (np.eye(30), Q, Q[:, :4] @ Q[:, :4].T, np.ones((30, 30))):
        np.testing.assert_allclose(
            RangeFinder().solve(MatrixMeter(W), np.random.default_rng(3)).matrix.dense(), W, atol=1e-11
        )


def test_columns_solve_both_kinds_of_probes() -> None:
    rng = np.random.default_rng(0)
    W = rng.standard_normal((7, 7))
    v = np.array([0.0, 1.0, -3.0, 0.0, 0.5, 0.0, 2.0])
    for probes in (gaussian_probes, structured_probes(v)):
        meter = MatrixMeter(W)
        np.testing.assert_allclose(Columns(probes).solve(meter, rng).matrix.dense(), W, atol=1e-10)
        assert meter.measured == 49
    Z = structured_probes(v)(7, rng)
    assert (Z @ v != 0).all()
    assert np.linalg.matrix_rank(Z) == 7


def _dependent_columns(d: int, r: int) -> tuple[Array, Array, int]:
    """A matrix whose first columns in a seeded basis hardly tell its last direction; v, and the seed."""
    rng = np.random.default_rng(3)
    v = rng.standard_normal(d)
    first = FacingBasis(d, np.random.default_rng(5), v).columns(0, r)
    # what none of them sees
    hidden = np.linalg.qr(np.column_stack([first, rng.standard_normal((d, 1))]))[0][:, -1]
    right = np.column_stack([hidden + 3e-3 * first[:, 0], rng.standard_normal((d, r - 1))])
    return rng.standard_normal((d, r)) @ np.linalg.qr(right)[0].T, v, 5


def test_dependent_columns_are_repaired() -> None:
    W, v, seed = _dependent_columns(40, 3)
    size = float(np.linalg.norm(W))
    asked: list[float] = []

    def again(b: Array, near: Array, error: float) -> Array:
        asked.append(error)
        assert np.linalg.norm(near - W @ b) <= 6.0 * error
        assert b @ v != 0.0
        return np.asarray(W @ b)

    errors = []
    for solver in (RangeFinder(), RangeFinder(again=again)):
        meter = MatrixMeter(W, noise=1e-12 * size / 40, facing=v)
        found = solver.solve(meter, np.random.default_rng(seed)).matrix
        errors.append(float(np.linalg.norm(found.dense() - W)) / size)
    assert asked
    assert errors[1] < 1e-11
    assert errors[0] > 10.0 * errors[1]


def test_a_rough_matrix_chooses_the_columns() -> None:
    W, v, seed = _dependent_columns(40, 3)
    left, values, right = np.linalg.svd(W)
    near = Factors(left[:, :3] * values[:3], right[:3].T)
    meter = MatrixMeter(W, noise=1e-12 * float(np.linalg.norm(W)) / 40, facing=v)
    found = RangeFinder(near=near).solve(meter, np.random.default_rng(seed)).matrix
    assert np.linalg.norm(found.dense() - W) < 1e-11 * np.linalg.norm(W)
