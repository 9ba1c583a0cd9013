from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import unsoftmax
from unsoftmax import FunctionOracle, Ledger, OracleFault, OracleSpec, Status, UsageError
from unsoftmax.errors import LedgerRefused
from unsoftmax.ledger import MemoryJournal
from unsoftmax.outcomes import BudgetSpent, Unresolved


class Counting:
    """A target that counts what it sees."""

    def __init__(self, head: Any, limit: int | None = None) -> None:
        self.head, self.limit, self.seen = head, limit, 0

    def __call__(self, X: Any) -> Any:
        self.seen += len(X)
        if self.limit is not None and self.seen > self.limit:
            raise ConnectionError("gone")
        return self.head(X)


HEAD = unsoftmax.random_single_head(6, seed=0, biases=True)


def test_the_bill_is_what_the_target_saw() -> None:
    target = Counting(HEAD)
    result = unsoftmax.recover(target, width=6)
    assert result.queries.total == target.seen == sum(result.queries.by_phase.values())
    assert set(result.queries.by_phase) >= {"values", "scores", "verification"}


@pytest.mark.parametrize("max_batch", [1, 7, 1000])
def test_batches_respect_the_oracle_and_change_no_count(max_batch: int) -> None:
    sizes: list[int] = []

    def target(X: Any) -> Any:
        sizes.append(len(X))
        return HEAD(X)

    result = unsoftmax.recover(FunctionOracle(target, OracleSpec(width=6, max_batch=max_batch)))
    assert result.status is Status.EXACT
    assert max(sizes) <= max_batch
    assert sum(sizes) == result.queries.total


@pytest.mark.parametrize("budget", [0, 1, 7, 8, 20, 60, 100, 250])
def test_a_budget_is_never_exceeded(budget: int) -> None:
    target = Counting(HEAD)
    result = unsoftmax.recover(target, width=6, budget=budget)
    assert result.status is Status.BUDGET_SPENT
    assert result.model is None
    assert target.seen == result.queries.total <= budget
    assert "raise the budget" in result.reason


def test_an_exact_budget_is_enough() -> None:
    total = unsoftmax.recover(HEAD).queries.total
    assert unsoftmax.recover(HEAD, budget=total).status is Status.EXACT
    assert unsoftmax.recover(HEAD, budget=total - 1).status is Status.BUDGET_SPENT


def test_a_dying_target_is_billed_for_what_it_saw() -> None:
    target = Counting(HEAD, limit=30)
    ledger = Ledger(FunctionOracle(target), width=6)
    with pytest.raises(OracleFault, match="raised ConnectionError"):
        for _ in range(10):
            ledger.ask(np.zeros((7, 1, 6)))
    assert ledger.bill.total == target.seen


def test_replay_asks_nothing_again() -> None:
    journal = MemoryJournal()
    rng = np.random.default_rng(0)
    batches = [rng.standard_normal((3, n, 6)) for n in (1, 2, 2)]
    first = Ledger(FunctionOracle(HEAD), width=6, journal=journal)
    answers = [first.ask(batch) for batch in batches]
    target = Counting(HEAD)
    second = Ledger(FunctionOracle(target), width=6, journal=journal)
    for batch, answer in zip(batches, answers, strict=True):
        assert np.array_equal(second.ask(batch), answer)
    assert target.seen == 0
    assert second.bill.total == 9
    third = Ledger(FunctionOracle(HEAD), width=6, journal=journal)
    with pytest.raises(LedgerRefused, match="this run asks"):
        third.ask(np.zeros((5, 1, 6)))


def test_phases_nest_and_progress_is_told() -> None:
    told: list[unsoftmax.Progress] = []
    ledger = Ledger(FunctionOracle(HEAD), width=6, listener=told.append)
    ledger.expect(10)
    with ledger.phase("outer"):
        ledger.ask(np.zeros((2, 1, 6)))
        with ledger.phase("inner"):
            ledger.ask(np.zeros((3, 1, 6)))
        ledger.ask(np.zeros((1, 1, 6)))
    assert dict(ledger.bill.by_phase) == {"outer": 3, "inner": 3}
    assert [(p.phase, p.paid, p.expected) for p in told] == [
        ("outer", 2, 10 + 240),  # the learner's estimate, and the usual verification
        ("inner", 5, 10 + 240),
        ("outer", 6, 10 + 240),
    ]


def test_progress_expects_what_is_paid() -> None:
    told: list[unsoftmax.Progress] = []
    result = unsoftmax.recover("demo:single-head?d=32&r=4", progress=told.append)
    assert told[-1].paid == result.queries.total
    scores = [p for p in told if p.phase == "scores"]
    assert scores[-1].expected is not None
    assert abs(scores[-1].expected - result.queries.total) < 40


def test_refused_before_anything_is_sent() -> None:
    target = Counting(HEAD)
    ledger = Ledger(FunctionOracle(target), width=6, budget=5)
    for batch, message in (
        (np.zeros((2, 6)), "must be"),
        (np.zeros((1, 2, 5)), "must be"),
        (np.zeros((1, 0, 6)), "must be"),
    ):
        with pytest.raises(UsageError, match=message):
            ledger.ask(batch)
    with pytest.raises(BudgetSpent):
        ledger.ask(np.zeros((6, 1, 6)))
    assert target.seen == 0
    assert ledger.ask(np.zeros((0, 1, 6))).shape == (0,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(width=None), "does not tell its width"),
        (dict(width=0), "at least 1"),
        (dict(width=-3), "at least 1"),
        (dict(width=2.0), "whole number"),
        (dict(width="6"), "whole number"),
        (dict(width=True), "whole number"),
        (dict(width=6, budget=-1), "budget"),
        (dict(width=6, budget=1.5), "budget"),
        (dict(width=6, seed=-1), "seed"),
        (dict(width=6, seed="a"), "seed"),
        (dict(width=6, input_bound=0.0), "input_bound"),
        (dict(width=6, input_bound=np.nan), "input_bound"),
        (dict(width=6, family="rnn"), "no family 'rnn'"),
    ],
)
def test_wrong_options_are_refused_before_the_first_query(options: dict[str, Any], message: str) -> None:
    target = Counting(HEAD)
    with pytest.raises(UsageError, match=message):
        unsoftmax.recover(target, **options)
    assert target.seen == 0


def test_a_width_that_contradicts_the_target() -> None:
    with pytest.raises(UsageError, match="pass width=6"):
        unsoftmax.recover(HEAD, width=5)


def test_a_target_that_writes_into_its_batch_is_told_so() -> None:
    def careless(X: Any) -> Any:
        X *= 2.0
        return HEAD(X)

    with pytest.raises(OracleFault, match="work on a copy"):
        unsoftmax.recover(careless, width=6)


def test_a_row_beyond_the_bound_is_never_sent() -> None:
    seen: list[int] = []

    def target(X: np.ndarray) -> np.ndarray:
        seen.append(len(X))
        return X[:, -1, 0]

    ledger = Ledger(FunctionOracle(target, OracleSpec(width=2)), input_bound=1.0)
    ledger.ask(np.array([[[0.6, 0.8]]]))
    with pytest.raises(Unresolved, match="norm 2"):
        ledger.ask(np.array([[[0.0, 0.5], [2.0, 0.0]]]))
    assert seen == [1]
    assert ledger.bill.total == 1


def test_a_learner_that_overflows_sends_nothing_and_blames_nobody() -> None:
    seen: list[int] = []

    def target(X: np.ndarray) -> np.ndarray:
        seen.append(len(X))
        return np.asarray(X[:, -1, 0])

    ledger = Ledger(FunctionOracle(target), width=2)
    with pytest.raises(Unresolved, match="beyond the range of float64"):
        ledger.ask(np.full((3, 1, 2), np.nan))
    assert (ledger.bill.total, seen) == (0, [])
    mostly = np.ones((500, 1, 2))
    mostly[124, 0, 0] = np.inf  # where no sample looks
    with pytest.raises(Unresolved, match="beyond the range of float64"):
        ledger.ask(mostly)
    assert ledger.bill.total == sum(seen) == 500
