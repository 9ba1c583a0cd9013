"""A journal on disk: every answer is safe before the next query is paid, and a killed run goes on where it
was."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from unsoftmax.closing import Closing
from unsoftmax.errors import LedgerFault, LedgerRefused
from unsoftmax.ledger.files import chain, connect, create_tables, read_binding, reason_of, verify, way_out
from unsoftmax.ledger.journal import Entry
from unsoftmax.ledger.lock import LedgerLock
from unsoftmax.ledger.presence import Presence
from unsoftmax.ledger.reserve import Reserve

__all__ = ["SqliteJournal"]

_log = logging.getLogger(__name__)
_WORDS = {"target": "target", "seed": "seed", "learner": "learner"}


class SqliteJournal(Closing):
    """Answers in a SQLite file, appended batch by batch, each safe on disk before `record` returns.

    The file is bound to `binding` (target, seed, learner, options): opening it for anything else is refused
    with the reason. A second process on the same file is refused too. Damage is found when it is opened. A
    full disk is noticed before a batch is paid, because room for its answers is set aside first.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with SqliteJournal(folder + "/run.ledger", {"target": "t", "seed": "0"}) as journal:
    ...         journal.prepare(0, "values", 1, 8)
    ...         journal.record(0, Entry("values", (1, 1, 2), np.array([0.5])))
    ...     with SqliteJournal(folder + "/run.ledger", {"target": "t", "seed": "0"}) as journal:
    ...         journal.recall(0).answers
    array([0.5])
    """

    durable = True

    def __init__(self, path: str | Path, binding: Mapping[str, str]) -> None:
        self.path = Path(path).absolute()  # a target may change the working directory
        self._lock = LedgerLock(self.path)
        try:
            self._db = connect(self.path)
            try:
                self._open(dict(binding))
            except BaseException:
                self._db.close()
                raise
        except BaseException:
            self._lock.release()
            raise
        self._reserve = Reserve(self.path)
        log = self.path.with_name(self.path.name + "-wal")  # holds what was written since the file was opened
        self._presence = Presence(self.path, log, self._lock.path)

    def _open(self, binding: dict[str, str]) -> None:
        try:
            written = read_binding(self._db, self.path)
            if written is None:
                create_tables(self._db, binding)
                written = binding
            self._refuse_other(written, binding)
            self._length, self._head = verify(self._db, self.path)
            _log.info("%s: %d calls are kept from earlier runs", self.path, self._length)
            self._db.execute("INSERT INTO runs (started, process) VALUES (?, ?)", (time.time(), os.getpid()))
        except sqlite3.Error as error:
            if reason_of(error) == "SQLITE_READONLY":
                raise LedgerRefused(
                    f"the ledger {self.path} cannot be written ({error}); make it writable, or use another"
                ) from error
            raise LedgerFault(
                f"the ledger {self.path} cannot be written ({error}); nothing was asked: {way_out(error)}, "
                "or choose another place"
            ) from error

    def _refuse_other(self, written: dict[str, str], asked: dict[str, str]) -> None:
        for name in sorted(asked.keys() | written.keys(), key=lambda key: (key not in _WORDS, key)):
            theirs, ours = written.get(name, "none"), asked.get(name, "none")
            if theirs != ours:
                raise LedgerRefused(
                    f"the ledger {self.path} belongs to another {name}: it was begun with {theirs}, this run "
                    f"has {ours}; use the same one, or another ledger"
                )

    def __len__(self) -> int:
        return self._length

    def recall(self, position: int) -> Entry | None:
        try:
            found = self._db.execute(
                "SELECT phase, n, length, width, outputs, projection, norm, retries, answers FROM batches "
                "WHERE position = ?",
                (position,),
            )
            row = found.fetchone()
        except sqlite3.Error as error:
            raise LedgerFault(
                f"the ledger {self.path} cannot be read ({error}), so nothing more was asked"
            ) from error
        if row is None:
            return None
        phase, n, length, width, outputs, projection, norm, retries, blob = row
        shape = (n,) if outputs is None else (n, outputs)
        answers = np.frombuffer(blob, dtype="<f8").astype(np.float64).reshape(shape)
        return Entry(phase, (n, length, width), answers, (projection, norm), retries)

    def prepare(self, position: int, phase: str, n_queries: int, n_bytes: int) -> None:
        self._presence.check()
        self._reserve.hold(n_bytes)
        note = (position, phase, n_queries, time.time())
        try:
            # only counts queries: it need not wait for the disk
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute("INSERT INTO sent (position, phase, n, at) VALUES (?, ?, ?, ?)", note)
            self._db.execute("PRAGMA synchronous=FULL")
        except sqlite3.Error as error:
            raise LedgerFault(
                f"the ledger {self.path} cannot be written ({error}), so nothing more was asked; "
                f"{way_out(error)} and run again with the same ledger"
            ) from error

    def record(self, position: int, entry: Entry) -> None:
        blob = np.ascontiguousarray(entry.answers, dtype="<f8").tobytes()
        n, length, width = entry.shape
        outputs = None if entry.answers.ndim == 1 else int(entry.answers.shape[1])
        values = (position, entry.phase, n, length, width, outputs, *entry.sketch, entry.retries, blob)
        digest = chain(self._head, values)
        try:
            self._insert(position, (*values, time.time(), digest))
        except sqlite3.Error:
            self._reserve.release()  # the room that was set aside for exactly this
            try:
                self._insert(position, (*values, time.time(), digest))
            except sqlite3.Error as error:
                raise LedgerFault(
                    f"the answers to a batch of {n} queries could not be kept in {self.path} ({error}); they "
                    f"will be asked again: {way_out(error)} and run again with the same ledger"
                ) from error
        self._presence.check()
        self._head = digest
        self._length += 1

    def _insert(self, position: int, values: tuple[object, ...]) -> None:
        """The answers, and the note that they were asked for taken back, in one transaction."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
            self._db.execute(
                "DELETE FROM sent WHERE id = (SELECT max(id) FROM sent WHERE position = ?)", (position,)
            )
            self._db.execute("COMMIT")
        except sqlite3.Error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def __exit__(self, *raised: object) -> None:
        """What was written must still be there when all went well: others may write into an open file."""
        try:
            if any(raised):
                self._close_file()
            else:
                try:
                    self._presence.check()
                finally:
                    self._close_file()
                self._confirm()
        finally:
            self._lock.release()

    def _confirm(self) -> None:
        """Raises `LedgerFault` when the file on the disk is not what this run has read and written."""
        try:
            db = connect(self.path, read_only=True)
            try:
                read_binding(db, self.path)
                found = verify(db, self.path)
            finally:
                db.close()
        except LedgerRefused as error:
            raise self._changed(str(error).partition(";")[0]) from error
        if found != (self._length, self._head):
            raise self._changed(f"it holds {found[0]} calls instead of {self._length}, or other ones")

    def _changed(self, how: str) -> LedgerFault:
        return LedgerFault(
            f"the ledger {self.path} was changed during the run by something else ({how}), so its answers "
            "are no evidence; begin a new ledger, in a place that only this program writes to"
        )

    def close(self) -> None:
        """Gives the file back; everything is on disk already."""
        self._close_file()
        self._lock.release()

    def _close_file(self) -> None:
        """SQLite moves what was written from the log into the file."""
        self._reserve.release()
        self._db.close()
