"""Models in torch, ONNX and numpy: the same answers there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch

import unsoftmax
from unsoftmax import SingleHead, UsageError

RNG = np.random.default_rng(0)
MODELS: dict[str, Any] = {
    "dense": unsoftmax.random_single_head(6, seed=1),
    "factors": unsoftmax.random_single_head(6, 2, seed=2),
    "biases": unsoftmax.random_single_head(6, 3, seed=3, biases=True),
    "vectors": SingleHead(
        RNG.standard_normal((6, 6)),
        RNG.standard_normal((6, 4)),
        RNG.standard_normal(6),
        RNG.standard_normal(4),
    ),
    "one column": SingleHead(RNG.standard_normal((6, 6)), RNG.standard_normal((6, 1))),
    "saturated": unsoftmax.random_single_head(6, seed=4, scale=300.0),
    "heads": unsoftmax.random_multi_head(6, 3, 2, seed=5, biases=True),
    "heads, vectors": unsoftmax.random_multi_head(6, 2, 3, seed=6, outputs=4),
    "transformer": unsoftmax.random_transformer(6, 5, seed=7),
    "transformer, residual": unsoftmax.Transformer(
        RNG.standard_normal((6, 6)),
        unsoftmax.random_relu_network(6, 5, seed=8, biases=True),
        RNG.standard_normal(6),
        residual=1.0,
    ),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("length", [1, 2, 9])
def test_torch_and_onnx_answer_alike(tmp_path: Path, name: str, length: int) -> None:
    head = MODELS[name]
    batch = RNG.standard_normal((5, length, 6))
    expected = head(batch)
    with torch.no_grad():
        np.testing.assert_allclose(
            head.to_torch()(torch.from_numpy(batch)).numpy(), expected, rtol=1e-12, atol=1e-12
        )
    for external_data in (False, True):
        path = head.save_onnx(tmp_path / f"head{external_data}", external_data=external_data)
        assert Path(f"{path}.data").exists() == external_data
        answers = onnxruntime.InferenceSession(str(path)).run(None, {"sequences": batch})[0]
        assert answers.shape == expected.shape
        np.testing.assert_allclose(answers, expected, rtol=1e-12, atol=1e-12)


def test_torch_modules_train() -> None:
    module = MODELS["biases"].to_torch()
    module(torch.ones(2, 3, 6, dtype=torch.float64)).sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_a_network_alone_answers_one_row(tmp_path: Path) -> None:
    network = unsoftmax.random_relu_network(6, 5, seed=8, biases=True)
    rows = RNG.standard_normal((5, 1, 6))
    with torch.no_grad():
        np.testing.assert_allclose(
            network.to_torch()(torch.from_numpy(rows)).numpy(), network(rows), rtol=1e-12, atol=1e-12
        )
    session = onnxruntime.InferenceSession(str(network.save_onnx(tmp_path / "network")))
    np.testing.assert_allclose(
        session.run(None, {"sequences": rows})[0], network(rows), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("name", MODELS)
def test_npz_needs_no_pickle(tmp_path: Path, name: str) -> None:
    head = MODELS[name]
    with np.load(head.save_npz(tmp_path / "head"), allow_pickle=False) as archive:
        content = dict(archive)
    assert str(content.pop("family")) == head.family
    again = type(head).from_tensors(content)
    batch = RNG.standard_normal((3, 4, 6))
    np.testing.assert_array_equal(again(batch), head(batch))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_one_file(tmp_path: Path, name: str) -> None:
    contents = {MODELS[name].save(tmp_path / "model.safetensors").read_bytes() for _ in range(20)}
    assert len(contents) == 1
    batch = RNG.standard_normal((3, 4, 6))
    np.testing.assert_array_equal(unsoftmax.load(tmp_path / "model.safetensors")(batch), MODELS[name](batch))


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    for save in (MODELS["dense"].save_npz, MODELS["dense"].save_onnx):
        with pytest.raises(UsageError, match="cannot write"):
            save(tmp_path / "absent" / "head")
