"""Ctrl-C while a command works: an error like others, wherever it arrives."""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

__all__ = ["allow_interrupts"]

_MOMENT = 0.01  # seconds after which an interrupt that was swallowed is raised again: callbacks are shorter


def allow_interrupts() -> None:
    """From now on an interrupt is an error like others, so that what was paid is kept and told."""
    if signal.getsignal(signal.SIGINT) not in (signal.SIG_IGN, None):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = _raise_again


def _raise_again(unraisable: Any) -> None:
    """Python swallows what is raised in finalizers and callbacks of weak references, and prints it. An
    interrupt that arrives in one is to end the command all the same."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    with suppress(RuntimeError):  # Python itself is closing down, and no thread can begin
        threading.Timer(_MOMENT, _thread.interrupt_main).start()
