"""One connection: requests are checked from the outside in, and a body is read only when it will be used."""

from __future__ import annotations

import io
import math
import socket
import time
from contextlib import suppress
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from unsoftmax.errors import OracleFault
from unsoftmax.oracles.http.json_text import write_json
from unsoftmax.serve.limits import TimedReader, TooBusy
from unsoftmax.serve.protocol import (
    LENGTH_HEADER,
    BadRequest,
    model_metadata,
    read_request,
    server_metadata,
    whole_number,
    write_answer,
)

if TYPE_CHECKING:
    from unsoftmax.serve.listener import Listener

__all__ = ["Handler"]

_PIECE = 1 << 16  # bytes that are read at a time
# A client that is still sending its body when it is refused would lose the refusal if the connection ended at
# once. So a refused body is read and thrown away, within these limits.
_MOST_DISCARDED, _LONGEST_DISCARD = 4 << 20, 2.0


class _Refused(Exception):
    """The request gets this status and this sentence."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


class Handler(BaseHTTPRequestHandler):
    """The requests of one connection, one after the other."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Listener

    def setup(self) -> None:
        super().setup()
        self._unread = False
        self._timed = TimedReader(self.connection, self.server.limits)
        self.rfile.close()
        self.rfile = io.BufferedReader(self._timed)

    def handle_one_request(self) -> None:
        self._timed.expect_request()
        self.server.waits(self.connection)
        super().handle_one_request()

    def parse_request(self) -> bool:
        self.server.works(self.connection)
        return super().parse_request()

    def do_GET(self) -> None:
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self._unread = self.close_connection = True  # what follows the head is no request
        try:
            self._get()
        except _Refused as refused:
            self._error(refused)

    def do_POST(self) -> None:
        try:
            self._post()
        except _Refused as refused:
            self._error(refused)

    def handle_expect_100(self) -> bool:
        """The client asks before it sends a body: a refusal comes before the body, too."""
        try:
            self._check_post()
        except _Refused as refused:
            self._error(refused)
            return False
        return super().handle_expect_100()

    def _get(self) -> None:
        model = self.server.model
        path = self.path.rstrip("/")
        if model.dead:
            self._drop()
            return
        if path in ("/v2/health/live", "/v2/health/ready", f"/v2/models/{model.name}/ready"):
            self._reply(200, b"{}")
            return
        self._check_token()
        if path == "/v2":
            self._reply(200, write_json(server_metadata(model.binary)))
        elif path in (f"/v2/models/{model.name}", f"/v2/models/{model.name}/versions/1"):
            told = model_metadata(model.name, model.domain, model.oracle.spec.outputs, model.datatype)
            self._reply(200, write_json(told))
        else:
            raise _Refused(404, "there is no such model")

    def _post(self) -> None:
        model = self.server.model
        if model.dead:
            self._drop()
            return
        json_bytes, n_bytes = self._check_post()
        try:
            with self.server.memory.held(json_bytes, n_bytes - json_bytes):
                body = self._read_body(n_bytes)
                try:
                    request = read_request(body, json_bytes, model.datatype, model.domain)
                except BadRequest as error:
                    raise _Refused(400, str(error)) from error
                self._infer(*request)
        except TooBusy:
            self._unread = True
            raise _Refused(503, "too many requests at a time", {"Retry-After": "1"}) from None

    def _check_post(self) -> tuple[int, int]:
        """Bytes of the JSON part and of the whole body, after everything that the head of a request shows."""
        limits, model = self.server.limits, self.server.model
        self._unread = True
        self._check_token()
        if self.path not in (f"/v2/models/{model.name}/infer", f"/v2/models/{model.name}/versions/1/infer"):
            raise _Refused(404, "there is no such model")
        lengths = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or not lengths:
            raise _Refused(411, "a request needs a Content-Length")
        n_bytes = whole_number(lengths[0])
        if n_bytes is None or len(set(lengths)) > 1:
            raise _Refused(400, "the Content-Length is no number of bytes")
        json_bytes = n_bytes
        if LENGTH_HEADER in self.headers:
            announced = whole_number(self.headers[LENGTH_HEADER])
            if announced is None or announced > n_bytes:
                raise _Refused(400, f"the header {LENGTH_HEADER} does not fit the body")
            json_bytes = announced
        if n_bytes > limits.largest_request or json_bytes > limits.largest_json:
            raise _Refused(
                413,
                f"a request has at most {limits.largest_request >> 20} MB, "
                f"of which {limits.largest_json >> 20} MB may be JSON",
            )
        return json_bytes, n_bytes

    def _read_body(self, n_bytes: int) -> bytes:
        """The body, in pieces, so that memory grows only with what has arrived."""
        body = bytearray()
        while len(body) < n_bytes:
            piece = self.rfile.read(min(_PIECE, n_bytes - len(body)))
            if not piece:
                raise _Refused(400, f"the body ended after {len(body)} of {n_bytes} bytes")
            body += piece
        self._unread = False
        return bytes(body)

    def _infer(self, batch: Any, as_bytes: bool) -> None:
        model = self.server.model
        with model.lock:
            model.seen += len(batch)
        fault = model.fault_plan.draw()
        wait = model.wait_for(len(batch))
        if wait is not None:
            raise _Refused(429, "too many queries", {"Retry-After": str(math.ceil(wait))})
        if fault == "unavailable":
            raise _Refused(503, "try again")
        if fault == "error":
            raise _Refused(500, "internal error")
        if fault == "drop":
            self._drop()
            return
        time.sleep(model.delay + (model.faults.slow_seconds if fault == "slow" else 0.0))
        try:
            with model.lock:
                answers = model.oracle(batch)
        except OracleFault as error:
            raise _Refused(422, str(error)) from error
        except Exception as error:
            raise _Refused(500, f"the model raised {type(error).__name__}") from error
        content, headers = write_answer(model.name, answers, model.datatype, as_bytes and model.binary, fault)
        model.answered(len(batch))
        self._reply(200, content, headers)

    def _check_token(self) -> None:
        token = self.server.model.token
        given = self.headers.get("Authorization", "").encode()
        if token is not None and not compare_digest(given, f"Bearer {token}".encode()):
            raise _Refused(401, "a bearer token is needed")

    def _reply(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        """Status, headers and body in one piece: two small packets would wait for each other."""
        self.connection.settimeout(self.server.limits.request)
        self.send_response_only(status)
        usual = {"Content-Type": "application/json", "Content-Length": str(len(content))}
        if self.close_connection:
            usual["Connection"] = "close"
        for name, value in (usual | (headers or {})).items():
            self.send_header(name, value)
        self._headers_buffer.append(b"\r\n" + content)  # type: ignore[attr-defined]
        self.flush_headers()

    def _error(self, refused: _Refused) -> None:
        self.close_connection = self.close_connection or self._unread
        self._reply(refused.status, write_json({"error": str(refused)}), refused.headers)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses by itself: broken request lines, headers and methods."""
        self._unread = self.close_connection = True
        if not hasattr(self, "request_version") or self.request_version in ("", "HTTP/0.9"):
            self.request_version = "HTTP/1.0"  # the base class leaves out the status line for older ones
        status = 400 if code in (414, 431, 505) else int(code)
        self._error(_Refused(status, str(message or "the request cannot be read")))

    def finish(self) -> None:
        with suppress(OSError, ValueError):
            super().finish()
        if self._unread:
            self._discard()

    def _discard(self) -> None:
        """Reads what a refused client still sends, so that it gets to read the refusal."""
        end, n_bytes = time.monotonic() + _LONGEST_DISCARD, 0
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            while n_bytes < _MOST_DISCARDED and (remaining := end - time.monotonic()) > 0.0:
                self.connection.settimeout(remaining)
                piece = self.connection.recv(_PIECE)
                if not piece:
                    return
                n_bytes += len(piece)

    def _drop(self) -> None:
        self._unread = False
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Nothing is logged: this server is for practice."""
