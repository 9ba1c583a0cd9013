"""Whether the files of an open ledger are still the ones that were opened."""

from __future__ import annotations

from pathlib import Path

from unsoftmax.errors import LedgerFault

__all__ = ["Presence"]


class Presence:
    """The system lets a process write on into a file that was deleted or replaced, and everything written is
    lost. So the files are looked up by name before a batch is paid for and after its answers are written.
    """

    def __init__(self, *paths: Path) -> None:
        # a disk that cannot hold a write-ahead log has none, and SQLite does without
        self._found = {path: _identity(path) for path in paths if path.exists()}

    def check(self) -> None:
        """Raises `LedgerFault` when one of the files is not there any more."""
        for path, found in self._found.items():
            if _identity(path) != found:
                raise LedgerFault(
                    f"the ledger's file {path} was deleted, moved or replaced during the run, so nothing "
                    "more was asked; put it back if you have a copy, or begin a new ledger"
                )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
