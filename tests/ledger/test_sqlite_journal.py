"""The ledger on disk: what it refuses, what it survives, what it says."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unsoftmax
from unsoftmax.errors import LedgerFault, LedgerRefused
from unsoftmax.ledger import Entry, SqliteJournal, read_statement

BINDING = {"target": "content:1", "seed": "0", "learner": "columns"}


class Counting:
    """A target that counts what it is asked, and breaks at a given call."""

    def __init__(self, hidden: Any, break_at: int | None = None) -> None:
        self.hidden, self.break_at, self.seen, self.calls = hidden, break_at, 0, 0

    def __call__(self, batch: Any) -> Any:
        self.calls += 1
        if self.calls == self.break_at:
            raise RuntimeError("gone")
        self.seen += len(batch)
        return self.hidden(batch)


HIDDEN = unsoftmax.random_single_head(5, 2, seed=1)


def write_some(path: Path, n: int = 5) -> None:
    with SqliteJournal(path, BINDING) as journal:
        for position in range(n):
            journal.prepare(position, "values", 3, 24)
            journal.record(position, Entry("values", (3, 1, 2), np.arange(3.0) + position, (0.5, 1.0), 2))


def test_a_broken_run_goes_on_without_paying_again(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    plain = unsoftmax.recover(Counting(HIDDEN), width=5)
    seen = 0
    for break_at in (3, 20):
        target = Counting(HIDDEN, break_at)
        with pytest.raises(unsoftmax.OracleFault, match=r"gone"):
            unsoftmax.recover(target, width=5, ledger=path)
        seen += target.seen
    target = Counting(HIDDEN)
    result = unsoftmax.recover(target, width=5, ledger=path)
    assert seen + target.seen == plain.queries.total == result.queries.total
    assert result.queries.by_phase == plain.queries.by_phase
    for name, part in result.unwrap().tensors().items():
        assert part.tobytes() == plain.unwrap().tensors()[name].tobytes()
    statement = read_statement(path, price_per_thousand=4.0)
    assert statement.queries == plain.queries.total
    assert statement.cost == pytest.approx(4.0 * plain.queries.total / 1000)
    assert {phase.phase: phase.queries for phase in statement.phases} == dict(plain.queries.by_phase)
    assert statement.runs == 3


def test_the_budget_holds_across_runs(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    whole = unsoftmax.recover(HIDDEN).queries.total
    seen = 0
    for budget in (10, 10, 30, whole):
        target = Counting(HIDDEN)
        result = unsoftmax.recover(target, width=5, ledger=path, budget=budget)
        seen += target.seen
        assert seen <= budget
        assert (result.status == unsoftmax.Status.BUDGET_SPENT) == (budget < whole)
    assert seen == whole


def test_a_finished_ledger_is_no_proof_for_a_changed_target(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"

    def run(hidden: Any) -> tuple[unsoftmax.Result, int]:
        target = Counting(hidden)
        return unsoftmax.recover(target, width=5, ledger=path), target.seen

    assert run(HIDDEN)[0].status == unsoftmax.Status.EXACT
    for _ in range(2):  # one fresh query a run shows that the target is still the same
        result, seen = run(HIDDEN)
        assert (result.status, seen) == (unsoftmax.Status.EXACT, 1)
    result, seen = run(unsoftmax.random_single_head(5, 2, seed=2))
    assert (result.status, seen) == (unsoftmax.Status.OUTSIDE_CLASS, 1)
    assert "target has changed" in result.reason
    result, seen = run(HIDDEN)  # and what the other one said is not in the ledger
    assert (result.status, seen) == (unsoftmax.Status.EXACT, 1)


@pytest.mark.parametrize("kind", ["labels", "decimals", "noise", "float32"])
def test_coarse_answers_of_a_changed_target_are_no_proof_either(tmp_path: Path, kind: str) -> None:
    def target(hidden: Any) -> Any:
        plain = unsoftmax.FunctionOracle(Counting(hidden), unsoftmax.OracleSpec(width=5))
        if kind == "labels":
            return unsoftmax.Labels(plain)
        if kind == "decimals":
            return unsoftmax.Rounded(plain, 2)
        return unsoftmax.Noisy(plain, 1e-6) if kind == "noise" else unsoftmax.LowPrecision(plain, "float32")

    options: dict[str, Any] = {"ledger": tmp_path / "run.ledger", "input_bound": 100.0}
    first = unsoftmax.recover(target(HIDDEN), **options)
    assert first.status is unsoftmax.Status.WITHIN_BOUND
    again = unsoftmax.recover(target(HIDDEN), **options)
    assert again.status is unsoftmax.Status.WITHIN_BOUND
    assert 1 <= again.queries.total - first.queries.total <= 16
    assert (
        unsoftmax.recover(target(unsoftmax.random_single_head(5, 2, seed=2)), **options).status
        is unsoftmax.Status.OUTSIDE_CLASS
    )


def test_a_finished_ledger_of_a_model_file_costs_nothing(tmp_path: Path) -> None:
    first = unsoftmax.recover("demo:single-head?d=5", ledger=tmp_path / "run.ledger")
    again = unsoftmax.recover("demo:single-head?d=5", ledger=tmp_path / "run.ledger")
    assert first.queries == again.queries
    assert again.status == unsoftmax.Status.EXACT


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"seed": 1}, "seed"),
        ({"target": "demo:single-head?d=5&seed=9"}, "target"),
        ({"learner": unsoftmax.theorem_4_1()}, "learner"),
        ({"input_bound": 1e6}, "input_bound"),
    ],
)
def test_another_run_is_refused_with_the_reason(tmp_path: Path, change: dict[str, Any], word: str) -> None:
    options: dict[str, Any] = {"target": "demo:single-head?d=5", "ledger": tmp_path / "run.ledger"}
    unsoftmax.recover(**options, budget=20)
    with pytest.raises(LedgerRefused, match=f"belongs to another {word}"):
        unsoftmax.recover(**(options | change))


def test_a_wrapped_target_is_another_target(tmp_path: Path) -> None:
    oracle = unsoftmax.as_oracle(HIDDEN)
    unsoftmax.recover(oracle, ledger=tmp_path / "run.ledger", budget=20)
    with pytest.raises(LedgerRefused, match=r"another target"):
        unsoftmax.recover(unsoftmax.Rounded(oracle, 3), ledger=tmp_path / "run.ledger", budget=20)


def test_a_second_process_is_refused_and_a_reader_is_not(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    code = f"from unsoftmax.ledger import SqliteJournal; SqliteJournal({str(path)!r}, {BINDING!r})"
    with SqliteJournal(path, BINDING) as journal:
        journal.prepare(0, "values", 1, 8)
        journal.record(0, Entry("values", (1, 1, 2), np.ones(1)))
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert other.returncode != 0
        assert "in use by another run" in other.stderr
        with pytest.raises(LedgerRefused, match=r"in use"):
            SqliteJournal(path, BINDING)
        assert read_statement(path).queries == 1
    subprocess.run([sys.executable, "-c", code], check=True)


def test_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    write_some(path)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(LedgerRefused, match=r"format version 2"):
        SqliteJournal(path, BINDING)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE batches SET answers = zeroblob(24) WHERE position = 2",
        "UPDATE batches SET answers = zeroblob(16) WHERE position = 2",
        "UPDATE batches SET phase = 'scores' WHERE position = 0",
        "UPDATE batches SET n = 'many' WHERE position = 3",
        "DELETE FROM batches WHERE position = 1",
        "UPDATE binding SET value = '5' WHERE name = 'note'",
    ],
)
def test_changed_entries_are_found(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "run.ledger"
    bound = BINDING | {"note": "4"}
    with SqliteJournal(path, bound) as journal:
        for position in range(5):
            journal.prepare(position, "values", 3, 24)
            journal.record(position, Entry("values", (3, 1, 2), np.arange(3.0)))
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()
    with pytest.raises(LedgerRefused, match=r"damaged|another note"):
        SqliteJournal(path, bound)
    with pytest.raises(LedgerRefused, match=r"damaged"):
        read_statement(path)


def test_flipped_bytes_are_found_or_harmless(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    write_some(path, 40)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    found = 0
    for place in rng.integers(0, len(whole), 60):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        try:
            with SqliteJournal(path, BINDING) as journal:
                for position in range(len(journal)):
                    entry = journal.recall(position)
                    assert entry is not None
                    np.testing.assert_array_equal(entry.answers, np.arange(3.0) + position)
        except LedgerRefused:
            found += 1
    assert found > 10  # the others hit unused room


def test_a_torn_log_leaves_a_prefix(tmp_path: Path) -> None:
    source, copy = tmp_path / "run.ledger", tmp_path / "copy.ledger"
    lengths = set()
    with SqliteJournal(source, BINDING) as journal:
        for position in range(6):
            journal.prepare(position, "values", 3, 24)
            journal.record(position, Entry("values", (3, 1, 2), np.arange(3.0) + position))
        database, log = source.read_bytes(), Path(f"{source}-wal").read_bytes()
    for size in range(0, len(log), 1500):
        copy.write_bytes(database)
        Path(f"{copy}-wal").write_bytes(log[:size])
        with SqliteJournal(copy, BINDING) as journal:
            lengths.add(len(journal))
            for position in range(len(journal)):
                entry = journal.recall(position)
                assert entry is not None
                np.testing.assert_array_equal(entry.answers, np.arange(3.0) + position)
        Path(f"{copy}-wal").unlink(missing_ok=True)
        copy.unlink()
    assert lengths >= set(range(6))


@pytest.mark.parametrize("content", [b"no database at all, just text" * 9, b"\x80\x04\x95pickle" * 200])
def test_foreign_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.ledger"
    path.write_bytes(content)
    with pytest.raises(LedgerRefused, match=r"not a readable ledger|damaged"):
        SqliteJournal(path, BINDING)
    assert path.read_bytes() == content


def test_foreign_databases_folders_and_absent_places_are_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    with pytest.raises(LedgerRefused, match=r"no ledger of this library"):
        SqliteJournal(tmp_path / "other.db", BINDING)
    with pytest.raises(LedgerRefused, match=r"is a folder"):
        SqliteJournal(tmp_path, BINDING)
    with pytest.raises(LedgerRefused, match=r"no folder"):
        SqliteJournal(tmp_path / "absent" / "run.ledger", BINDING)
    with pytest.raises(LedgerRefused, match=r"there is no ledger"):
        read_statement(tmp_path / "absent.ledger")


def test_a_full_disk_stops_before_the_next_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.ledger"
    target = Counting(HIDDEN)
    unsoftmax.recover(target, width=5, ledger=path, budget=10)
    seen = target.seen

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(LedgerFault, match=r"No space left.*run again with the same ledger"):
        unsoftmax.recover(target, width=5, ledger=path)
    assert target.seen == seen
    monkeypatch.undo()
    assert unsoftmax.recover(target, width=5, ledger=path).status == unsoftmax.Status.EXACT
    assert target.seen == unsoftmax.recover(HIDDEN).queries.total


def test_answers_that_do_not_fit_use_the_room_set_aside(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "run.ledger", BINDING) as journal:
        journal.prepare(0, "values", 4000, 32000)
        pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
        journal._db.execute(f"PRAGMA max_page_count = {pages}")
        release = journal._reserve.release

        def freed() -> None:
            release()
            journal._db.execute("PRAGMA max_page_count = 100000")

        journal._reserve.release = freed  # type: ignore[method-assign]
        journal.record(0, Entry("values", (4000, 1, 2), np.arange(4000.0)))
        entry = journal.recall(0)
        assert entry is not None
        np.testing.assert_array_equal(entry.answers, np.arange(4000.0))


def test_a_file_size_limit_ends_resumable(tmp_path: Path) -> None:
    """The system's own refusal to write, at every point of the run that it can hit."""
    path = tmp_path / "run.ledger"
    code = textwrap.dedent(f"""
        import unsoftmax
        try:
            unsoftmax.recover("demo:single-head?d=40&r=20", ledger={str(path)!r})
        except unsoftmax.OracleFault as error:
            print(type(error).__name__, error)
    """)

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))

    limited = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=limit, check=True
    )
    assert limited.stdout.startswith("LedgerFault")
    assert "run again with the same ledger" in limited.stdout
    kept = read_statement(path).queries
    assert kept > 0
    result = unsoftmax.recover("demo:single-head?d=40&r=20", ledger=path)
    assert result.status == unsoftmax.Status.EXACT
    assert result.queries.total == read_statement(path).queries > kept


def test_an_interrupt_leaves_a_ledger_to_go_on_with(tmp_path: Path) -> None:
    def interrupted(batch: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        unsoftmax.recover(interrupted, width=5, ledger=tmp_path / "run.ledger")
    with SqliteJournal(tmp_path / "again.ledger", BINDING):
        pass
    assert read_statement(tmp_path / "run.ledger").queries == 0
    assert read_statement(tmp_path / "run.ledger").lost > 0


def test_last_bits_of_queries_are_forgiven_and_other_queries_are_not(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    oracle = unsoftmax.as_oracle(HIDDEN)
    batch = np.random.default_rng(0).standard_normal((4, 2, 5))
    with SqliteJournal(path, BINDING) as journal:
        answers = unsoftmax.Ledger(oracle, journal=journal).ask(batch)
    with SqliteJournal(path, BINDING) as journal:
        np.testing.assert_array_equal(
            unsoftmax.Ledger(oracle, journal=journal).ask(batch * (1 + 1e-15)), answers
        )
        with pytest.raises(LedgerRefused, match=r"other queries"):
            unsoftmax.Ledger(oracle, journal=journal).ask(batch * 1.01)
        with pytest.raises(LedgerRefused, match=r"this run asks"):
            unsoftmax.Ledger(oracle, journal=journal).ask(batch[:2])


def test_vector_answers_are_kept_as_vectors(tmp_path: Path) -> None:
    vectors = unsoftmax.SingleHead(np.eye(3), np.arange(6.0).reshape(3, 2))
    batch = np.random.default_rng(0).standard_normal((4, 2, 3))
    for _ in range(2):
        with SqliteJournal(tmp_path / "run.ledger", BINDING) as journal:
            np.testing.assert_array_equal(
                unsoftmax.Ledger(unsoftmax.as_oracle(vectors), journal=journal).ask(batch), vectors(batch)
            )


def test_reading_a_ledger_leaves_nothing_beside_it(tmp_path: Path) -> None:
    place = tmp_path / "run.ledger"
    unsoftmax.recover("demo:single-head?d=4", ledger=place)
    before = sorted(each.name for each in tmp_path.iterdir())
    read_statement(place)
    assert sorted(each.name for each in tmp_path.iterdir()) == before
