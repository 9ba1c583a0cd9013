"""A network backend whose every read and write ends by a given moment, however slowly the server sends."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore

__all__ = ["DeadlineBackend"]

# The system accepts more of a request once a third of its send buffer (16 KB at least) is free. A piece of
# this size therefore needs at most a few calls, and the deadline is checked before each piece.
_PIECE = 1 << 14
_SHORTEST = 1e-3  # seconds; a timeout of 0 would mean "do not wait" instead of "time is up"


class DeadlineBackend(httpcore.SyncBackend):
    """Timeouts of a client hold for one read or write each, so a server that sends a byte at a time keeps a
    request open for ever. Inside `until(latest)` every operation of the calling thread ends by `latest`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.local()  # every request runs in one thread from its first to its last byte

    @contextmanager
    def until(self, latest: float) -> Iterator[None]:
        """Requests of this thread end by `latest`, a moment of `time.monotonic`."""
        self._thread.latest = latest
        try:
            yield
        finally:
            self._thread.latest = None

    def left(self, timeout: float | None, late: type[httpcore.TimeoutException]) -> float | None:
        """Seconds that the next operation may take, at most `timeout`; raises `late` when there are none."""
        latest = getattr(self._thread, "latest", None)
        if latest is None:
            return timeout
        remaining = float(latest - time.monotonic())
        if remaining <= 0.0:
            raise late("the deadline has passed")
        return max(_SHORTEST, remaining if timeout is None else min(timeout, remaining))

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        addresses = _addresses(host, port, self.left(timeout, httpcore.ConnectTimeout))
        options = list(socket_options or ())
        while True:
            allowed = self.left(timeout, httpcore.ConnectTimeout)
            address = addresses.pop(0)
            try:
                inner = super().connect_tcp(address, port, allowed, local_address, options)
            except httpcore.ConnectError:
                if not addresses:
                    raise
            else:
                return _TimedStream(inner, self)


def _addresses(host: str, port: int, allowed: float | None) -> list[str]:
    """The numeric addresses of a host, best first. The system's own look-up takes as long as it likes, so it
    runs in a thread that is left behind when time is up."""
    found: list[str] = []
    failed: list[OSError] = []

    def look_up() -> None:
        try:
            for *_, place in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
                found.append(str(place[0]))
        except (OSError, UnicodeError) as error:  # a label of over 63 characters is not Unicode to encode
            failed.append(error if isinstance(error, OSError) else OSError(str(error)))

    thread = threading.Thread(target=look_up, name=f"look up {host}", daemon=True)
    thread.start()
    thread.join(allowed)
    if thread.is_alive():
        raise httpcore.ConnectTimeout(f"the address of {host} was not found in time")
    if failed:
        raise httpcore.ConnectError(str(failed[0])) from failed[0]
    return list(dict.fromkeys(found))


class _TimedStream(httpcore.NetworkStream):
    """A connection that asks the backend how long each operation may take."""

    def __init__(self, inner: httpcore.NetworkStream, backend: DeadlineBackend) -> None:
        self._inner = inner
        self._backend = backend

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._backend.left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE):
            piece = buffer[start : start + _PIECE]
            self._inner.write(piece, self._backend.left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        allowed = self._backend.left(timeout, httpcore.ConnectTimeout)
        return _TimedStream(self._inner.start_tls(ssl_context, server_hostname, allowed), self._backend)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
