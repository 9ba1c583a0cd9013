"""Fixed rank from given measurements: exactness, held-out residuals, conditioning."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from unsoftmax.solvers import FixedRank

Array = NDArray[np.float64]


def _instance(
    d: int, r: int, ratio: float, seed: int, skew: float = 0.0
) -> tuple[Array, Array, Array, Array]:
    rng = np.random.default_rng([seed, d, r])
    W = rng.standard_normal((d, r)) @ rng.standard_normal((r, d))
    A, B = rng.standard_normal((2, int(np.ceil(ratio * r * (2 * d - r))), d)) * np.logspace(0, -skew, d)
    return W, A, B, np.asarray(np.einsum("kd,kd->k", A @ W, B))


@pytest.mark.parametrize(("d", "r"), [(4, 1), (16, 2), (16, 4), (32, 2)])
@pytest.mark.parametrize("seed", range(3))
def test_twice_the_parameters_suffice(d: int, r: int, seed: int) -> None:
    W, A, B, t = _instance(d, r, 2.0, seed)
    found = FixedRank(r).solve(A, B, t, np.random.default_rng(seed))
    assert np.linalg.norm(found.matrix.dense() - W) <= 1e-10 * np.linalg.norm(W)
    assert found.held_out <= 1e-8
    assert found.spread < 1e3


def test_rows_of_unequal_sizes_are_whitened() -> None:
    W, A, B, t = _instance(12, 2, 2.5, seed=0, skew=2.0)
    found = FixedRank(2).solve(A, B, t, np.random.default_rng(0)).matrix.dense()
    assert np.linalg.norm(found - W) <= 1e-8 * np.linalg.norm(W)


def test_a_wrong_rank_is_told_by_the_held_out_measurements() -> None:
    _, A, B, t = _instance(12, 3, 2.0, seed=0)
    assert FixedRank(2, restarts=2).solve(A, B, t, np.random.default_rng(0)).held_out > 1e-3


def test_directions_that_no_measurement_sees_have_no_spread() -> None:
    _, A, B, t = _instance(8, 1, 4.0, seed=0)
    A[:, 0] = 0.0
    assert FixedRank(1, restarts=1).solve(A, B, t, np.random.default_rng(0)).spread == np.inf


def test_rank_zero() -> None:
    _, A, B, t = _instance(6, 1, 2.0, seed=0)
    assert FixedRank(0).solve(A, B, 0 * t, np.random.default_rng(0)).held_out == 0.0
    assert FixedRank(0).solve(A, B, t, np.random.default_rng(0)).held_out == 1.0
