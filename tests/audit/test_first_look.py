"""The first look: every family behind every kind of answers is named, with or without biases, and nothing is
named that was not seen."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import unsoftmax
from tests.cases.answers import ANSWERS
from tests.cases.outside import BOXES
from unsoftmax.arrays import Array
from unsoftmax.first_look.look import FirstLook, first_look
from unsoftmax.models import Model

FAMILIES: dict[str, Callable[[int, bool], Model]] = {
    "single-head": lambda seed, biases: unsoftmax.random_single_head(
        6, 1 + seed % 6, seed=seed, biases=biases
    ),
    "multi-head": lambda seed, biases: unsoftmax.random_multi_head(6, 2 + seed % 2, seed=seed, biases=biases),
    "transformer": lambda seed, biases: unsoftmax.random_transformer(
        6, 6 + seed % 4, seed=seed, biases=biases
    ),
}


def look_at(
    target: object, seed: int = 0, *, width: int | None = None, bound: float | None = None
) -> FirstLook:
    ledger = unsoftmax.Ledger(unsoftmax.as_oracle(target), width=width, input_bound=bound)
    found = first_look(ledger, np.random.default_rng([9, seed]))
    assert (
        sum(finding.queries for finding in found.findings)
        <= ledger.bill.total
        <= sum(finding.queries for finding in found.findings) + 4
    )
    assert all(finding.evidence for finding in found.findings)
    return found


def _has_either_sign(model: Model) -> bool:
    """Labels of a function that is hardly ever negative, or positive, are one label."""
    return 0.1 < float(np.mean(model(np.random.default_rng(0).standard_normal((500, 1, 6))) > 0)) < 0.9


@pytest.mark.parametrize(("family", "answers", "biases"), [*product(FAMILIES, ANSWERS, (False, True))])
def test_family_answers_and_bias_are_named(family: str, answers: str, biases: bool) -> None:
    for seed in [seed for seed in range(8) if _has_either_sign(FAMILIES[family](seed, biases))][:2]:
        found = look_at(ANSWERS[answers](unsoftmax.as_oracle(FAMILIES[family](seed, biases)), seed), seed)
        assert found.value("family") == family, found.findings
        assert found.value("answers") == answers
        assert found.value("repeatability") == (
            "random" if answers in ("noise", "flipped labels") else "deterministic"
        )
        assert (found.value("order of rows"), found.value("copies of a row")) == (
            "does not matter",
            "do not count",
        )
        if family != "transformer":
            assert found.value("query bias") == ("present" if biases else "none")
            assert (found.value("constant") == "none") == (not biases)


def _computed_in_float32(model: unsoftmax.SingleHead | unsoftmax.MultiHead) -> Callable[[Array], Array]:
    """Every step in float32, as frameworks do it, and not only the last rounding."""
    heads = model.heads if isinstance(model, unsoftmax.MultiHead) else (model,)
    parts = [
        (
            head.W.astype(np.float32),
            np.float32(0.0) if head.w0 is None else head.w0.astype(np.float32),
            head.v.astype(np.float32),
        )
        for head in heads
    ]

    def answer(batch: Array) -> Array:
        X, total = batch.astype(np.float32), np.full(len(batch), np.float32(model.c))
        for W, w0, v in parts:
            scores = np.einsum("bnd,bd->bn", X, X[:, -1] @ W.T + w0)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            total = total + np.einsum("bn,bnd->bd", weights / weights.sum(axis=1, keepdims=True), X) @ v
        return total.astype(np.float64)

    return answer


@pytest.mark.parametrize("seed", range(8))
def test_a_computation_in_float32_is_no_other_function(seed: int) -> None:
    d = (4, 16)[seed % 2]
    for model in (
        unsoftmax.random_single_head(d, seed=seed, biases=seed % 3 == 0),
        unsoftmax.random_multi_head(d, 2, seed=seed),
    ):
        found = look_at(_computed_in_float32(model), seed, width=d)
        assert (found.value("answers"), found.value("family")) == ("computed in float32", model.family), (
            found.findings
        )
        assert (found.value("order of rows"), found.value("copies of a row")) == (
            "does not matter",
            "do not count",
        )


def test_an_audit_recovers_a_head_that_is_computed_in_float32() -> None:
    done = unsoftmax.audit_target(_computed_in_float32(unsoftmax.random_single_head(4, seed=1)), width=4)
    assert done.result.status is unsoftmax.Status.WITHIN_BOUND


@pytest.mark.parametrize("answers", ["rounded to 2 decimals", "noise"])
def test_weights_of_opposite_rows_that_do_not_add_up_to_one_are_no_heads(answers: str) -> None:
    head = unsoftmax.random_single_head(4, seed=0)
    boxes: dict[str, Callable[[Array], Array]] = {
        "residual": lambda X: head(X) + X[:, -1].sum(axis=1),
        "sum": lambda X: X.sum(axis=(1, 2)),
        "first row": lambda X: X[:, 0, 0],
    }
    for name, box in boxes.items():
        done = unsoftmax.audit_target(ANSWERS[answers](unsoftmax.as_oracle(box), 0), width=4)
        assert done.result.status is unsoftmax.Status.OUTSIDE_CLASS, name
        assert {finding.subject: finding.value for finding in done.findings}["family"] == "none", name


@pytest.mark.parametrize("seed", range(4))
def test_strong_and_weak_scores_alike(seed: int) -> None:
    for scale in (1e-3, 60.0):
        head = unsoftmax.random_single_head(5, seed=seed, scale=scale, biases=bool(seed % 2))
        layer = unsoftmax.random_multi_head(5, 2, seed=seed, scale=scale, biases=bool(seed % 2))
        for answers in ("exact", "rounded to 2 decimals", "bfloat16", "labels"):
            assert (
                look_at(ANSWERS[answers](unsoftmax.as_oracle(head), seed), seed).value("family")
                == "single-head"
            )
            assert (
                look_at(ANSWERS[answers](unsoftmax.as_oracle(layer), seed), seed).value("family")
                == "multi-head"
            )


@pytest.mark.parametrize("bound", [2.0, 30.0])
def test_short_rows_tell_less_but_nothing_wrong(bound: float) -> None:
    for seed, answers in product(range(3), ANSWERS):
        if answers == "clipped":
            continue
        head, layer = (
            unsoftmax.random_single_head(5, seed=seed, biases=True),
            unsoftmax.random_multi_head(5, 2, seed=seed, biases=True),
        )
        assert look_at(ANSWERS[answers](unsoftmax.as_oracle(head), seed), seed, bound=bound).value(
            "family"
        ) in ("single-head", "unknown")
        assert look_at(ANSWERS[answers](unsoftmax.as_oracle(layer), seed), seed, bound=bound).value(
            "family"
        ) in ("multi-head", "unknown")


@pytest.mark.parametrize("name", ["drifts", "repeats_answered_worse"])
def test_answers_that_change_with_time_are_no_noise(name: str) -> None:
    done = unsoftmax.audit_target(BOXES[name](5, 0), width=5)
    found = {finding.subject: finding for finding in done.findings}
    assert done.result.status is unsoftmax.Status.OUTSIDE_CLASS
    assert (found["answers"].value, found["family"].value) == ("unsteady", "none")
    assert "never turning back" in found["answers"].evidence
    assert unsoftmax.recover(BOXES[name](5, 0), width=5).model is None


@pytest.mark.parametrize("name", ["hard_max", "max_pooling", "labels_of_wrong_thing"])
def test_boxes_without_a_softmax_are_seen_at_once(name: str) -> None:
    assert look_at(BOXES[name](5, 0), width=5).value("family") == "none"


def test_what_is_none_is_not_unresolved() -> None:
    for box in (
        lambda X: (X @ np.arange(1.0, 5.0)).max(axis=1),
        lambda X: 1.0 + (X @ np.arange(1.0, 5.0)).max(axis=1),
    ):
        assert unsoftmax.audit_target(box, width=4).result.status is unsoftmax.Status.OUTSIDE_CLASS


def test_labels_that_differ_only_in_the_middle() -> None:
    head = unsoftmax.random_single_head(4, seed=0)
    ball = look_at(lambda X: (np.linalg.norm(X, axis=2).max(axis=1) > 1.0).astype(float), width=4)
    assert (ball.value("single rows"), ball.value("family")) == ("curved", "none")
    slab = look_at(lambda X: (np.abs(head(X)) > 1.0).astype(float), width=4)  # |x| is two neurons
    assert (slab.value("single rows"), slab.value("family")) == ("curved", "transformer")


def test_labels_without_a_pattern_are_not_random() -> None:
    found = look_at(lambda X: np.floor(np.abs(X).sum(axis=(1, 2)) * 1e6) % 2.0, width=4)
    assert (found.value("answers"), found.value("repeatability"), found.value("family")) == (
        "labels",
        "deterministic",
        "none",
    )


def test_labels_of_rows_of_width_two_say_no_more_than_they_show() -> None:
    for seed in range(12):
        assert (
            look_at(
                unsoftmax.Labels(unsoftmax.as_oracle(unsoftmax.random_multi_head(2, 2, seed=seed))), seed
            ).value("family")
            != "single-head"
        )


def test_positions_show_behind_rounding() -> None:
    head = unsoftmax.random_single_head(4, seed=0)

    def later_rows_weigh_more(X: Array) -> Array:
        scores = np.einsum("bnd,de,be->bn", X, head.W, X[:, -1]) + 0.1 * np.arange(X.shape[1])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(
            np.einsum("bn,bnd,d->b", weights / weights.sum(axis=1, keepdims=True), X, head.v).round(2)
        )

    found = look_at(later_rows_weigh_more, width=4)
    assert (found.value("order of rows"), found.value("family")) == ("matters", "none")


def test_a_constant_hides_whether_there_is_a_query_bias() -> None:
    found = look_at(lambda X: np.full(len(X), 3.25), width=4)
    assert (found.value("answers"), found.value("query bias"), found.value("family")) == (
        "constant",
        "unknown",
        "unknown",
    )


def test_huge_scores_are_still_a_softmax() -> None:
    head = unsoftmax.random_single_head(4, seed=0)
    done = unsoftmax.audit_target(unsoftmax.SingleHead(1e13 * head.W, head.v, w0=1e9 * head.v))
    assert done.result.status.recovered
    assert (
        look_at(unsoftmax.SingleHead(1e13 * head.W, head.v, w0=1e9 * head.v)).value("family") == "single-head"
    )


def test_a_limit_on_one_side_is_told_from_two(tmp_path: Path) -> None:
    head = unsoftmax.random_single_head(5, seed=3, biases=True)
    # a network on top, or a head with a limit: one function
    result = unsoftmax.recover(lambda X: np.minimum(head(X), 4.0), width=5)
    assert result.model is not None
    far = 1e3 * np.random.default_rng(0).standard_normal((64, 3, 5))
    assert np.allclose(result.model(far), np.minimum(head(far), 4.0), rtol=1e-6)
    result.model.save(tmp_path / "head.safetensors")
    assert np.allclose(unsoftmax.load(tmp_path / "head.safetensors")(far), result.model(far))


def test_half_floats_never_overflow() -> None:
    head = unsoftmax.random_single_head(5, seed=1)
    loud = unsoftmax.SingleHead(head.W, 300.0 * head.v)
    assert (
        look_at(unsoftmax.LowPrecision(unsoftmax.as_oracle(loud), "float16")).value("family") == "single-head"
    )
