"""A fixed query asks, whatever the last row is: W = 0 and a query bias, against torch's own layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unsoftmax

torch = pytest.importorskip("torch")


def _pooling(d: int, heads: int, seed: int) -> Any:
    torch.manual_seed(seed)
    layer = torch.nn.MultiheadAttention(d, heads, batch_first=True).double()
    query = torch.randn(1, 1, d).double()

    def pool(X: np.ndarray) -> np.ndarray:
        rows = torch.from_numpy(X)
        with torch.no_grad():
            return np.asarray(layer(query.expand(len(rows), 1, d), rows, rows)[0][:, 0].numpy())

    return pool


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("d", "heads"), [(5, 1), (12, 1), (8, 2)])
@pytest.mark.parametrize("vectors", [True, False])
def test_pooling_is_recovered(d: int, heads: int, vectors: bool, seed: int) -> None:
    pool, rng = _pooling(d, heads, seed), np.random.default_rng(seed)
    readout = rng.standard_normal(d)
    result = unsoftmax.recover(pool if vectors else lambda X: pool(X) @ readout, width=d, seed=seed)
    assert result.status is unsoftmax.Status.EXACT
    found = result.unwrap()
    assert isinstance(found, unsoftmax.SingleHead | unsoftmax.MultiHead)
    parts = [found] if isinstance(found, unsoftmax.SingleHead) else found.heads
    assert len(parts) == heads
    assert all(part.rank == 0 and part.w0 is not None for part in parts)
    fresh = rng.standard_normal((50, 7, d))
    expected = pool(fresh) if vectors else pool(fresh) @ readout
    assert np.allclose(found(fresh), expected, atol=1e-9)


@pytest.mark.parametrize(("d", "seed"), [(2, 27), (3, 35)])
def test_two_queries_whose_steps_nearly_cancel(d: int, seed: int) -> None:
    """All steps are at one place, and have the shape of no head at any resolution."""
    rng = np.random.default_rng([seed, d, 31])
    parts = [(rng.standard_normal(d), rng.standard_normal(d)) for _ in range(2)]
    hidden = unsoftmax.MultiHead([unsoftmax.SingleHead(np.zeros((d, d)), v, w0) for v, w0 in parts])
    result = unsoftmax.recover(lambda X: hidden(X), width=d, seed=seed)
    assert result.status is unsoftmax.Status.EXACT, result.reason
    assert isinstance(result.model, unsoftmax.MultiHead)
    assert hidden.distance(result.model) <= (result.error_bound or 0.0)


@pytest.mark.parametrize("size", [1e-3, 1e-7])
def test_faint_scores_beside_a_query_bias_are_not_taken_for_none(size: float) -> None:
    hidden = unsoftmax.random_single_head(6, seed=1, biases=True)
    assert hidden.w0 is not None
    faint = unsoftmax.SingleHead(size * hidden.W, np.outer(hidden.v, [1.0, 2.0, -1.0]), hidden.w0)
    result = unsoftmax.recover(lambda X: faint(X), width=6)
    if result.model is not None:
        assert isinstance(result.model, unsoftmax.SingleHead)
        assert result.error_bound is not None
        assert faint.distance(result.model) <= result.error_bound
