"""Whatever a learner claims of a wrong model, every group of parameters is measured on fresh sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from weakref import WeakSet

import numpy as np
import pytest

import unsoftmax
from tests.cases.boasters import KINDS, Boaster, attacks, targets, wrong_models
from unsoftmax import MultiHead, SingleHead, Status, as_oracle
from unsoftmax.answers import Computed
from unsoftmax.arrays import Array
from unsoftmax.certify import check_claim
from unsoftmax.float_formats import FloatFormat
from unsoftmax.ledger import Ledger


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["single-head", "single-head with biases", "multi-head"])
def test_no_rough_claim_makes_a_wrong_model_right(family: str, kind: str) -> None:
    claims = (0.05,) if family == "multi-head" else (0.05, 0.09)
    every = 3 if family == "multi-head" else 1  # other models for other kinds of answers
    some = (list(KINDS).index(kind) % every, every)
    runs = list(attacks(family, kind, 4, 0, claims, constants=(None,), some=some))
    assert len(runs) >= 7
    assert [name for name, passed in runs if passed] == []


@pytest.mark.parametrize("width", [5, 6])
def test_twice_the_scores_of_rank_one_show_in_flipped_labels(width: int) -> None:
    for seed in range(3):
        truth = targets(width, seed)["single-head of rank 1"]
        assert isinstance(truth, SingleHead)
        wrong = SingleHead(2.0 * truth.W, truth.v, truth.w0, truth.c)
        oracle, _ = KINDS["flipped labels"](as_oracle(truth), seed)
        result = unsoftmax.recover(oracle, learner=Boaster(wrong, 0.05), seed=seed)
        assert not result.status.recovered


class Counted(MultiHead):
    """Heads that know how many such models there were at the same time."""

    alive: ClassVar[WeakSet[Counted]] = WeakSet()
    most: ClassVar[int] = 0

    def __init__(self, heads: Sequence[SingleHead], c: object = 0.0, skip: object = None) -> None:
        super().__init__(heads, c, skip)
        Counted.alive.add(self)
        Counted.most = max(Counted.most, len(Counted.alive))


def test_models_that_are_off_are_not_all_held_at_once() -> None:
    """Of a layer of width 384 the hundreds that are compared would take 11 GB."""
    layer = Counted(unsoftmax.random_multi_head(4, 2, seed=0).heads)
    rng = np.random.default_rng(0)
    check_claim(Ledger(as_oracle(layer)), layer, 1e-6, Computed(FloatFormat.FLOAT32, 1e-7), rng)
    assert 2 <= Counted.most <= 4


def test_wrong_models_are_of_every_sort() -> None:
    names = {name for name, _ in wrong_models(targets(4, 0)["single-head"], 0)}
    assert {"twice W", "half W", "negative W", "random W", "twice v", "random v", "W of rank 1"} <= names


@pytest.mark.parametrize("tau", [1e-3, 0.05])
def test_a_true_rough_claim_succeeds(tau: float) -> None:
    for seed in range(4):
        truth = unsoftmax.random_single_head(6, seed=seed)
        error = np.random.default_rng(seed).standard_normal((6, 6))
        W = truth.W + 0.02 * np.linalg.norm(truth.W) / np.linalg.norm(error) * error
        oracle = unsoftmax.WithinTolerance(as_oracle(truth), tau, seed)
        model = SingleHead(W, truth.v, None, truth.c)
        result = unsoftmax.recover(oracle, learner=Boaster(model, 0.05), seed=seed, tolerance=tau)
        assert result.status is Status.WITHIN_BOUND, result.reason
        assert truth.distance(model) <= (result.error_bound or 0.0)


def _digits(rows: Array) -> Array:
    """Rows to six digits."""
    sizes = np.floor(np.log10(np.abs(np.where(rows == 0.0, 1.0, rows))))
    return np.asarray(np.round(rows * 10.0 ** (5 - sizes)) / 10.0 ** (5 - sizes))


@pytest.mark.parametrize(("width", "seed"), [(6, 770037), (4, 770061)])
def test_another_temperature_of_longer_sequences_is_inside_the_bound(width: int, seed: int) -> None:
    """Rounded rows make a bound wide; what longer sequences need is inside it."""
    drawn = unsoftmax.random_multi_head(width, 2, seed=seed, biases=True)
    warm = [
        SingleHead(1.001 * head.W, head.v, None if head.w0 is None else 1.001 * head.w0)
        for head in drawn.heads
    ]
    model, other = drawn, unsoftmax.MultiHead(warm, drawn.c)
    result = unsoftmax.recover(
        lambda X: (model if X.shape[1] < 6 else other)(_digits(X)), width=width, seed=seed, budget=20_000
    )
    if result.model is not None:
        assert isinstance(result.model, unsoftmax.MultiHead)
        assert other.distance(result.model) <= (result.error_bound or 0.0)


@pytest.mark.parametrize(("width", "decimals", "seed"), [(2, 2, 9102), (4, 2, 9104), (4, 4, 9104)])
def test_rows_that_are_rounded_first_are_no_tolerance_of_answers(
    width: int, decimals: int, seed: int
) -> None:
    head = unsoftmax.random_single_head(width, seed=seed)

    def box(X: Array) -> Array:
        return head(np.asarray(np.round(X, decimals)))

    result = unsoftmax.recover(box, width=width, seed=seed, input_bound=100.0, budget=20_000)
    assert result.status is Status.UNRESOLVED
    assert "rows are rounded" in result.reason
