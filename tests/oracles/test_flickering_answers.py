"""float32 targets whose last digits differ from call to call, as with sums in no fixed order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import unsoftmax
from unsoftmax import FunctionOracle, Ledger, MultiHead, OracleSpec, SingleHead, Status
from unsoftmax.answers import Computed, Noisy
from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat

Box = Callable[[Array], Array]


def permuted_sums(d: int, n_heads: int) -> tuple[Box, MultiHead]:
    """Heads, rows and columns are summed in a fresh order in every call."""
    rng, order = np.random.default_rng(0), np.random.default_rng(99)
    W = (rng.standard_normal((n_heads, d, d)) / d).astype(np.float32)
    v = rng.standard_normal((n_heads, d)).astype(np.float32)

    def box(X: Array) -> Array:
        columns, rows = order.permutation(d), order.permutation(X.shape[1])
        x, last = X[:, rows][:, :, columns].astype(np.float32), X[:, -1].astype(np.float32)
        total = np.zeros(len(X), np.float32)
        for h in order.permutation(n_heads):
            asked = last @ W[h][columns].T
            scores = np.cumsum(x * asked[:, None], axis=2)[:, :, -1]
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= np.cumsum(weights, axis=1)[:, -1:]
            values = np.cumsum(x * v[h][columns], axis=2)[:, :, -1]
            total = total + np.cumsum(weights * values, axis=1)[:, -1]
        return total.astype(np.float64)

    heads = [SingleHead(each.astype(np.float64), w.astype(np.float64)) for each, w in zip(W, v, strict=True)]
    return box, MultiHead(heads, 0.0)


def one_unit(d: int) -> tuple[Box, SingleHead]:
    """Every answer is up to one unit of its last place away, drawn afresh."""
    rng, draws = np.random.default_rng(0), np.random.default_rng(98)
    W = (rng.standard_normal((d, d)) / np.sqrt(d)).astype(np.float32)
    v = rng.standard_normal(d).astype(np.float32)

    def box(X: Array) -> Array:
        x = X.astype(np.float32)
        scores = np.einsum("bnd,bd->bn", x, x[:, -1] @ W.T)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        answers = np.einsum("bn,bnd->bd", weights / weights.sum(axis=1, keepdims=True), x) @ v
        towards = draws.choice([-np.inf, 0.0, np.inf], len(answers)).astype(np.float32)
        moved = np.where(towards == 0.0, answers, np.nextafter(answers, towards))
        return np.asarray(moved, dtype=np.float64)

    return box, SingleHead(W.astype(np.float64), v.astype(np.float64))


def test_heads_that_sum_in_another_order_in_every_call() -> None:
    box, hidden = permuted_sums(8, 2)
    assert (box(np.ones((64, 5, 8)) / 3.0) != box(np.ones((64, 5, 8)) / 3.0)).any()
    result = unsoftmax.recover(FunctionOracle(box, OracleSpec(width=8)), seed=1)
    assert result.status is Status.WITHIN_BOUND, result.reason
    found = result.unwrap()
    assert isinstance(found, MultiHead)
    assert result.error_bound is not None
    assert hidden.distance(found) <= result.error_bound <= 1e-4


def test_a_unit_of_the_last_place_is_no_noise(tmp_path: Path) -> None:
    """Not in a run, nor in one from its ledger, where the target is asked again."""
    box, hidden = one_unit(6)
    oracle = FunctionOracle(box, OracleSpec(width=6))
    for _ in range(2):
        result = unsoftmax.recover(oracle, seed=1, ledger=tmp_path / "run.ledger")
        assert result.status is Status.WITHIN_BOUND, result.reason
        assert isinstance(result.answers, Computed)
        found = result.unwrap()
        assert isinstance(found, SingleHead)
        assert result.error_bound is not None
        assert hidden.distance(found) <= result.error_bound <= 1e-4


def test_an_audit_calls_last_digits_that_flicker_repeatable() -> None:
    box, _ = one_unit(6)
    audit = unsoftmax.audit_target(box, width=6)
    assert audit.result.status is Status.WITHIN_BOUND, audit.result.reason
    found = {finding.subject: finding for finding in audit.findings}
    assert found["repeatability"].value == "deterministic"
    assert "rounding inside the target" in found["repeatability"].evidence
    assert found["family"].value == "single-head"


@pytest.mark.parametrize("short", list(FloatFormat))
@pytest.mark.parametrize(("units", "power"), [(20.0, 0), (200.0, 1)])
def test_noise_above_the_last_digits_is_still_noise(short: FloatFormat, units: float, power: int) -> None:
    """Of one size for all rows (power 0), or in proportion to answers; then stored in a short format."""
    head, draws = unsoftmax.random_single_head(8, seed=1), np.random.default_rng(0)

    def box(X: Array) -> Array:
        answers = head(X)
        off = units * short.unit * draws.standard_normal(len(X))
        return short.store(answers + off * answers**power)

    oracle = FunctionOracle(box, OracleSpec(width=8))
    found = unsoftmax.identify(Ledger(oracle), np.random.default_rng(0))
    assert isinstance(found.answers, Noisy), found
