"""Least nuclear norm: against a reference solver, at exactness, and when there are too few measurements."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from unsoftmax.solvers import NuclearNorm

Array = NDArray[np.float64]


def _instance(d: int, r: int, m: int, seed: int, scale: float = 1.0) -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng([seed, d, r])
    W = scale * rng.standard_normal((d, r)) @ rng.standard_normal((r, d))
    A, B = rng.standard_normal((2, m, d))
    return W, A, B, np.asarray(np.einsum("kd,kd->k", A @ W, B))


def _reference(A: Array, B: Array, t: Array) -> Array:
    cp: Any = import_module("cvxpy")
    d = A.shape[1]
    X = cp.Variable((d, d))
    rows = (A[:, :, None] * B[:, None, :]).reshape(len(t), -1)
    cp.Problem(cp.Minimize(cp.normNuc(X)), [rows @ cp.vec(X, order="C") == t]).solve(
        solver=cp.SCS, eps=1e-7, max_iters=20_000
    )
    return np.asarray(X.value)


@pytest.mark.parametrize(
    "m", [30, 45, 60]
)  # not enough for W, on the edge, enough: the minimiser is unique in every case
def test_the_minimiser_is_that_of_the_reference(m: int) -> None:
    _, A, B, t = _instance(8, 1, m, seed=0)
    found, reference = NuclearNorm().fit(A, B, t).matrix.dense(), _reference(A, B, t)
    assert np.linalg.norm(found - reference) <= 1e-3 * np.linalg.norm(reference)
    assert np.linalg.norm(found, "nuc") <= (1 + 1e-5) * np.linalg.norm(reference, "nuc")
    np.testing.assert_allclose(np.einsum("kd,kd->k", A @ found, B), t, atol=1e-8 * np.abs(t).max())


@pytest.mark.parametrize(("d", "r", "ratio"), [(8, 1, 3.0), (16, 2, 3.0), (16, 4, 2.5), (32, 2, 3.5)])
@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e6])
def test_enough_measurements_give_every_digit(d: int, r: int, ratio: float, scale: float) -> None:
    W, A, B, t = _instance(d, r, int(ratio * r * (2 * d - r)), seed=1, scale=scale)
    found = NuclearNorm().fit(A, B, t)
    assert (found.rank, found.polished) == (r, True)
    assert np.linalg.norm(found.matrix.dense() - W) <= 1e-10 * np.linalg.norm(W)


def test_too_few_measurements_are_told_by_the_rank() -> None:
    W, A, B, t = _instance(16, 2, 80, seed=0)
    found = NuclearNorm().fit(A, B, t)
    assert found.rank > 2
    assert np.linalg.norm(found.matrix.dense(), "nuc") < np.linalg.norm(W, "nuc")
    np.testing.assert_allclose(
        np.einsum("kd,kd->k", A @ found.matrix.dense(), B), t, atol=1e-6 * np.abs(t).max()
    )


def test_nothing_measured_is_nothing() -> None:
    _, A, B, t = _instance(5, 1, 20, seed=0)
    found = NuclearNorm().fit(A, B, 0 * t)
    assert found.rank == 0
    assert not found.matrix.dense().any()


def test_repeated_measurements_do_no_harm() -> None:
    W, A, B, t = _instance(8, 1, 50, seed=3)
    A, B, t = (np.concatenate([part, part[:10]]) for part in (A, B, t))
    assert np.linalg.norm(NuclearNorm().fit(A, B, t).matrix.dense() - W) <= 1e-8 * np.linalg.norm(W)
