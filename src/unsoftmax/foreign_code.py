"""Calls a target's own code without letting it print to standard output, or end this process."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from types import TracebackType
from typing import Any

__all__ = ["foreign_code", "run_at_exit"]

_pid = os.getpid  # the code may replace that one too
# All that ends this process without an exception. `os` has the names of the system's own module, posix or nt,
# and its other exec functions call these two.
_DOORS = {name: getattr(os, name) for name in ("_exit", "execv", "execve")}
_ROOMS = (vars(os), vars(sys.modules[os.name]))


class foreign_code:  # noqa: N801 - used like a function, as contextlib's are
    """What the code prints goes to standard error, because standard output holds results, which a print could
    imitate; streams that it takes away are put back. `os._exit` is a `SystemExit`: it would end the command
    as a success, without a word. So is `os.execv`, which puts another program in the place of this one. A
    process that it forks ends with it, instead of running all that follows a second time.

    A call in a thread of its own may be left behind, so that it must not hold what belongs to the process.
    Every call of a target comes through here, so that it is made to cost little.

    >>> with foreign_code():
    ...     print("not a result")
    """

    __slots__ = ("_ours", "_process", "_streams")

    def __enter__(self) -> None:
        self._process, self._streams = _pid(), (sys.stdout, sys.stderr)
        self._ours = threading.current_thread() is threading.main_thread()
        if self._ours:
            if sys.stderr is not None:
                sys.stdout = sys.stderr
            closed = _closed_doors(self._process)
            for names in _ROOMS:
                names.update(closed)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _pid() != self._process:
            _DOORS["_exit"](0)
        if self._ours:
            sys.stdout, sys.stderr = self._streams
            for names in _ROOMS:
                names.update(_DOORS)


@lru_cache(maxsize=1)
def _closed_doors(process: int) -> dict[str, Callable[..., Any]]:
    return {name: _closed(process, name, leave) for name, leave in _DOORS.items()}


def _closed(process: int, name: str, leave: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in the place of `leave`: a process that the code forked may end."""

    def refuse(*arguments: Any) -> Any:
        if _pid() != process:
            return leave(*arguments)
        raise SystemExit(arguments[0] if name == "_exit" and arguments else f"os.{name}")

    return refuse


def run_at_exit() -> None:
    """Runs what was registered to run at exit, by a target too, while it cannot change how this process ends:
    Python would run it after everybody has looked. An interrupt ends the part that is running."""
    shown, ends = sys.unraisablehook, (SystemExit, KeyboardInterrupt)
    sys.unraisablehook = lambda raised: None if issubclass(raised.exc_type, ends) else shown(raised)
    try:
        with suppress(KeyboardInterrupt), foreign_code():
            atexit._run_exitfuncs()
    finally:
        sys.unraisablehook = shown
