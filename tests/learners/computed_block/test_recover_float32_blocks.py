"""Whole encoder layers of torch in float32, as torch makes them, through `recover`."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import unsoftmax
from unsoftmax.arrays import Array, rms
from unsoftmax.models import EncoderBlock, block_from_torch
from unsoftmax.outcomes import Status


def _layer(activation: str, seed: int, *, norm_first: bool) -> torch.nn.TransformerEncoderLayer:
    torch.manual_seed(seed)
    return torch.nn.TransformerEncoderLayer(
        8, 2, 12, 0.0, activation, batch_first=True, norm_first=norm_first
    ).eval()


def _answers(layer: torch.nn.Module, X: Array, dtype: torch.dtype) -> Array:
    with torch.no_grad():
        return np.asarray(layer(torch.tensor(X, dtype=dtype))[:, -1].double().numpy())


@pytest.mark.parametrize(
    ("activation", "norm_first", "seed"), [("relu", False, 11), ("relu", True, 12), ("gelu", True, 13)]
)
def test_a_float32_layer_is_recovered_to_its_own_rounding(
    activation: str, norm_first: bool, seed: int
) -> None:
    layer = _layer(activation, seed, norm_first=norm_first)
    result = unsoftmax.recover(layer, seed=seed)
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert isinstance(result.model, EncoderBlock)
    exact = copy.deepcopy(layer).double()
    assert result.error_bound is not None
    assert block_from_torch(exact).distance(result.model) <= result.error_bound < 0.1
    X = np.random.default_rng(seed).standard_normal((60, 7, 8)).astype(np.float32).astype(np.float64)
    truth = _answers(exact, X, torch.float64)
    own = rms(_answers(layer, X, torch.float32) - truth)
    assert rms(result.model(X) - truth) < 2.0 * own
    assert any(finding.value == "computed in float32" for finding in result.findings)
