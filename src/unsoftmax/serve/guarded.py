"""One connection of any server: requests are checked from the outside in, and a body is read only when it
will be used."""

from __future__ import annotations

import io
import socket
import time
from contextlib import suppress
from hmac import compare_digest
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

from unsoftmax.oracles.http.json_text import write_json
from unsoftmax.serve.limits import TimedReader, TooBusy
from unsoftmax.serve.protocol import LENGTH_HEADER, whole_number

if TYPE_CHECKING:
    from unsoftmax.serve.listener import Listener

__all__ = ["GuardedHandler", "Refused"]

_PIECE = 1 << 16  # bytes that are read at a time
# A client that is still sending its body when it is refused would lose the refusal if the connection ended at
# once. So a refused body is read and thrown away, within these limits.
_MOST_DISCARDED, _LONGEST_DISCARD = 4 << 20, 2.0


class Refused(Exception):
    """The request gets this status and this sentence."""

    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = headers


class GuardedHandler(BaseHTTPRequestHandler):
    """The requests of one connection, one after the other, within the limits of its listener.

    A server says in `token` what clients must send (None: nothing), in `takes` which paths a POST may have,
    and answers in `get` and `post`. Both raise `Refused` for what they do not answer.
    """

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Listener

    @property
    def token(self) -> str | None:
        """The bearer token that clients must send."""
        raise NotImplementedError  # pragma: no cover - abstract

    def takes(self, path: str) -> bool:
        """Whether a POST to this path is answered."""
        raise NotImplementedError  # pragma: no cover - abstract

    def get(self) -> None:
        """Answers a GET."""
        raise Refused(404, "there is nothing here")

    def post(self, body: bytes, json_bytes: int) -> None:
        """Answers a POST. json_bytes: how much of the body is JSON."""
        raise NotImplementedError  # pragma: no cover - abstract

    def error_body(self, message: str) -> bytes:
        """How this server says what is wrong."""
        return write_json({"error": message})

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
            self._unread = self.close_connection = True  # what follows the head is not a request
        try:
            self.get()
        except Refused as refused:
            self._error(refused)

    def do_POST(self) -> None:
        try:
            json_bytes, n_bytes = self._check_head()
            try:
                with self.server.memory.held(json_bytes, n_bytes - json_bytes):
                    self.post(self._read_body(n_bytes), json_bytes)
            except TooBusy:
                raise Refused(503, "too many requests at a time", {"Retry-After": "1"}) from None
        except Refused as refused:
            self._error(refused)

    def handle_expect_100(self) -> bool:
        """The client asks before it sends a body: a refusal comes before the body, too."""
        try:
            self._check_head()
        except Refused as refused:
            self._error(refused)
            return False
        return super().handle_expect_100()

    def check_token(self) -> None:
        """Refuses a request without the token."""
        given = self.headers.get("Authorization", "").encode()
        if self.token is not None and not compare_digest(given, f"Bearer {self.token}".encode()):
            raise Refused(401, "a bearer token is needed")

    def reply(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
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

    def drop(self) -> None:
        """Ends the connection without an answer."""
        self._unread = False
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _check_head(self) -> tuple[int, int]:
        """Bytes of the JSON part and of the whole body, after everything that the head of a request shows."""
        limits = self.server.limits
        self._unread = True
        self.check_token()
        if not self.takes(self.path):
            raise Refused(404, "there is no such model")
        lengths = self.headers.get_all("Content-Length", [])
        if "Transfer-Encoding" in self.headers or not lengths:
            raise Refused(411, "a request needs a Content-Length")
        n_bytes = whole_number(lengths[0])
        if n_bytes is None or len(set(lengths)) > 1:
            raise Refused(400, "the Content-Length is not a number of bytes")
        json_bytes = n_bytes
        if LENGTH_HEADER in self.headers:
            announced = whole_number(self.headers[LENGTH_HEADER])
            if announced is None or announced > n_bytes:
                raise Refused(400, f"the header {LENGTH_HEADER} does not fit the body")
            json_bytes = announced
        if n_bytes > limits.largest_request or json_bytes > limits.largest_json:
            raise Refused(
                413,
                f"a request has at most {limits.largest_request >> 20} MB, of which "
                f"{limits.largest_json >> 20} MB may be JSON",
            )
        return json_bytes, n_bytes

    def _read_body(self, n_bytes: int) -> bytes:
        """The body, in pieces, so that memory grows only with what has arrived."""
        body = bytearray()
        while len(body) < n_bytes:
            piece = self.rfile.read(min(_PIECE, n_bytes - len(body)))
            if not piece:
                raise Refused(400, f"the body ended after {len(body)} of {n_bytes} bytes")
            body += piece
        self._unread = False
        return bytes(body)

    def _error(self, refused: Refused) -> None:
        self.close_connection = self.close_connection or self._unread
        self.reply(refused.status, self.error_body(str(refused)), refused.headers)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses by itself: broken request lines, headers and methods."""
        self._unread = self.close_connection = True
        if not hasattr(self, "request_version") or self.request_version in ("", "HTTP/0.9"):
            self.request_version = "HTTP/1.0"  # the base class leaves out the status line for older ones
        status = 400 if code in (414, 431, 505) else int(code)
        self._error(Refused(status, str(message or "the request cannot be read")))

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

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Nothing is logged: these servers are for practice."""
