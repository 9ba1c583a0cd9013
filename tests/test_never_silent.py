"""Boxes outside the class: none may come out as recovered, and the test that failed is named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unsoftmax
from tests.cases.outside import BOXES, Array, Box
from unsoftmax import Status


def deviation_on_fresh_inputs(
    box: Box, model: Callable[[Array], Array], d: int, stated: float = 0.0
) -> float:
    """Largest difference on Gaussian sequences of several lengths and sizes, beyond what is stated of single
    answers, relative to the answers."""
    rng = np.random.default_rng(12345)
    worst = 0.0
    for length in (1, 2, 3, 6, 20):
        for size in (0.1, 1.0, 3.0):
            X = size * rng.standard_normal((40, length, d))
            answers = box(X)
            off = max(float(np.abs(model(X) - answers).max()) - stated, 0.0)
            worst = max(worst, off / (1e-12 + float(np.abs(answers).max())))
    return worst


@pytest.mark.parametrize("name", sorted(BOXES))
@pytest.mark.parametrize("d", [1, 3, 12])
def test_a_box_outside_the_class_is_never_a_success(name: str, d: int) -> None:
    for seed in range(2):
        box = BOXES[name](d, seed)
        result = unsoftmax.recover(box, width=d, seed=seed)
        assert result.status is not Status.EXACT, result.reason
        if (
            result.status is Status.WITHIN_BOUND
        ):  # only where the head behind lying answers was found all the same
            fresh = BOXES[name](d, seed)  # one that has no answers in its memory
            assert deviation_on_fresh_inputs(fresh, result.unwrap(), d, result.constant_bound or 0.0) < 1e-9
            continue
        assert result.model is None
        if result.status is Status.OUTSIDE_CLASS:
            assert "failed the test '" in result.reason


@pytest.mark.parametrize("seed", [5, 11])
def test_a_lying_cache_does_not_end_as_a_head_with_enormous_scores(seed: int) -> None:
    """Short rows all answered alike look like scores without measure, whose every deviation such scores would
    excuse."""
    assert unsoftmax.recover(BOXES["cache_by_rounded_input"](1, seed), width=1, seed=seed).model is None


def test_there_are_enough_boxes() -> None:
    assert len(BOXES) >= 20


def test_mean_pooling_is_inside() -> None:
    v = np.array([1.0, -2.0, 0.5])
    result = unsoftmax.recover(lambda X: (X @ v).mean(axis=1), width=3)
    assert result.status is Status.EXACT
    assert result.unwrap().ranks == [0]


@pytest.mark.parametrize("seed", range(8))
def test_several_weak_heads_behind_errors_do_not_pass_for_one(seed: int) -> None:
    """Where rows are short and answers off, one head fits several nearly; what it misses must stay within
    what the bound explains."""
    layer = unsoftmax.random_multi_head(4, 2, seed=seed, scale=(0.1, 5.0)[seed % 2])
    layer = unsoftmax.MultiHead([unsoftmax.SingleHead(head.matrix, 0.05 * head.v) for head in layer.heads])
    off = (
        unsoftmax.Noisy(unsoftmax.as_oracle(layer), 1e-3, seed)
        if seed % 4 > 1
        else unsoftmax.WithinTolerance(unsoftmax.as_oracle(layer), 1e-3, seed)
    )
    result = unsoftmax.recover(unsoftmax.BoundedInputs(off, 8.0), seed=seed)
    if result.model is None:
        return
    assert result.error_bound is not None
    for length, size in ((2, 1.0), (3, 4.0), (5, 8.0)):
        X = np.random.default_rng(seed).standard_normal((60, length, 4))
        X *= size / np.linalg.norm(X, axis=2, keepdims=True)
        unexplained = np.maximum(np.abs(result.model(X) - layer(X)) - 6e-3, 0.0)
        assert (unexplained <= 3.0 * result.error_bound * result.model.sensitivity(X)).all()


@pytest.mark.parametrize("name", ["hard_max", "max_pooling", "sigmoid_attention"])
def test_boxes_behind_labels_neither_overflow_nor_pass(name: str) -> None:
    result = unsoftmax.recover(unsoftmax.Labels(unsoftmax.as_oracle(BOXES[name](3, 1))), width=3)
    assert result.model is None
    assert result.status in (Status.UNRESOLVED, Status.OUTSIDE_CLASS)
