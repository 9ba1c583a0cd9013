"""The listening socket: one thread for each connection, and a limit to how many there are."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http.server import ThreadingHTTPServer
from typing import Any

from unsoftmax.closing import Closing
from unsoftmax.serve.guarded import GuardedHandler
from unsoftmax.serve.limits import Limits, MemoryBudget

__all__ = ["Listener", "Listening"]

_REFUSAL = b'{"error":"too many connections"}'
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(_REFUSAL), _REFUSAL)
)


class Listener(ThreadingHTTPServer):
    """Accepts connections on loopback for `owner`, the server that its handlers ask for answers.

    When there are too many, the one that has waited longest without a request is ended; when all of them are
    at work, the new one is refused with status 503.
    """

    daemon_threads = True
    request_queue_size = 512  # as many clients may connect at one moment without being refused by the system

    def __init__(self, port: int, owner: Any, limits: Limits, handler: type[GuardedHandler]) -> None:
        self.owner = owner
        self.limits = limits
        self.memory = MemoryBudget(limits.memory)
        self._open: set[socket.socket] = set()
        self._waiting: dict[socket.socket, None] = {}  # in the order in which they began to wait
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), handler)

    def waits(self, connection: socket.socket) -> None:
        """The connection waits for its next request."""
        with self._lock:
            self._waiting.pop(connection, None)
            self._waiting[connection] = None

    def works(self, connection: socket.socket) -> None:
        """A request has begun to arrive."""
        with self._lock:
            self._waiting.pop(connection, None)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            full = len(self._open) >= self.limits.connections
            idle = next(iter(self._waiting), None) if full else None
            if idle is not None:
                del self._waiting[idle]
                self._open.discard(idle)
            if not full or idle is not None:
                self._open.add(request)
                self._waiting[request] = None  # from the first moment, before its thread says so
        if idle is not None:
            with suppress(OSError):
                idle.shutdown(socket.SHUT_RDWR)  # its thread reads the end and leaves
        elif full:
            with suppress(OSError):
                request.sendall(_BUSY)
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
            self._waiting.pop(request, None)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """Ends all connections, whatever they are doing."""
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            self.shutdown_request(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is not reported."""


class Listening(Closing):
    """What servers share: a listener in a thread of its own, until `close`."""

    _listener: Listener
    _thread: threading.Thread

    def _listen(self, listener: Listener) -> None:
        self._listener = listener
        self._thread = threading.Thread(
            target=listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True, name="model-server"
        )
        self._thread.start()

    def close(self) -> None:
        """Stops listening and ends every connection."""
        self._listener.shutdown()
        self._listener.server_close()
        self._listener.end_connections()
        self._thread.join()
