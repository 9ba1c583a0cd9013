"""Calls a target's own code without letting it print to standard output, or end this process."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

__all__ = ["foreign_code"]

_pid = os.getpid  # the code may replace that one too


@contextmanager
def foreign_code() -> Iterator[None]:
    """What the code prints goes to standard error, because standard output holds results, which a print could
    imitate; streams that it takes away are put back. `os._exit` is a `SystemExit`: it would end the command
    as a success, without a word. A process that it forks ends with it, instead of running all that follows a
    second time.

    A call in a thread of its own may be left behind, so that it must not hold what belongs to the process.

    >>> with foreign_code():
    ...     print("not a result")
    """
    process, streams, leave = _pid(), (sys.stdout, sys.stderr), os._exit

    def refuse(status: int) -> NoReturn:
        if _pid() != process:
            leave(status)
        raise SystemExit(status)

    ours = threading.current_thread() is threading.main_thread()
    if ours:
        sys.stdout = sys.stderr if sys.stderr is not None else sys.stdout
        os._exit = refuse
    try:
        yield
    finally:
        if _pid() != process:
            leave(0)
        if ours:
            sys.stdout, sys.stderr = streams
            os._exit = leave
