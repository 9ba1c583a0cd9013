"""Boxes outside the class: none may come out as recovered, and the test that failed is named."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unsoftmax
from tests.cases.outside import BOXES, Array, Box
from unsoftmax import Status


def deviation_on_fresh_inputs(box: Box, model: Callable[[Array], Array], d: int) -> float:
    """Largest difference on Gaussian sequences of several lengths and sizes, relative to the answers."""
    rng = np.random.default_rng(12345)
    worst = 0.0
    for length in (1, 2, 3, 6, 20):
        for size in (0.1, 1.0, 3.0):
            X = size * rng.standard_normal((40, length, d))
            answers = box(X)
            worst = max(worst, float(np.abs(model(X) - answers).max() / (1e-12 + np.abs(answers).max())))
    return worst


@pytest.mark.parametrize("name", sorted(BOXES))
@pytest.mark.parametrize("d", [1, 3, 12])
def test_a_box_outside_the_class_is_never_a_success(name: str, d: int) -> None:
    for seed in range(2):
        box = BOXES[name](d, seed)
        result = unsoftmax.recover(box, width=d, seed=seed)
        assert result.status is not Status.EXACT, result.reason
        if result.status is Status.WITHIN_BOUND:  # only where the head behind lying answers was found all the same
            assert deviation_on_fresh_inputs(box, result.unwrap(), d) < 1e-9
            continue
        assert result.model is None
        if result.status is Status.OUTSIDE_CLASS:
            assert "failed the test '" in result.reason


@pytest.mark.parametrize("seed", [5, 11])
def test_a_lying_cache_does_not_end_as_a_head_with_enormous_scores(seed: int) -> None:
    """Short rows all answered alike look like scores without measure, whose every deviation such scores would excuse."""
    assert unsoftmax.recover(BOXES["cache_by_rounded_input"](1, seed), width=1, seed=seed).model is None


def test_there_are_enough_boxes() -> None:
    assert len(BOXES) >= 20


def test_mean_pooling_is_inside() -> None:
    v = np.array([1.0, -2.0, 0.5])
    result = unsoftmax.recover(lambda X: (X @ v).mean(axis=1), width=3)
    assert result.status is Status.EXACT
    assert result.unwrap().ranks == [0]
