"""Defences: the known facts about one head, honest prices, and advice that follows from the figures."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from unsoftmax.audit.defences.table import DefenceRow, Defences
from unsoftmax.audit.defences.wrappers import Defence

HEAD = unsoftmax.random_single_head(16, seed=0)


@pytest.fixture(scope="module")
def table() -> dict[str, DefenceRow]:
    chosen = [
        "",
        "decimals=2",
        "tolerance=0.01+input-bound=8",
        "decimals=2+budget=700+input-bound=8",
        "labels",
        "budget=130",
        "precision=float32",
    ]
    rows = unsoftmax.defend(HEAD, defences=chosen).rows
    return dict(zip(chosen, rows, strict=True))


def test_rounding_alone_does_not_protect_but_a_norm_bound_costs_the_attacker(
    table: dict[str, DefenceRow],
) -> None:
    alone, bounded = table["decimals=2"], table["tolerance=0.01+input-bound=8"]
    assert alone.parameter_error is not None
    assert alone.parameter_error < 1e-9
    assert alone.queries < 4 * HEAD.parameters
    assert bounded.parameter_error is not None
    assert 1e-5 < bounded.parameter_error < 1e-1
    assert table["decimals=2+budget=700+input-bound=8"].status != "EXACT"


def test_labels_cost_about_a_query_a_bit_and_still_leak(table: dict[str, DefenceRow]) -> None:
    plain, labels = table[""], table["labels"]
    assert labels.parameter_error is not None
    assert labels.parameter_error < 1e-9
    assert labels.functional_error is not None
    assert labels.functional_error < 1e-9
    assert 30 * HEAD.parameters < labels.queries < 80 * HEAD.parameters
    assert plain.queries < 3 * HEAD.parameters
    assert labels.distortion > 0.3


def test_a_budget_below_the_parameters_stops_it(table: dict[str, DefenceRow]) -> None:
    row = table["budget=130"]
    assert (row.status, row.parameter_error, row.queries <= 130) == ("BUDGET_SPENT", None, True)
    assert row.distortion == row.refused == 0.0


def test_processes_give_the_same_table() -> None:
    small = unsoftmax.random_single_head(5, seed=1)
    chosen = ["decimals=3", "precision=float16"]
    seen: list[tuple[int, int]] = []
    one = unsoftmax.defend(
        small, defences=chosen, progress=lambda done, whole, label: seen.append((done, whole))
    )
    two = unsoftmax.defend(small, defences=chosen, workers=2)
    assert [(row.label, row.queries, row.parameter_error) for row in one.rows] == [
        (row.label, row.queries, row.parameter_error) for row in two.rows
    ]
    assert seen == [(1, 2), (2, 2)]


def test_given_sequences_price_the_users() -> None:
    honest = np.full((4, 3, 5), 2.0)
    row = unsoftmax.defend("demo:single-head?d=5", defences=["input-bound=3"], sequences=honest).rows[0]
    assert row.refused == 1.0
    row = unsoftmax.defend("demo:single-head?d=5", defences=["max-length=2"], sequences=honest).rows[0]
    assert row.refused == 1.0


def made(
    label: str, kind: str, leak: float | None, distortion: float, *, attacked: bool = True
) -> DefenceRow:
    return DefenceRow(
        label, ((kind, 1.0),), "EXACT", "", 100, leak, leak, leak, distortion, 0.0, 0.0, attacked
    )


def test_advice_follows_from_the_figures() -> None:
    weak, good, harsh = (
        made("weak", "decimals", 1e-9, 1e-3),
        made("good", "tolerance", 0.01, 5e-3),
        made("harsh", "noise", None, 0.5),
    )
    budget = made("budget", "budget", None, 0.0)
    untested = made("untested", "precision", None, 1e-9, attacked=False)
    advice = Defences((weak, good, harsh, budget, untested), 50, "", False, 0).advice
    assert advice.startswith(
        "No change of answers or inputs that keeps honest answers within 1% stopped this attack. "
        "The strongest is 'good': it moves honest answers by 0.5%, and leaves"
    )
    assert "'harsh' stops it" in advice
    assert "untested" not in advice
    assert Defences((weak, made("kind", "noise", None, 1e-3)), 50, "", False, 0).advice.startswith(
        "Use 'kind'"
    )
    assert "could be tested" in Defences((untested,), 50, "", False, 0).advice
    assert (
        "kept anything"
        in Defences((made("vain", "max-length", 1e-13, 0.0), untested), 50, "", False, 0).advice
    )


def test_biases_behind_short_floats_that_this_library_cannot_read_are_no_advice() -> None:
    rng = np.random.default_rng(5)
    head = unsoftmax.SingleHead(
        rng.standard_normal((4, 4)) / 2, rng.standard_normal(4), w0=rng.standard_normal(4), c=0.7
    )
    chosen = ["precision=float32+input-bound=4.2", "labels+input-bound=4.2", "decimals=2+input-bound=4.2"]
    table = unsoftmax.defend(head, defences=chosen)
    assert [row.attacked for row in table.rows] == [False, False, True]
    assert "float32" not in table.advice


@pytest.mark.parametrize(
    "text",
    ["decimals=nan", "decimals=2.7", "max-length=inf", "budget=inf", "tolerance=nan", "input-bound=two"],
)
def test_numbers_that_are_none_are_refused_before_anything_runs(text: str) -> None:
    with pytest.raises(unsoftmax.UsageError, match="number"):
        unsoftmax.defend("demo:single-head?d=4", defences=[text])


def test_exponents_may_have_a_sign() -> None:
    both = Defence.parse("input-bound=3e+07 + decimals=2")
    assert both == Defence((("input-bound", 3e7), ("decimals", 2.0)))
    assert Defence.parse("tolerance=1e-3").parts == (("tolerance", 1e-3),)


def test_two_rows_at_most_are_not_attacked_here_and_no_advice() -> None:
    table = unsoftmax.defend("demo:single-head?d=4", defences=["max-length=2"])
    assert not table.rows[0].attacked
    assert "could be tested" in table.advice


def test_what_nobody_attacked_is_no_evidence() -> None:
    rows = unsoftmax.defend("demo:multi-head?d=6&heads=2&seed=1", defences=["", "decimals=2"]).rows
    assert [row.attacked for row in rows] == [True, False]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cipher=2", "no defence 'cipher'"),
        ("decimals=x", "needs a whole number"),
        ("input-bound=-1", "bound"),
        ("precision=float8", "float8"),
    ],
)
def test_wrong_defences_are_refused(text: str, words: str) -> None:
    with pytest.raises(unsoftmax.UsageError, match=words):
        unsoftmax.defend("demo:single-head?d=4", defences=[text])


def test_wrong_use_is_refused() -> None:
    with pytest.raises(unsoftmax.UsageError, match="recover it first"):
        unsoftmax.defend("somewhere:else")
    with pytest.raises(unsoftmax.UsageError, match="workers"):
        unsoftmax.defend("demo:single-head?d=4", workers=0)
    with pytest.raises(unsoftmax.UsageError, match=r"\(B, N, 4\)"):
        unsoftmax.defend("demo:single-head?d=4", sequences=np.zeros((2, 3)))
