"""Vector answers that nobody told of: recovered all the same, and the first answers are on the bill."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import unsoftmax

Answers = Callable[[np.ndarray], np.ndarray]


def _counted(function: Answers) -> tuple[Answers, list[int]]:
    sent: list[int] = []

    def answer(X: np.ndarray) -> np.ndarray:
        sent.append(len(X))
        return function(X)

    return answer, sent


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("outputs", [2, 5])
def test_outputs_need_not_be_told(seed: int, outputs: int) -> None:
    hidden = unsoftmax.random_multi_head(5, 2, outputs=outputs, seed=seed)
    answer, sent = _counted(lambda X: hidden(X))
    result = unsoftmax.recover(answer, width=5, seed=seed)
    assert result.status is unsoftmax.Status.EXACT
    found = result.unwrap()
    assert isinstance(found, unsoftmax.MultiHead)
    assert hidden.distance(found) < 1e-9
    assert result.queries.total == sum(sent)
    assert result.queries.by_phase["answer shape"] == sent[0]
    assert (result.findings[0].subject, result.findings[0].queries) == ("answer shape", sent[0])


def test_rows_need_no_outputs_either() -> None:
    hidden = unsoftmax.random_multi_head(4, 2, outputs=4, seed=1)

    def every_row(X: np.ndarray) -> np.ndarray:
        return np.stack([hidden(X[:, : i + 1]) for i in range(X.shape[1])], axis=1)

    result = unsoftmax.recover(every_row, width=4, row="last")
    assert result.status is unsoftmax.Status.EXACT
    found = result.unwrap()
    assert isinstance(found, unsoftmax.MultiHead)
    assert hidden.distance(found) < 1e-9
    with pytest.raises(unsoftmax.OracleFault, match="pass row='last'"):
        unsoftmax.recover(every_row, width=4)


def test_a_ledger_goes_on_without_asking_again(tmp_path: Path) -> None:
    hidden = unsoftmax.random_multi_head(4, 2, outputs=3, seed=2)
    answer, sent = _counted(lambda X: hidden(X))
    place = tmp_path / "answers.ledger"
    stopped = unsoftmax.recover(answer, width=4, ledger=place, budget=60)
    assert stopped.status is unsoftmax.Status.BUDGET_SPENT
    whole = unsoftmax.recover(answer, width=4, ledger=place)
    assert whole.status is unsoftmax.Status.EXACT
    assert sum(sent) == whole.queries.total


def test_audit_finds_the_outputs() -> None:
    hidden = unsoftmax.random_multi_head(4, 1, outputs=3, seed=3)
    audit = unsoftmax.audit_target(lambda X: hidden(X), width=4)
    assert audit.result.status is unsoftmax.Status.EXACT
    assert "answer shape" in {finding.subject for finding in audit.findings}


def test_vectors_after_numbers_are_a_fault() -> None:
    hidden = unsoftmax.random_multi_head(4, 1, outputs=3, seed=3)
    answer, sent = _counted(lambda X: hidden(X) if len(sent) > 3 else hidden(X)[:, 0])
    with pytest.raises(unsoftmax.OracleFault, match="instead of"):
        unsoftmax.recover(answer, width=4)


def test_told_outputs_are_insisted_on() -> None:
    hidden = unsoftmax.random_multi_head(4, 1, outputs=3, seed=3)
    with pytest.raises(unsoftmax.OracleFault, match="instead of"):
        unsoftmax.recover(lambda X: hidden(X), width=4, outputs=2)
