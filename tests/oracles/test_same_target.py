"""One target, reached in every way there is: the same status, the same parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

import unsoftmax
from tests.oracles.mlserver_process import mlserver
from unsoftmax import HttpOptions, Status
from unsoftmax.oracles.http import http_oracle
from unsoftmax.serve import ModelServer

HEAD = unsoftmax.random_single_head(6, seed=11)


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with mlserver(tmp_path_factory.mktemp("mlserver"), HEAD) as urls:
        yield urls


@pytest.fixture(scope="module")
def own() -> Iterator[dict[str, str]]:
    oracle = unsoftmax.as_oracle(HEAD)
    with (
        ModelServer(oracle) as double,
        ModelServer(oracle, binary=False) as text,
        ModelServer(oracle, datatype="FP32") as single,
    ):
        yield {"FP64": double.url, "JSON": text.url, "FP32": single.url}


def attention(dtype: torch.dtype) -> Any:
    """The same head as an nn.MultiheadAttention: queries x Wᵀ, keys x, values x, read by v."""
    layer = torch.nn.MultiheadAttention(6, 1, bias=False, batch_first=True, dtype=dtype)
    eye = torch.eye(6, dtype=dtype)
    with torch.no_grad():
        layer.in_proj_weight.copy_(torch.cat([np.sqrt(6) * torch.tensor(HEAD.W, dtype=dtype), eye, eye]))
        layer.out_proj.weight.copy_(eye)
    return unsoftmax.TorchOracle(layer, readout=HEAD.v)


def single_onnx(path: Path) -> Path:
    """The exported file in float32, as most are."""
    model = onnx.load(str(HEAD.save_onnx(path)))
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.DOUBLE:
            tensor.CopyFrom(
                onnx.numpy_helper.from_array(
                    onnx.numpy_helper.to_array(tensor).astype(np.float32), tensor.name
                )
            )
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize(
    "way",
    ["callable", "torch", "attention", "file", "onnx", "onnx.data", "server", "server JSON", "mlserver"],
)
def test_float64_ways_agree(
    way: str, tmp_path: Path, own: dict[str, str], request: pytest.FixtureRequest
) -> None:
    ways: dict[str, Callable[[], Any]]
    if way == "mlserver":
        target = request.getfixturevalue("foreign")["FP64"]
    else:
        ways = {
            "callable": lambda: lambda X: HEAD(X),
            "torch": HEAD.to_torch,
            "attention": lambda: attention(torch.float64),
            "file": lambda: HEAD.save(tmp_path / "head.safetensors"),
            "onnx": lambda: HEAD.save_onnx(tmp_path / "head.onnx"),
            "onnx.data": lambda: HEAD.save_onnx(tmp_path / "head.onnx", external_data=True),
            "server": lambda: own["FP64"],
            "server JSON": lambda: own["JSON"],
        }
        target = ways[way]()
    result = unsoftmax.recover(target, width=6)
    assert result.status is Status.EXACT
    assert HEAD.distance(result.model) < 1e-9  # type: ignore[arg-type]


@pytest.mark.parametrize("way", ["torch", "attention", "onnx", "server", "mlserver"])
def test_float32_ways_end_within_an_honest_bound(
    way: str, tmp_path: Path, own: dict[str, str], request: pytest.FixtureRequest
) -> None:
    ways: dict[str, Callable[[], Any]]
    if way == "mlserver":
        target = request.getfixturevalue("foreign")["FP32"]
    else:
        ways = {
            "torch": lambda: HEAD.to_torch().float(),
            "attention": lambda: attention(torch.float32),
            "onnx": lambda: single_onnx(tmp_path / "head.onnx"),
            "server": lambda: own["FP32"],
        }
        target = ways[way]()
    result = unsoftmax.recover(target, width=6)
    assert result.status is Status.WITHIN_BOUND
    assert result.error_bound is not None
    assert HEAD.distance(result.model) <= result.error_bound < 1e-4  # type: ignore[arg-type]


def test_mlserver_answers_batches_in_order(foreign: dict[str, str]) -> None:
    batch = np.random.default_rng(0).standard_normal((40, 5, 6))
    oracle = http_oracle(foreign["FP64"], HttpOptions(batch=3, concurrency=4))
    np.testing.assert_allclose(oracle(batch), HEAD(batch), rtol=1e-13)
    assert oracle.spec.width == 6
    with pytest.raises(unsoftmax.OracleFault, match=r"404"):
        http_oracle(foreign["FP64"] + "-absent")
