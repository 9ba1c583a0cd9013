"""What one client, and all clients together, may take from the server: time, connections, memory, queries."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Limits", "MemoryBudget", "RateLimit", "TimedReader", "TooBusy"]

# A megabyte of JSON takes up to 22 MB as Python objects ("[]," is 3 bytes and becomes a list of 64).
# Numbers that travel as bytes are copied into a float64 array and checked: at most four times their size.
_JSON_COST, _BYTES_COST = 24, 4


@dataclass(frozen=True)
class Limits:
    """idle: seconds that a connection may wait without a request. request: seconds that a request may take to
    arrive, or its reply to be read. connections: most connections at a time. largest_json, largest_request:
    bytes of the JSON part and of the whole request. memory: bytes that all requests under way may take.
    """

    idle: float = 30.0
    request: float = 30.0
    connections: int = 256
    largest_json: int = 16 << 20
    largest_request: int = 64 << 20
    memory: int = 512 << 20


class TooBusy(Exception):
    """The requests under way take all the memory that they may; a later one can be answered."""


class MemoryBudget:
    """Holds an estimate of the memory of every request under way, so that their sum has a limit.

    >>> budget = MemoryBudget(1000)
    >>> with budget.held(json_bytes=10, other_bytes=100):
    ...     budget.left
    360
    """

    def __init__(self, size: int) -> None:
        self._left = size
        self._lock = threading.Lock()

    @property
    def left(self) -> int:
        """Bytes that nobody holds."""
        return self._left

    @contextmanager
    def held(self, json_bytes: int, other_bytes: int) -> Iterator[None]:
        """Holds the memory that a request of this size takes, or raises `TooBusy`."""
        cost = _JSON_COST * json_bytes + _BYTES_COST * other_bytes
        with self._lock:
            if cost > self._left:
                raise TooBusy
            self._left -= cost
        try:
            yield
        finally:
            with self._lock:
                self._left += cost


class TimedReader(io.RawIOBase):
    """Reads a connection. A request must begin within `idle` seconds and arrive within `request` seconds.
    So a client that sends nothing, or a byte at a time, ends in `TimeoutError`.
    """

    def __init__(self, connection: socket.socket, limits: Limits) -> None:
        super().__init__()
        self._connection = connection
        self._limits = limits
        self._begun = False
        self._latest = 0.0

    def expect_request(self) -> None:
        """The next byte begins a new request."""
        self._begun = False
        self._latest = time.monotonic() + self._limits.idle

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        remaining = self._latest - time.monotonic()
        if remaining <= 0.0:
            raise TimeoutError("the request did not arrive in time")
        self._connection.settimeout(remaining)
        n_bytes = self._connection.recv_into(buffer)
        if not self._begun:
            self._begun = True
            self._latest = time.monotonic() + self._limits.request
        return n_bytes


class RateLimit:
    """Allows `rate` queries a second. A second's worth of them may come at once; a request of more than that
    is allowed when nothing was asked for a second. None: no limit.
    """

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._allowed = rate or 0.0
        self._at = time.monotonic()
        self._lock = threading.Lock()

    def wait_for(self, n_queries: int) -> float | None:
        """None when `n_queries` may be answered now, else the seconds to wait."""
        if self._rate is None:
            return None
        with self._lock:
            now = time.monotonic()
            self._allowed = min(self._rate, self._allowed + (now - self._at) * self._rate)
            self._at = now
            needed = min(float(n_queries), self._rate)
            if self._allowed < needed:
                return (needed - self._allowed) / self._rate
            self._allowed -= n_queries
            return None
