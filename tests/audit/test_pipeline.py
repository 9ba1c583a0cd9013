"""Identify, plan, learn, certify: one ledger, honest findings, nothing spent unasked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import unsoftmax
from tests.cases.answers import ANSWERS
from tests.cases.outside import BOXES
from tests.learners.computed.float_layers import random_layer
from unsoftmax.audit.defences.wrappers import LimitedLength
from unsoftmax.audit.facts import facts_of
from unsoftmax.audit.planning import AuditPlan
from unsoftmax.audit.report import render
from unsoftmax.ledger import read_statement
from unsoftmax.oracles import Oracle
from unsoftmax.oracles.torch_module import TorchOracle

WRAPPERS: dict[str, tuple[Callable[[Oracle], Oracle], str]] = {
    "exact": (lambda o: o, "deterministic"),
    "rounded to 2 decimals": (lambda o: unsoftmax.Rounded(o, 2), "deterministic"),
    "tolerance": (lambda o: unsoftmax.WithinTolerance(o, 1e-3), "deterministic"),
    "noise": (lambda o: unsoftmax.Noisy(o, 1e-2), "random"),
    "float32": (lambda o: unsoftmax.LowPrecision(o, "float32"), "deterministic"),
    "float16": (lambda o: unsoftmax.LowPrecision(o, "float16"), "deterministic"),
    "labels": (lambda o: unsoftmax.Labels(o), "deterministic"),
    "clipped": (lambda o: unsoftmax.Clipped(o, 20.0), "deterministic"),
}


def findings(done: unsoftmax.Audit) -> dict[str, str]:
    return {finding.subject: finding.value for finding in done.findings}


@pytest.mark.parametrize("answers", WRAPPERS)
def test_findings_of_one_head_behind_every_answer_model(answers: str) -> None:
    wrap, repeatability = WRAPPERS[answers]
    done = unsoftmax.audit_target(
        wrap(unsoftmax.as_oracle(unsoftmax.random_single_head(6, 3, seed=4))), seed=1
    )
    found = findings(done)
    assert found["answers"] == answers
    assert found["repeatability"] == repeatability
    assert found["order of rows"] == "does not matter"
    assert done.result.status.recovered
    assert (found["family"], found["rank"], found["query bias"]) == ("single-head", "3", "none")


@pytest.mark.parametrize(
    ("target", "family", "bias"),
    [
        ("demo:single-head?d=6&biases=1&seed=2", "single-head", "present"),
        ("demo:multi-head?d=8&heads=2&seed=1", "multi-head", "none"),
        ("demo:multi-head?d=8&heads=3&seed=1&biases=1", "multi-head", "present"),
        ("demo:transformer?d=6&m=7&seed=3", "transformer", "none"),
    ],
)
def test_families_are_named_and_recovered(target: str, family: str, bias: str) -> None:
    done = unsoftmax.audit_target(target)
    found = findings(done)
    assert done.result.status is unsoftmax.Status.EXACT
    assert (found["family"], found["query bias"]) == (family, bias)
    assert done.plan is not None
    assert done.plan.family == family
    assert done.curve.queries[-1] == done.result.queries.learning
    assert done.curve.error[0] > 0.5
    assert done.curve.error[-1] < 1e-3 or family == "transformer"


def test_every_finding_states_its_price_and_the_first_look_adds_up() -> None:
    done = unsoftmax.audit_target("demo:single-head?d=8&biases=1")
    first = (
        "width",
        "answers",
        "repeatability",
        "constant",
        "order of rows",
        "copies of a row",
        "single rows",
    )
    priced = sum(finding.queries for finding in done.findings if finding.subject in first)
    assert priced <= done.result.queries.by_phase["identify"] <= priced + 60
    assert done.result.queries.by_phase["identify"] <= 160
    assert all(finding.evidence for finding in done.findings)


@pytest.mark.parametrize("name", ["positional_term", "tanh_on_top"])
def test_boxes_outside_are_never_recovered_and_say_none(name: str) -> None:
    done = unsoftmax.audit_target(BOXES[name](5, 0), width=5)
    assert done.result.model is None
    assert findings(done)["family"] == "none"
    assert not done.curve.queries


@pytest.mark.parametrize("seed", range(3))
def test_answers_with_errors_never_make_several_heads_one(seed: int) -> None:
    layer = unsoftmax.random_multi_head(6, 2, seed=seed)
    done = unsoftmax.audit_target(unsoftmax.Rounded(unsoftmax.as_oracle(layer), 3), seed=seed)
    assert done.result.model is None
    assert done.result.status is unsoftmax.Status.UNRESOLVED
    assert findings(done)["family"] == "multi-head"
    assert set(done.result.queries.by_phase) == {
        "identify"
    }  # nothing is spent on what no learner is there for
    head = unsoftmax.random_single_head(6, seed=seed)
    done = unsoftmax.audit_target(unsoftmax.Rounded(unsoftmax.as_oracle(head), 3), seed=seed)
    assert findings(done)["family"] == "single-head"


def test_order_and_positions_are_seen() -> None:
    def placed(X: np.ndarray) -> np.ndarray:
        return np.asarray(X[:, :, 0] @ (1.0 + np.arange(X.shape[1])))

    found = findings(unsoftmax.audit_target(placed, width=4))
    assert found["order of rows"] == "matters"
    assert found["copies of a row"] == "count"


def test_a_stopped_audit_goes_on_and_pays_nothing_twice(tmp_path: Path) -> None:
    target, ledger = "demo:single-head?d=8&seed=3", tmp_path / "audit.ledger"
    whole = unsoftmax.audit_target(target, seed=5)
    stopped = unsoftmax.audit_target(target, seed=5, ledger=ledger, budget=whole.result.queries.total // 2)
    assert stopped.result.status is unsoftmax.Status.BUDGET_SPENT
    assert stopped.findings
    again = unsoftmax.audit_target(target, seed=5, ledger=ledger)
    assert again.result.queries == whole.result.queries
    assert read_statement(ledger).queries == whole.result.queries.total
    third = unsoftmax.audit_target(target, seed=5, ledger=ledger)
    assert third.ledger_digest == again.ledger_digest
    assert third.plan is not None
    assert third.plan.seconds_per_query is None  # nothing was asked, so no rate was measured
    assert again.result.model is not None
    assert third.result.model is not None
    assert again.result.model.distance(third.result.model) == 0.0


def test_nothing_is_spent_over_the_limit_without_confirmation(tmp_path: Path) -> None:
    asked: list[str] = []
    plans: list[AuditPlan] = []

    def refuse(text: str) -> bool:
        asked.append(text)
        return False

    ledger = tmp_path / "audit.ledger"
    done = unsoftmax.audit_target(
        "demo:single-head?d=16",
        ledger=ledger,
        confirm_above=300,
        confirm=refuse,
        on_plan=plans.append,
        price_per_thousand=5.0,
    )
    assert done.result.status is unsoftmax.Status.BUDGET_SPENT
    assert done.result.queries.total == plans[0].paid <= 300
    assert len(asked) == 1
    assert "for " in asked[0]
    done = unsoftmax.audit_target(
        "demo:single-head?d=16",
        ledger=ledger,
        confirm_above=300,
        confirm=lambda text: True,
        price_per_thousand=5.0,
    )
    assert done.result.status is unsoftmax.Status.EXACT
    assert done.cost == pytest.approx(5.0 * done.result.queries.total / 1000)
    assert done.result.queries.total <= plans[0].paid + plans[0].at_most


def test_more_heads_than_planned_are_asked_for_too() -> None:
    asked: list[str] = []

    def agree(text: str) -> bool:
        asked.append(text)
        return True

    target = "demo:multi-head?d=8&heads=4&seed=1"
    whole = unsoftmax.audit_target(target).result.queries.total
    done = unsoftmax.audit_target(target, confirm_above=whole - 1, confirm=agree)
    assert done.result.status is unsoftmax.Status.EXACT
    assert done.result.queries.total == whole
    assert len(asked) == 1


def test_a_first_look_that_the_budget_stops_keeps_what_it_has_found() -> None:
    done = unsoftmax.audit_target("demo:single-head?d=8&r=3", budget=100)
    assert done.result.status is unsoftmax.Status.BUDGET_SPENT
    assert findings(done)["answers"] == "exact"
    assert "Nothing was asked" not in render(done)


@pytest.mark.parametrize("tolerance", [-1.0, float("nan"), float("inf")])
def test_a_tolerance_that_is_none_is_refused(tolerance: float) -> None:
    with pytest.raises(unsoftmax.UsageError, match="tolerance"):
        unsoftmax.audit_target("demo:single-head?d=4", tolerance=tolerance)


def test_the_verdict_names_the_arithmetic_that_hides_the_rest() -> None:
    layer = random_layer(8, 1, 0)
    done = unsoftmax.audit_target(TorchOracle(layer, readout=np.ones(8)))
    words = facts_of(done)["verdict"]
    assert words.startswith("It leaks: all")
    assert "it computes in float32, whose rounding hides the rest" in words


@pytest.mark.parametrize(("bias", "seen"), [(0.0, "none"), (0.3, "present")])
def test_a_query_bias_that_is_only_rounding_is_none(bias: float, seen: str) -> None:
    """Float32 layers are fitted with a query bias, which comes out as small as the error bound."""
    done = unsoftmax.audit_target(TorchOracle(random_layer(4, 1, 0, bias=bias), readout=np.ones(4)))
    assert done.result.status is unsoftmax.Status.WITHIN_BOUND
    assert findings(done)["query bias"] == seen


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("answers", ["exact", "rounded to 2 decimals", "labels"])
def test_no_sequence_is_longer_than_the_target_takes(rows: int, answers: str) -> None:
    oracle = LimitedLength(
        WRAPPERS[answers][0](unsoftmax.as_oracle(unsoftmax.random_single_head(4, seed=0))), rows
    )
    done = unsoftmax.audit_target(oracle)
    if (rows, answers) == (1, "exact"):  # x·v is a network without neurons, and has neither heads nor a rank
        assert done.result.status is unsoftmax.Status.EXACT
        assert {"rank", "query bias"}.isdisjoint(findings(done))
        assert "rank" not in facts_of(done)["verdict"]
    else:
        assert done.result.status is unsoftmax.Status.UNRESOLVED
        assert f"takes at most {rows}" in done.result.reason


def test_a_command_that_was_wrong_leaves_no_ledger_in_the_way(tmp_path: Path) -> None:
    head, place = unsoftmax.random_single_head(4, seed=0), tmp_path / "audit.ledger"
    with pytest.raises(unsoftmax.UsageError, match="width"):
        unsoftmax.audit_target(lambda X: head(X), ledger=place)
    assert not place.exists()


def test_wrong_use_is_refused_before_the_first_query() -> None:
    with pytest.raises(unsoftmax.UsageError, match="no audit of this width"):
        unsoftmax.audit_target("demo:single-head?d=64", confirm_above=10)
    with pytest.raises(unsoftmax.UsageError, match="price"):
        unsoftmax.audit_target("demo:single-head?d=4", price_per_thousand=-1.0)
    with pytest.raises(unsoftmax.UsageError, match="confirm_above"):
        unsoftmax.audit_target("demo:single-head?d=4", confirm_above=-1)


def test_the_user_may_override() -> None:
    done = unsoftmax.audit_target("demo:single-head?d=6", tolerance=0.0, family="single-head")
    assert done.result.status is unsoftmax.Status.EXACT
    assert "told by the user" in next(
        finding.evidence for finding in done.findings if finding.subject == "answers"
    )
    vectors = unsoftmax.audit_target("demo:multi-head?d=8&heads=2&outputs=4&seed=1")
    assert findings(vectors)["answers"] == "vectors of 4 numbers"
    assert vectors.result.status.recovered


@pytest.mark.parametrize("answers", ["exact", "noise", "clipped", "tolerance", "float32", "labels"])
def test_recover_and_audit_end_alike(answers: str) -> None:
    """An audit asks as recover does, and tells more: the same model to the last bit, whatever its luck."""
    for seed in range(2):
        head = unsoftmax.random_single_head(5, seed=seed, biases=bool(seed))
        found = unsoftmax.recover(ANSWERS[answers](unsoftmax.as_oracle(head), seed), seed=seed)
        done = unsoftmax.audit_target(ANSWERS[answers](unsoftmax.as_oracle(head), seed), seed=seed)
        assert (found.status, found.family) == (done.result.status, done.result.family)
        assert (found.model is None) == (done.result.model is None)
        if answers != "noise" and found.model is not None and done.result.model is not None:
            # of noise the first look draws some
            for name, part in found.model.tensors().items():
                assert np.array_equal(part, done.result.model.tensors()[name])


def test_a_limit_far_out_is_seen_by_both() -> None:
    head = unsoftmax.random_single_head(6, seed=4)
    box = unsoftmax.Clipped(unsoftmax.as_oracle(head), 100.0)
    found, done = unsoftmax.recover(box), unsoftmax.audit_target(box)
    for result in (found, done.result):
        assert isinstance(result.model, unsoftmax.SingleHead)
        assert result.model.clip == (-100.0, 100.0)


def test_an_audit_reads_one_row_of_a_target_that_answers_all() -> None:
    torch.manual_seed(1)
    layer = torch.nn.MultiheadAttention(6, 2, batch_first=True, dtype=torch.float64)

    def every_row(X: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(X)
        return np.asarray(layer(x, x, x, need_weights=False)[0].detach().numpy())

    whole = unsoftmax.audit_target(every_row, width=6, row="last", outputs=6)
    one = unsoftmax.audit_target(every_row, width=6, row="last", readout=np.arange(1.0, 7.0))
    for done in (whole, one):
        assert done.result.status is unsoftmax.Status.EXACT
        assert done.result.unwrap().ranks == [3, 3]
        assert done.options["row"] == "last"
