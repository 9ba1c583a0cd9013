"""Who does the work: a pool of local processes, or a Dask cluster. Both take functions and give futures, and say when a worker was lost."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from unsoftmax.errors import UnsoftmaxError, UsageError
from unsoftmax.lab.provenance import code_digest

__all__ = ["ClusterLost", "Crew", "DaskCrew", "LocalCrew", "crew_of"]

_THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
_PATIENCE = 60  # seconds that an existing cluster may take to show a worker


class ClusterLost(UnsoftmaxError):
    """The Dask scheduler has gone. What was finished is safe; the same command goes on from there."""


class Crew(Protocol):
    """Workers that run functions. `lost`: what a future raises when the worker that ran it died."""

    size: int
    lost: tuple[type[BaseException], ...]

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]: ...

    def renew(self) -> None:
        """Replaces what was lost."""

    def close(self) -> None:
        """Sends everybody home."""


class LocalCrew:
    """Processes on this machine, one BLAS thread each, that end when their parent does, however it ends.

    >>> crew = LocalCrew(1)
    >>> crew.submit(abs, -3).result()
    3
    >>> crew.close()
    """

    lost: tuple[type[BaseException], ...] = (BrokenProcessPool,)

    def __init__(self, size: int | None = None) -> None:
        self.size = os.process_cpu_count() if size is None and hasattr(os, "process_cpu_count") else size or os.cpu_count() or 1
        self._pool = self._new()

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.size, mp_context=multiprocessing.get_context("spawn"), initializer=_end_with_the_parent)

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:
        try:
            with _one_thread_each():  # processes start when work is first given to them
                return self._pool.submit(function, *args)
        except BrokenProcessPool as error:  # lost since the last look: told like any other loss
            failed: Future[Any] = Future()
            failed.set_exception(error)
            return failed

    def renew(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._pool = self._new()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class DaskCrew:
    """Workers of a Dask cluster: `local` starts one on this machine, anything else is the address of a scheduler."""

    def __init__(self, address: str, size: int | None = None) -> None:
        try:
            import distributed
            from dask import config
        except ImportError:
            raise UsageError("Dask is not installed; pip install 'unsoftmax[dask]', or leave --dask out for local processes") from None
        dask: Any = distributed  # its functions carry no types
        dask_config: Any = config
        self.lost: tuple[type[BaseException], ...] = (dask.KilledWorker,)
        self._cluster: Any = None
        if address == "local":
            patience = {"distributed.comm.timeouts.connect": f"{_PATIENCE}s", "distributed.comm.timeouts.tcp": f"{_PATIENCE}s"}  # a busy machine
            with _one_thread_each(), dask_config.set(patience):
                self._cluster = dask.LocalCluster(
                    n_workers=size or os.cpu_count() or 1, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
                )
            address = self._cluster.scheduler_address
        try:
            self._client = dask.Client(address, timeout=_PATIENCE)
            self._client.wait_for_workers(1, timeout=_PATIENCE)
        except (OSError, TimeoutError, ValueError) as error:
            self.close()
            raise UsageError(f"no Dask scheduler with workers at {address!r}: {error}; pass --dask local to start one here") from error
        self._same_code()
        self.size = max(1, sum(self._client.nthreads().values()))
        self._pool = self._client.get_executor(pure=False)

    def _same_code(self) -> None:
        """Refuses workers that would compute something else than this process."""
        try:
            codes = set(self._client.run(code_digest).values())
        except Exception as error:
            self.close()
            raise UsageError(f"the Dask workers cannot import this library ({error}); install the same version there") from error
        if codes != {code_digest()}:
            self.close()
            raise UsageError(f"the Dask workers have other code of this library ({', '.join(sorted(codes))}, here {code_digest()}); install the same")

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:
        future: Future[Any] = self._pool.submit(function, *args)
        return future

    def renew(self) -> None:
        """A Dask cluster replaces its own workers."""

    def close(self) -> None:
        for part in (getattr(self, "_pool", None), getattr(self, "_client", None), self._cluster):
            if part is not None:
                with suppress(Exception):  # a scheduler that has gone cannot say goodbye
                    part.shutdown(wait=False) if hasattr(part, "submit") and not hasattr(part, "run") else part.close()


@contextmanager
def crew_of(dask: str | None = None, size: int | None = None) -> Iterator[Crew]:
    """Local processes, or a Dask cluster when `dask` is 'local' or an address; everybody goes home at the end.

    >>> with crew_of(size=1) as crew:
    ...     crew.submit(max, 1, 2).result()
    2
    """
    if size is not None and size < 1:
        raise UsageError(f"at least one worker is needed, not {size}")
    crew: Crew = LocalCrew(size) if dask is None else DaskCrew(dask, size)
    try:
        yield crew
    except CancelledError as error:
        raise ClusterLost("the Dask scheduler has gone; what was finished is safe, so run the same command again") from error
    finally:
        crew.close()


@contextmanager
def _one_thread_each() -> Iterator[None]:
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


def _end_with_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_outlive, args=(parent,), daemon=True).start()


def _outlive(parent: Any) -> None:
    parent.join()
    os._exit(1)
