"""Finished cells on disk: each is safe before the next is fetched, and one driver at a time writes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unsoftmax.closing import Closing
from unsoftmax.errors import UsageError
from unsoftmax.lab.provenance import code_digest
from unsoftmax.ledger.files import reason_of

__all__ = ["Store"]


class Store(Closing):
    """Rows by cell key in one SQLite file. The file is locked while open, and bound to the code that wrote
    its first row.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Store(Path(folder, "cells.sqlite")) as store:
    ...         store.keep([({"cell": "a", "error": 0.1 + 0.2}, 0.5)])
    ...     with Store(Path(folder, "cells.sqlite")) as store:
    ...         store.rows()["a"]["error"]
    0.30000000000000004
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._db = sqlite3.connect(path, timeout=0.0, isolation_level=None)
        except sqlite3.Error as error:
            raise UsageError(f"cannot open {path}: {error}; choose another --out") from error
        try:
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS cells (key TEXT PRIMARY KEY, row TEXT NOT NULL, seconds REAL "
                "NOT NULL)"
            )
            self._db.execute("CREATE TABLE IF NOT EXISTS made_by (code TEXT NOT NULL)")
            codes = [code for (code,) in self._db.execute("SELECT code FROM made_by")]
            if not codes:
                self._db.execute("INSERT INTO made_by VALUES (?)", (code_digest(),))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            self._db.close()
            if reason_of(error) in ("SQLITE_BUSY", "SQLITE_LOCKED"):
                raise UsageError(
                    f"{path.parent} is in use by another sweep; wait for it, or choose another --out"
                ) from error
            if reason_of(error) == "SQLITE_FULL":
                raise UsageError(
                    f"cannot open {path}: {error}; make room, or choose another --out"
                ) from error
            raise UsageError(f"{path} is not a store of a sweep: {error}; choose another --out") from error
        if codes and codes[0] != code_digest():
            self._db.close()
            raise UsageError(
                f"{path.parent} holds cells that other code of this library computed ({codes[0]}, now "
                f"{code_digest()}); a table of two codes says nothing, so choose another --out"
            )

    def rows(self) -> dict[str, dict[str, Any]]:
        """All rows by key."""
        return {key: json.loads(row) for key, row in self._db.execute("SELECT key, row FROM cells")}

    def seconds(self) -> dict[str, float]:
        """How long each cell took; apart from the rows, which are the same on every run."""
        return dict(self._db.execute("SELECT key, seconds FROM cells"))

    def keep(self, done: Iterable[tuple[dict[str, Any], float]]) -> None:
        """Rows with their times, all of them safe when this returns."""
        rows = [(row["cell"], json.dumps(row), seconds) for row, seconds in done]
        try:
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.executemany("INSERT OR REPLACE INTO cells VALUES (?, ?, ?)", rows)
        except sqlite3.OperationalError as error:
            raise UsageError(
                f"cannot keep finished cells in {self.path}: {error}; those kept before are safe, so make "
                "room and run the same command again"
            ) from error

    def forget(self, keys: Iterable[str]) -> None:
        """Takes cells out, to be run again."""
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("DELETE FROM cells WHERE key = ?", [(key,) for key in keys])

    def close(self) -> None:
        """Lets the next driver in."""
        self._db.close()
