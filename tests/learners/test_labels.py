"""Labels alone: 48 bits at one query a bit, and flipped labels without heavy tails."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from tests.cases.answers import bounded, distance, hard_head, relative_error, with_unit_v
from unsoftmax import FlippedLabels, Labels, SingleHead, Size, Status, as_oracle


@pytest.mark.parametrize(("d", "r"), [(16, None), (32, 3), (3, None), (1, None)])
@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e2])
def test_labels_at_one_query_a_bit(d: int, r: int | None, scale: float) -> None:
    head = hard_head(d, r, seed=int(scale) + d, scale=scale)
    result = unsoftmax.recover(Labels(as_oracle(head)), learner=unsoftmax.from_labels(48), seed=d)
    assert result.status is Status.WITHIN_BOUND, result.reason
    model = result.unwrap()
    assert isinstance(model, SingleHead)
    assert relative_error(model.W, head.W) <= 1e-12
    assert distance(with_unit_v(head), model) <= (result.error_bound or 0.0)
    assert result.queries.learning <= unsoftmax.from_labels().claim.queries(Size(d, (r or d,)))
    if d >= 16:  # and one more column, where those that were drawn are nearly dependent
        another = 0 if r is None else d
        assert result.queries.learning <= 1.13 * 48 * (head.parameters + another)
    assert "direction of v" in result.reason
    assert abs(np.linalg.norm(model.v) - 1.0) < 1e-12


def test_labels_of_columns_that_are_nearly_dependent() -> None:
    """Four random columns of this head span its range so badly that their last bits were lost; one more, of
    few bits, mends that."""
    head = hard_head(64, 4, seed=7, scale=1e2)
    result = unsoftmax.recover(Labels(as_oracle(head)), learner=unsoftmax.from_labels(48), seed=7)
    model = result.unwrap()
    assert isinstance(model, SingleHead)
    assert relative_error(model.W, head.W) <= 2e-13
    assert result.queries.learning <= 1.1 * 48 * head.parameters


def test_labels_of_any_two_values_and_a_loud_v() -> None:
    head = SingleHead(hard_head(5, seed=2).W, 1e5 * hard_head(5, seed=2).v)
    result = unsoftmax.recover(lambda X: np.where(head(X) > 0, 7.0, -1.0), width=5)
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert result.findings[-1].value == "labels"
    assert distance(with_unit_v(head), result.unwrap()) < 1e-11


def test_labels_within_an_input_bound() -> None:
    head = hard_head(6, seed=1)
    oracle = bounded(Labels(as_oracle(head)), 5.0)
    result = unsoftmax.recover(oracle, learner=unsoftmax.from_labels())
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert distance(with_unit_v(head), result.unwrap()) <= (result.error_bound or 0.0) < 1e-9
    assert oracle.norm <= 5.0 * (1 + 1e-12)


def test_labels_of_a_head_with_a_constant_are_no_success() -> None:
    head = hard_head(5, seed=1)
    for biased in (SingleHead(head.W, head.v, None, 0.3), SingleHead(head.W, head.v, None, -0.3)):
        result = unsoftmax.recover(Labels(as_oracle(biased)), learner=unsoftmax.from_labels())
        assert not result.status.recovered, result.reason


@pytest.mark.parametrize("d", [8, 16])
def test_flipped_labels(d: int) -> None:
    for seed in range(3):
        head = hard_head(d, seed=seed)
        result = unsoftmax.recover(
            FlippedLabels(as_oracle(head), 0.05, seed), learner=unsoftmax.from_labels(24, 0.05), seed=seed
        )
        assert result.status is Status.WITHIN_BOUND, result.reason
        model = result.unwrap()
        assert isinstance(model, SingleHead)
        assert relative_error(model.W, head.W) <= 1e-6
        assert distance(with_unit_v(head), model) <= (result.error_bound or 0.0)
        if d == 16:
            assert result.queries.by_phase["scores"] <= 60 * d * d


@pytest.mark.parametrize("width", [1, 2])
def test_several_heads_never_come_out_as_one(width: int) -> None:
    """So few columns leave them no other trace than scores that turn elsewhere at other sizes."""
    for seed in (2000009, *range(9004, 9010)):
        heads = unsoftmax.random_multi_head(width, 2, seed=seed)
        result = unsoftmax.recover(Labels(as_oracle(heads)), width=width, seed=seed)
        assert result.status is Status.UNRESOLVED, result.reason
    first = heads.heads[0]
    near = unsoftmax.MultiHead([first, SingleHead((1.0 + 1e-3) * first.W, first.v)])
    assert not unsoftmax.recover(Labels(as_oracle(near)), width=width).status.recovered
    one = unsoftmax.recover(Labels(as_oracle(first)), width=width)
    assert one.status is Status.WITHIN_BOUND, one.reason
    assert "several heads that are closer than 1e-4" in one.reason
