"""Positions that a target adds before a block, as parts of the result."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import unsoftmax
from tests.models.test_encoder_block import torch_layer
from unsoftmax import Status
from unsoftmax.arrays import Array


@pytest.mark.parametrize("norm_first", [False, True])
def test_positions_are_parts_and_the_block_where_a_norm_comes_last(norm_first: bool) -> None:
    layer = torch_layer(3, norm_first=norm_first, activation="relu")
    added = 0.3 * np.random.default_rng(3).standard_normal((64, 8))

    def answer(X: Array) -> Array:
        return np.asarray(layer(torch.tensor(X + added[: X.shape[1]])).detach().numpy()[:, -1])

    result = unsoftmax.recover(answer, width=8, outputs=8, family="encoder-block", seed=1)
    assert result.status is Status.UNRESOLVED
    assert "positions are added to rows" in result.reason
    part = result.parts["positions"]
    beyond = added[: len(part.value)] - added[0]
    assert np.abs(part.value - beyond).max() <= part.error_bound * np.abs(beyond).max() < 1e-8
    assert ("block" in result.parts) is not norm_first
    if not norm_first:
        X = np.random.default_rng(0).standard_normal((40, 7, 8))
        there = result.parts["block"].value(X + part.value[:7])
        assert np.abs(there - answer(X)).max() < 1e-10
