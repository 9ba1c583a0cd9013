"""What kind of answers: found out, used by recover, and paid only when it is needed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unsoftmax
from tests.cases.answers import distance, hard_head, with_unit_v
from unsoftmax import (
    Clipped,
    FlippedLabels,
    Labels,
    Ledger,
    LowPrecision,
    Noisy,
    Oracle,
    Rounded,
    SingleHead,
    Status,
    WithinTolerance,
    as_oracle,
)
from unsoftmax.answers import Exact

KINDS: dict[str, Callable[[Oracle, int], Oracle]] = {
    "exact": lambda oracle, seed: oracle,
    "decimals 0": lambda oracle, seed: Rounded(oracle, 0),
    "decimals 1": lambda oracle, seed: Rounded(oracle, 1),
    "decimals 4": lambda oracle, seed: Rounded(oracle, 4),
    "decimals 6": lambda oracle, seed: Rounded(oracle, 6),
    "float32": lambda oracle, seed: LowPrecision(oracle, "float32"),
    "float16": lambda oracle, seed: LowPrecision(oracle, "float16"),
    "bfloat16": lambda oracle, seed: LowPrecision(oracle, "bfloat16"),
    "tolerance": lambda oracle, seed: WithinTolerance(oracle, 10.0 ** -(seed % 9), seed),
    "noise": lambda oracle, seed: Noisy(oracle, 10.0 ** -(seed % 6), seed),
    "labels": lambda oracle, seed: Labels(oracle),
    "flipped labels": lambda oracle, seed: FlippedLabels(oracle, 0.05, seed),
    "clipped": lambda oracle, seed: Clipped(oracle, 0.3 + seed),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_told(kind: str) -> None:
    for seed in range(9):
        oracle = KINDS[kind](as_oracle(hard_head((1, 4, 16)[seed % 3], seed=seed)), seed)
        found = unsoftmax.identify(Ledger(oracle), np.random.default_rng(seed))
        name = found.answers.name
        decimals = getattr(found.answers, "decimals", None)
        assert kind in (name, f"{name} {decimals}"), (seed, found)
        assert found.evidence
        # do steps inside round?
        inside = 60 if kind in ("tolerance", "float32", "float16", "bfloat16") else 0
        rows = 3  # are rows rounded first?
        assert found.queries <= (115 + inside + rows if "labels" not in kind else 300)


def test_limits_make_no_stored_answers_look_computed() -> None:
    """Rows beyond the limits are off lines, whatever rounds."""
    for seed in range(3):
        hidden = unsoftmax.random_multi_head(6, 2, seed=seed)
        found = unsoftmax.identify(
            Ledger(Clipped(LowPrecision(as_oracle(hidden), "float32"), 2.0)), np.random.default_rng(seed)
        )
        assert found.answers.name == "clipped float32", found


def test_an_exact_curved_function_is_exact() -> None:
    rng = np.random.default_rng(0)
    A, b = rng.standard_normal((9, 6)), rng.standard_normal(9)
    found = unsoftmax.identify(
        Ledger(as_oracle(lambda X: np.maximum(X.mean(axis=1) @ A.T + b, 0).sum(axis=1)), width=6), rng
    )
    assert found.answers == Exact()


@pytest.mark.parametrize("kind", KINDS)
def test_recover_uses_what_it_found(kind: str) -> None:
    head = hard_head(6, seed=11)
    result = unsoftmax.recover(KINDS[kind](as_oracle(head), 3))
    assert result.status is (Status.EXACT if kind == "exact" else Status.WITHIN_BOUND), result.reason
    expected = with_unit_v(head) if "labels" in kind else head
    assert distance(expected, result.unwrap()) <= (result.error_bound or 0.0) < 1e-4
    finding = result.findings[-1]
    assert finding.subject == "answers"
    assert kind.startswith(finding.value)
    assert result.queries.by_phase["identify"] >= finding.queries
    assert result.as_json()["findings"][-1]["evidence"] == finding.evidence


def test_exact_answers_cost_three_queries_to_recognise() -> None:
    result = unsoftmax.recover(hard_head(24, 3, seed=1))
    assert result.status is Status.EXACT
    assert result.queries.by_phase["identify"] == 3


def test_round_parameters_are_not_taken_for_rounded_answers() -> None:
    for d in (1, 2, 5):
        result = unsoftmax.recover(SingleHead(np.eye(d), np.ones(d)))
        assert result.status is Status.EXACT, result.reason


@pytest.mark.parametrize("tau", [1e-12, 1e-10, 1e-7])
def test_small_errors_never_end_as_exact(tau: float) -> None:
    for seed in range(3):
        head = hard_head(8, seed=seed)
        oracles = (
            WithinTolerance(as_oracle(head), 8 * tau, seed),
            Rounded(as_oracle(head), int(-np.log10(tau))),
            Noisy(as_oracle(head), tau, seed),
        )
        for oracle in oracles:
            result = unsoftmax.recover(oracle, seed=seed)
            assert result.status is not Status.EXACT or tau < 1e-11, (type(oracle).__name__, result.reason)
            assert result.model is None or distance(head, result.unwrap()) <= (result.error_bound or 0.0)


def test_a_told_tolerance_is_not_looked_for() -> None:
    result = unsoftmax.recover(WithinTolerance(as_oracle(hard_head(5, seed=1)), 1e-3), tolerance=1e-3)
    assert result.status is Status.WITHIN_BOUND
    assert "identify" not in result.queries.by_phase
    assert result.findings[0].queries == 0


@pytest.mark.parametrize("tolerance", [-1.0, float("nan"), float("inf"), "small", True])
def test_a_wrong_tolerance_is_refused(tolerance: object) -> None:
    with pytest.raises(unsoftmax.UsageError, match="tolerance must be"):
        unsoftmax.recover("demo:single-head?d=4", tolerance=tolerance)  # type: ignore[arg-type]


def test_a_constant_box_is_not_identifiable() -> None:
    assert unsoftmax.recover(lambda X: np.zeros(len(X)), width=4).status is Status.NOT_IDENTIFIABLE


@pytest.mark.parametrize("seed", [7, 16, 22, 133, 217, 715, 0, 1])
def test_a_network_with_flat_ends_is_no_clipped_head(seed: int) -> None:
    """Two neurons over attention may be flat at both ends, and bend where a limit would cut."""
    d, m = 1 + seed % 2, 1 + seed % 3
    box = unsoftmax.random_transformer(d, m, seed=seed, biases=True)
    rng = np.random.default_rng(0)
    for model in (
        unsoftmax.recover(lambda X: box(X), width=d, seed=seed).model,
        unsoftmax.audit_target(lambda X: box(X), width=d, seed=seed).result.model,
    ):
        for size in (0.3, 3.0, 30.0) if model is not None else ():
            X = size * rng.standard_normal((100, 3, d))
            assert model is not None
            assert np.abs(model(X) - box(X)).max() <= 1e-6 * np.abs(box(X)).max()
