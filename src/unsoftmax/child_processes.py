"""How worker processes are started: one BLAS thread each, deaf to Ctrl-C (the driver hears it and decides),
and gone when their parent is."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["end_with_the_parent", "undisturbed_children"]

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def undisturbed_children() -> Iterator[None]:
    """Processes and threads started inside use one BLAS thread (several on a busy machine are many times
    slower, and change last bits), and never see an interrupt: a blocked signal stays blocked in children. One
    that comes meanwhile is not lost; it is delivered at the end.

    >>> with undisturbed_children():
    ...     os.environ["OPENBLAS_NUM_THREADS"]
    '1'
    """
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    masked = (
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        if hasattr(signal, "pthread_sigmask")
        else None
    )
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if masked is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, masked)


def end_with_the_parent() -> None:
    """For the first moment of a process of a local pool."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_outlive, args=(parent,), daemon=True).start()


def _outlive(parent: Any) -> None:
    parent.join()
    os._exit(1)
