"""One head over token ids with learned positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import unsoftmax
from tests.learners.test_tokens import recovered, unsoftmax_size
from unsoftmax import Status


@pytest.mark.parametrize(("longest", "seed"), [(8, 0), (8, 1), (3, 2)])
def test_learned_positions_are_recovered_exactly(longest: int, seed: int) -> None:
    model = unsoftmax.random_token_heads(60, 3, seed=seed, longest=longest)
    result = recovered(model, 60, seed=seed, max_length=longest)
    assert result.status is Status.EXACT, result.reason
    assert result.model.longest == longest
    assert result.model.ranks == [3]
    assert model.distance(result.model) <= max(result.error_bound, 1e-13)
    assert "positions" in result.claim.title
    assert result.claim.queries.holds(result.queries.learning, unsoftmax_size(result.model))
    assert worst_error(model, result.model) < 1e-9


def worst_error(model: Any, found: Any) -> float:
    rng = np.random.default_rng(9)
    batches = [rng.integers(0, model.vocabulary, (300, length)) for length in range(1, model.longest + 1)]
    return max(float(np.abs(model(ids) - found(ids)).max()) for ids in batches) / float(model.spread)


def test_vector_answers_with_positions() -> None:
    model = unsoftmax.random_token_heads(50, 2, seed=1, longest=5, outputs=3)
    result = recovered(model, 50, outputs=3, max_length=5)
    assert result.status is Status.EXACT, result.reason
    assert model.distance(result.model) < 1e-10


def test_sinusoidal_positions_are_learned_ones() -> None:
    rng = np.random.default_rng(4)
    embeddings, W, v = rng.standard_normal((60, 6)), rng.standard_normal((6, 3)), rng.standard_normal(6)
    Q = 0.4 * rng.standard_normal((6, 3))
    angles = np.arange(10)[:, None] / 10.0 ** (np.arange(3) / 1.5)
    places = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    def answer(ids: Any) -> Any:
        rows = embeddings[ids] + places[: ids.shape[1]]
        scores = np.einsum("bnk,bk->bn", rows @ W, rows[:, -1] @ Q) / 2.0
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return (weights * (rows @ v)).sum(axis=1) / weights.sum(axis=1)

    result = recovered(answer, 60, max_length=10)
    assert result.status.recovered, result.reason
    ids = rng.integers(0, 60, (200, 9))
    assert np.abs(result.model(ids) - answer(ids)).max() <= result.error_bound * result.model.spread


@pytest.mark.parametrize("seed", [0, 1])
def test_several_heads_with_positions_are_named_and_not_refused(seed: int) -> None:
    model = unsoftmax.random_token_heads(40, 2, heads=2, longest=6, seed=seed)
    result = recovered(model, 40, seed=seed, max_length=6)
    assert result.status is Status.UNRESOLVED
    assert "several heads with positions" in result.reason
    assert "float64" in result.advice


def test_places_as_large_as_tokens_as_torch_makes_them() -> None:
    torch.manual_seed(1)
    tokens, places = (torch.nn.Embedding(size, 4).double() for size in (40, 7))
    layer = torch.nn.MultiheadAttention(4, 1, batch_first=True).double().eval()
    readout = torch.randn(4, dtype=torch.float64)

    def scorer(ids: Any) -> Any:
        with torch.no_grad():
            x = tokens(torch.as_tensor(ids)) + 2.0 * places(torch.arange(ids.shape[1]))
            return (layer(x, x, x, need_weights=False)[0][:, -1] @ readout).numpy()

    result = unsoftmax.recover(scorer, vocabulary=40, longest=7)
    assert result.status.recovered, result.reason
    assert (result.error_bound or 1.0) < 1e-8  # close to where EXACT ends
    ids = np.random.default_rng(0).integers(0, 40, (200, 7))
    found: Any = result.unwrap()
    np.testing.assert_allclose(found(ids), scorer(ids), atol=1e-11)
