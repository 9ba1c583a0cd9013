"""What may be sent to a target, and that the ledger sends nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unsoftmax.errors import LedgerRefused, OracleFault, UsageError
from unsoftmax.ledger import Ledger, SqliteJournal
from unsoftmax.oracles import Ball, FiniteRows, FunctionOracle, OracleSpec, Space, TokenIds, domain_of


def token_ledger(vocabulary: int, **options: Any) -> tuple[Ledger, list[np.ndarray[Any, Any]]]:
    seen: list[np.ndarray[Any, Any]] = []

    def answer(ids: Any) -> Any:
        seen.append(ids)
        return ids.sum(axis=1)

    return Ledger(FunctionOracle(answer, OracleSpec(domain=TokenIds(vocabulary))), **options), seen


def test_a_target_of_ids_receives_int64_and_is_billed_by_sequence() -> None:
    ledger, seen = token_ledger(7)
    answers = ledger.ask(np.array([[1, 2, 6], [0, 0, 0]], dtype=np.int32))
    assert answers.tolist() == [9.0, 0.0]
    assert (seen[0].dtype, ledger.width, ledger.bill.total) == (np.int64, 7, 2)


@pytest.mark.parametrize(
    "batch", [[[0, 7]], [[-1, 0]], [[0.5, 1.0]], [0, 1], [[[0.0, 1.0]]], np.zeros((2, 0), int)]
)
def test_nothing_but_ids_of_the_vocabulary_is_sent(batch: object) -> None:
    ledger, seen = token_ledger(7)
    with pytest.raises(UsageError):
        ledger.ask(batch)  # type: ignore[arg-type]
    assert seen == []
    assert ledger.bill.total == 0


@pytest.mark.parametrize("vocabulary", [0, -3, 2.5, True, None])
def test_a_vocabulary_is_a_positive_whole_number(vocabulary: Any) -> None:
    with pytest.raises(UsageError, match="vocabulary must be"):
        TokenIds(vocabulary)


def test_ids_replay_and_one_changed_id_is_refused(tmp_path: Path) -> None:
    """A changed id in a long batch is far below the forgiveness that batches of floats get."""
    ids = np.random.default_rng(0).integers(0, 30_000, (2000, 64))
    binding = {"target": "sum", "seed": "0"}
    with SqliteJournal(tmp_path / "run.ledger", binding) as journal:
        first = token_ledger(30_000, journal=journal)[0].ask(ids)  # type: ignore[arg-type]
    with SqliteJournal(tmp_path / "run.ledger", binding) as journal:
        ledger, seen = token_ledger(30_000, journal=journal)
        assert np.array_equal(ledger.ask(ids), first)  # type: ignore[arg-type]
        assert seen == []
    ids[1000, 30] += 1
    with SqliteJournal(tmp_path / "run.ledger", binding) as journal, pytest.raises(LedgerRefused):
        token_ledger(30_000, journal=journal)[0].ask(ids)  # type: ignore[arg-type]


def test_a_target_that_changes_the_ids_is_a_fault() -> None:
    def spoil(ids: Any) -> Any:
        ids += 1
        return ids.sum(axis=1)

    ledger = Ledger(FunctionOracle(spoil, OracleSpec(domain=TokenIds(9))))
    with pytest.raises(OracleFault, match="wrote into the batch"):
        ledger.ask(np.zeros((3, 2), int))


def test_finite_rows_know_their_places_and_refuse_others() -> None:
    table = np.random.default_rng(1).standard_normal((5, 3))
    table[2] = 0.0
    domain = FiniteRows.of(table)
    ids = np.array([[4, 0, 2], [2, 1, 3]])
    assert np.array_equal(domain.ids(table[ids]), ids)
    assert np.array_equal(domain.ids(-0.0 * table[ids[:, 2:]]), [[2], [2]])
    ledger = Ledger(FunctionOracle(lambda X: X[:, -1, 0], OracleSpec(domain=domain)))
    assert np.array_equal(ledger.ask(table[ids]), table[ids[:, -1], 0])
    with pytest.raises(UsageError, match="row 4 of the batch is none of the 5 rows"):
        domain.checked(np.concatenate([table[ids], table[ids] + 1e-12])[[0, 3]][:, 1:, :].repeat(2, axis=1))


def test_the_domain_of_rows_follows_width_and_the_tighter_bound() -> None:
    assert domain_of(OracleSpec(), width=3) == Space(3)
    assert domain_of(OracleSpec(width=3, input_bound=5.0), input_bound=2.0) == Ball(3, 2.0)
    with pytest.raises(UsageError, match="pass width=3"):
        domain_of(OracleSpec(width=3), width=4)
    with pytest.raises(UsageError, match="leave it out"):
        domain_of(OracleSpec(domain=TokenIds(4)), input_bound=1.0)
