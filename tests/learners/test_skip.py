"""Attention beside a skip connection, x + attention(x): found, taken off the answers, part of the model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import unsoftmax
from unsoftmax.arrays import Array
from unsoftmax.testing import check_model

Box = Callable[[Array], Array]


def residual_layer(d: int, heads: int, seed: int, dtype: torch.dtype) -> tuple[Box, unsoftmax.MultiHead]:
    """The last row of x + layer(x) as torch computes it, and its parameters."""
    torch.manual_seed(seed)
    layer = torch.nn.MultiheadAttention(d, heads, batch_first=True, dtype=torch.float64)
    for part in (layer.in_proj_bias, layer.out_proj.bias):
        torch.nn.init.normal_(part, std=0.3)
    layer = layer.to(dtype)
    true = unsoftmax.from_torch(layer.double())
    layer = layer.to(dtype)

    def answer(X: Array) -> Array:
        x = torch.from_numpy(X).to(dtype)
        with torch.no_grad():
            return np.asarray((x + layer(x, x, x, need_weights=False)[0])[:, -1].numpy())

    return answer, unsoftmax.MultiHead(true.heads, true.c, np.eye(d))


def read(box: Box, model: unsoftmax.MultiHead, u: Array) -> tuple[Box, unsoftmax.MultiHead]:
    """The same, one number an answer."""
    assert model.skip is not None
    heads = [unsoftmax.SingleHead(head.W, head.v @ u, head.w0) for head in model.heads]
    return lambda X: box(X) @ u, unsoftmax.MultiHead(heads, np.asarray(model.c) @ u, model.skip @ u)


def within_bound(true: unsoftmax.MultiHead, result: unsoftmax.Result) -> bool:
    found = result.unwrap()
    assert isinstance(found, unsoftmax.MultiHead)
    assert result.error_bound is not None
    return true.distance(found) <= result.error_bound


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("heads", [1, 2])
def test_a_layer_with_a_skip_connection_is_recovered(heads: int, seed: int) -> None:
    box, true = residual_layer(6, heads, seed, torch.float64)
    result = unsoftmax.recover(box, width=6, outputs=6)
    assert result.status is unsoftmax.Status.EXACT, result.reason
    assert within_bound(true, result)
    number, one = read(box, true, np.random.default_rng(seed).standard_normal(6))
    result = unsoftmax.recover(number, width=6)
    assert result.status is unsoftmax.Status.EXACT, result.reason
    assert within_bound(one, result)
    assert {finding.subject: finding.value for finding in result.findings}["skip connection"] == "present"
    assert result.queries.by_phase["skip"] == 3 * 6 + 24


def test_in_float32_it_is_found_before_a_fit_is_tried() -> None:
    box, true = residual_layer(8, 2, 3, torch.float32)
    result = unsoftmax.recover(box, width=8, outputs=8)
    assert result.status is unsoftmax.Status.WITHIN_BOUND, result.reason
    assert within_bound(true, result)
    assert result.queries.total < 1_000


def test_check_says_so() -> None:
    found = unsoftmax.check(residual_layer(6, 2, 5, torch.float64)[0], width=6, outputs=6)
    assert found.recoverable
    assert "skip connection" in found.looks_like


def test_a_model_with_a_skip_connection_keeps_its_promises(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    plain = unsoftmax.random_multi_head(4, 2, 2, seed=1)
    model = unsoftmax.MultiHead(plain.heads, 0.5, rng.standard_normal(4))
    check_model(
        model,
        same=[unsoftmax.MultiHead(plain.heads[::-1], 0.5, model.skip)],
        others=[unsoftmax.MultiHead(plain.heads, 0.5, 1.01 * np.asarray(model.skip))],
    )
    X = rng.standard_normal((5, 3, 4))
    assert np.allclose(model.to_torch()(torch.from_numpy(X)).detach().numpy(), model(X), rtol=0, atol=1e-13)
    again = unsoftmax.as_oracle(model.save_onnx(tmp_path / "skip.onnx"))
    assert np.allclose(again(X), model(X), rtol=0, atol=1e-13)
    assert not unsoftmax.equivalent(model, unsoftmax.MultiHead(plain.heads, 0.5))
    with pytest.raises(unsoftmax.UsageError, match="skip must have the shape of v"):
        unsoftmax.MultiHead(plain.heads, skip=np.ones(3))


@pytest.mark.parametrize("bend", ["tanh", "first row", "only for two rows", "squared"])
def test_what_is_nearly_a_skip_connection_is_not_recovered(bend: str) -> None:
    heads = unsoftmax.random_multi_head(5, 2, 2, seed=2)
    o = np.random.default_rng(2).standard_normal(5)

    def box(X: Array) -> Array:
        beside = {
            "tanh": np.tanh(X[:, -1] @ o),
            "first row": X[:, 0] @ o,
            "only for two rows": (X[:, -1] @ o) * (X.shape[1] <= 2),
            "squared": X[:, -1] @ o + 1e-4 * (X[:, -1] @ o) ** 2,
        }[bend]
        return np.asarray(heads(X) + beside)

    assert not unsoftmax.recover(box, width=5).status.recovered


def test_a_target_that_reads_its_last_row_alone_has_no_attention_beside_a_skip() -> None:
    def last_row(X: np.ndarray) -> np.ndarray:
        return np.asarray(X[:, -1])

    assert unsoftmax.check(last_row, width=3).ending is unsoftmax.Status.OUTSIDE_CLASS
    result = unsoftmax.recover(last_row, width=3, outputs=3)
    assert result.status is unsoftmax.Status.OUTSIDE_CLASS
    assert "only the last row is read" in result.reason
