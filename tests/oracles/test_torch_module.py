from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import unsoftmax
from unsoftmax import OracleFault, TorchOracle, UsageError
from unsoftmax.oracles import identity, pins_content

BATCH = np.random.default_rng(0).standard_normal((5, 3, 4))


class Returns(nn.Module):
    """A module that answers whatever it is told to."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones((), dtype=torch.float64))
        self.answer = answer

    def forward(self, X: Any) -> Any:
        return self.answer(X)


def test_shapes_that_modules_return() -> None:
    expected = BATCH[:, -1, 0]
    np.testing.assert_array_equal(unsoftmax.as_oracle(Returns(lambda X: X[:, -1, 0]))(BATCH), expected)
    np.testing.assert_array_equal(unsoftmax.as_oracle(Returns(lambda X: X[:, -1, :1]))(BATCH), expected)
    np.testing.assert_array_equal(
        unsoftmax.as_oracle(Returns(lambda X: X[:, -1]), outputs=4)(BATCH), BATCH[:, -1]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_function_may_answer_with_a_tensor_as_torch_has_it(dtype: torch.dtype) -> None:
    weight = torch.ones(4, dtype=dtype, requires_grad=True)

    def answer(X: Any) -> Any:
        return torch.as_tensor(X, dtype=dtype)[:, -1] @ weight

    answers = unsoftmax.as_oracle(answer)(BATCH)
    np.testing.assert_allclose(answers, BATCH[:, -1].sum(axis=1), rtol=0.1, atol=0.05)
    assert unsoftmax.as_oracle(lambda X: answer(X)[:, None, None].expand(-1, 3, 2), row="last", outputs=2)(
        BATCH
    ).shape == (5, 2)


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (lambda X: X[:, -1], "pass outputs=4"),
        (lambda X: (X[:, -1, 0], None), "instead of a tensor"),
        (lambda X: X[:, -1, 0] * torch.nan, "NaN or infinity"),
        (lambda X: X @ torch.ones(9, dtype=torch.float64), "the module raised RuntimeError"),
        (lambda X: X[:1, -1, 0], "shape"),
    ],
)
def test_what_is_no_answer_is_a_fault(answer: Any, match: str) -> None:
    with pytest.raises(OracleFault, match=match):
        unsoftmax.as_oracle(Returns(answer))(BATCH)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_attention_is_read_at_its_last_row(batch_first: bool, bias: bool) -> None:
    layer = nn.MultiheadAttention(4, 2, bias=bias, batch_first=batch_first, dtype=torch.float64, dropout=0.5)
    assert layer.training
    X = torch.from_numpy(BATCH)
    layer.eval()
    with torch.no_grad():
        rows = layer(*(3 * [X if batch_first else X.transpose(0, 1)]))[0]
    last = (rows if batch_first else rows.transpose(0, 1))[:, -1].numpy()
    layer.train()
    readout = np.arange(4.0)
    np.testing.assert_allclose(
        TorchOracle(layer, readout=readout)(BATCH), last @ readout, rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(unsoftmax.as_oracle(layer)(BATCH), last, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(
        TorchOracle(layer, readout=np.eye(4)[:, :2])(BATCH), last[:, :2], rtol=1e-12, atol=1e-14
    )
    assert layer.training
    assert layer.out_proj.training


def test_attention_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UsageError, match="keys of width 3"):
        TorchOracle(nn.MultiheadAttention(4, 2, kdim=3, vdim=4))
    with pytest.raises(UsageError, match=r"readout must be \(4,\)"):
        TorchOracle(nn.MultiheadAttention(4, 2), readout=np.ones(3))
    with pytest.raises(UsageError, match="pass width=4"):
        TorchOracle(nn.MultiheadAttention(4, 2), width=5)
    with pytest.raises(UsageError, match="a readout is for"):
        TorchOracle(Returns(lambda X: X), readout=np.ones(4))


def test_parts_in_different_modes_stay_so() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.9), nn.Linear(12, 1, dtype=torch.float64))
    module.train()
    module[0].eval()
    oracle = unsoftmax.as_oracle(module)
    np.testing.assert_array_equal(oracle(BATCH), oracle(BATCH))
    assert [part.training for part in module] == [False, True, True]


def test_ledgers_tell_modules_apart() -> None:
    torch.manual_seed(0)
    first, second = (nn.MultiheadAttention(4, 2, dtype=torch.bfloat16) for _ in range(2))
    assert pins_content(identity(TorchOracle(first)))
    assert identity(TorchOracle(first)) == identity(TorchOracle(first)) != identity(TorchOracle(second))
    assert identity(TorchOracle(first)) != identity(TorchOracle(first, readout=np.ones(4)))
    assert not pins_content(identity(unsoftmax.as_oracle(Returns(lambda X: X))))


def test_float32_modules_get_float32_and_overflow_is_a_fault() -> None:
    seen: list[Any] = []

    def look(X: Any) -> Any:
        seen.append(X.dtype)
        return X[:, -1, 0]

    oracle = unsoftmax.as_oracle(Returns(look).float())
    oracle(BATCH)
    assert seen == [torch.float32]
    with pytest.raises(OracleFault, match="pass input_bound"):
        oracle(np.full((1, 1, 4), 1e200))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize(
    ("row", "read"),
    [
        ("last", lambda rows: rows[:, -1]),
        ("first", lambda rows: rows[:, 0]),
        ("mean", lambda rows: rows.mean(1)),
    ],
)
def test_any_row_of_a_layer_can_be_read(batch_first: bool, row: str, read: Any) -> None:
    block = nn.TransformerEncoderLayer(4, 2, 8, batch_first=batch_first, dtype=torch.float64).eval()
    attention = nn.MultiheadAttention(4, 2, batch_first=batch_first, dtype=torch.float64).eval()
    X = torch.from_numpy(BATCH if batch_first else BATCH.swapaxes(0, 1).copy())
    with torch.no_grad():
        for layer, rows in ((block, block(X)), (attention, attention(X, X, X)[0])):
            expected = read((rows if batch_first else rows.swapaxes(0, 1)).numpy())
            oracle = unsoftmax.as_oracle(layer, row=row)
            assert oracle.spec.outputs == 4
            np.testing.assert_allclose(oracle(BATCH), expected, rtol=0, atol=1e-14)
            read_out = unsoftmax.as_oracle(layer, row=row, readout=np.arange(4.0))
            np.testing.assert_allclose(read_out(BATCH), expected @ np.arange(4.0), rtol=0, atol=1e-13)
