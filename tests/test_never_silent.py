"""Boxes outside the class: none may come out as recovered, and the test that failed is named."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from tests.cases.outside import BOXES
from unsoftmax import Status


@pytest.mark.parametrize("name", sorted(BOXES))
@pytest.mark.parametrize("d", [1, 3, 12])
def test_a_box_outside_the_class_is_never_a_success(name: str, d: int) -> None:
    for seed in range(2):
        result = unsoftmax.recover(BOXES[name](d, seed), width=d, seed=seed)
        assert not result.status.recovered, result.reason
        assert result.model is None
        if result.status is Status.OUTSIDE_CLASS:
            assert "failed the test '" in result.reason


def test_there_are_enough_boxes() -> None:
    assert len(BOXES) >= 20


def test_mean_pooling_is_inside() -> None:
    v = np.array([1.0, -2.0, 0.5])
    result = unsoftmax.recover(lambda X: (X @ v).mean(axis=1), width=3)
    assert result.status is Status.EXACT
    assert result.unwrap().ranks == [0]
