"""Layers behind mlserver that compute in float32: the same outcome as in process."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import unsoftmax
from tests.learners.computed.float_layers import FloatLayer, random_layer
from tests.oracles.mlserver_process import float32_layer, serve

LAYER = random_layer(8, 2, 4)
READOUT = np.round(8.0 * np.random.default_rng(4).standard_normal(8)) / 8.0


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("float32")
    models = {
        "numbers": float32_layer(LAYER, folder / "numbers.npz", READOUT),
        "vectors": float32_layer(LAYER, folder / "vectors.npz"),
    }
    with serve(folder, models) as urls:
        yield urls


@pytest.mark.parametrize("kind", ["numbers", "vectors"])
def test_a_float32_layer_behind_a_server(addresses: dict[str, str], kind: str) -> None:
    result = unsoftmax.recover(addresses[kind])
    assert result.status is unsoftmax.Status.WITHIN_BOUND
    truth = FloatLayer(LAYER, torch.float32, READOUT if kind == "numbers" else None).truth()
    assert result.unwrap().distance(truth) <= (result.error_bound or 0.0) < 2e-5
    assert any("computed in float32" in finding.value for finding in result.findings)
