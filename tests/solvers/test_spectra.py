"""The range finder on every kind of spectrum, at the price of the parameters, through answers."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import unsoftmax
from tests.cases import heads
from unsoftmax import SingleHead, Status
from unsoftmax.solvers import RandomBasis

Array = NDArray[np.float64]


def _head(values: Array, d: int, seed: int) -> SingleHead:
    rng = np.random.default_rng([seed, d, len(values)])
    left, right = (np.linalg.qr(rng.standard_normal((d, d)))[0][:, : len(values)] for _ in range(2))
    return SingleHead((left * values) @ right.T, rng.standard_normal(d))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("rank 0", np.zeros(0)),
        ("rank 1", np.ones(1)),
        ("repeated", np.repeat([3.0, 1.0], 4)),
        ("all equal", np.ones(24)),
        ("one huge", np.array([1e5, 1.0, 1.0])),
        ("rank d - 1", np.linspace(1, 2, 23)),
        ("rank d", np.linspace(1, 2, 24)),
    ],
)
def test_rank_is_found_whatever_the_spectrum(name: str, values: Array) -> None:
    for seed in range(2):
        head = _head(values, 24, seed)
        result = unsoftmax.recover(lambda X, head=head: head(X), width=24, seed=seed)
        assert result.status is Status.EXACT, name
        assert isinstance(result.model, SingleHead)
        assert result.model.rank == len(values)
        assert head.distance(result.model) <= 1e-10
        assert result.queries.learning <= 1.02 * head.parameters + 32


@pytest.mark.parametrize("decades", [8.0, 20.0])
def test_a_spectrum_is_cut_where_it_sinks_into_the_noise(decades: float) -> None:
    head = _head(np.logspace(0, -decades, 48), 48, seed=0)
    result = unsoftmax.recover(head)
    assert result.status is Status.EXACT
    assert isinstance(result.model, SingleHead)
    assert head.distance(result.model) <= 1e-10
    if decades > 16:
        assert result.model.matrix.svd()[1].shape[0] < 48
        assert result.queries.by_phase["scores"] < 48 * 48  # what all of W would take


@pytest.mark.parametrize(
    ("d", "r", "decades", "v"),
    [(64, 7, 5.0, "random"), (64, 7, 5.0, "inside"), (96, 1, 0.0, "inside"), (48, 2, 0.0, "random")],
)
def test_one_dominant_direction_does_not_saturate_whole_columns(
    d: int, r: int, decades: float, v: str
) -> None:
    for seed in range(4):
        head = heads.low_rank(d, r, seed, decades=decades, v=v)
        result = unsoftmax.recover(head, seed=seed)
        assert result.status is Status.EXACT
        assert result.queries.learning <= 1.02 * head.parameters + 32


def test_wide_heads_stay_factors() -> None:
    head = unsoftmax.random_single_head(1024, 4, seed=0)
    result = unsoftmax.recover(head)
    assert result.status is Status.EXACT
    assert isinstance(result.model, SingleHead)
    assert set(result.model.tensors()) >= {"W.left", "W.right"}
    assert head.distance(result.model) <= 1e-10
    assert result.queries.learning <= 1.01 * head.parameters + 32


@pytest.mark.parametrize("d", [1, 2, 7, 64])
def test_the_random_basis_is_orthonormal_and_applied_as_it_is_told(d: int) -> None:
    basis = RandomBasis(d, np.random.default_rng(d))
    G = basis.columns(0, d)
    np.testing.assert_allclose(G.T @ G, np.eye(d), atol=1e-12)
    x = np.random.default_rng(0).standard_normal((3, d))
    np.testing.assert_allclose(basis.apply(x), x @ G.T, atol=1e-12)
    np.testing.assert_allclose(basis.columns(d // 2, d), G[:, d // 2 :], atol=1e-14)
