"""How worker processes are started: one BLAS thread each, no interrupts, and they end with their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any

__all__ = ["WorkerPool", "undisturbed_children"]

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@contextmanager
def undisturbed_children() -> Iterator[None]:
    """Processes and threads started inside use one BLAS thread, because several on a busy machine are many
    times slower and change last bits. They never get an interrupt, not even while they import: a blocked
    signal stays blocked in children. An interrupt that comes meanwhile is delivered at the end.

    >>> with undisturbed_children():
    ...     os.environ["OPENBLAS_NUM_THREADS"]
    '1'
    """
    resource_tracker.ensure_running()  # starting it unblocks interrupts: so not after they are blocked
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


class WorkerPool(ProcessPoolExecutor):
    """Local processes that start undisturbed, end with their parent, and can be stopped while they work.

    >>> with WorkerPool(1) as pool:
    ...     pool.submit(abs, -3).result()
    3
    """

    def __init__(self, size: int) -> None:
        self._started: list[Any] = []
        super().__init__(
            size, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_the_parent
        )

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        known = set(multiprocessing.active_children())
        with undisturbed_children():  # processes start when work is first given to them
            future = super().submit(fn, *args, **kwargs)
        self._started += [child for child in multiprocessing.active_children() if child not in known]
        return future

    def stop(self) -> None:
        """Ends the processes at once; work under way is lost."""
        for child in self._started:
            child.terminate()
        self.shutdown(wait=True, cancel_futures=True)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """After an error, an interrupt included, nobody waits for work that nobody will read."""
        if kind is None:
            self.shutdown(wait=True)
        else:
            self.stop()


def _end_with_the_parent() -> None:
    """Runs first in every process of a pool."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_outlive, args=(parent,), daemon=True).start()


def _outlive(parent: Any) -> None:
    parent.join()
    os._exit(1)
