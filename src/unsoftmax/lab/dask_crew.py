"""Workers of a Dask cluster: one that is started here, or an existing one. Losses are told, and a cluster
without workers is never waited for."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any

from unsoftmax.child_processes import undisturbed_children
from unsoftmax.errors import UnsoftmaxError, UsageError
from unsoftmax.lab.provenance import code_digest

__all__ = ["ClusterLost", "DaskCrew", "WorkersGone"]

_PATIENCE = 60.0  # seconds that an existing cluster may take to show a worker
_FIRST_ANSWER = 15.0  # seconds for a scheduler to answer at all
_RESTART = 20.0  # seconds for a worker of our own to be restarted; they take 2 to 4


class ClusterLost(UnsoftmaxError):
    """The Dask cluster has gone. What was finished is safe; the same command goes on from there."""


class WorkersGone(Exception):
    """All workers of a cluster of our own went and did not come back; it was started anew."""


class DaskCrew:
    """Workers of a Dask cluster: `local` starts one on this machine, anything else is the address of a
    scheduler."""

    def __init__(self, address: str, size: int | None = None) -> None:
        try:
            import distributed
            from distributed.utils import silence_logging_cmgr  # type: ignore[attr-defined,unused-ignore]
        except ImportError:
            raise UsageError(
                "Dask is not installed; pip install 'unsoftmax[dask]', or leave --dask out for local "
                "processes"
            ) from None
        if address != "local" and size is not None:
            raise UsageError(
                f"the cluster at {address!r} has its own workers; leave out the number of workers ({size})"
            )
        self._dask: Any = distributed  # its functions carry no types
        self.lost: tuple[type[BaseException], ...] = (self._dask.KilledWorker, WorkersGone)
        self._address, self._wanted = address, size or os.cpu_count() or 1
        self._cluster: Any = None
        self._client: Any = None
        self._pool: Any = None
        self._given: set[Future[Any]] = set()
        self._empty_since: float | None = None
        self._quiet = ExitStack()
        # losses are ours to tell, in a sentence
        self._quiet.enter_context(silence_logging_cmgr(logging.CRITICAL))
        try:
            self._join()
        except BaseException:
            self._quiet.close()
            raise

    def _join(self) -> None:
        address = self._start() if self._address == "local" else self._address
        try:
            self._client = self._dask.Client(address, timeout=_FIRST_ANSWER)
            self._client.wait_for_workers(1, timeout=_PATIENCE)
        except (OSError, TimeoutError, ValueError) as error:
            self._leave()
            raise UsageError(
                f"no Dask scheduler with workers at {address!r}: {error}; pass --dask local to start one here"
            ) from error
        self._same_code()
        self.size = max(1, sum(self._client.nthreads().values()))
        self._pool = self._client.get_executor(pure=False)

    def _start(self) -> str:
        """A cluster on this machine; a loss is told at once (0 failures allowed), because whoever gave the
        work decides what becomes of it."""
        from dask import config

        dask_config: Any = config
        settings = {
            "distributed.comm.timeouts.connect": f"{_PATIENCE:g}s",  # a busy machine
            "distributed.comm.timeouts.tcp": f"{_PATIENCE:g}s",
            "distributed.scheduler.allowed-failures": 0,
        }
        with undisturbed_children(), dask_config.set(settings):
            self._cluster = self._dask.LocalCluster(
                n_workers=self._wanted,
                threads_per_worker=1,
                processes=True,
                dashboard_address="127.0.0.1:0",
                silence_logs=logging.CRITICAL,
            )
        return str(self._cluster.scheduler_address)

    def _same_code(self) -> None:
        """Refuses workers that would compute something else than this process."""
        try:
            codes = set(self._client.run(code_digest).values())
        except Exception as error:
            self._leave()
            raise UsageError(
                f"the Dask workers cannot import this library ({error}); install the same version there"
            ) from error
        if codes != {code_digest()}:
            self._leave()
            raise UsageError(
                f"the Dask workers have other code of this library ({', '.join(sorted(codes))}, here "
                f"{code_digest()}); install the same"
            )

    def submit(self, function: Callable[..., Any], /, *args: Any) -> Future[Any]:
        given: Future[Any] = Future()
        self._given.add(given)

        def hand_over(done: Future[Any]) -> None:
            self._given.discard(given)
            if given.done():
                return
            if done.cancelled():
                given.cancel()
                given.set_running_or_notify_cancel()
            elif (error := done.exception()) is not None:
                given.set_exception(error)
            else:
                given.set_result(done.result())

        self._pool.submit(function, *args).add_done_callback(hand_over)
        return given

    def renew(self) -> None:
        """Waits until a cluster of our own is whole again, and starts it anew if that does not happen; others
        replace their own workers."""
        if self._cluster is None:
            return
        try:
            self._client.wait_for_workers(self._wanted, timeout=_RESTART)
        except (OSError, TimeoutError):
            self._start_anew()

    def look(self) -> None:
        """There was no result for a while: are there workers? A worker that dies while it starts is not
        replaced by Dask."""
        try:
            present = bool(self._client.nthreads())
        except Exception:  # a scheduler that has gone cancels its tasks, which is told elsewhere
            return
        now = time.monotonic()
        self._empty_since = None if present else self._empty_since or now
        if self._empty_since is None or now - self._empty_since < (
            _PATIENCE if self._cluster is None else _RESTART
        ):
            return
        if self._cluster is None:
            raise ClusterLost(
                f"the Dask cluster at {self._address} has had no worker for {_PATIENCE:g} s; what was "
                "finished is safe, so run the same command again"
            )
        self._start_anew()

    def _start_anew(self) -> None:
        orphans = list(self._given)
        self._leave()
        self._empty_since = None
        self._join()
        for future in orphans:
            if not future.done():
                future.set_exception(WorkersGone("the workers went and did not come back"))
        self._given -= set(orphans)

    def stop(self) -> None:
        self._leave()

    def close(self) -> None:
        self._leave()
        self._quiet.close()

    def _leave(self) -> None:
        with suppress(Exception):  # a scheduler that has gone cannot end it in order
            if self._pool is not None:
                self._pool.shutdown(wait=False)
        for part in (self._client, self._cluster):
            with suppress(Exception):
                if part is not None:
                    part.close()
        self._pool = self._client = self._cluster = None
