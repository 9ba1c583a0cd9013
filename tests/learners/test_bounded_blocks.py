"""Blocks whose rows may not be longer than a bound."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import unsoftmax
from tests.models.test_encoder_block import torch_layer
from unsoftmax.arrays import Array
from unsoftmax.models import EncoderBlock, block_from_torch
from unsoftmax.outcomes import Status


def _bounded(rows: Callable[[Array], Array], bound: float) -> Callable[[Array], Array]:
    def answer(X: Array) -> Array:
        assert float(np.linalg.norm(X, axis=2).max()) <= bound * (1.0 + 1e-12)
        return rows(X)[:, -1]

    return answer


def _rows(layer: torch.nn.TransformerEncoderLayer) -> Callable[[Array], Array]:
    @torch.no_grad()
    def answer(X: Array) -> Array:
        return np.asarray(layer(torch.tensor(X)).numpy())

    return answer


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_layers_of_torch_inside_a_ball(norm_first: bool, activation: str) -> None:
    layer = torch_layer(5, norm_first=norm_first, activation=activation)
    target = _bounded(_rows(layer), 10.0)
    result = unsoftmax.recover(target, width=8, outputs=8, family="encoder-block", input_bound=10.0)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, EncoderBlock)
    assert block_from_torch(layer).distance(result.model) <= float(result.error_bound or 0.0) < 1e-8


def test_a_layer_without_biases_inside_a_ball() -> None:
    torch.manual_seed(4)
    layer = torch.nn.TransformerEncoderLayer(
        8, 2, 12, 0.0, "gelu", batch_first=True, norm_first=True, bias=False, dtype=torch.float64
    ).eval()
    target = _bounded(_rows(layer), 10.0)
    result = unsoftmax.recover(target, width=8, outputs=8, family="encoder-block", input_bound=10.0)
    assert result.status is Status.EXACT, result.reason


def test_a_mean_over_bounded_rows_is_named() -> None:
    rows = _rows(torch_layer(5, norm_first=True))
    target = _bounded(lambda X: rows(X).mean(axis=1, keepdims=True), 10.0)
    result = unsoftmax.recover(target, width=8, outputs=8, family="encoder-block", input_bound=10.0)
    assert result.status is Status.UNRESOLVED
    assert "rows are bounded" in result.reason
    assert result.queries.total < 100


def test_another_function_inside_the_ball_is_no_success() -> None:
    block = block_from_torch(torch_layer(5, norm_first=True))
    along = np.random.default_rng(0).standard_normal(8)

    def twisted(X: Array) -> Array:
        y = block.after_attention(X)
        return np.asarray(block.after_network(y) + 1e-3 * np.sin(3.0 * y @ along)[:, None])[:, None]

    target = _bounded(twisted, 10.0)
    result = unsoftmax.recover(target, width=8, outputs=8, family="encoder-block", input_bound=10.0)
    assert not result.status.recovered
