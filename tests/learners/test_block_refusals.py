"""Blocks that a few queries show to be none of the family, or more than it."""

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

MEMORY = torch.tensor(np.random.default_rng(3).standard_normal((1, 4, 8)))


def _sees(layer: torch.nn.TransformerEncoderLayer, *, rows: bool) -> Callable[[Array], Array]:
    """A layer whose rows see a memory, and each other if `rows`."""

    @torch.no_grad()
    def answer(X: Array) -> Array:
        x = torch.tensor(X)
        memory = MEMORY.expand(len(x), -1, -1)
        keys = torch.cat([memory, x], dim=1) if rows else memory
        u = layer.norm1(x + layer.self_attn(x, keys, keys, need_weights=False)[0])
        out = layer.norm2(u + layer.linear2(layer.activation(layer.linear1(u))))
        return np.asarray(out[:, -1].numpy())

    return answer


@pytest.mark.parametrize(
    ("rows", "reason"), [(True, "cross attention"), (False, "each row is answered by itself")]
)
@pytest.mark.parametrize("family", ["auto", "encoder-block"])
def test_cross_attention_is_named_at_once(rows: bool, reason: str, family: str) -> None:
    answer = _sees(torch_layer(4, norm_first=False), rows=rows)
    result = unsoftmax.recover(answer, width=8, outputs=8, family=family)
    assert result.status is Status.UNRESOLVED
    assert reason in result.reason
    assert result.queries.total < 120


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_attention_sinks_are_named(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True, add_zero_attn=True, dtype=dtype)
    result = unsoftmax.recover(layer)
    assert result.status is unsoftmax.Status.UNRESOLVED
    assert "attention sinks" in result.reason


def test_rows_of_zeros_that_are_padding_leave_the_block_as_a_part() -> None:
    layer = torch_layer(5, norm_first=True)

    @torch.no_grad()
    def answer(X: Array) -> Array:
        padded = (X == 0.0).all(axis=2)
        padded[padded.all(axis=1)] = False
        return np.asarray(layer(torch.tensor(X), src_key_padding_mask=torch.tensor(padded))[:, -1].numpy())

    result = unsoftmax.recover(answer, width=8, outputs=8, family="encoder-block", seed=2)
    assert result.status is Status.UNRESOLVED
    assert "padding" in result.reason
    part = result.parts["block"]
    assert isinstance(part.value, EncoderBlock)
    assert block_from_torch(layer).distance(part.value) <= part.error_bound < 1e-8


def test_one_probability_is_named() -> None:
    rows = torch_layer(6, norm_first=True)

    @torch.no_grad()
    def answer(X: Array) -> Array:
        return np.asarray(torch.sigmoid(rows(torch.tensor(X))[:, 0, :2].sum(dim=1)).numpy())

    result = unsoftmax.recover(answer, width=8)
    assert result.status is Status.UNRESOLVED
    assert "as probabilities do" in result.reason


def test_a_decoder_layer_beside_a_memory_is_named_and_its_value_path_recovered() -> None:
    torch.manual_seed(5)
    layer = torch.nn.TransformerDecoderLayer(8, 2, 12, 0.0, batch_first=True, dtype=torch.float64).eval()

    @torch.no_grad()
    def answer(X: Array) -> Array:
        x = torch.tensor(X)
        return np.asarray(layer(x, MEMORY.expand(len(x), -1, -1))[:, -1].numpy())

    result = unsoftmax.recover(answer, width=8, outputs=8, family="encoder-block")
    assert result.status is Status.UNRESOLVED
    assert "as in a decoder layer" in result.reason
    assert result.queries.total < 2000
    V = layer.self_attn.in_proj_weight[16:].T @ layer.self_attn.out_proj.weight.T
    truth = (V - V.mean(dim=1, keepdim=True)).detach().numpy()
    part = result.parts["value-path"]
    assert np.linalg.norm(part.value - truth) <= part.error_bound * np.linalg.norm(truth)


def test_a_final_norm_behind_a_pre_norm_layer_is_named() -> None:
    encoder = torch.nn.TransformerEncoder(
        torch_layer(5, norm_first=True),
        1,
        norm=torch.nn.LayerNorm(8, dtype=torch.float64),
        enable_nested_tensor=False,
    ).eval()

    @torch.no_grad()
    def answer(X: Array) -> Array:
        return np.asarray(encoder(torch.tensor(X))[:, -1].numpy())

    result = unsoftmax.recover(answer, width=8, outputs=8, family="encoder-block")
    assert result.status is Status.UNRESOLVED
    assert "without the final norm" in result.reason
    assert result.queries.total < 100
