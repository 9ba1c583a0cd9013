"""Calls a target's own code without letting it print to standard output, or end this process."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["foreign_code", "run_at_exit"]

_pid = os.getpid  # the code may replace that one too
# All that ends this process without an exception. `os` has the names of the system's own module, posix or nt,
# and its other exec functions call these two.
_DOORS = tuple(
    (vars(module), name, getattr(os, name))
    for module in (os, sys.modules[os.name])
    for name in ("_exit", "execv", "execve")
)


@contextmanager
def foreign_code() -> Iterator[None]:
    """What the code prints goes to standard error, because standard output holds results, which a print could
    imitate; streams that it takes away are put back. `os._exit` is a `SystemExit`: it would end the command
    as a success, without a word. So is `os.execv`, which puts another program in the place of this one. A
    process that it forks ends with it, instead of running all that follows a second time.

    A call in a thread of its own may be left behind, so that it must not hold what belongs to the process.

    >>> with foreign_code():
    ...     print("not a result")
    """
    process, streams = _pid(), (sys.stdout, sys.stderr)
    ours = threading.current_thread() is threading.main_thread()
    if ours:
        sys.stdout = sys.stderr if sys.stderr is not None else sys.stdout
        for names, name, leave in _DOORS:
            names[name] = _closed(process, name, leave)
    try:
        yield
    finally:
        if _pid() != process:
            _DOORS[0][2](0)
        if ours:
            sys.stdout, sys.stderr = streams
            for names, name, leave in _DOORS:
                names[name] = leave


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
