"""One request with all its attempts: rate, retries with growing pauses, patience. HTTP and gRPC share it."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from unsoftmax.errors import OracleFault
from unsoftmax.oracles.http.options import HttpOptions
from unsoftmax.oracles.http.pace import RateLimit
from unsoftmax.oracles.http.retries import Again, pause_before
from unsoftmax.oracles.http.secrets import Secrets, one_line

__all__ = ["Attempts"]

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")


class Attempts:
    """How often a server is asked the same. `retries` counts the requests that were sent again.

    shown: the server's address as messages may name it.
    """

    def __init__(self, options: HttpOptions, secrets: Secrets, shown: str) -> None:
        self.retries = 0
        self._options, self._secrets, self._shown = options, secrets, shown
        self._limit = RateLimit(options.rate)
        self._count = threading.Lock()
        self._jitter = random.Random()  # noqa: S311 - only spreads retries, answers do not depend on it

    def run(
        self,
        once: Callable[[float], Answer],
        *,
        n_queries: int = 0,
        retries: int | None = None,
        stop: threading.Event | None = None,
    ) -> Answer:
        """What `once(end of patience)` returns, after as many attempts as it takes while it raises `Again`;
        `OracleFault` when patience ends."""
        stop = stop if stop is not None else threading.Event()
        most = self._options.retries if retries is None else retries
        end = time.monotonic() + self._options.patience
        attempt = 0
        while True:
            if n_queries:
                self._limit.wait(n_queries, stop)
            if stop.is_set():
                raise OracleFault("stopped, because another request failed")
            try:
                return once(end)
            except Again as again:
                pause = pause_before(attempt, self._options.backoff, again.pause, self._jitter)
                if attempt >= most or time.monotonic() + pause > end:
                    raise self._give_up(again, attempt) from again.__cause__
                attempt += 1
                with self._count:
                    self.retries += 1
                reason = self._secrets.redact(one_line(again.reason))
                _log.info("%s: %s; attempt %d in %.2g s", self._shown, reason, attempt + 1, pause)
                stop.wait(pause)

    def _give_up(self, again: Again, attempt: int) -> OracleFault:
        if again.pause is not None and again.pause > self._options.patience:
            return OracleFault(
                f"{self._shown} asks to wait {again.pause:.0f} s; run again then, with the same ledger"
            )
        return OracleFault(
            f"{self._shown} gave no answer in {attempt + 1} attempts: {again.reason}. Is the server running? "
            "If the run has a ledger, its answers are kept: run again with the same one"
        )
