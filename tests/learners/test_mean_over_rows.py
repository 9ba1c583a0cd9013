"""Blocks whose answers are the mean over rows, as behind mean pooling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import unsoftmax
from tests.models.test_encoder_block import torch_layer
from unsoftmax.arrays import Array
from unsoftmax.models import AskingRow, EncoderBlock, block_from_torch
from unsoftmax.oracles import OracleSpec
from unsoftmax.outcomes import Status

LOGITS = np.random.default_rng(7).standard_normal((8, 3)) / 3.0


def _rows(layer: torch.nn.TransformerEncoderLayer) -> Callable[[Array], Array]:
    @torch.no_grad()
    def answer(X: Array) -> Array:
        return np.asarray(layer(torch.tensor(X)).numpy())

    return answer


@pytest.mark.parametrize(("activation", "readout"), [("gelu", np.eye(8)), ("relu", LOGITS)])
def test_mean_pooling_with_and_without_a_classifier(activation: str, readout: Array) -> None:
    layer = torch_layer(3, norm_first=True, activation=activation)
    rows, outputs = _rows(layer), readout.shape[1]
    result = unsoftmax.recover(
        lambda X: rows(X).mean(axis=1) @ readout, width=8, outputs=outputs, family="encoder-block"
    )
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, EncoderBlock)
    assert result.model.asking is AskingRow.MEAN
    own = block_from_torch(layer)
    truth = EncoderBlock(
        own.attention,
        own.network.followed(readout.T),
        own.first,
        own.second,
        readout=None if outputs == 8 else readout,
    ).asked_by(AskingRow.MEAN)
    assert truth.distance(result.model) <= float(result.error_bound or 0.0) < 1e-8
    X = np.random.default_rng(0).standard_normal((20, 6, 8))
    np.testing.assert_allclose(result.model(X), rows(X).mean(axis=1) @ readout, atol=1e-12)


def _largest(rows: Array) -> Array:
    return np.asarray(rows.max(axis=1))


def _mean(rows: Array) -> Array:
    return np.asarray(rows.mean(axis=1))


@pytest.mark.parametrize(
    ("norm_first", "pool", "reason"),
    [(True, _largest, "the largest number over rows"), (False, _mean, "a LayerNorm comes last")],
)
def test_other_poolings_are_named_at_once(
    norm_first: bool, pool: Callable[[Array], Array], reason: str
) -> None:
    rows = _rows(torch_layer(4, norm_first=norm_first))
    result = unsoftmax.recover(lambda X: pool(rows(X)), width=8, outputs=8, family="encoder-block")
    assert result.status is Status.UNRESOLVED
    assert reason in result.reason
    assert result.queries.total < 120


def test_short_sequences_are_named() -> None:
    rows = _rows(torch_layer(4, norm_first=True))
    target = unsoftmax.FunctionOracle(lambda X: _mean(rows(X)), OracleSpec(width=8, outputs=8, max_length=20))
    result = unsoftmax.recover(target, family="encoder-block")
    assert result.status is Status.UNRESOLVED
    assert "needs sequences of 72 rows" in result.reason


def test_a_mean_of_other_weights_for_long_sequences_is_no_success() -> None:
    rows = _rows(torch_layer(3, norm_first=True))

    def answer(X: Array) -> Array:
        return _mean(rows(X * (1.0 + 1e-4 * (X.shape[1] > 72))))

    result = unsoftmax.recover(answer, width=8, outputs=8, family="encoder-block")
    assert not result.status.recovered
