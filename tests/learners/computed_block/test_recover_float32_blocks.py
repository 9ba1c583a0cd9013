"""Whole encoder layers of torch in float32, as torch makes them, through `recover`."""

from __future__ import annotations

import copy
from typing import Literal

import numpy as np
import pytest
import torch

import unsoftmax
from unsoftmax.arrays import Array, rms
from unsoftmax.models import AskingRow, EncoderBlock, block_from_torch
from unsoftmax.outcomes import Status


def _layer(activation: str, seed: int, *, norm_first: bool) -> torch.nn.TransformerEncoderLayer:
    torch.manual_seed(seed)
    return torch.nn.TransformerEncoderLayer(
        6, 2, 8, 0.0, activation, batch_first=True, norm_first=norm_first
    ).eval()


def _answers(layer: torch.nn.Module, X: Array, dtype: torch.dtype, row: int = -1) -> Array:
    with torch.no_grad():
        return np.asarray(layer(torch.tensor(X, dtype=dtype))[:, row].double().numpy())


@pytest.mark.parametrize(
    ("activation", "norm_first", "seed", "row"),
    [
        ("relu", False, 11, "last"),
        ("relu", True, 12, "first"),
        ("gelu", True, 13, "last"),
        ("gelu", False, 14, "last"),
    ],
)
def test_a_float32_layer_is_recovered_to_its_own_rounding(
    activation: str, norm_first: bool, seed: int, row: Literal["last", "first"]
) -> None:
    layer = _layer(activation, seed, norm_first=norm_first)
    result = unsoftmax.recover(layer, seed=seed, row=row)
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert isinstance(result.model, EncoderBlock)
    exact = copy.deepcopy(layer).double()
    assert result.error_bound is not None
    truth = block_from_torch(exact).asked_by(AskingRow(row))
    assert truth.distance(result.model) <= result.error_bound < 0.1
    X = np.random.default_rng(seed).standard_normal((60, 7, 6)).astype(np.float32).astype(np.float64)
    asking = 0 if row == "first" else -1
    right = _answers(exact, X, torch.float64, asking)
    own = rms(_answers(layer, X, torch.float32, asking) - right)
    assert rms(result.model(X) - right) < 2.0 * own
    assert any(finding.value == "computed in float32" for finding in result.findings)


class _Hostile(torch.nn.Module):
    """A float32 layer that is nearly in the family."""

    def __init__(self, kind: str, *, norm_first: bool) -> None:
        super().__init__()
        self.layer = _layer("relu", 31, norm_first=norm_first)
        self.kind = kind

    def _network(self, z: torch.Tensor) -> torch.Tensor:
        hidden = self.layer.linear1(z)
        active = torch.relu(hidden)
        if self.kind == "neuron":
            active = torch.cat([torch.tanh(hidden[..., :1]), active[..., 1:]], -1)
        return torch.as_tensor(self.layer.linear2(active))

    def _second(self, z: torch.Tensor) -> torch.Tensor:
        norm = self.layer.norm2
        if self.kind != "part":
            return torch.as_tensor(norm(z))
        most = torch.nn.functional.layer_norm(z[..., :-1], (5,), norm.weight[:-1], norm.bias[:-1])
        return torch.cat([most, z[..., -1:]], -1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        layer = self.layer
        tokens = layer.norm1(x) if layer.norm_first else x
        mixed = layer.self_attn(tokens, tokens, tokens, need_weights=False)[0]
        if self.kind == "dropout":
            mixed = torch.nn.functional.dropout(mixed, 0.1, training=True)
        if layer.norm_first:
            y = x + mixed
            return torch.as_tensor(y + self._network(self._second(y)))
        y = layer.norm1(x + mixed)
        return self._second(y + self._network(y))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("kind", ["neuron", "part", "dropout"])
def test_a_block_that_is_nearly_one_is_not_recovered(kind: str, norm_first: bool) -> None:
    torch.manual_seed(5)
    module = _Hostile(kind, norm_first=norm_first).eval()
    result = unsoftmax.recover(
        lambda X: _answers(module, X, torch.float32), width=6, outputs=6, seed=2, budget=60_000
    )
    assert not result.status.recovered
