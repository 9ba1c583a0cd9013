"""Targets that round their rows to float32 and compute in float64 after that."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unsoftmax
from unsoftmax.arrays import Array
from unsoftmax.models import Model, ReluNetwork
from unsoftmax.outcomes import Status


def _cast(model: Model) -> Callable[[Array], Array]:
    return lambda rows: model(rows.astype(np.float32).astype(np.float64))


@pytest.mark.parametrize(
    "model",
    [
        unsoftmax.random_single_head(6, seed=41),
        unsoftmax.random_multi_head(8, 2, seed=42, biases=True),
        unsoftmax.random_multi_head(8, 2, seed=43, outputs=5),
        unsoftmax.random_transformer(5, 6, seed=44, biases=True, scale=0.5),
    ],
    ids=["one head", "two heads", "vectors", "transformer"],
)
def test_a_model_behind_rounded_rows_is_recovered(model: Model) -> None:
    result = unsoftmax.recover(_cast(model), width=model.width, outputs=model.outputs, seed=3)
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert result.model is not None
    assert result.error_bound is not None
    assert model.distance(result.model) <= result.error_bound < 1e-5
    assert any("the same row in float32" in finding.evidence for finding in result.findings)


def test_a_network_behind_rounded_rows_is_recovered() -> None:
    network = unsoftmax.random_relu_network(6, 8, seed=45, biases=True)
    result = unsoftmax.recover_network(_cast(network), width=6, seed=3)
    assert result.status.recovered, result.reason
    assert isinstance(result.model, ReluNetwork)
    assert network.distance(result.model) <= (result.error_bound or 0.0) < 1e-5


def test_another_function_behind_rounded_rows_is_never_recovered() -> None:
    head = unsoftmax.random_single_head(6, seed=46)
    short = _cast(head)
    result = unsoftmax.recover(lambda rows: short(rows) + 1e-3 * np.tanh(short(rows)), width=6, seed=3)
    assert not result.status.recovered


def test_coarse_steps_behind_a_float32_readout_are_named_and_recovered() -> None:
    torch = pytest.importorskip("torch")
    from tests.learners.computed.float_layers import FloatLayer, random_layer

    layer = random_layer(16, 2, 4)
    readout = torch.from_numpy(np.random.default_rng(4).standard_normal(16) / 4.0).float()

    def target(X: Array) -> Array:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            rows = torch.from_numpy(X).float()
            last = layer(rows, rows, rows, need_weights=False)[0][:, -1]
        return np.asarray((last.float() @ readout).double().numpy())

    result = unsoftmax.recover(target, width=16)
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert any("computed in bfloat16" in finding.value for finding in result.findings)
    truth = FloatLayer(layer, torch.float32, readout.double().numpy()).truth()
    assert result.unwrap().distance(truth) <= (result.error_bound or 0.0) < 0.05
    assert result.queries.total < 10_000
