"""How fast and how many at a time: a rate limit, and work in parallel whose results keep their order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeVar

__all__ = ["RateLimit", "in_parallel"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class RateLimit:
    """Spaces queries so that no second sees more than `rate` of them; None: no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._free_at = 0.0
        self._lock = threading.Lock()

    def wait(self, n_queries: int, stop: threading.Event) -> None:
        """Returns when `n_queries` more may be sent, or when told to stop."""
        if self._rate is None:
            return
        with self._lock:
            start = max(time.monotonic(), self._free_at)
            self._free_at = start + n_queries / self._rate
        stop.wait(max(0.0, start - time.monotonic()))


def in_parallel(
    work: Callable[[Item, threading.Event], Answer], items: Sequence[Item], concurrency: int
) -> list[Answer]:
    """work(item, stop) for every item, at most `concurrency` at a time; results in order, the first failure
    stops the rest.

    The threads are daemons: an interrupt ends the program at once, whatever a server is still doing.

    >>> in_parallel(lambda n, stop: n * n, [1, 2, 3], 2)
    [1, 4, 9]
    """
    stop = threading.Event()
    if concurrency == 1 or len(items) == 1:
        return [work(item, stop) for item in items]
    results: dict[int, Answer] = {}
    failures: dict[int, BaseException] = {}
    todo = iter(range(len(items)))
    lock = threading.Lock()
    done: SimpleQueue[None] = SimpleQueue()

    def worker() -> None:
        while not stop.is_set():
            with lock:
                i = next(todo, None)
            if i is None:
                break
            try:
                results[i] = work(items[i], stop)
            except BaseException as error:
                failures[i] = error
                stop.set()
        done.put(None)

    threads = [
        threading.Thread(target=worker, daemon=True, name=f"request-{i}")
        for i in range(min(concurrency, len(items)))
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in threads:
            done.get()
    except BaseException:
        stop.set()
        raise
    if failures:
        raise failures[min(failures)]
    return [results[i] for i in range(len(items))]
