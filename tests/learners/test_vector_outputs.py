"""Vector answers: one head, all heads at once, and heads whose outputs overlap."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import unsoftmax
from unsoftmax import (
    MultiHead,
    SingleHead,
    Status,
    from_torch,
    random_multi_head,
    random_single_head,
    to_torch,
)


@pytest.mark.parametrize(
    ("d", "m", "r", "claimed"),
    [(24, 24, 24, 24 + 26), (24, 24, 4, 24 + 26), (24, 6, 4, 24 + 8 * 4 + 20), (12, 1, 12, 170)],
)
def test_one_head_costs_its_parameters_divided_by_the_outputs(d: int, m: int, r: int, claimed: int) -> None:
    head = random_single_head(d, r, seed=m)
    hidden = SingleHead(head.matrix, np.random.default_rng(m).standard_normal((d, m)))
    result = unsoftmax.recover(lambda X: hidden(X), width=d, outputs=m)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, SingleHead)
    assert result.error_bound is not None
    assert hidden.distance(result.model) <= min(1e-9, result.error_bound)
    assert result.queries.learning <= claimed + 5


def test_one_head_with_biases() -> None:
    head = random_single_head(16, 5, seed=1, biases=True)
    rng = np.random.default_rng(0)
    hidden = SingleHead(head.matrix, rng.standard_normal((16, 8)), head.w0, rng.standard_normal(8))
    result = unsoftmax.recover(hidden)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, SingleHead)
    assert hidden.distance(result.model) < 1e-9


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize(("d", "heads", "seed"), [(16, 2, 0), (16, 4, 1), (32, 4, 2)])
def test_all_heads_at_once(d: int, heads: int, seed: int, biases: bool) -> None:
    hidden = random_multi_head(d, heads, seed=seed, outputs=d, biases=biases)
    result = unsoftmax.recover(lambda X: hidden(X), width=d, outputs=d, seed=seed)
    assert result.status.recovered, result.reason
    assert isinstance(result.model, MultiHead)
    assert result.error_bound is not None
    assert hidden.distance(result.model) <= min(1e-7, result.error_bound)
    assert result.queries.learning < 3.0 * hidden.parameters / d + 4 * d


@pytest.mark.parametrize(("m", "r"), [(3, 3), (12, 12)])
def test_overlapping_outputs_go_through_one_readout(m: int, r: int) -> None:
    hidden = random_multi_head(12, 3, r, seed=5, outputs=m)
    result = unsoftmax.recover(lambda X: hidden(X), width=12, outputs=m)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, MultiHead)
    assert hidden.distance(result.model) < 1e-8


@pytest.mark.parametrize("answers", ["vector", "scalar"])
def test_a_torch_layer_is_recovered_and_rebuilt(answers: str) -> None:
    torch.manual_seed(3)
    layer = torch.nn.MultiheadAttention(32, 4, batch_first=True, dtype=torch.float64).eval()
    with torch.no_grad():
        layer.in_proj_bias.normal_(0, 0.1)
        layer.out_proj.bias.normal_(0, 0.1)
    readout = np.random.default_rng(0).standard_normal(32)

    def box(X: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            rows = torch.from_numpy(X)
            out: np.ndarray = layer(rows[:, -1:], rows, rows, need_weights=False)[0][:, 0].numpy()
            return out if answers == "vector" else out @ readout

    result = unsoftmax.recover(box, width=32, outputs=32 if answers == "vector" else None)
    assert result.status.recovered, result.reason
    assert isinstance(result.model, MultiHead)
    X = np.random.default_rng(1).standard_normal((4, 9, 32))
    if answers == "scalar":
        assert from_torch(layer, readout).distance(result.model) < 1e-8
        assert np.abs(result.model(X) - box(X)).max() < 1e-9
        return
    rebuilt = to_torch(result.model, 4)
    with torch.no_grad():
        rows = torch.from_numpy(X)
        there, here = (
            layer(rows, rows, rows, need_weights=False)[0],
            rebuilt(rows, rows, rows, need_weights=False)[0],
        )
    assert float((there - here).abs().max()) < 1e-9


def test_a_constant_is_not_identifiable() -> None:
    result = unsoftmax.recover(lambda X: np.ones((len(X), 3)), width=4, outputs=3)
    assert result.status is Status.NOT_IDENTIFIABLE


@pytest.mark.parametrize(
    "box", [lambda X: X.max(axis=1), lambda X: np.tanh(X.mean(axis=1)), lambda X: X[:, 0]]
)
def test_other_boxes_are_refused(box: object) -> None:
    result = unsoftmax.recover(box, width=6, outputs=6)
    assert result.status in (Status.OUTSIDE_CLASS, Status.UNRESOLVED), result.reason
