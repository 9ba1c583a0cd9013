"""The lock against a second process on the same ledger."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from unsoftmax.errors import LedgerRefused

__all__ = ["LedgerLock"]


class LedgerLock:
    """Held by the one process that writes a ledger. The system releases it when that process ends, however it
    ends. It is an exclusive transaction on an empty database beside the ledger, so that others can still read
    the ledger itself.
    """

    def __init__(self, ledger: Path) -> None:
        folder = ledger.parent
        if not folder.is_dir():
            raise LedgerRefused(
                f"there is no folder {folder} for the ledger; create it, or choose another place"
            )
        if ledger.is_dir():
            raise LedgerRefused(f"the ledger {ledger} is a folder; name a file")
        if ledger.exists() and not ledger.is_file():
            raise LedgerRefused(f"the ledger {ledger} is not a regular file; name another one")
        self.path = ledger.with_name(ledger.name + "-lock")
        if self.path.exists() and not self.path.is_file():
            raise LedgerRefused(
                f"{self.path} is not a lock file of a ledger; remove it, or use another ledger"
            )
        try:
            self._db = sqlite3.connect(self.path, timeout=0.0, isolation_level=None, check_same_thread=False)
            try:
                self._db.execute("BEGIN EXCLUSIVE")
            except sqlite3.Error:
                self._db.close()
                raise
        except sqlite3.Error as error:
            raise LedgerRefused(self._explained(ledger, str(error))) from error

    def _explained(self, ledger: Path, reason: str) -> str:
        if "locked" in reason:
            return f"the ledger {ledger} is in use by another run; wait for it, or use another ledger"
        if "not a database" in reason or "malformed" in reason:
            return f"{self.path} is not a lock file of a ledger; remove it, or use another ledger"
        return f"the folder {ledger.parent} cannot be written ({reason}); choose another place for the ledger"

    def release(self) -> None:
        """Lets the next process use the ledger."""
        self._db.close()
