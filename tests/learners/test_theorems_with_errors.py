"""Theorems 6.1 and B.1 to the letter: exact counts, and errors under the proven bounds, always."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from tests.cases.answers import distance
from unsoftmax import Labels, Ledger, SingleHead, Size, Status, UsageError, WithinTolerance, as_oracle


def _head(d: int, seed: int, zeros: int) -> SingleHead:
    rng = np.random.default_rng([seed, d])
    W = rng.standard_normal((d, d))
    v = rng.choice([-1.0, 1.0], d) * rng.uniform(0.5, 1.5, d)
    v[rng.permutation(d)[:zeros]] = 0.0
    return SingleHead(W / np.linalg.norm(W), v / np.linalg.norm(v))


@pytest.mark.parametrize("zeros", [0, 1, 2])
@pytest.mark.parametrize("tau", [1e-2, 1e-4, 1e-8])
def test_theorem_6_1_holds_its_bound(tau: float, zeros: int) -> None:
    for seed in range(6):
        d = 3 + seed
        head = _head(d, seed, zeros)
        mu = float(np.abs(head.v[head.v != 0]).min())
        for B in (1.0, 3.0):
            learner = unsoftmax.theorem_6_1(B, mu, tau)
            ledger = Ledger(WithinTolerance(as_oracle(head), tau, seed))
            found, silent = learner.estimate(ledger)
            assert ledger.bill.total == d + d * d
            assert silent == zeros
            assert np.linalg.norm(found.W - head.W) <= learner.proven_error(d, zeros)
            assert np.abs(found.v - head.v).max() <= tau


def test_theorem_6_1_bound_is_not_vacuous() -> None:
    head = _head(4, 1, 0)
    learner = unsoftmax.theorem_6_1(1.0, 0.25, 1e-9)
    found, _ = learner.estimate(Ledger(WithinTolerance(as_oracle(head), 1e-9, 3)))
    assert np.linalg.norm(found.W - head.W) > 1e-3 * learner.proven_error(4)


def test_theorem_6_1_says_which_tau_it_needs() -> None:
    head = _head(5, 0, 1)
    mu = float(np.abs(head.v[head.v != 0]).min())
    result = unsoftmax.recover(
        WithinTolerance(as_oracle(head), 1e-2), learner=unsoftmax.theorem_6_1(1.0, mu, 1e-2)
    )
    assert result.status is Status.UNRESOLVED
    assert "tau = " in result.reason
    fine = unsoftmax.recover(
        WithinTolerance(as_oracle(head), 1e-7), learner=unsoftmax.theorem_6_1(1.0, mu, 1e-7)
    )
    assert fine.status is Status.WITHIN_BOUND
    assert fine.queries.learning == 30
    assert distance(head, fine.unwrap()) <= (fine.error_bound or 0.0)


@pytest.mark.parametrize("eps", [0.05, 0.1])
def test_theorem_b_1_holds_its_bound(eps: float) -> None:
    for seed in range(4):
        d = 2 + seed % 2
        head = _head(d, seed, 0)
        learner = unsoftmax.theorem_b_1(1.0, float(np.abs(head.v).min()), eps, 0.01)
        ledger = Ledger(Labels(as_oracle(head)))
        found = learner.estimate(ledger, np.random.default_rng(seed))
        assert learner.claim.queries.holds(ledger.bill.total, Size(d))
        assert np.linalg.norm(found.v - head.v) <= eps
        assert np.linalg.norm(found.W - head.W) <= learner.proven_error(d)


def test_theorem_b_1_recovers_with_enough_samples() -> None:
    head = SingleHead([[0.9, 0.1], [0.2, 0.35]], [0.6, 0.8])
    result = unsoftmax.recover(Labels(as_oracle(head)), learner=unsoftmax.theorem_b_1(1.0, 0.6, 0.002))
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert distance(head, result.unwrap()) <= (result.error_bound or 0.0)
    assert "direction of v" in result.reason


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: unsoftmax.theorem_6_1(0.0, 0.1, 0.0), "B must be"),
        (lambda: unsoftmax.theorem_6_1(1.0, 0.1, 0.06), "tau must be"),
        (lambda: unsoftmax.theorem_b_1(1.0, 0.1, 0.2), "eps must be"),
        (lambda: unsoftmax.theorem_b_1(1.0, 0.1, 0.01, 1.5), "delta must be"),
        (lambda: unsoftmax.within_tolerance(-1.0), "tau must be"),
        (lambda: unsoftmax.noisy(0.0), "sigma must be"),
        (lambda: unsoftmax.noisy(0.1, repeats=0), "repeats must be"),
        (lambda: unsoftmax.low_precision("float8"), "precision must be"),
        (lambda: unsoftmax.from_labels(60), "bits must be"),
        (lambda: unsoftmax.from_labels(flip=0.6), "flip must be"),
        (lambda: unsoftmax.clipped(-1.0), "limit must be"),
        (lambda: unsoftmax.rounded(-1), "decimals must be"),
        (lambda: unsoftmax.FlippedLabels(as_oracle("demo:single-head?d=2"), 0.5), "flipped"),
        (lambda: unsoftmax.LowPrecision(as_oracle("demo:single-head?d=2"), "float8"), "precision must be"),
        (lambda: unsoftmax.Clipped(as_oracle("demo:single-head?d=2"), 0.0), "limit must be"),
    ],
)
def test_wrong_options_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(UsageError, match=message):
        make()
