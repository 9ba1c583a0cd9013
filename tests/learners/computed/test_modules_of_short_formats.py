"""What was recovered from a layer that computes in a short format, as a torch module in that format."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import unsoftmax
from tests.learners.computed.float_layers import FloatLayer, random_layer
from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.models import MultiHead
from unsoftmax.oracles.torch_module import TorchOracle


@pytest.mark.parametrize(
    ("d", "heads", "dtype"), [(16, 2, torch.float32), (8, 1, torch.float32), (12, 3, torch.bfloat16)]
)
def test_a_layer_of_vectors_comes_back_in_its_own_format(d: int, heads: int, dtype: torch.dtype) -> None:
    target = FloatLayer(random_layer(d, heads, 3), dtype, None).stored()
    result = unsoftmax.recover(TorchOracle(target.layer), seed=3)
    assert result.arithmetic == str(dtype).removeprefix("torch.")
    model = result.unwrap()
    assert isinstance(model, MultiHead | unsoftmax.SingleHead)
    layer = unsoftmax.to_torch(model, heads, dtype=result.arithmetic)
    assert layer.in_proj_weight.dtype == dtype
    # new factors of the scores and values round in places of their own
    assert target.deviation_over_own(lambda X: FloatLayer(layer, dtype, None).answer(X, dtype)) < 2.0
    assert target.deviation_over_own(_answers_of(result.to_torch(), dtype)) < 2.0


def test_ranks_that_rounding_raised_are_cut_in_its_format_only() -> None:
    """A recovery from bfloat16 may keep ranks above d / H, in the size of its rounding."""
    rng = np.random.default_rng(0)
    plain = unsoftmax.random_multi_head(8, 2, 4, seed=1, outputs=8)
    unit = 2.0**-8
    raised = MultiHead(
        [
            unsoftmax.SingleHead(
                head.W + unit * np.linalg.norm(head.W, 2) * rng.standard_normal((8, 8)) / 8, head.v
            )
            for head in plain.heads
        ],
        plain.c,
    )
    X = rng.standard_normal((5, 4, 8))
    rows = torch.from_numpy(X).bfloat16()
    with torch.no_grad():
        answers = unsoftmax.to_torch(raised, dtype="bfloat16")(rows, rows, rows)[0][:, -1].double().numpy()
    assert np.linalg.norm(answers - raised(X)) < 4.0 * unit * np.linalg.norm(raised(X))
    with pytest.raises(UsageError, match=r"model\.to_torch\(\) gives a module for any rank"):
        unsoftmax.to_torch(raised, dtype=torch.float32)
    with torch.no_grad():
        whole = raised.to_torch(dtype=torch.float32)(torch.from_numpy(X).float()).double().numpy()
    assert np.linalg.norm(whole - raised(X)) < 1e-5 * np.linalg.norm(raised(X))


def test_a_layer_of_numbers_rounds_like_the_target() -> None:
    layer = random_layer(16, 2, 41)
    readout = np.random.default_rng(41).standard_normal(16) / 4.0
    result = unsoftmax.recover(TorchOracle(layer, readout=readout))
    answer = _answers_of(result.to_torch(), torch.float32)
    assert FloatLayer(layer, torch.float32, readout).deviation_over_own(answer) < 1.5


def test_a_target_in_float64_gives_a_float64_module_and_any_format_on_demand() -> None:
    target = unsoftmax.random_multi_head(4, 2, 2, seed=1, outputs=4)
    result = unsoftmax.recover(target)
    assert result.arithmetic == "float64"
    assert {part.dtype for part in result.to_torch().parameters()} == {torch.float64}
    assert {part.dtype for part in unsoftmax.to_torch(target).parameters()} == {torch.float64}
    assert {part.dtype for part in target.to_torch(dtype="float16").parameters()} == {torch.float16}
    with pytest.raises(UsageError, match="float32, float16, bfloat16, not int8"):
        target.to_torch(dtype=torch.int8)


def test_a_block_comes_in_any_format() -> None:
    torch.manual_seed(0)
    there = torch.nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True).eval()
    again = unsoftmax.to_torch(unsoftmax.from_torch(there), 2, dtype="float32")
    assert {part.dtype for part in again.parameters()} == {torch.float32}
    rows = torch.randn(3, 4, 8)
    with torch.no_grad():
        assert torch.allclose(again(rows), there(rows), rtol=0.0, atol=1e-5)


def test_a_layer_has_no_place_for_a_skip_connection() -> None:
    plain = unsoftmax.random_multi_head(4, 2, 2, seed=1, outputs=4)
    with pytest.raises(UsageError, match="no skip connection"):
        unsoftmax.to_torch(MultiHead(plain.heads, plain.c, skip=np.eye(4)))


def _answers_of(module: torch.nn.Module, dtype: torch.dtype) -> Callable[[Array], Array]:
    def answer(batch: Array) -> Array:
        with torch.no_grad():
            return np.asarray(module(torch.as_tensor(batch).to(dtype)).double().numpy())

    return answer
