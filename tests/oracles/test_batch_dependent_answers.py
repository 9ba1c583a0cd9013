"""float32 targets whose last digits depend on how many sequences share a call, as torch and numpy answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import unsoftmax
from unsoftmax import FunctionOracle, MultiHead, OracleSpec, SingleHead
from unsoftmax.arrays import Array
from unsoftmax.models import Model
from unsoftmax.serve import ModelServer

Box = Callable[[Array], Array]


def torch_layer() -> tuple[Box, MultiHead]:
    """An odd number of rows in a product of matrices leaves the last one to another kernel at this width."""
    torch.manual_seed(6)
    layer = torch.nn.MultiheadAttention(6, 2, batch_first=True)
    with torch.no_grad():
        layer.in_proj_weight.mul_(2.0)

    def box(X: Array) -> Array:
        x = torch.from_numpy(X).float()
        with torch.no_grad():
            return np.asarray(layer(x, x, x)[0][:, -1].numpy())

    hidden = unsoftmax.from_torch(layer)
    assert isinstance(hidden, MultiHead)
    return box, hidden


def numpy_head() -> tuple[Box, SingleHead]:
    """A batch of one is a product with a vector, and sums in another order."""
    rng = np.random.default_rng(7)
    W, V = (rng.standard_normal((8, 8)).astype(np.float32) / np.float32(np.sqrt(8.0)) for _ in range(2))

    def box(X: Array) -> Array:
        x = X.astype(np.float32)
        scores = np.einsum("bnd,bd->bn", x @ W, x[:, -1])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        return np.asarray(np.einsum("bn,bnd->bd", weights, x) @ V)

    return box, SingleHead(W.astype(np.float64), V.astype(np.float64))


def distance(hidden: MultiHead | SingleHead, found: Model) -> float:
    if isinstance(hidden, SingleHead) and isinstance(found, SingleHead):
        return hidden.distance(found)
    assert isinstance(found, MultiHead)
    heads = (
        hidden.heads if isinstance(hidden, MultiHead) else [SingleHead(hidden.matrix, hidden.v, hidden.w0)]
    )
    return MultiHead(heads, hidden.c).distance(found)


def _differs(box: Box, d: int) -> bool:
    X = np.random.default_rng(0).standard_normal((64, 5, d)).astype(np.float32).astype(np.float64)
    alone = np.concatenate([box(X[i : i + 1]) for i in range(len(X))])
    return bool((box(X) != alone).any())


@pytest.mark.parametrize("make", [torch_layer, numpy_head])
@pytest.mark.parametrize("served", [False, True])
@pytest.mark.parametrize("most", [None, 3])
def test_last_digits_that_depend_on_the_batch_do_not_stop_a_recovery(
    make: Callable[[], tuple[Box, MultiHead | SingleHead]], served: bool, most: int | None
) -> None:
    box, hidden = make()
    d = hidden.width
    if not _differs(box, d):
        pytest.skip("this build of the library answers alike in any batch")
    oracle = FunctionOracle(box, OracleSpec(width=d, outputs=hidden.outputs, max_batch=most))
    if served:
        with ModelServer(oracle, datatype="FP32") as server:
            result = unsoftmax.recover(server.url, seed=1)
    else:
        result = unsoftmax.recover(oracle, seed=1)
    assert result.status.recovered, result.reason
    found = result.unwrap()
    assert result.error_bound is not None
    assert distance(hidden, found) <= result.error_bound <= 1e-4
