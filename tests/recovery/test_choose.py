"""Which learner is tried, in which order, and whose claim the result carries."""

from __future__ import annotations

import itertools

import pytest

import unsoftmax
from unsoftmax import Status, as_oracle
from unsoftmax.answers import (
    Answers,
    Clipped,
    Constant,
    Exact,
    Labels,
    Noisy,
    Rounded,
    Stored,
    Unsteady,
    Within,
)
from unsoftmax.families import Family
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners import Known
from unsoftmax.outcomes import OutsideClass, Refutation, Test, Unresolved
from unsoftmax.recovery.choose import choose


def _names(known: Known, wanted: Family | None = None) -> list[str]:
    return [type(choice.learner).__name__ for choice in choose(known, wanted)]


def test_exact_answers_try_the_cheapest_family_first() -> None:
    assert _names(Known()) == ["SingleHeadLearner", "MultiHeadLearner", "TransformerLearner"]
    assert _names(Known(bends=True))[0] == "TransformerLearner"
    assert _names(Known(max_length=1)) == ["ReluNetworkLearner"]


def test_a_refutation_excludes_families() -> None:
    refuted = Refutation(Test("one head", frozenset({Family.SINGLE_HEAD})), "seen")
    assert _names(Known(refuted=(refuted,))) == ["MultiHeadLearner", "TransformerLearner"]
    assert _names(Known(refuted=(Refutation(Test("anything"), "seen"),))) == []


@pytest.mark.parametrize(
    ("answers", "learners"),
    [
        (Exact(), ["SingleHeadLearner", "MultiHeadLearner", "TransformerLearner"]),
        (Constant(1.0), ["SingleHeadLearner", "MultiHeadLearner", "TransformerLearner"]),
        (Rounded(2), ["RoundedLearner"]),
        (Within(0.1), ["ToleranceLearner"]),
        (Noisy(0.1), ["NoiseLearner"]),
        (Labels(), ["LabelLearner"]),
        (Stored(FloatFormat.FLOAT16), ["LowPrecisionLearner"]),
        (Stored(FloatFormat.FLOAT32), ["LowPrecisionLearner", "MultiHeadLearner"]),
        (Clipped((-1.0, 1.0)), ["ClippedLearner", "TransformerLearner"]),
        (Clipped((-1.0, 1.0), Rounded(2)), ["ClippedLearner"]),
    ],
)
def test_every_kind_of_answers_has_its_learners(answers: Answers, learners: list[str]) -> None:
    assert _names(Known(answers=answers)) == learners


def test_answers_that_no_learner_is_for() -> None:
    with pytest.raises(OutsideClass, match="same query"):
        _names(Known(answers=Unsteady()))
    with pytest.raises(Unresolved, match="multi-head"):
        _names(Known(answers=Rounded(2)), Family.MULTI_HEAD)


@pytest.mark.parametrize(
    "target", ["demo:single-head?d=6", "demo:multi-head?d=6&heads=2", "demo:transformer?d=5&m=6"]
)
def test_the_claim_is_that_of_the_learner_that_made_the_model(target: str) -> None:
    result = unsoftmax.recover(target)
    assert result.status is Status.EXACT
    wanted = Family(result.family)
    assert result.claim == next(choose(Known(), wanted)).learner.claim


def test_recover_and_audit_end_alike() -> None:
    from benchmarks.audit import alike, boxes

    for index, (one, two) in enumerate(zip(boxes(0, 24), boxes(0, 24), strict=True)):
        found = unsoftmax.recover(one.target, width=one.width, seed=index)
        done = unsoftmax.audit_target(two.target, width=two.width, seed=index)
        assert alike(found, done.result), (one.name, found.status, found.reason, done.result.reason)


def test_an_explicit_learner_is_judged_by_what_the_answers_are() -> None:
    head = unsoftmax.random_single_head(4, seed=0)
    exact = unsoftmax.recover(head, learner=unsoftmax.theorem_4_1())
    assert exact.status is Status.EXACT
    assert exact.queries.learning == 4 + 16
    noisy = unsoftmax.Noisy(as_oracle(head), 1e-3, 1)
    assert not unsoftmax.recover(noisy, learner=unsoftmax.theorem_4_1()).status.recovered
    drifting = itertools.count()
    result = unsoftmax.recover(
        lambda X: head(X) + 1e-3 * next(drifting), width=4, learner=unsoftmax.within_tolerance(10.0)
    )
    assert not result.status.recovered
