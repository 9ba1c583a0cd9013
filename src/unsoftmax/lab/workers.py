"""Who does the work: a pool of local processes, or a Dask cluster. Both take functions and give futures, and
say when a worker was lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Protocol

from unsoftmax.child_processes import WorkerPool
from unsoftmax.errors import UsageError
from unsoftmax.lab.dask_crew import ClusterLost, DaskCrew

__all__ = ["ClusterLost", "Crew", "DaskCrew", "LocalCrew", "crew_of", "first_done"]

_LOOK = 5.0  # seconds without a result after which the crew checks that it still has workers


class Crew(Protocol):
    """Workers that run functions. `lost`: what a future raises when the worker that ran it died."""

    size: int
    lost: tuple[type[BaseException], ...]

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]: ...

    def renew(self) -> None:
        """Replaces what was lost."""

    def look(self) -> None:
        """Called when there was no result for a while: futures whose workers are lost fail."""

    def stop(self) -> None:
        """Ends the work under way, after an error or an interrupt."""

    def close(self) -> None:
        """Ends the workers when their work is done."""


class LocalCrew:
    """Processes on this machine, one BLAS thread each, that end when their parent does, however it ends.

    >>> crew = LocalCrew(1)
    >>> crew.submit(abs, -3).result()
    3
    >>> crew.close()
    """

    lost: tuple[type[BaseException], ...] = (BrokenProcessPool, CancelledError)

    def __init__(self, size: int | None = None) -> None:
        self.size = (
            os.process_cpu_count()
            if size is None and hasattr(os, "process_cpu_count")
            else size or os.cpu_count() or 1
        )
        self._pool = WorkerPool(self.size)

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:
        try:
            future: Future[Any] = self._pool.submit(function, *args)
            return future
        except BrokenProcessPool as error:  # lost since the last look: told like any other loss
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed

    def renew(self) -> None:
        """A broken pool takes all its tasks along: afterwards every future that it gave is done."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = WorkerPool(self.size)

    def look(self) -> None:
        """A pool tells its losses by itself."""

    def stop(self) -> None:
        self._pool.stop()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


def first_done(crew: Crew, futures: Collection[Future[Any]]) -> set[Future[Any]]:
    """Waits until one of them is done, however it ends; never for workers that are not there any more.

    >>> with crew_of(size=1) as crew:
    ...     len(first_done(crew, [crew.submit(abs, -1)]))
    1
    """
    while True:
        done = wait(futures, timeout=_LOOK, return_when=FIRST_COMPLETED).done
        if done:
            return done
        crew.look()


@contextmanager
def crew_of(dask: str | None = None, size: int | None = None) -> Iterator[Crew]:
    """Local processes, or a Dask cluster when `dask` is 'local' or an address; they end with the block.

    >>> with crew_of(size=1) as crew:
    ...     crew.submit(max, 1, 2).result()
    2
    """
    if size is not None and size < 1:
        raise UsageError(f"at least one worker is needed, not {size}; leave the number out for one a core")
    crew: Crew = LocalCrew(size) if dask is None else DaskCrew(dask, size)
    try:
        yield crew
    except CancelledError as error:
        raise ClusterLost(
            "the Dask scheduler has gone; what was finished is safe, so run the same command again"
        ) from error
    except BaseException:
        crew.stop()
        raise
    finally:
        crew.close()
