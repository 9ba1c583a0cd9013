"""The server itself: standard library, loopback only, one thread a connection."""

from __future__ import annotations

import math
import socket
import threading
import time
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.oracles import Oracle, check_width
from unsoftmax.oracles.http.json_text import write_json
from unsoftmax.serve.faults import FaultPlan, Faults
from unsoftmax.serve.protocol import (
    LENGTH_HEADER,
    BadRequest,
    model_metadata,
    read_request,
    server_metadata,
    write_answer,
)

__all__ = ["ModelServer"]

_LARGEST_REQUEST = 64 << 20


class ModelServer:
    """Serves an oracle at `url` until closed. `requests`, `queries`: answered ones; `seen`: all queries that
    arrived, faults included.

    >>> import unsoftmax
    >>> with ModelServer(unsoftmax.as_oracle("demo:single-head?d=4")) as server:
    ...     str(unsoftmax.recover(server.url).status)
    'EXACT'
    """

    def __init__(
        self,
        oracle: Oracle,
        *,
        name: str = "model",
        port: int = 0,
        datatype: str = "FP64",
        binary: bool = True,
        token: str | None = None,
        rate_limit: float | None = None,
        delay: float = 0.0,
        faults: Faults | None = None,
    ) -> None:
        if datatype not in ("FP64", "FP32"):
            raise UsageError(f"the datatype must be FP64 or FP32, not {datatype!r}")
        if rate_limit is not None and not rate_limit > 0:
            raise UsageError(f"the rate limit must be a number > 0, not {rate_limit!r}")
        self.oracle, self.name, self.datatype, self.binary, self.token, self.delay = (
            oracle,
            name,
            datatype,
            binary,
            token,
            delay,
        )
        self.width = check_width(oracle.spec.width)
        self.faults = FaultPlan(faults if faults is not None else Faults())
        self.requests = self.queries = self.seen = 0
        self.lock = threading.Lock()
        self.dead = False
        self._bucket = _Bucket(rate_limit)
        try:
            self._server = _Listener(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise UsageError(
                f"cannot serve on port {port}: {error.strerror}; choose another --port, 0 for a free one"
            ) from error
        self._server.model = self
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            daemon=True,
            name="model-server",
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the model."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v2/models/{self.name}"

    def too_fast(self, n_queries: int) -> float | None:
        """Seconds to wait when the rate limit is reached."""
        return self._bucket.take(n_queries)

    def answered(self, n_queries: int) -> None:
        """Counts, and dies when its time has come."""
        with self.lock:
            self.requests += 1
            self.queries += n_queries
            limit = self.faults.faults.die_after
            self.dead = limit is not None and self.requests >= limit

    def close(self) -> None:
        """Stops listening and ends every connection."""
        self._server.shutdown()
        self._server.server_close()
        self._server.end_connections()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Bucket:
    """Lets `rate` queries a second through, and as many at once; a request larger than that passes when the
    bucket is full."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._level = rate or 0.0
        self._at = time.monotonic()
        self._lock = threading.Lock()

    def take(self, n_queries: int) -> float | None:
        if self._rate is None:
            return None
        with self._lock:
            now = time.monotonic()
            self._level = min(self._rate, self._level + (now - self._at) * self._rate)
            self._at = now
            needed = min(float(n_queries), self._rate)
            if self._level < needed:
                return (needed - self._level) / self._rate
            self._level -= n_queries
            return None


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    model: ModelServer

    def __init__(self, *args: Any) -> None:
        self._open: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        for connection in list(self._open):
            self.shutdown_request(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def do_GET(self) -> None:
        model = self.server.model
        path = self.path.rstrip("/")
        if model.dead:
            self._drop()
        elif path in ("/v2/health/live", "/v2/health/ready", f"/v2/models/{model.name}/ready"):
            self._reply(200, b"{}")
        elif not self._authorised():
            self._error(401, "a bearer token is needed")
        elif path == "/v2":
            self._reply(200, write_json(server_metadata(model.binary)))
        elif path in (f"/v2/models/{model.name}", f"/v2/models/{model.name}/versions/1"):
            self._reply(
                200,
                write_json(
                    model_metadata(model.name, model.width, model.oracle.spec.outputs, model.datatype)
                ),
            )
        else:
            self._error(404, "there is no such model")

    def do_POST(self) -> None:
        model = self.server.model
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _LARGEST_REQUEST:
            self.close_connection = True
            self._error(
                413 if length.isdecimal() else 411, "a request needs a Content-Length of at most 64 MB"
            )
            return
        body = self.rfile.read(int(length))
        if model.dead:
            self._drop()
        elif not self._authorised():
            self._error(401, "a bearer token is needed")
        elif self.path not in (f"/v2/models/{model.name}/infer", f"/v2/models/{model.name}/versions/1/infer"):
            self._error(404, "there is no such model")
        else:
            self._infer(body)

    def _infer(self, body: bytes) -> None:
        model = self.server.model
        try:
            batch, as_bytes = read_request(body, self.headers.get(LENGTH_HEADER), model.datatype, model.width)
        except BadRequest as error:
            self._error(400, str(error))
            return
        with model.lock:
            model.seen += len(batch)
        fault = model.faults.draw()
        wait = model.too_fast(len(batch))
        if wait is not None:
            self._error(429, "too many queries", {"Retry-After": str(math.ceil(wait))})
        elif fault == "unavailable":
            self._error(503, "try again")
        elif fault == "error":
            self._error(500, "internal error")
        elif fault == "drop":
            self._drop()
        else:
            time.sleep(model.delay + (model.faults.faults.slow_seconds if fault == "slow" else 0.0))
            try:
                with model.lock:
                    answers = model.oracle(batch)
            except OracleFault as error:
                self._error(422, str(error))
                return
            content, headers = write_answer(
                model.name, answers, model.datatype, as_bytes and model.binary, fault
            )
            model.answered(len(batch))
            self._reply(200, content, headers)

    def _authorised(self) -> bool:
        token = self.server.model.token
        return token is None or compare_digest(
            self.headers.get("Authorization", "").encode(), f"Bearer {token}".encode()
        )

    def _reply(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        """Status, headers and body in one piece: two small packets would wait for each other."""
        self.send_response_only(status)
        for name, value in (
            {"Content-Type": "application/json", "Content-Length": str(len(content))} | (headers or {})
        ).items():
            self.send_header(name, value)
        self._headers_buffer.append(b"\r\n" + content)  # type: ignore[attr-defined]
        self.flush_headers()

    def _error(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        self._reply(status, write_json({"error": message}), headers)

    def _drop(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Quiet: progress of a practice server is nobody's news."""
