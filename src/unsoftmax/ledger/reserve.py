"""Disk space for answers, set aside before they are paid for."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from unsoftmax.errors import LedgerFault

__all__ = ["Reserve"]

# A batch is written to the write-ahead log and then to the table, in whole pages each time: at most four
# times its size, plus the pages of the tables and of the log around it.
_COPIES, _OVERHEAD = 4, 1 << 18
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Reserve:
    """A file that takes the space which the next answers will need. It is removed only to write them."""

    def __init__(self, ledger: Path) -> None:
        self._path = ledger.with_name(ledger.name + "-reserve")
        self._size = 0

    def hold(self, n_bytes: int) -> None:
        """Sets aside space for `n_bytes` of answers, or raises `LedgerFault`."""
        needed = _COPIES * n_bytes + _OVERHEAD
        if needed <= self._size:
            return
        try:
            with self._path.open("wb") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, needed)
                else:
                    file.write(bytes(needed))
        except OSError as error:
            self.release()
            raise LedgerFault(
                f"there is no room for the answers of the next batch ({error.strerror}), so it was not "
                f"asked; {self._remedy(error, needed)} and run again with the same ledger"
            ) from error
        self._size = needed

    def _remedy(self, error: OSError, needed: int) -> str:
        if error.errno in _FULL:
            return f"free {needed / 1e6:.1f} MB beside the ledger"
        return f"make the folder {self._path.parent} writable"

    def release(self) -> None:
        """Gives the space back."""
        self._size = 0
        with suppress(OSError):  # a folder that has gone has given it back already
            self._path.unlink(missing_ok=True)
