"""Requests that survive an unreliable server: time limits, retries, and faults told in one sentence."""

from __future__ import annotations

import os
import random
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from unsoftmax import __version__
from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.oracles.http.options import HttpOptions
from unsoftmax.oracles.http.pace import RateLimit
from unsoftmax.oracles.http.secrets import TOKEN_VARIABLE, Secrets

__all__ = ["Reply", "Sender"]

_TRY_AGAIN = (429, 502, 503, 504)
_LONGEST_PAUSE = 20.0
_LARGEST_REPLY = 256 << 20


@dataclass(frozen=True)
class Reply:
    """Status, headers and body of one response."""

    status: int
    headers: httpx.Headers
    body: bytes


class _Again(Exception):
    """This attempt gave no answer, but another one may; `pause` is what the server asked for."""

    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.pause = pause


class Sender:
    """Sends requests to one server. `retries` counts the requests that were sent again.

    Retried, with growing pauses: 429, 502, 503, 504 (Retry-After is honoured), dropped connections,
    time-outs. Everything else is told at once.
    """

    def __init__(self, url: str, options: HttpOptions) -> None:
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, TypeError) as error:
            raise UsageError(f"{url!r} is no web address: {error}") from error
        if parsed.userinfo:
            raise UsageError(
                f"the address holds a password; leave it out and put the token into {TOKEN_VARIABLE}"
            )
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise UsageError(f"{url!r} is no web address; it begins with http:// or https://")
        self.secrets = Secrets(os.environ, options.headers)
        self.shown = str(parsed.copy_with(query=None, fragment=None))  # a query may hold a key
        self.retries = 0
        self._options = options
        self._parsed: dict[str, httpx.URL] = {}
        self._limit = RateLimit(options.rate)
        self._count = threading.Lock()
        self._jitter = random.Random()  # noqa: S311 - only spreads retries, answers do not depend on it
        loopback = parsed.host in ("localhost", "127.0.0.1", "::1")
        limits = httpx.Limits(
            max_connections=options.concurrency, max_keepalive_connections=options.concurrency
        )
        named = {
            "User-Agent": f"unsoftmax/{__version__}"
        } | self.secrets.headers()  # whoever reads the server's log can tell who asked
        self._client = httpx.Client(
            headers=named, timeout=options.timeout, limits=limits, trust_env=not loopback
        )

    def close(self) -> None:
        """Ends the connections."""
        self._client.close()

    def send(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None = None,
        headers: dict[str, str] | None = None,
        n_queries: int = 0,
        stop: threading.Event | None = None,
        retries: int | None = None,
    ) -> Reply:
        """The reply with status 200, after as many attempts as it takes; `OracleFault` when patience is at
        its end."""
        stop = stop if stop is not None else threading.Event()
        most = self._options.retries if retries is None else retries
        end = time.monotonic() + self._options.patience
        if url not in self._parsed:  # a client parses what is text again for every request
            self._parsed[url] = httpx.URL(url)
        attempt = 0
        while True:
            if n_queries:
                self._limit.wait(n_queries, stop)
            if stop.is_set():
                raise OracleFault("stopped, because another request failed")
            try:
                return self._attempt(method, self._parsed[url], content, headers, end)
            except _Again as again:
                pause = self._pause(attempt, again.pause)
                if attempt >= most or time.monotonic() + pause > end:
                    raise self._give_up(again, attempt) from again.__cause__
                attempt += 1
                with self._count:
                    self.retries += 1
                stop.wait(pause)

    def _attempt(
        self, method: str, url: httpx.URL, content: bytes | None, headers: dict[str, str] | None, end: float
    ) -> Reply:
        timeout = min(self._options.timeout, max(0.05, end - time.monotonic()))
        latest = time.monotonic() + timeout
        try:
            with self._client.stream(
                method, url, content=content, headers=headers, timeout=timeout
            ) as response:
                body = self._read(response, latest)
        except httpx.TimeoutException as error:
            raise _Again(f"no answer within {timeout:.3g} s") from error
        except (httpx.UnsupportedProtocol, httpx.ProxyError) as error:
            raise UsageError(f"cannot reach {self.shown}: {self._clean(str(error))}") from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise OracleFault(
                    f"the certificate of {self.shown} is not trusted; set SSL_CERT_FILE to the file of its "
                    "authority"
                ) from error
            raise _Again(
                f"the connection failed ({self._clean(str(error)) or type(error).__name__})"
            ) from error
        if response.status_code in _TRY_AGAIN:
            raise _Again(f"the server answered {response.status_code}", _retry_after(response.headers))
        reply = Reply(response.status_code, response.headers, body)
        if reply.status != 200:
            raise self._refusal(reply, content)
        return reply

    def _read(self, response: httpx.Response, latest: float) -> bytes:
        """The body, up to a size and a moment: a server that trickles or floods is a fault like any other."""
        parts: list[bytes] = []
        size = 0
        for part in response.iter_bytes():
            parts.append(part)
            size += len(part)
            if size > _LARGEST_REPLY:
                raise OracleFault(
                    f"the server sent more than {_LARGEST_REPLY >> 20} MB in reply to one request; ask "
                    "fewer sequences a request"
                )
            if time.monotonic() > latest:
                raise _Again("the answer did not end in time")
        return b"".join(parts)

    def _pause(self, attempt: int, asked: float | None) -> float:
        """What the server asked for, or twice as long as before; with jitter, so that clients do not come
        back together."""
        own = float(
            min(_LONGEST_PAUSE, self._options.backoff * 2.0**attempt) * self._jitter.uniform(0.5, 1.0)
        )
        return own if asked is None else asked + 0.1 * own

    def _give_up(self, again: _Again, attempt: int) -> OracleFault:
        if again.pause is not None and again.pause > self._options.patience:
            return OracleFault(
                f"{self.shown} asks to wait {again.pause:.0f} s; run again then, with the same ledger"
            )
        return OracleFault(
            f"{self.shown} gave no answer in {attempt + 1} attempts: {again.reason}. "
            "Is the server running? What was answered is kept in the ledger, if there is one: run again "
            "with the same"
        )

    def _refusal(self, reply: Reply, content: bytes | None) -> OracleFault:
        """One sentence that says what to change."""
        status, said = reply.status, self._excerpt(reply.body)
        if status == 401 and not self.secrets.has_token:
            return OracleFault(f"{self.shown} wants a token (401); set {TOKEN_VARIABLE}")
        if status == 401:
            return OracleFault(
                f"{self.shown} does not accept the token (401); set {TOKEN_VARIABLE} to a valid one"
            )
        if status == 403:
            return OracleFault(
                f"{self.shown} forbids this (403{said}); ask for access to the model, or use another token "
                f"in {TOKEN_VARIABLE}"
            )
        if status == 404:
            return OracleFault(
                f"there is nothing at {self.shown} (404{said}); check the address and the name of the model"
            )
        if status == 413:
            return OracleFault(
                f"a request of {len(content or b'')} bytes is too large for {self.shown} (413); ask fewer "
                "sequences a request"
            )
        if status in (400, 422):
            return OracleFault(
                f"{self.shown} does not take the request ({status}{said}); check the width, and the names "
                "and datatypes of the model"
            )
        if 300 <= status < 400:
            return OracleFault(
                f"{self.shown} redirects ({status}) to "
                f"{self._clean(reply.headers.get('location', 'nowhere'))}; pass that address instead"
            )
        if status >= 500:
            return OracleFault(
                f"{self.shown} failed on a request ({status}{said}); look into the server's log. If large "
                "inputs make it fail, pass input_bound"
            )
        return OracleFault(f"{self.shown} answered with status {status}{said}; an answer has status 200")

    def _excerpt(self, body: bytes) -> str:
        text = self._clean(body[:2000].decode(errors="replace"))[:200]
        return f": {text}" if text else ""

    def _clean(self, text: str) -> str:
        """One printable line without secrets."""
        return self.secrets.redact(" ".join("".join(c if c.isprintable() else " " for c in text).split()))


def _retry_after(headers: Any) -> float | None:
    """Seconds that the server asks to wait: a number or a date."""
    text = headers.get("retry-after", "").strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = parsedate_to_datetime(text)
        except (TypeError, ValueError):
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    return min(max(0.0, seconds), 1e9) if seconds == seconds else None
