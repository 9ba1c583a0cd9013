"""What can happen to the files of a ledger, before and during a run: each is told in one sentence."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unsoftmax
from unsoftmax import Ledger, Status
from unsoftmax.answers.identify import identify
from unsoftmax.arrays import Array
from unsoftmax.errors import LedgerFault, LedgerRefused, NonFiniteAnswers
from unsoftmax.ledger import Entry, SqliteJournal, read_statement
from unsoftmax.ledger.presence import Presence

pytestmark = pytest.mark.usefixtures("limited_in_time")
BINDING = {"target": "content:1", "seed": "0"}
HIDDEN = unsoftmax.random_single_head(5, 2, seed=1, biases=True)


def write_some(path: Path) -> None:
    with SqliteJournal(path, BINDING) as journal:
        journal.prepare(0, "values", 3, 24)
        journal.record(0, Entry("values", (3, 1, 2), np.arange(3.0)))


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a folder that nobody can write")
def test_a_folder_that_cannot_be_written_is_told() -> None:
    with pytest.raises(
        LedgerRefused, match=r"the folder /proc/self cannot be written .*choose another place"
    ):
        SqliteJournal("/proc/self/run.ledger", BINDING)


def test_a_ledger_that_another_program_has_open_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.ledger"
    write_some(path)
    plain = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: plain(*a, **(k | {"timeout": 0.01})))
    with closing(plain(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerFault, match="close the other program that has it open"):
            SqliteJournal(path, BINDING)


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_user_without_rights_is_told(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "place" / "run.ledger"
    path.parent.mkdir()
    write_some(path)
    for parent in (tmp_path, *tmp_path.parents):
        if not os.access(parent, os.X_OK) or parent.stat().st_mode & 0o001 == 0:
            parent.chmod(0o755)
    (path.parent if kind == "folder" else path).chmod(0o555 if kind == "folder" else 0o444)
    if kind == "file":
        path.parent.chmod(0o777)
        path.with_name("run.ledger-lock").chmod(0o666)
    code = (
        "import os; from unsoftmax.ledger import SqliteJournal\n"
        "if os.getuid() == 0: os.setuid(65534)\n"  # rights are not checked for the first user
        f"SqliteJournal({str(path)!r}, {BINDING!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "LedgerRefused" in done.stderr.splitlines()[-1]
    assert "cannot be written" in done.stderr.splitlines()[-1]
    (path.parent if kind == "folder" else path).chmod(0o755)


@pytest.mark.parametrize("content", [b"", b"somebody else's lock\n" * 50, b"\x00" * 5000])
def test_a_foreign_lock_is_told_and_left_alone(tmp_path: Path, content: bytes) -> None:
    lock = tmp_path / "run.ledger-lock"
    lock.write_bytes(content)
    if not content:  # an empty file is how every lock begins
        SqliteJournal(tmp_path / "run.ledger", BINDING).close()
        return
    with pytest.raises(LedgerRefused, match=r"run.ledger-lock is not a lock file of a ledger; remove it"):
        SqliteJournal(tmp_path / "run.ledger", BINDING)
    assert lock.read_bytes() == content
    assert not (tmp_path / "run.ledger").exists()


def test_odd_files_in_the_place_of_ledger_and_lock_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.ledger-lock").mkdir()
    with pytest.raises(LedgerRefused, match=r"a.ledger-lock is not a lock file"):
        SqliteJournal(tmp_path / "a.ledger", BINDING)
    os.mkfifo(tmp_path / "b.ledger")  # opening it would wait for ever
    with pytest.raises(LedgerRefused, match=r"b.ledger is not a regular file"):
        SqliteJournal(tmp_path / "b.ledger", BINDING)
    (tmp_path / "loop.ledger").symlink_to(tmp_path / "loop.ledger")
    with pytest.raises(LedgerRefused, match="cannot be written"):
        SqliteJournal(tmp_path / "loop.ledger", BINDING)
    os.mkfifo(tmp_path / "c.ledger-lock")
    with pytest.raises(LedgerRefused, match=r"c.ledger-lock is not a lock file"):
        SqliteJournal(tmp_path / "c.ledger", BINDING)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE sent",
        "DROP TABLE runs",
        "DROP TABLE batches",
        "DROP TABLE binding",
        "ALTER TABLE batches DROP COLUMN retries",
        "ALTER TABLE runs ADD COLUMN more TEXT",
        "ALTER TABLE sent RENAME TO gone",
        "CREATE TRIGGER silent AFTER INSERT ON batches BEGIN DELETE FROM batches; END",
        "CREATE TRIGGER refuses BEFORE INSERT ON runs BEGIN SELECT RAISE(FAIL, 'no'); END",
        "CREATE VIEW more AS SELECT 1",
    ],
)
def test_a_damaged_schema_is_told(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "run.ledger"
    write_some(path)
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()
    with pytest.raises(LedgerRefused, match=r"is damaged \(.*restore a copy, or begin a new one"):
        SqliteJournal(path, BINDING)
    with pytest.raises(LedgerRefused, match=r"is damaged"):
        read_statement(path)


def test_ledgers_of_the_first_version_are_read(tmp_path: Path) -> None:
    """Spaces and line ends of the statements that made the tables are not part of the format."""
    path = tmp_path / "run.ledger"
    write_some(path)
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA writable_schema = 1")
        db.execute("UPDATE sqlite_master SET sql = replace(sql, ', ', ',\n      ')")
    db.close()
    with SqliteJournal(path, BINDING) as journal:
        assert len(journal) == 1


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    copy = path.with_name("copy")
    shutil.copyfile(path, copy)
    copy.replace(path)


def move_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("elsewhere"))


@pytest.mark.parametrize("part", ["", "-wal", "-lock"])
@pytest.mark.parametrize("change", [remove, replace, move_folder])
@pytest.mark.parametrize("call", [1, 5, 20])
def test_a_ledger_that_goes_during_a_run_ends_it(
    tmp_path: Path, part: str, change: Callable[[Path], None], call: int
) -> None:
    path = tmp_path / "place" / "run.ledger"
    path.parent.mkdir()
    calls = 0

    def target(batch: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            change(path.with_name(path.name + part))
        return HIDDEN(batch)

    with pytest.raises(LedgerFault, match=r"was deleted, moved or replaced during the run"):
        unsoftmax.recover(target, width=5, ledger=path)
    assert calls == call  # found when the answers were written: nothing more was asked


def test_a_ledger_deleted_between_batches_is_noticed_before_the_next_is_paid(tmp_path: Path) -> None:
    path = tmp_path / "run.ledger"
    with pytest.raises(LedgerFault, match="was deleted"), SqliteJournal(path, BINDING) as journal:
        journal.prepare(0, "values", 3, 24)
        journal.record(0, Entry("values", (3, 1, 2), np.arange(3.0)))
        path.unlink()
        with pytest.raises(LedgerFault, match="was deleted"):
            journal.prepare(1, "values", 3, 24)


def changed(statement: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(statement)

    return change


CHANGES: dict[str, Callable[[Path], None]] = {
    "emptied": changed("DELETE FROM batches"),
    "one call less": changed("DELETE FROM batches WHERE position = 0"),
    "another answer": changed("UPDATE batches SET answers = zeroblob(length(answers)) WHERE position = 0"),
    "a trigger": changed("CREATE TRIGGER t AFTER INSERT ON batches BEGIN DELETE FROM batches; END"),
    "another binding": changed("UPDATE binding SET value = '7' WHERE name = 'seed'"),
}


@pytest.mark.parametrize("call", [3, -1], ids=["early", "last"])
@pytest.mark.parametrize("how", CHANGES)
def test_a_ledger_that_is_changed_during_a_run_is_told(tmp_path: Path, how: str, call: int) -> None:
    path = tmp_path / "run.ledger"
    usual = Replaced(HIDDEN, 10**6)
    unsoftmax.recover(usual, width=5)
    due = call % (10**6 - (usual.left or 0) + 1)
    calls = 0

    def target(batch: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == due:
            CHANGES[how](path)
        return HIDDEN(batch)

    with pytest.raises(LedgerFault, match=r"was changed during the run") as told:
        unsoftmax.recover(target, width=5, ledger=path)
    assert "\n" not in str(told.value)


def test_a_ledger_that_is_emptied_as_a_file_during_a_resumed_run_is_told(tmp_path: Path) -> None:
    """A new ledger is whole again when its log is moved into it; one of an earlier run is not."""
    path = tmp_path / "run.ledger"
    with pytest.raises(unsoftmax.OracleFault, match="killed"):
        unsoftmax.recover(Replaced(unsoftmax.as_oracle(HIDDEN), 8), width=5, ledger=path)

    def truncating(batch: Array) -> Any:
        os.truncate(path, 0)
        return HIDDEN(batch)

    with pytest.raises(LedgerFault, match=r"was changed during the run|undamaged copy"):
        unsoftmax.recover(Replaced(truncating), width=5, ledger=path)


def test_a_table_that_goes_during_a_run_is_no_lack_of_space(tmp_path: Path) -> None:
    def target(batch: Any) -> Any:
        changed("DROP TABLE batches")(tmp_path / "run.ledger")
        return HIDDEN(batch)

    with pytest.raises(LedgerFault, match=r"no such table.* restore an undamaged copy"):
        unsoftmax.recover(target, width=5, ledger=tmp_path / "run.ledger")


def test_a_disk_without_write_ahead_log_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "run.ledger").touch()
    presence = Presence(tmp_path / "run.ledger", tmp_path / "run.ledger-wal")
    presence.check()
    (tmp_path / "run.ledger").unlink()
    with pytest.raises(LedgerFault, match="was deleted"):
        presence.check()


def test_a_target_that_changes_the_working_directory_keeps_its_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()

    def target(batch: Any) -> Any:
        os.chdir(tmp_path / "elsewhere")
        return HIDDEN(batch)

    result = unsoftmax.recover(target, width=5, ledger="run.ledger")
    assert read_statement(tmp_path / "run.ledger").queries == result.queries.total
    assert list((tmp_path / "elsewhere").iterdir()) == []


class Replaced:
    """A target that becomes another one; both have one name."""

    def __init__(self, function: Any, calls: int | None = None) -> None:
        self.function, self.left = function, calls

    def __call__(self, batch: Any) -> Any:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("killed")
        return self.function(batch)


def others(head: unsoftmax.SingleHead) -> dict[str, unsoftmax.SingleHead]:
    """Heads that differ from this one in a part only, so that many queries do not show it."""
    return {
        "W": unsoftmax.SingleHead(1.05 * head.W, head.v, head.w0, head.c),
        "v": unsoftmax.SingleHead(head.W, 1.05 * head.v, head.w0, head.c),
        "w0": unsoftmax.SingleHead(head.W, head.v, 0.5 * np.asarray(head.w0), head.c),
        "c": unsoftmax.SingleHead(head.W, head.v, head.w0, head.c + 0.1),
    }


@pytest.mark.parametrize("missing", [0, 1, 2, 3])
@pytest.mark.parametrize("part", ["W", "v", "w0", "c"])
@pytest.mark.parametrize("answers", ["exact", "rounded", "tolerance"])
def test_a_target_replaced_before_the_last_batches_is_caught(
    tmp_path: Path, missing: int, part: str, answers: str
) -> None:
    def behind(head: unsoftmax.SingleHead) -> Any:
        oracle = unsoftmax.as_oracle(head)
        if answers == "rounded":
            return unsoftmax.Rounded(oracle, 4)
        return unsoftmax.WithinTolerance(oracle, 1e-5) if answers == "tolerance" else oracle

    path = tmp_path / "run.ledger"
    counting = Replaced(behind(HIDDEN), 10**6)
    assert unsoftmax.recover(counting, width=5).status.recovered
    calls = 10**6 - (counting.left or 0)
    if missing:
        with pytest.raises(unsoftmax.OracleFault, match="killed"):
            unsoftmax.recover(Replaced(behind(HIDDEN), calls - missing), width=5, ledger=path)
    else:
        unsoftmax.recover(Replaced(behind(HIDDEN)), width=5, ledger=path)
    result = unsoftmax.recover(Replaced(behind(others(HIDDEN)[part])), width=5, ledger=path)
    assert not result.status.recovered, result.reason


def test_batches_that_overflow_inside_the_target_are_replayed(tmp_path: Path) -> None:
    paid = 0

    def short(X: Array) -> Array:
        """Overflows where rows are longer than a hundred, as float16 does."""
        nonlocal paid
        paid += len(X)
        with np.errstate(over="ignore"):
            found = HIDDEN(X) * np.where(np.linalg.norm(X, axis=2).max(axis=1) > 100.0, np.inf, 1.0)
        return found.astype(np.float32)

    bills = []
    for _ in range(2):
        with SqliteJournal(tmp_path / "run.ledger", BINDING) as journal:
            ledger = Ledger(unsoftmax.FunctionOracle(short), width=5, journal=journal)
            identify(ledger, np.random.default_rng(0))
            bills.append(ledger.bill.total)
            overflowed = [journal.recall(k) for k in range(len(journal))]
    assert bills == [paid, paid]  # the second run paid nothing
    assert any(entry is not None and np.isnan(entry.answers).all() for entry in overflowed)


def test_a_run_that_overflow_ended_asks_again(tmp_path: Path) -> None:
    broken = True

    def target(X: Array) -> Array:
        return np.asarray(HIDDEN(X)) * (np.nan if broken else 1.0)

    path = tmp_path / "run.ledger"
    with pytest.raises(NonFiniteAnswers, match="NaN or infinity"):
        unsoftmax.recover(target, width=5, ledger=path)
    broken = False
    assert unsoftmax.recover(target, width=5, ledger=path).status is Status.EXACT
