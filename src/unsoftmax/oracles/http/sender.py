"""Requests to an unreliable server: every one has a deadline, a size limit and a number of attempts."""

from __future__ import annotations

import os
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpcore
import httpx

from unsoftmax import __version__
from unsoftmax.errors import OracleFault, RequestRefused, UsageError, brief
from unsoftmax.oracles.http.attempts import Attempts
from unsoftmax.oracles.http.deadline import DeadlineBackend
from unsoftmax.oracles.http.decompression import Decompression, ReplyTooLarge
from unsoftmax.oracles.http.json_text import read_json
from unsoftmax.oracles.http.options import HttpOptions
from unsoftmax.oracles.http.proxies import connection_pool
from unsoftmax.oracles.http.retries import TRY_AGAIN, Again, retry_after
from unsoftmax.oracles.http.secrets import TOKEN_VARIABLE, Secrets

__all__ = ["Reply", "Request", "Sender"]

_LARGEST_DESCRIPTION = 4 << 20  # bytes; descriptions of models have some kilobytes
_LARGEST_REFUSAL = 1 << 16  # bytes of an error page that are read; 200 characters of it are shown
_EXCERPT = 200  # characters of a refusal that are shown
_SHORTEST_TIMEOUT = 0.05  # seconds for the last attempt when patience is nearly at its end


@dataclass(frozen=True)
class Request:
    """One request. n_queries: how many queries it holds, for the rate limit. retries: most attempts after the
    first one (None: as the options say). largest: most bytes that the reply may have, decompressed.
    """

    method: str
    url: str
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    n_queries: int = 0
    retries: int | None = None
    largest: int = _LARGEST_DESCRIPTION


@dataclass(frozen=True)
class Reply:
    """Status, headers and body of one response; `complete` is False when the body was cut at the limit."""

    status: int
    headers: httpx.Headers
    body: bytes
    complete: bool = True


class Sender:
    """Sends requests to one server. `retries` counts the requests that were sent again.

    Retried, with growing pauses: 429, 502, 503, 504 (Retry-After is honoured), dropped connections,
    time-outs. Everything else is told at once.
    """

    def __init__(self, url: str, options: HttpOptions) -> None:
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, TypeError) as error:
            raise UsageError(f"{brief(url)!r} is not a web address: {brief(str(error))}") from error
        if parsed.userinfo:
            raise UsageError(
                f"the address holds a password; leave it out and put the token into {TOKEN_VARIABLE}"
            )
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise UsageError(f"{brief(url)!r} is not a web address; it begins with http:// or https://")
        self.secrets = Secrets(os.environ, options.headers)
        self.shown = str(parsed.copy_with(query=None, fragment=None))  # a query may hold a key
        self._attempts = Attempts(options, self.secrets, brief(self.shown))
        self._options = options
        self._addresses: dict[str, httpcore.URL] = {}
        self._headers = {  # whoever reads the server's log can tell who asked
            "User-Agent": f"unsoftmax/{__version__}",
            "Accept": "*/*",
            "Accept-Encoding": "gzip, deflate",
        } | self.secrets.headers()
        self._backend = DeadlineBackend()
        self._pool = connection_pool(parsed, options.concurrency, self._backend)

    def close(self) -> None:
        """Ends the connections."""
        self._pool.close()

    @property
    def retries(self) -> int:
        """Requests sent again until now."""
        return self._attempts.retries

    def send(self, request: Request, stop: threading.Event | None = None) -> Reply:
        """The reply with status 200, after as many attempts as it takes; `OracleFault` when patience ends."""
        return self._attempts.run(
            lambda end: self._attempt(request, end),
            n_queries=request.n_queries,
            retries=request.retries,
            stop=stop,
        )

    def _attempt(self, request: Request, end: float) -> Reply:
        seconds = min(self._options.timeout, max(_SHORTEST_TIMEOUT, end - time.monotonic()))
        try:
            with self._backend.until(time.monotonic() + seconds):
                reply = self._exchange(request, seconds)
        except httpcore.TimeoutException as error:
            raise Again(f"no complete answer within {seconds:.3g} s") from error
        except (httpcore.UnsupportedProtocol, httpcore.ProxyError) as error:
            raise UsageError(f"cannot reach {brief(self.shown)}: {error}") from error
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            if _not_trusted(error):
                raise OracleFault(
                    f"the certificate of {brief(self.shown)} is not trusted; set SSL_CERT_FILE to the file "
                    "of its authority"
                ) from error
            raise Again(f"the connection failed ({error or type(error).__name__})") from error
        if reply.status in TRY_AGAIN:
            raise Again(
                f"the server answered {reply.status}", retry_after(reply.headers.get("retry-after", ""))
            )
        if reply.status != 200:
            raise self._refusal(reply, request)
        return reply

    def _exchange(self, request: Request, seconds: float) -> Reply:
        """One request and its reply, read within the limits of size and time."""
        headers = [
            (name.encode(), value.encode()) for name, value in {**self._headers, **request.headers}.items()
        ]
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), seconds)
        with self._pool.stream(
            request.method,
            self._address(request.url),
            headers=headers,
            content=request.content,
            extensions={"timeout": timeouts},
        ) as response:
            told = httpx.Headers(response.headers)
            if response.status != 200:
                return self._read(response, told, _LARGEST_REFUSAL)
            reply = self._read(response, told, request.largest)
            if not reply.complete:
                raise OracleFault(
                    f"the server sent more than {request.largest >> 10:,} KB in reply to one request; ask "
                    "fewer sequences in a request, or pass outputs where answers are vectors"
                )
            return reply

    def _read(self, response: httpcore.Response, headers: httpx.Headers, largest: int) -> Reply:
        """The decompressed body, cut at `largest` bytes."""
        decompression = Decompression(headers.get("content-encoding", ""), largest, self._in_time)
        parts: list[bytes] = []
        announced = headers.get("content-length", "")
        if (
            announced.isascii()
            and announced.isdecimal()
            and (len(announced) > 18 or int(announced) > largest)
        ):
            return Reply(response.status, headers, b"", complete=False)
        try:
            for data in response.iter_stream():
                parts.append(decompression.feed(data))
            decompression.finish()
        except ReplyTooLarge:
            return Reply(response.status, headers, b"".join(parts), complete=False)
        return Reply(response.status, headers, b"".join(parts))

    def _in_time(self) -> None:
        self._backend.left(None, httpcore.ReadTimeout)

    def _address(self, url: str) -> httpcore.URL:
        if url not in self._addresses:
            parsed = httpx.URL(url)
            self._addresses[url] = httpcore.URL(
                scheme=parsed.raw_scheme, host=parsed.raw_host, port=parsed.port, target=parsed.raw_path
            )
        return self._addresses[url]

    def _refusal(self, reply: Reply, request: Request) -> OracleFault:
        """One sentence that says what to change."""
        words = self.secrets.excerpt(_words(reply.body), reply.complete, _EXCERPT)
        said = f": {words}" if words else ""
        there, status = brief(self.shown), reply.status
        if status == 401:
            wrong = "does not accept the token" if self.secrets.has_token else "wants a token"
            valid = " to a valid one" if self.secrets.has_token else ""
            return OracleFault(f"{there} {wrong} (401); set {TOKEN_VARIABLE}{valid}")
        if 300 <= status < 400:
            place = reply.headers.get("location", "nowhere")
            return OracleFault(f"{there} redirects ({status}) to {place}; pass that address instead")
        if status >= 500:
            told = f"{there} failed on a request ({status}{said}); look into the server's log. If large "
            return RequestRefused(f"{told}inputs make it fail, pass input_bound", words, malformed=False)
        sentences = {
            400: "{there} does not take the request ({status}{said}); "
            "check the width, and the names and datatypes of the model",
            403: "{there} forbids this (403{said}); "
            "ask for access to the model, or use another token in {token}",
            404: "there is nothing at {there} (404{said}); check the address and the name of the model",
            413: "a request of {size} bytes is too large for {there} (413); ask fewer sequences in a request",
        }
        sentence = sentences.get(400 if status == 422 else status)
        sentence = sentence or "{there} answered with status {status}{said}; an answer has status 200"
        size = len(request.content or b"")
        told = sentence.format(there=there, status=status, said=said, token=TOKEN_VARIABLE, size=size)
        return RequestRefused(told, words, malformed=status in (400, 422))


def _words(body: bytes) -> bytes:
    """The sentence in a refusal that is JSON; any other body as it is."""
    try:
        content = read_json(body)
    except ValueError:
        return body
    for name in ("error", "message", "detail"):
        if isinstance(content, dict) and name in content:
            content = content[name]
    return content.encode() if isinstance(content, str) else body


def _not_trusted(error: BaseException | None) -> bool:
    """Whether the certificate of the server was refused, as the error or what caused it says."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
