"""Whatever a learner claims of a wrong model, every group of parameters is measured on fresh sequences."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from tests.cases.boasters import KINDS, Boaster, attacks, targets, wrong_models
from unsoftmax import SingleHead, Status, as_oracle


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", ["single-head", "single-head with biases", "multi-head"])
def test_no_rough_claim_makes_a_wrong_model_right(family: str, kind: str) -> None:
    claims = (0.05,) if family == "multi-head" else (0.05, 0.09)
    runs = list(attacks(family, kind, 4, 0, claims, constants=(None,)))
    assert len(runs) >= 8
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
