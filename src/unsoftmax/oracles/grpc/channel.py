"""Calls to an unreliable gRPC server: each has a deadline, a size limit and a number of attempts, as over
HTTP."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any

import grpc

from unsoftmax import __version__
from unsoftmax.errors import OracleFault, brief
from unsoftmax.oracles.grpc.messages import message
from unsoftmax.oracles.http.attempts import Attempts
from unsoftmax.oracles.http.options import HttpOptions
from unsoftmax.oracles.http.retries import Again, retry_after
from unsoftmax.oracles.http.secrets import TOKEN_VARIABLE, Secrets, one_line

__all__ = ["Channel"]

_SHORTEST_TIMEOUT = 0.05  # seconds for the last attempt when patience is nearly at its end
_LARGEST = 64 << 20  # bytes of a reply that are read; batches are cut so that replies are far below
_EXCERPT = 200  # characters of a server's own words in a message
_AGAIN = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.ABORTED,
)
_TOO_LARGE = "larger than max"  # what both sides say of a message beyond a limit, with RESOURCE_EXHAUSTED
_WAIT = "grpc-retry-pushback-ms"  # a server's wish, in trailing metadata


class Channel:
    """One connection. secure: with TLS, checked against the authorities of the system."""

    def __init__(self, host: str, *, secure: bool, options: HttpOptions) -> None:
        self.secrets = Secrets(os.environ, options.headers)
        self.shown = f"{'grpcs' if secure else 'grpc'}://{host}"
        self._options = options
        self._attempts = Attempts(options, self.secrets, brief(self.shown))
        self._metadata = [(name.lower(), value) for name, value in self.secrets.headers().items()]
        settings: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", _LARGEST),
            ("grpc.max_send_message_length", -1),
            ("grpc.primary_user_agent", f"unsoftmax/{__version__}"),
            ("grpc.enable_retries", 0),  # attempts are counted here
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        if secure:
            self._channel = grpc.secure_channel(host, grpc.ssl_channel_credentials(), options=settings)
        else:
            self._channel = grpc.insecure_channel(host, options=settings)

    @property
    def retries(self) -> int:
        """Calls made again until now."""
        return self._attempts.retries

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()

    def call(
        self,
        method: str,
        request: Any,
        reply: str,
        *,
        n_queries: int = 0,
        retries: int | None = None,
        stop: threading.Event | None = None,
    ) -> Any:
        """The reply, a message of the given name, after as many attempts as it takes."""
        function = self._channel.unary_unary(
            method,
            request_serializer=lambda asked: asked.SerializeToString(),
            response_deserializer=message(reply).FromString,
        )
        return self._attempts.run(
            lambda end: self._once(function, request, end), n_queries=n_queries, retries=retries, stop=stop
        )

    def _once(self, function: Callable[..., Any], request: Any, end: float) -> Any:
        seconds = min(self._options.timeout, max(_SHORTEST_TIMEOUT, end - time.monotonic()))
        try:
            return function(request, timeout=seconds, metadata=self._metadata)
        except grpc.RpcError as error:
            status, said = error.code(), one_line(self.secrets.redact(error.details() or ""))[:_EXCERPT]
            if status in _AGAIN and _TOO_LARGE not in said:
                raise Again(f"{status.name} ({said})", _asked_pause(error)) from error
            raise self._refusal(status, said) from error

    def _refusal(self, status: grpc.StatusCode, said: str) -> OracleFault:
        """One sentence that says what to change."""
        there = brief(self.shown)
        if status is grpc.StatusCode.UNAUTHENTICATED:
            wrong = "does not accept the token" if self.secrets.has_token else "wants a token"
            return OracleFault(f"{there} {wrong} (UNAUTHENTICATED); set {TOKEN_VARIABLE}")
        advice = {
            grpc.StatusCode.NOT_FOUND: "check the address and the name of the model",
            grpc.StatusCode.INVALID_ARGUMENT: "check the width, and the names and datatypes of the model",
            grpc.StatusCode.PERMISSION_DENIED: "ask for access to the model, or use another token "
            f"in {TOKEN_VARIABLE}",
            grpc.StatusCode.UNIMPLEMENTED: "is it a server of the Open Inference Protocol?",
            grpc.StatusCode.RESOURCE_EXHAUSTED: "ask fewer sequences in a request",
        }.get(status, "look into the server's log. If large inputs make it fail, pass input_bound")
        return OracleFault(f"{there} does not answer ({status.name}: {said}); {advice}")


def _asked_pause(error: Any) -> float | None:
    for name, value in error.trailing_metadata() or ():
        if name == _WAIT and str(value).isdecimal():
            asked = retry_after(str(value))
            return None if asked is None else asked / 1000.0
    return None
