"""Token targets whose answers round: what kind of answers they are, and bounds that hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unsoftmax
from tests.learners.test_tokens import recovered, worst_error
from unsoftmax import Status, TokenHead, TokenHeads
from unsoftmax.solvers.tokens.token_answers import FlatSequences
from unsoftmax.solvers.tokens.token_products import TokenProducts
from unsoftmax.solvers.tokens.token_refinement import TokenFit


def in_float32(model: TokenHeads) -> Any:
    """One head, every step of which is computed in float32."""
    head = model.heads[0]
    k, q, u = (part.astype(np.float32) for part in (head.keys, head.queries, head.values))

    def answer(ids: Any) -> Any:
        scores = np.einsum("bnk,bk->bn", k[ids], q[ids[:, -1]])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        if u.ndim > 1:
            return np.einsum("bn,bnm->bm", weights, u[ids]) / weights.sum(axis=1, keepdims=True)
        return (weights * u[ids]).sum(axis=1) / weights.sum(axis=1)

    return answer


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_a_head_in_float32_is_known_as_well_as_its_own_rounding(scale: float, seed: int) -> None:
    truth = unsoftmax.random_token_heads(120, 4, scale=scale, seed=seed)
    result = recovered(in_float32(truth), 120, seed=seed)
    assert result.status is Status.WITHIN_BOUND
    assert result.model.ranks == [4]
    assert result.certificate.passed
    assert truth.distance(result.model) <= result.error_bound <= 1e-5
    assert worst_error(truth, result.model) <= min(result.error_bound, 2e-6)
    (answers,) = (each for each in result.findings if each.subject == "answers")
    assert answers.value == "computed in float32"


def test_vector_answers_in_float32() -> None:
    truth = unsoftmax.random_token_heads(80, 3, outputs=4, seed=2)
    result = recovered(in_float32(truth), 80, outputs=4)
    assert result.status is Status.WITHIN_BOUND
    assert result.findings[0].value == "computed in float32"
    assert truth.distance(result.model) <= result.error_bound <= 1e-5


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("exact", lambda y: y),
        ("float32", lambda y: y.astype(np.float32)),
        ("float16", lambda y: y.astype(np.float16)),
        ("decimals", lambda y: np.round(y, 6)),
    ],
)
def test_kinds_of_answers_are_told(kind: str, answer: Any) -> None:
    truth = unsoftmax.random_token_heads(60, 3, seed=4)
    result = recovered(lambda ids: answer(truth(ids)), 60)
    assert result.findings[0].value == kind
    assert result.status is (Status.EXACT if kind == "exact" else Status.WITHIN_BOUND), result.reason
    assert truth.distance(result.model) <= result.error_bound


def test_what_is_no_head_in_float32_is_not_recovered() -> None:
    truth = unsoftmax.random_token_heads(60, 3, seed=4)
    rounds = in_float32(truth)
    bends = recovered(lambda ids: np.tanh(rounds(ids)), 60)
    assert not bends.status.recovered
    lies = recovered(lambda ids: rounds(ids) + np.float32(3e-4) * (ids.shape[1] > 12), 60)
    assert not lies.status.recovered


def test_products_are_those_of_the_jacobian() -> None:
    model = unsoftmax.random_token_heads(7, 2, heads=2, seed=1)
    rng = np.random.default_rng(0)
    flat = FlatSequences.of([rng.integers(0, 7, (9, 3)), rng.integers(0, 7, (5, 2))], positions=False)
    fit = TokenFit(flat, rng.standard_normal(14), 0.5)
    dense, products = fit.linearise(model.heads), fit._products(model.heads)
    assert isinstance(products, TokenProducts)
    step, back = rng.standard_normal(dense.unknowns), rng.standard_normal(14)
    np.testing.assert_allclose(products.forward(step), dense.forward(step), atol=1e-12)
    np.testing.assert_allclose(products.backward(back), dense.backward(back), atol=1e-12)
    np.testing.assert_allclose(products.diagonal(), dense.diagonal(), atol=1e-12)
    np.testing.assert_allclose(products.normal(), dense.normal(), atol=1e-12)
    damped = products.preconditioner(np.ones(products.unknowns))(step)
    assert damped @ step > 0.0


@pytest.mark.parametrize("scale", [5.0, 8.0])
def test_scores_that_show_in_no_answer_are_listed(scale: float) -> None:
    truth = unsoftmax.random_token_heads(150, 5, scale=scale, seed=6)
    result = recovered(truth, 150)
    assert result.status.recovered
    resolution = 1e-9  # coarser than the answers, so that there are some for any seed
    (hidden,) = result.model.hidden_pairs(resolution)
    (true,) = truth.hidden_pairs(resolution)
    assert len(hidden)
    both = {tuple(pair) for pair in hidden.tolist()} & {tuple(pair) for pair in true.tolist()}
    assert len(both) > 0.98 * max(len(hidden), len(true))
    # whatever these scores are, no answer tells
    head = truth.heads[0]
    scores = head.keys @ head.queries.T
    own = np.diag(scores)
    moved = scores.copy()
    below = scores[tuple(hidden.T)] < own[hidden[:, 1]]
    moved[tuple(hidden.T)] += np.where(below, -100.0, 100.0)
    other = TokenHeads([TokenHead(moved, np.eye(150), head.values)])
    rng = np.random.default_rng(3)
    for length in (2, 5, 33, 64):
        ids = rng.integers(0, 150, (2000, length))
        assert np.abs(other(ids) - truth(ids)).max() <= length * resolution * truth.spread
    assert len(truth.hidden_pairs(1e-300)[0]) == 0


def test_heads_with_positions_have_no_one_list_of_scores() -> None:
    with pytest.raises(unsoftmax.UsageError, match="depend on places"):
        unsoftmax.random_token_heads(20, 2, longest=4).hidden_pairs(1e-9)
    with pytest.raises(unsoftmax.UsageError, match="must be positive"):
        unsoftmax.random_token_heads(20, 2).hidden_pairs(0.0)
