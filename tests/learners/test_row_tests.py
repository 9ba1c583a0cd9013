"""Class tests on rows: members pass, whatever their sizes; other functions are refused by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import unsoftmax
from unsoftmax.arrays import Array
from unsoftmax.learners.row_tests import QUERIES_OF_HEAD_TESTS, refuse_other_networks, refuse_other_sequences
from unsoftmax.ledger import Ledger
from unsoftmax.outcomes import OutsideClass

FLOAT32 = 1e-6  # relative rounding of a layer's answer
ROWS = np.random.default_rng(4).standard_normal((20, 6, 8))


def attention(read: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype) -> Callable[[Array], Array]:
    torch.manual_seed(3)
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=dtype).eval()
    readout = torch.randn(8, dtype=dtype)

    def answer(X: Array) -> Array:
        x = torch.as_tensor(X, dtype=dtype)
        with torch.no_grad():
            return np.asarray(read(layer(x, x, x, need_weights=False)[0] @ readout).double().numpy())

    return answer


@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("d", [2, 8, 24])
def test_heads_pass(d: int, scale: float) -> None:
    for seed in range(5):
        heads = unsoftmax.random_multi_head(d, 2, seed=seed, scale=scale)
        ledger = Ledger(unsoftmax.as_oracle(heads))
        refuse_other_sequences(ledger, 0.0, np.random.default_rng(seed))
        assert ledger.bill.total == QUERIES_OF_HEAD_TESTS


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("read", ["mean", "first", "maximum"])
def test_other_rows_than_the_last_are_refused(read: str, dtype: torch.dtype) -> None:
    reads: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "mean": lambda y: y.mean(dim=1),
        "first": lambda y: y[:, 0],
        "maximum": lambda y: y.max(dim=1).values,
    }
    rounding = FLOAT32 if dtype is torch.float32 else 0.0
    last = Ledger(unsoftmax.as_oracle(attention(lambda y: y[:, -1], dtype)), width=8)
    refuse_other_sequences(last, rounding, np.random.default_rng(0))
    other = attention(reads[read], dtype)
    with pytest.raises(OutsideClass):
        refuse_other_sequences(
            Ledger(unsoftmax.as_oracle(other), width=8), rounding, np.random.default_rng(0)
        )
    result = unsoftmax.recover(other, width=8)
    assert result.status.recovered == (read == "first"), (
        result.reason
    )  # heads whose first row asks are a family
    if isinstance(result.model, unsoftmax.MultiHead):
        np.testing.assert_allclose(result.model(ROWS), other(ROWS), atol=1e-5)


@pytest.mark.parametrize("residual", [0.0, 1.0])
@pytest.mark.parametrize("size", [(4, 3), (8, 16), (16, 40)])
def test_networks_on_top_of_one_head_pass(size: tuple[int, int], residual: float) -> None:
    for seed in range(4):
        model = unsoftmax.random_transformer(*size, seed=seed, biases=bool(seed % 2), residual=residual)
        refuse_other_networks(Ledger(unsoftmax.as_oracle(model)), 0.0, np.random.default_rng(seed))


def test_other_functions_under_a_network_are_refused() -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.ReLU(), torch.nn.Linear(9, 1)).double()
    layer = torch.nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64).eval()

    def two_heads(X: Array) -> Array:
        x = torch.as_tensor(X)
        with torch.no_grad():
            return np.asarray(network(layer(x, x, x, need_weights=False)[0][:, -1])[:, 0].numpy())

    def one_row(X: Array) -> Array:
        with torch.no_grad():
            return np.asarray(network(torch.as_tensor(X[:, -1]))[:, 0].numpy())

    def smooth(X: Array) -> Array:
        return np.asarray(np.tanh(X.mean(axis=1)).sum(axis=1))

    for function, seen in ((two_heads, "one softmax"), (one_row, "one softmax"), (smooth, "piecewise")):
        with pytest.raises(OutsideClass, match=seen):
            refuse_other_networks(
                Ledger(unsoftmax.as_oracle(function), width=6), 0.0, np.random.default_rng(1)
            )
