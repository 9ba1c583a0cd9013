"""The file behind a journal: its tables, its chain of digests, the lock against a second process, and the
room set aside for answers."""

from __future__ import annotations

import os
import sqlite3
import struct
from hashlib import blake2b
from pathlib import Path
from typing import Any

from unsoftmax.errors import LedgerFault, LedgerRefused

__all__ = [
    "LedgerLock",
    "Reserve",
    "chain",
    "chain_seed",
    "connect",
    "create_tables",
    "read_binding",
    "verify",
]

_APPLICATION = 0x756E736D  # marks the SQLite file as ours
_VERSION = 1
_OVERHEAD = 1 << 18  # pages of the tables and of the write-ahead log beside the answers themselves

_TABLES = """
CREATE TABLE binding (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE batches (
    position INTEGER PRIMARY KEY, phase TEXT NOT NULL, n INTEGER NOT NULL, length INTEGER NOT NULL, width
    INTEGER NOT NULL, outputs INTEGER,
    projection REAL NOT NULL, norm REAL NOT NULL, retries INTEGER NOT NULL, answers BLOB NOT NULL, answered
    REAL NOT NULL, digest BLOB NOT NULL);
CREATE TABLE sent (id INTEGER PRIMARY KEY, position INTEGER NOT NULL, phase TEXT NOT NULL, n INTEGER NOT NULL,
at REAL NOT NULL);
CREATE TABLE runs (id INTEGER PRIMARY KEY, started REAL NOT NULL, process INTEGER NOT NULL);
"""


class LedgerLock:
    """Held by the one process that writes a ledger; the system lets go of it when that process dies, however
    it dies.

    An exclusive transaction on an empty database beside the ledger, so that reading the ledger stays possible
    meanwhile.
    """

    def __init__(self, ledger: Path) -> None:
        if not ledger.parent.is_dir():
            raise LedgerRefused(
                f"there is no folder {ledger.parent} for the ledger; create it, or choose another place"
            )
        if ledger.is_dir():
            raise LedgerRefused(f"the ledger {ledger} is a folder; name a file")
        self._db = sqlite3.connect(
            ledger.with_name(ledger.name + "-lock"),
            timeout=0.0,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            self._db.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            self._db.close()
            if "locked" in str(error):
                raise LedgerRefused(
                    f"the ledger {ledger} is in use by another run; wait for it, or use another ledger"
                ) from error
            raise LedgerRefused(
                f"the ledger {ledger} cannot be opened: {error}; choose another place"
            ) from error

    def release(self) -> None:
        """Lets the next one in."""
        self._db.close()


class Reserve:
    """Room on the disk for the answers that are being paid for: held before they are asked, given up only to
    write them."""

    def __init__(self, ledger: Path) -> None:
        self._path = ledger.with_name(ledger.name + "-reserve")
        self._size = 0

    def hold(self, n_bytes: int) -> None:
        """Sets aside room for `n_bytes` of answers, or says that there is none."""
        needed = 4 * n_bytes + _OVERHEAD
        if needed <= self._size:
            return
        try:
            with self._path.open("wb") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, needed)
                else:
                    file.write(bytes(needed))
        except OSError as error:
            self.remove()
            raise LedgerFault(
                f"there is no room for the answers of the next batch ({error.strerror}), so it was not "
                "asked; "
                f"free {needed / 1e6:.1f} MB beside the ledger and run again with the same ledger"
            ) from error
        self._size = needed

    def release(self) -> None:
        """Gives the room back to the disk."""
        self.remove()

    def remove(self) -> None:
        """Takes the file away."""
        self._size = 0
        self._path.unlink(missing_ok=True)


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection whose commits are on the disk when they return."""
    try:
        db = sqlite3.connect(
            f"{path.resolve().as_uri()}?mode={'ro' if read_only else 'rwc'}",
            uri=True,
            timeout=5.0,
            isolation_level=None,
        )
        try:
            if not read_only:
                db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
        except BaseException:
            db.close()
            raise
    except sqlite3.DatabaseError as error:
        if "full" in str(error):
            raise LedgerFault(
                f"the disk of the ledger {path} is full; nothing was asked. Free some space and run again"
            ) from error
        raise LedgerRefused(f"{path} is no readable ledger: {error}; use another file") from error
    return db


def create_tables(db: sqlite3.Connection, binding: dict[str, str]) -> None:
    """A new ledger, complete or not there at all."""
    db.execute("BEGIN IMMEDIATE")
    for statement in _TABLES.split(";"):
        db.execute(statement)
    db.executemany("INSERT INTO binding VALUES (?, ?)", sorted(binding.items()))
    db.execute(f"PRAGMA application_id = {_APPLICATION}")
    db.execute(f"PRAGMA user_version = {_VERSION}")
    db.execute("COMMIT")


def read_binding(db: sqlite3.Connection, path: Path) -> dict[str, str] | None:
    """What the ledger is bound to; None for a new file; refused when it is no ledger, or one of another
    version."""
    try:
        application = db.execute("PRAGMA application_id").fetchone()[0]
        version = db.execute("PRAGMA user_version").fetchone()[0]
        n_tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if n_tables == 0 and application == 0:
            return None
        if application != _APPLICATION:
            raise LedgerRefused(f"{path} is a database, but no ledger of this library; use another file")
        if version != _VERSION:
            raise LedgerRefused(
                f"the ledger {path} has format version {version}, this library reads {_VERSION}; use the "
                "library that wrote it"
            )
        return dict(db.execute("SELECT name, value FROM binding"))
    except sqlite3.DatabaseError as error:
        raise _damaged(path, str(error)) from error


def verify(db: sqlite3.Connection, path: Path) -> tuple[int, bytes]:
    """Number of batches and the last digest, after every digest was computed anew."""
    position = -1
    try:
        problem = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise _damaged(path, problem.splitlines()[-1])
        head = chain_seed(dict(db.execute("SELECT name, value FROM binding")))
        columns = "position, phase, n, length, width, outputs, projection, norm, retries, answers, digest"
        for position, row in enumerate(db.execute(f"SELECT {columns} FROM batches ORDER BY position")):  # noqa: S608 - a constant
            head = chain(head, row[:-1])
            if row[0] != position or row[-1] != head or len(row[9]) != 8 * row[2] * (row[5] or 1):
                raise _damaged(path, f"call {position} is not what was written")
    except (sqlite3.DatabaseError, struct.error, TypeError, ValueError) as error:
        raise error if isinstance(error, LedgerRefused) else _damaged(path, str(error)) from error
    return position + 1, head


def chain_seed(binding: dict[str, str]) -> bytes:
    """The digest before the first batch."""
    return blake2b(repr(sorted(binding.items())).encode(), digest_size=16).digest()


def chain(head: bytes, row: tuple[Any, ...]) -> bytes:
    """The digest of a batch after the digest of the one before, so that a changed, lost or moved batch is
    seen."""
    position, phase, n, length, width, outputs, projection, norm, retries, answers = row
    digest = blake2b(head, digest_size=16)
    digest.update(phase.encode())
    digest.update(
        struct.pack(
            "<6qdd", position, n, length, width, -1 if outputs is None else outputs, retries, projection, norm
        )
    )
    digest.update(answers)
    return digest.digest()


def _damaged(path: Path, detail: str) -> LedgerRefused:
    return LedgerRefused(
        f"the ledger {path} is damaged ({detail}); restore a copy, or begin a new one. Nothing in it was used"
    )
