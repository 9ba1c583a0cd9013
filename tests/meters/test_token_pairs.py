"""Scores of token pairs from copies: the true score lies within the error bar."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unsoftmax
from unsoftmax.arrays import EPS
from unsoftmax.ledger import Ledger
from unsoftmax.meters.tokens import PairReader, PairRequest, TokenPairMeter, TokenSequences
from unsoftmax.oracles import FunctionOracle, OracleSpec, TokenIds


def meter_of(model: Any, longest: int = 64) -> tuple[TokenPairMeter, Ledger]:
    ledger = Ledger(FunctionOracle(model, OracleSpec(domain=TokenIds(model.vocabulary))))
    sequences = TokenSequences(ledger, longest)
    values = sequences.values()
    return TokenPairMeter(sequences, values, 4.0 * EPS * float(np.abs(values).max())), ledger


def test_copies_stand_in_order_and_are_billed_as_one_query_each() -> None:
    seen: list[Any] = []

    def answer(ids: Any) -> Any:
        seen.extend(ids.tolist())
        return ids.sum(axis=1)

    ledger = Ledger(FunctionOracle(answer, OracleSpec(domain=TokenIds(9))))
    counts = np.array([[2, 0, 1], [1, 2, 3], [1, 1, 1]])
    answers = TokenSequences(ledger, 64).copies(np.array([[5, 6, 7], [1, 2, 3], [8, 8, 0]]), counts)
    assert answers.tolist() == [17.0, 14.0, 16.0]
    assert sorted(seen) == [[1, 2, 2, 3, 3, 3], [5, 5, 7], [8, 8, 0]]
    assert ledger.bill.total == 3


@pytest.mark.parametrize("scale", [0.3, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_true_scores_lie_within_the_error_bars(scale: float, seed: int) -> None:
    model = unsoftmax.random_token_heads(60, 4, scale=scale, seed=seed)
    meter, ledger = meter_of(model)
    rng = np.random.default_rng(seed)
    tokens, asking = rng.integers(0, 60, (2, 400))
    before = ledger.bill.total
    found = PairReader(meter).read(tokens, asking)
    truth = model.heads[0].relative_scores(tokens, asking)
    legible = np.isfinite(found.errors)
    assert legible.mean() > (0.99 if scale <= 3.0 else 0.6)
    assert (np.abs(found.values - truth)[legible] <= 3.0 * found.errors[legible] + 1e-15).all()
    assert np.median(found.errors[legible]) < 1e-12 * np.exp(scale)
    assert (np.abs(truth[~legible]) > 20.0).all()  # only what outweighs by e^20 is given up
    assert ledger.bill.total - before <= 400 + len(np.unique(asking))


def test_copies_lower_the_error_bar_of_a_strong_score() -> None:
    meter, _ = meter_of(unsoftmax.random_token_heads(60, 4, scale=4.0, seed=3))
    tokens, asking = np.random.default_rng(0).integers(0, 60, (2, 300))
    first = meter.compare(PairRequest.plain(tokens, asking))
    strong = np.isfinite(first.errors) & (np.abs(first.values) > 6.0) & ~meter.weak(tokens, asking)
    again = meter.compare(PairRequest.plain(tokens[strong], asking[strong], first.values[strong]))
    assert np.median(first.errors[strong] / again.errors) > 10.0


def test_close_values_are_read_with_a_third_token() -> None:
    model = unsoftmax.random_token_heads(40, 3, seed=5)
    head = model.heads[0]
    values = head.values.copy()
    values[7] = values[3] + 1e-9
    twin = unsoftmax.TokenHeads([unsoftmax.TokenHead(head.keys, head.queries, values)])
    meter, ledger = meter_of(twin)
    found = PairReader(meter).read(np.array([7]), np.array([3]))
    assert found.errors[0] < 1e-12  # alone, the two tokens would give 1e-4
    assert (
        abs(found.values[0] - head.relative_scores(np.array([7]), np.array([3]))[0]) < 3.0 * found.errors[0]
    )
    assert ledger.bill.total == 40 + 2


def test_prospects_are_the_error_bars_that_come_out() -> None:
    model = unsoftmax.random_token_heads(60, 4, scale=2.0, seed=6)
    meter, _ = meter_of(model)
    tokens, asking = np.random.default_rng(1).integers(0, 60, (2, 200))
    request = PairRequest.plain(tokens, asking, model.heads[0].relative_scores(tokens, asking))
    kept = np.flatnonzero((tokens != asking) & ~meter.weak(tokens, asking))
    expected, found = meter.prospect(request.part(kept)), meter.compare(request.part(kept)).errors
    np.testing.assert_allclose(found, expected, rtol=1e-3)


@pytest.mark.parametrize("longest", [2, 3, 5])
def test_short_sequences_are_kept_to(longest: int) -> None:
    lengths: list[int] = []
    model = unsoftmax.random_token_heads(30, 3, scale=3.0, seed=1)

    def answer(ids: Any) -> Any:
        lengths.append(ids.shape[1])
        return model(ids)

    ledger = Ledger(FunctionOracle(answer, OracleSpec(domain=TokenIds(30))))
    sequences = TokenSequences(ledger, longest)
    values = sequences.values()
    reader = PairReader(TokenPairMeter(sequences, values, 4.0 * EPS * float(np.abs(values).max())))
    tokens, asking = np.random.default_rng(2).integers(0, 30, (2, 100))
    found = reader.read(tokens, asking, limit=1e-14)
    assert max(lengths) <= longest
    good = np.isfinite(found.errors)
    truth = model.heads[0].relative_scores(tokens, asking)
    assert (np.abs(found.values - truth)[good] <= 3.0 * found.errors[good] + 1e-15).all()


def test_influence_is_the_derivative_of_the_answer() -> None:
    meter, _ = meter_of(unsoftmax.random_token_heads(20, 3, seed=2))
    tokens, asking, scores = (
        np.array([1, 5, 9]),
        np.array([2, 4]),
        np.random.default_rng(0).standard_normal((2, 3)),
    )

    def answer(scores: Any) -> Any:
        weights = np.exp(np.column_stack([scores, np.zeros(2)]))
        values = np.column_stack([np.tile(meter.values[tokens], (2, 1)), meter.values[asking]])
        return (weights * values).sum(axis=1) / weights.sum(axis=1)

    found = meter.influence(tokens, asking, scores)
    for place in range(3):
        step = np.zeros((2, 3))
        step[:, place] = 1e-6
        numeric = (answer(scores + step) - answer(scores - step)) / 2e-6
        np.testing.assert_allclose(found[:, place], numeric, atol=1e-9)
