"""Attention whose first row is answered: recovered from sequences that are sent in reverse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import unsoftmax
from unsoftmax import Status
from unsoftmax.arrays import Array
from unsoftmax.models import AskingRow, MultiHead
from unsoftmax.models.random import random_multi_head, random_single_head


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_first_row_of_a_torch_layer(dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    layer = torch.nn.MultiheadAttention(6, 2, batch_first=True, dtype=dtype)
    result = unsoftmax.recover(layer, row="first")
    assert result.status is (Status.EXACT if dtype is torch.float64 else Status.WITHIN_BOUND), result.reason
    model = result.model
    assert isinstance(model, MultiHead)
    assert model.asking is AskingRow.FIRST
    truth = unsoftmax.from_torch(layer.double())
    assert isinstance(truth, MultiHead)
    assert truth.distance(model) == 1.0
    assert truth.distance(model.asked_by(AskingRow.LAST)) <= (result.error_bound or 0.0)
    X = torch.randn(5, 4, 6, dtype=torch.float64)
    off = model(X.numpy()) - layer(X, X, X)[0][:, 0].detach().numpy()
    assert float(np.abs(off).max()) < (1e-12 if dtype is torch.float64 else 1e-5)


@pytest.mark.parametrize("hidden", [random_single_head(5, seed=1), random_multi_head(5, 2, seed=1)])
def test_numbers_of_the_first_row(hidden: unsoftmax.SingleHead | MultiHead) -> None:
    def target(X: Array) -> Array:
        return hidden(X[:, ::-1])

    assert "first row asks" in unsoftmax.check(target, width=5).looks_like
    result = unsoftmax.recover(target, width=5)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, MultiHead)
    assert result.model.first_row


def test_files_and_exports_keep_the_row_that_asks(tmp_path: Path) -> None:
    heads = random_multi_head(4, 2, seed=2).asked_by(AskingRow.FIRST)
    loaded = unsoftmax.load(heads.save(tmp_path / "heads.safetensors"))
    assert isinstance(loaded, MultiHead)
    assert heads.distance(loaded) == 0.0
    X = np.random.default_rng(0).standard_normal((3, 5, 4))
    answers = heads.to_torch()(torch.tensor(X)).detach().numpy()
    np.testing.assert_allclose(answers, heads(X), rtol=1e-12)
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(str(heads.save_onnx(tmp_path / "heads.onnx")))
    np.testing.assert_allclose(session.run(None, {"sequences": X})[0], heads(X), rtol=1e-12)
    assert heads.scores(X)[0, 0] == pytest.approx(heads.asked_by(AskingRow.LAST).scores(X[:, ::-1])[0, -1])
