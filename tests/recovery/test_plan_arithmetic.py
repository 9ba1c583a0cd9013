"""Plans for targets that compute in short formats: what they cost, and where the format is known from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import unsoftmax
from tests.cases.bills import learning
from tests.learners.computed.float_layers import random_layer
from tests.learners.computed.onnx_layer import save_float32_layer
from unsoftmax import OracleFault, Size, UsageError, plan
from unsoftmax.arrays import Array
from unsoftmax.oracles.torch_module import TorchOracle


@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("heads", [1, 2])
def test_a_plan_for_bfloat16_is_within_a_fifth_of_the_bill(vector: bool, heads: int) -> None:
    readout = None if vector else np.random.default_rng(1).standard_normal(8)
    oracle = TorchOracle(random_layer(8, heads, 1).to(torch.bfloat16), readout=readout)
    result = unsoftmax.recover(oracle, seed=1)
    size = Size(8, (8 // heads,) * heads)
    planned = plan(oracle, size=size)
    assert result.status is unsoftmax.Status.WITHIN_BOUND, result.reason
    assert abs(planned.usual - result.queries.total) <= 0.2 * result.queries.total
    assert result.claim.queries.attempts == planned.claim.queries.attempts == 6
    assert result.claim.queries.holds(learning(result), Size.of(result.unwrap()))


class _Silent(torch.nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(3, dtype=dtype))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        raise AssertionError("a plan asks nothing")


@pytest.mark.parametrize("outputs", [None, 16])
def test_a_module_tells_its_format_without_being_asked(outputs: int | None) -> None:
    size = Size(16, (8, 8))
    usual = {}
    for name in ("float64", "float32", "bfloat16", "float16"):
        module = _Silent(getattr(torch, name))
        planned = plan(module, width=16, outputs=outputs, size=size)
        usual[name] = planned.usual
        exact = _Silent(torch.float64)
        assert plan(exact, width=16, outputs=outputs, size=size, arithmetic=name).usual == planned.usual
        told = plan(module, width=16, outputs=outputs, size=size, arithmetic="float64")
        assert told.usual == usual["float64"]
    assert usual["float64"] < usual["float32"] < usual["bfloat16"] == usual["float16"]
    with pytest.raises(OracleFault, match="asks nothing"):
        TorchOracle(_Silent(torch.float32), width=16)(np.zeros((1, 1, 16)))


def test_a_file_tells_its_format(tmp_path: Path) -> None:
    path = save_float32_layer(random_layer(8, 2, 0), tmp_path / "layer.onnx")
    size = Size(8, (4, 4))
    assert plan(str(path), size=size).usual == plan(str(path), size=size, arithmetic="float32").usual
    assert plan(str(path), size=size, arithmetic="float64").usual < plan(str(path), size=size).usual


@pytest.mark.parametrize("family", ["single-head", "multi-head", "transformer", "relu-network"])
def test_every_family_of_numbers_has_a_price_in_float32(family: str) -> None:
    target = "demo:single-head?d=8"
    assert plan(target, family=family).usual < plan(target, family=family, arithmetic="float32").usual


def test_one_head_is_in_the_table_of_a_short_format() -> None:
    planned = plan("demo:single-head?d=8", arithmetic="float32")
    assert [cost.size.heads for cost in planned.costs] == [1, 2, 4, 8]
    assert list(planned.otherwise) == ["transformer"]


def test_an_arithmetic_that_is_none_is_refused() -> None:
    def silent(batch: Array) -> Array:
        raise AssertionError("a plan asks nothing")

    with pytest.raises(UsageError, match="choose one of float64"):
        plan(silent, width=4, arithmetic="float8")
