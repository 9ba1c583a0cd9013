"""Results as others use them: pickled, in notebooks, as pictures; learners by name."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import unsoftmax

TARGETS = {
    "one head": "demo:single-head?d=5&r=2",
    "several heads": "demo:multi-head?d=6&heads=2",
    "transformer": "demo:transformer?d=4&m=3",
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_result_survives_pickling(target: str) -> None:
    result = unsoftmax.recover(target)
    again = pickle.loads(pickle.dumps(result))
    assert again.status is result.status
    assert again.as_json() == result.as_json()
    assert again.claim.queries.formula == result.claim.queries.formula
    assert result.model is not None
    assert again.model.distance(result.model) == pytest.approx(0.0, abs=1e-12)
    sequences = np.random.default_rng(0).standard_normal((3, 4, result.width))
    assert np.array_equal(again.model(sequences), result.model(sequences))


def test_a_pickled_claim_keeps_its_formula_and_says_what_is_lost() -> None:
    claim = unsoftmax.theorem_4_1().claim
    again = pickle.loads(pickle.dumps(claim))
    assert claim.queries(unsoftmax.Size(4)) == 20
    with pytest.raises(unsoftmax.UsageError, match="d \\+ d\\^2"):
        again.queries(unsoftmax.Size(4))


def test_failures_survive_pickling_too() -> None:
    result = unsoftmax.recover(lambda X: X[:, 0, 0] ** 3, width=2)
    again = pickle.loads(pickle.dumps(result))
    assert (again.status, again.reason, again.model) == (result.status, result.reason, None)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_result_draws_itself(target: str) -> None:
    figure = unsoftmax.recover(target).plot()
    titles = [axes.get_title() for axes in figure.axes]
    assert "singular values of W" in titles
    assert "deviation on fresh queries" in titles


def test_tables_for_notebooks_escape_what_comes_from_a_target() -> None:
    result = unsoftmax.recover(lambda X: X[:, 0, 0] ** 3, width=2)
    assert "<b>unsoftmax.Result</b>" in result._repr_html_()
    found = unsoftmax.Check(False, "<script>", "", "", "", 0)
    assert "<script>" not in found._repr_html_()
    assert "&lt;script&gt;" in found._repr_html_()


def test_a_learner_may_be_named() -> None:
    by_name = unsoftmax.recover("demo:single-head?d=5", learner="theorem-4.1")
    assert by_name.queries.learning == 5 + 25
    assert by_name.claim.source == unsoftmax.theorem_4_1().claim.source
    with pytest.raises(unsoftmax.UsageError, match=r"choose from theorem-4\.1, theorem-4\.1-structured"):
        unsoftmax.recover("demo:single-head?d=5", learner="theorem-9.9")
