"""Two models, one function: symmetries change nothing, any moved parameter shows."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from unsoftmax.audit.compare import compare_models

MultiHead, SingleHead = unsoftmax.MultiHead, unsoftmax.SingleHead


def biased_layer(seed: int, d: int = 8, heads: int = 3) -> unsoftmax.MultiHead:
    return unsoftmax.random_multi_head(d, heads, seed=seed, biases=True)


@pytest.mark.parametrize("seed", range(5))
def test_symmetries_keep_the_function(seed: int) -> None:
    rng = np.random.default_rng(seed)
    layer = biased_layer(seed)
    first, second, third = layer.heads
    part = rng.uniform(0.2, 0.8)
    halves = [
        SingleHead(first.matrix, part * first.v, first.w0),
        SingleHead(first.matrix, (1 - part) * first.v, first.w0),
    ]
    silent = SingleHead(rng.standard_normal((8, 8)), np.zeros(8))
    gauge = np.linalg.qr(rng.standard_normal((2, 2)))[0] @ np.diag([2.0, 0.25])
    left, right = (factor for factor in (second.matrix.left, second.matrix.right))  # type: ignore[union-attr]
    turned = SingleHead((left @ gauge, right @ np.linalg.inv(gauge).T), second.v, second.w0)
    for other in (
        MultiHead([third, first, second], layer.c),
        MultiHead([*halves, second, third], layer.c),
        MultiHead([first, silent, second, third], layer.c),
        MultiHead([first, turned, third], layer.c),
    ):
        done = compare_models(layer, other)
        assert done.same, done.reason
        assert done.separating is None


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("part", ["W", "v", "w0", "c"])
def test_any_parameter_moved_by_a_millionth_shows(seed: int, part: str) -> None:
    rng = np.random.default_rng(100 + seed)
    layer = biased_layer(seed, d=6, heads=2)
    index = int(rng.integers(2))
    head = layer.heads[index]
    W, v, w0, c = head.W.copy(), head.v.copy(), np.array(head.w0), float(layer.c)
    place = tuple(rng.integers(0, 6, 2))
    if part == "W":
        W[place] *= 1 + 1e-6
    elif part == "v":
        v[place[0]] *= 1 + 1e-6
    elif part == "w0":
        w0[place[0]] *= 1 + 1e-6
    else:
        c *= 1 + 1e-6
    heads = list(layer.heads)
    heads[index] = SingleHead(W, v, w0)
    moved = MultiHead(heads, c)
    done = compare_models(layer, moved)
    assert not done.same
    assert done.separating is not None
    assert done.gap is not None
    assert done.rounding is not None
    assert done.gap > done.rounding
    asked = done.separating[None]
    assert abs(float(layer(asked)[0] - moved(asked)[0])) > done.rounding


def test_families_are_compared_as_functions() -> None:
    head = unsoftmax.random_single_head(5, seed=1)
    assert compare_models(head, MultiHead([head])).same
    network = unsoftmax.ReluNetwork(np.stack([head.v, -head.v]), np.array([1.0, -1.0]))
    assert compare_models(head, unsoftmax.Transformer(head.W, network)).same
    other = compare_models(head, unsoftmax.random_transformer(5, 4, seed=2))
    assert not other.same
    assert other.separating is not None
    with pytest.raises(unsoftmax.UsageError, match="width 5 and 6"):
        compare_models(head, unsoftmax.random_single_head(6, seed=1))
