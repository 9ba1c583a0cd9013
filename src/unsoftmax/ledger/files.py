"""The file behind a journal: its tables, and the chain of digests that shows damage."""

from __future__ import annotations

import sqlite3
import struct
from hashlib import blake2b
from pathlib import Path
from typing import Any

from unsoftmax.errors import LedgerFault, LedgerRefused

__all__ = [
    "chain",
    "chain_seed",
    "connect",
    "create_tables",
    "read_binding",
    "reason_of",
    "verify",
    "way_out",
]

_APPLICATION = 0x756E736D  # marks the SQLite file as ours
_VERSION = 1  # of the tables below

_TABLES = """
CREATE TABLE binding (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE batches (
    position INTEGER PRIMARY KEY, phase TEXT NOT NULL, n INTEGER NOT NULL, length INTEGER NOT NULL,
    width INTEGER NOT NULL, outputs INTEGER, projection REAL NOT NULL, norm REAL NOT NULL,
    retries INTEGER NOT NULL, answers BLOB NOT NULL, answered REAL NOT NULL, digest BLOB NOT NULL);
CREATE TABLE sent (
    id INTEGER PRIMARY KEY, position INTEGER NOT NULL, phase TEXT NOT NULL, n INTEGER NOT NULL,
    at REAL NOT NULL);
CREATE TABLE runs (id INTEGER PRIMARY KEY, started REAL NOT NULL, process INTEGER NOT NULL);
"""

# no such table or column, a trigger or a row that is in the way, pages that are none
_DAMAGE = ("SQLITE_ERROR", "SQLITE_CONSTRAINT", "SQLITE_CORRUPT", "SQLITE_NOTADB")


def reason_of(error: sqlite3.Error) -> str:
    """The name of an error of the database, such as SQLITE_FULL; its extended names say more than is asked
    here.

    >>> reason_of(sqlite3.OperationalError("made up"))
    ''
    """
    return "_".join(getattr(error, "sqlite_errorname", "").split("_")[:2])


def way_out(error: sqlite3.Error) -> str:
    """What to do about a ledger that cannot be written, behind which comes what to do then."""
    reason = reason_of(error)
    if reason in ("SQLITE_BUSY", "SQLITE_LOCKED"):
        return "close the other program that has it open"
    return "restore an undamaged copy" if reason in _DAMAGE else "free some space"


def connect(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    """A connection whose commits are on the disk when they return.

    A reader of a file that nobody has open for writing leaves no files of its own beside it.
    """
    mode = "mode=rwc"
    if read_only:
        written = path.with_name(path.name + "-wal").exists()
        mode = "mode=ro" if written else "mode=ro&immutable=1"
    try:
        db = sqlite3.connect(
            f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=5.0, isolation_level=None
        )
        try:
            if not read_only:
                db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
        except BaseException:
            db.close()
            raise
    except sqlite3.DatabaseError as error:
        if reason_of(error) == "SQLITE_FULL":
            raise LedgerFault(
                f"the disk of the ledger {path} is full; nothing was asked. Free some space and run again"
            ) from error
        if reason_of(error) in ("SQLITE_READONLY", "SQLITE_CANTOPEN"):
            raise LedgerRefused(
                f"the ledger {path} cannot be written ({error}); choose another place"
            ) from error
        raise LedgerRefused(f"{path} is not a readable ledger: {error}; use another file") from error
    return db


def create_tables(db: sqlite3.Connection, binding: dict[str, str]) -> None:
    """A new ledger, complete or not there at all."""
    db.execute("BEGIN IMMEDIATE")
    for statement in _statements():
        db.execute(statement)
    db.executemany("INSERT INTO binding VALUES (?, ?)", sorted(binding.items()))
    db.execute(f"PRAGMA application_id = {_APPLICATION}")
    db.execute(f"PRAGMA user_version = {_VERSION}")
    db.execute("COMMIT")


def read_binding(db: sqlite3.Connection, path: Path) -> dict[str, str] | None:
    """What the ledger is bound to; None for a new file; refused when it is not a ledger, or one of another
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
        _check_schema(db, path)
        return dict(db.execute("SELECT name, value FROM binding"))
    except sqlite3.DatabaseError as error:
        raise _unreadable(path, error) from error


def _statements() -> list[str]:
    return [statement.strip() for statement in _TABLES.split(";") if statement.strip()]


def _check_schema(db: sqlite3.Connection, path: Path) -> None:
    """Refuses a ledger whose tables are not exactly the ones that this library makes."""
    found = db.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
    written = {_plain(sql or "") for _, sql in found}
    for statement in _statements():
        if _plain(statement) not in written:
            raise _damaged(path, f"the table {statement.split()[2]} is missing or has other columns")
    if len(found) > len(_statements()):
        names = {statement.split()[2] for statement in _statements()}
        strange = next(name for name, _ in found if name not in names)
        raise _damaged(path, f"it holds {strange!r}, which does not belong to a ledger")


def _plain(statement: str) -> str:
    """A statement without regard to spaces, line ends and parentheses beside them."""
    return "".join(statement.split())


def verify(db: sqlite3.Connection, path: Path) -> tuple[int, bytes]:
    """Number of batches and the last digest, after every digest was computed anew."""
    position = -1
    try:
        problem = db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if problem != "ok":
            raise _damaged(path, problem.splitlines()[-1])
        head = chain_seed(dict(db.execute("SELECT name, value FROM binding")))
        batches = db.execute(
            "SELECT position, phase, n, length, width, outputs, projection, norm, retries, answers, digest "
            "FROM batches ORDER BY position"
        )
        for position, row in enumerate(batches):
            head = chain(head, row[:-1])
            if row[0] != position or row[-1] != head or len(row[9]) != 8 * row[2] * (row[5] or 1):
                raise _damaged(path, f"call {position} is not what was written")
    except sqlite3.DatabaseError as error:
        raise _unreadable(path, error) from error
    except (struct.error, TypeError, ValueError) as error:
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


def _unreadable(path: Path, error: sqlite3.Error) -> LedgerRefused:
    if reason_of(error) not in ("SQLITE_FULL", "SQLITE_IOERR"):
        return _damaged(path, str(error))
    return LedgerRefused(
        f"the disk of the ledger {path} cannot be used ({error}), as when it is full; free some space, or "
        "choose another place"
    )


def _damaged(path: Path, detail: str) -> LedgerRefused:
    return LedgerRefused(
        f"the ledger {path} is damaged ({detail}); restore a copy, or begin a new one. Nothing in it was used"
    )
