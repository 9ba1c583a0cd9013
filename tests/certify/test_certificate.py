from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from unsoftmax import FunctionOracle, Ledger, OracleSpec, SingleHead
from unsoftmax.certify import certify, error_bound

HEAD = unsoftmax.random_single_head(10, 4, seed=2, biases=True)


def _certificate(target: SingleHead, model: SingleHead, **spec: object) -> unsoftmax.Certificate:
    ledger = Ledger(FunctionOracle(target, OracleSpec(width=10, **spec)))  # type: ignore[arg-type]
    return certify(ledger, model, np.random.default_rng(1))


def test_the_truth_passes_and_says_what_was_tested() -> None:
    certificate = _certificate(HEAD, HEAD)
    assert certificate.passed
    assert certificate.max_error == 0.0
    assert certificate.n_queries > 100
    assert set(range(1, 18)) < set(certificate.lengths)
    assert 64 < max(certificate.lengths) <= 128
    assert f"of 1 to 17, {certificate.lengths[17]}" in certificate.statement
    assert 0.0 < certificate.fraction < 0.05
    assert (1 - certificate.fraction) ** certificate.n_queries == pytest.approx(1 - certificate.confidence)
    assert f"{certificate.n_queries} fresh sequences" in certificate.statement


@pytest.mark.parametrize("part", ["W", "v", "w0", "c"])
def test_a_millionth_is_noticed(part: str) -> None:
    moved = {"W": HEAD.W, "v": HEAD.v, "w0": HEAD.w0, "c": HEAD.c}
    moved[part] = np.asarray(moved[part]) * (1 + 1e-6)
    certificate = _certificate(HEAD, SingleHead(moved["W"], moved["v"], moved["w0"], moved["c"]))
    assert not certificate.passed
    assert certificate.failed
    assert certificate.failed in certificate.statement


@pytest.mark.parametrize("relative", [1e-3, 1e-7, 1e-11])
@pytest.mark.parametrize("seed", range(5))
def test_the_bound_covers_errors_of_any_shape(relative: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for shape in ("full", "rank one", "one entry", "one row"):
        error = {
            "full": rng.standard_normal((10, 10)),
            "rank one": np.outer(rng.standard_normal(10), rng.standard_normal(10)),
            "one entry": np.eye(10)[[rng.integers(10)]].T @ np.eye(10)[[rng.integers(10)]],
            "one row": np.eye(10)[[rng.integers(10)]].T @ rng.standard_normal((1, 10)),
        }[shape]
        error *= relative * np.linalg.norm(HEAD.W) / np.linalg.norm(error)
        wrong = SingleHead(HEAD.W + error, HEAD.v, HEAD.w0, HEAD.c)
        ledger = Ledger(FunctionOracle(HEAD), width=10)
        bound = error_bound(ledger, wrong, rng)
        assert bound is not None
        assert relative * 0.999 <= bound <= 100 * relative + 1e-12


def test_limits_of_the_oracle_are_kept() -> None:
    lengths: set[int] = set()
    longest = [0.0]

    def watched(X: np.ndarray) -> np.ndarray:
        lengths.add(X.shape[1])
        longest[0] = max(longest[0], float(np.linalg.norm(X, axis=2).max()))
        return HEAD(X)

    ledger = Ledger(FunctionOracle(watched, OracleSpec(width=10, max_length=3, input_bound=0.5)))
    assert certify(ledger, HEAD, np.random.default_rng(0)).passed
    assert max(lengths) <= 3
    assert longest[0] <= 0.5 * (1 + 1e-12)


def test_planned_verification_is_an_upper_limit() -> None:
    for d in (1, 4, 30):
        for kind in (
            "demo:single-head?d={}",
            "demo:single-head?d={}&biases=1",
            "demo:single-head?d={}&scale=50",
        ):
            target = kind.format(d)
            result = unsoftmax.recover(target)
            planned = unsoftmax.plan(target)
            assert result.queries.by_phase["verification"] <= planned.verification
            assert result.queries.total <= planned.at_most
