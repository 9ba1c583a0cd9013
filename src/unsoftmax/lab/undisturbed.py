"""How a worker process is set up: one BLAS thread, deaf to Ctrl-C (the driver hears it and decides), and gone when its parent is."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["dask_setup", "one_thread_each", "work_undisturbed"]

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Children started inside use one BLAS thread: several on a busy machine are many times slower, and change last bits."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def work_undisturbed() -> None:
    """For the first moment of a process of a local pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_outlive, args=(parent,), daemon=True).start()


def dask_setup(worker: Any) -> None:
    """What Dask calls in each worker that it starts for us."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _outlive(parent: Any) -> None:
    parent.join()
    os._exit(1)
