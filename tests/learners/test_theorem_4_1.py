from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from unsoftmax import SingleHead, Size, Status, theorem_4_1


def _moderate(d: int, seed: int) -> SingleHead:
    rng = np.random.default_rng([seed, d])
    v = rng.standard_normal(d)
    v[rng.random(d) < 0.3] = 0.0
    v[0] = 1.0
    return SingleHead(rng.standard_normal((d, d)) / d, v)


@pytest.mark.parametrize("probes", ["gaussian", "structured"])
@pytest.mark.parametrize("d", [1, 2, 5, 16, 32])
@pytest.mark.parametrize("seed", range(3))
def test_exactly_d_plus_d_squared_queries(probes: str, d: int, seed: int) -> None:
    head = _moderate(d, seed)
    learner = theorem_4_1(probes)  # type: ignore[arg-type]
    result = unsoftmax.recover(lambda X: head(X), width=d, seed=seed, learner=learner)
    assert result.queries.learning == d + d * d
    assert learner.claim.queries.holds(result.queries.learning, Size(d))
    assert result.status.recovered, result.reason
    assert head.distance(result.unwrap()) <= 1e-6  # type: ignore[arg-type]


def test_saturation_is_said_and_not_guessed() -> None:
    head = SingleHead(200 * np.random.default_rng(0).standard_normal((6, 6)), np.ones(6))
    result = unsoftmax.recover(head, learner=theorem_4_1())
    assert result.status is Status.UNRESOLVED
    assert "saturated" in result.reason
    assert result.queries.learning == 6 + 36
    assert unsoftmax.recover(head).status is Status.EXACT


def test_biases_are_outside_its_class() -> None:
    head = unsoftmax.random_single_head(5, seed=0, biases=True)
    assert not unsoftmax.recover(head, learner=theorem_4_1()).status.recovered


def test_zero_readout_and_unknown_probes() -> None:
    silent = SingleHead(np.eye(3), np.zeros(3))
    assert unsoftmax.recover(silent, learner=theorem_4_1()).status is Status.NOT_IDENTIFIABLE
    with pytest.raises(unsoftmax.UsageError, match="gaussian"):
        theorem_4_1("sobol")  # type: ignore[arg-type]


def test_claims_are_complete() -> None:
    for learner in (theorem_4_1(), unsoftmax.SingleHeadLearner()):
        claim = learner.claim
        assert claim.title
        assert claim.source
        assert claim.recovers
        assert all(assumption.text and assumption.check for assumption in claim.assumptions)
        assert claim.queries(Size(10, (3,))) > 0
