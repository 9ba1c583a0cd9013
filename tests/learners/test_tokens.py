"""Targets that take token ids: recovered where they are attention, never where they are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unsoftmax
from tests.cases.tokens import OUTSIDE, VOCABULARY
from unsoftmax import Status, TokenHead, TokenHeads
from unsoftmax.ledger import Ledger
from unsoftmax.models.tokens.rivals import rivals
from unsoftmax.oracles import FunctionOracle, OracleSpec, TokenIds
from unsoftmax.recovery.tokens import recover_tokens


def recovered(target: Any, vocabulary: int, *, seed: int = 0, **spec: Any) -> Any:
    ledger = Ledger(FunctionOracle(target, OracleSpec(domain=TokenIds(vocabulary), **spec)))
    return recover_tokens(ledger, seed)


def worst_error(model: TokenHeads, found: Any, longest: int = 64) -> float:
    rng = np.random.default_rng(99)
    lengths = [length for length in (2, 3, 7, 20, 64) if length <= longest]
    batches = [rng.integers(0, model.vocabulary, (400, length)) for length in lengths]
    return max(float(np.abs(model(ids) - found(ids)).max()) for ids in batches) / model.spread


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("vocabulary", "rank", "scale", "factor"), [(300, 6, 1.0, 1.05), (300, 6, 3.0, 1.3)])
def test_a_head_is_recovered_exactly_at_its_degrees_of_freedom(
    vocabulary: int, rank: int, scale: float, factor: float, seed: int
) -> None:
    model = unsoftmax.random_token_heads(vocabulary, rank, scale=scale, seed=seed)
    result = recovered(model, vocabulary, seed=seed)
    assert result.status is Status.EXACT
    assert result.model.ranks == [rank]
    assert result.queries.learning <= factor * model.parameters
    assert result.claim.queries.holds(result.queries.learning, unsoftmax_size(result.model))
    assert worst_error(model, result.model) <= 1e-9
    assert model.distance(result.model) <= max(result.error_bound, 1e-13)
    assert result.family == "tokens"


def unsoftmax_size(model: TokenHeads) -> Any:
    from unsoftmax.learners.claims import Size

    return Size.of(model)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("scale", [5.0, 8.0])
def test_strong_scores_are_recovered_as_far_as_they_show(scale: float, seed: int) -> None:
    model = unsoftmax.random_token_heads(200, 6, scale=scale, seed=seed)
    result = recovered(model, 200, seed=seed)
    assert result.status.recovered
    assert worst_error(model, result.model) <= min(1e-6, result.error_bound)
    if "too strong to show" in result.reason:
        assert result.status is Status.WITHIN_BOUND


@pytest.mark.parametrize("seed", [3, 5])
def test_bounds_of_strong_scores_hold_beside_the_tokens_that_compete(seed: int) -> None:
    """Every token asks behind the few that it does not outweigh, which random sequences rarely hold."""
    model = unsoftmax.random_token_heads(200, 8, scale=8.0, seed=seed)
    result = recovered(model, 200, seed=seed)
    assert result.status is Status.WITHIN_BOUND, result.reason
    (head,) = model.heads
    own = np.einsum("vk,vk->v", head.keys, head.queries)
    for tokens in rivals(head.keys, head.values, own, head.values, head.queries, 4).T:
        ids = np.stack([tokens, np.arange(200)], axis=1)
        worst = float(np.abs(model(ids) - result.model(ids)).max()) / model.spread
        assert worst <= min(1e-6, result.error_bound)


@pytest.mark.parametrize(("above", "known"), [(20.0, True), (40.0, False)])
def test_scores_behind_a_token_that_attends_to_itself_are_not_claimed(above: float, known: bool) -> None:
    """Where one token outweighs all others by e^20, answers hardly show their scores; by e^40, not at all."""
    (head,) = unsoftmax.random_token_heads(100, 4, seed=1).heads
    token = int(np.argmax(np.linalg.norm(head.keys, axis=1)))
    least = np.delete(head.keys[token] @ (head.keys[token] - head.keys).T, token).min()
    queries = head.queries.copy()
    queries[token] += head.keys[token] * above / least
    model = TokenHeads([unsoftmax.TokenHead.of(head.keys, queries, head.values)])
    result = recovered(model, 100)
    assert result.status is Status.WITHIN_BOUND
    assert worst_error(model, result.model) <= 1e-9
    if known:
        assert 1e-9 < model.distance(result.model) <= result.error_bound
        assert "scores to" in result.reason
    else:
        assert "the scores of one asking token show too faintly to be known" in result.reason


@pytest.mark.parametrize(("seed", "name"), list(enumerate(OUTSIDE)))
def test_what_is_not_a_head_is_not_recovered(name: str, seed: int) -> None:
    result = recovered(OUTSIDE[name], VOCABULARY, seed=seed)
    assert not result.status.recovered, result.reason
    assert result.model is None
    assert result.reason


def test_vector_answers_come_with_all_their_values() -> None:
    model = unsoftmax.random_token_heads(120, 5, outputs=7, seed=4)
    result = recovered(model, 120, outputs=7)
    assert result.status is Status.EXACT
    assert result.model.outputs == 7
    assert model.distance(result.model) < 1e-11


@pytest.mark.parametrize("longest", [3, 4, 9])
def test_short_sequences_suffice(longest: int) -> None:
    model = unsoftmax.random_token_heads(120, 5, seed=4)
    result = recovered(model, 120, max_length=longest)
    assert result.status is Status.EXACT
    assert worst_error(model, result.model) <= 1e-9


def test_pairs_do_not_tell_one_head_from_several() -> None:
    one = unsoftmax.random_token_heads(30, 3, seed=4)
    assert recovered(one, 30, max_length=2).status is Status.UNRESOLVED
    head = one.heads[0]
    turned = TokenHead(-head.keys, head.queries, -head.values)
    flat = TokenHead(0.0 * head.keys, head.queries, 2.0 * head.values)
    other = unsoftmax.TokenHeads([turned, flat])
    pairs = np.random.default_rng(0).integers(0, 30, (50, 2))
    np.testing.assert_allclose(other(pairs), one(pairs), atol=1e-12)
    assert other.distance(one) > 0.1


def test_single_tokens_show_no_scores() -> None:
    model = unsoftmax.random_token_heads(50, 5, seed=4)
    assert recovered(model, 50, max_length=1).status is Status.NOT_IDENTIFIABLE


@pytest.mark.parametrize(
    "values", [np.full(40, 2.5), np.where(np.arange(40) < 20, 1.0, 0.0), np.arange(40.0), np.eye(40)[3]]
)
def test_values_may_be_equal_or_few(values: Any) -> None:
    head = unsoftmax.random_token_heads(40, 3, seed=1).heads[0]
    model = TokenHeads([unsoftmax.TokenHead(head.keys, head.queries, values)])
    result = recovered(model, 40)
    assert result.status.recovered, result.reason
    ids = np.random.default_rng(0).integers(0, 40, (300, 6))
    assert np.abs(model(ids) - result.model(ids)).max() < 1e-9


def test_tokens_without_difference_and_vocabularies_of_one() -> None:
    rng = np.random.default_rng(0)
    few = unsoftmax.TokenHead(*(part[rng.integers(0, 5, 30)] for part in _parts(5)))
    assert recovered(TokenHeads([few]), 30).status.recovered
    assert recovered(lambda ids: np.full(len(ids), 3.0), 1).status.recovered


def _parts(vocabulary: int) -> tuple[Any, Any, Any]:
    head = unsoftmax.random_token_heads(vocabulary, 3, seed=1).heads[0]
    return head.keys, head.queries, head.values


def test_large_constants_cost_digits_and_nothing_else() -> None:
    head = unsoftmax.random_token_heads(100, 4, seed=1).heads[0]
    model = TokenHeads([unsoftmax.TokenHead(head.keys, head.queries, head.values + 1e4)])
    result = recovered(model, 100)
    assert result.status.recovered
    assert worst_error(model, result.model) < 1e-8


def test_the_budget_is_kept() -> None:
    model = unsoftmax.random_token_heads(100, 4, seed=1)
    ledger = Ledger(FunctionOracle(model, OracleSpec(domain=TokenIds(100))), budget=300)
    result = recover_tokens(ledger, 0)
    assert result.status is Status.BUDGET_SPENT
    assert result.queries.total <= 300
