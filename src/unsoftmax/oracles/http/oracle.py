"""A server as an oracle: batches cut into requests, several at a time, answers in order."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Protocol

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.float_formats import FloatFormat
from unsoftmax.oracles.base import OracleSpec, checked_answers
from unsoftmax.oracles.http.json_endpoint import JsonEndpoint
from unsoftmax.oracles.http.open_inference import MODEL_ADDRESS, OpenInference
from unsoftmax.oracles.http.options import HttpOptions
from unsoftmax.oracles.http.pace import in_parallel
from unsoftmax.oracles.http.secrets import Secrets
from unsoftmax.oracles.http.sender import Reply, Request, Sender

__all__ = ["HttpOracle", "ServedOracle", "http_oracle", "spec_of"]

# One batch of the ledger is this many requests. All of them are asked again if the run is killed meanwhile.
_REQUESTS_A_BATCH = 16
# 1 MB as bytes and about 2.5 MB as JSON, which every server tried so far accepts
_NUMBERS_A_REQUEST = 1 << 17
# The largest reply that is read: a number takes 25 bytes as JSON, the rest is room for whatever else a server
# says about a request or a sequence. A megabyte of JSON can take 30 MB in memory, so the limits stay small.
_BYTES_A_REPLY, _BYTES_A_SEQUENCE, _BYTES_A_NUMBER = 1 << 20, 1 << 16, 64


class _Told(Protocol):
    """What a server says of the target."""

    @property
    def width(self) -> int | None: ...
    @property
    def outputs(self) -> int | None: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def arithmetic(self) -> FloatFormat | None: ...


class _Sender(Protocol):
    """What requests are sent with."""

    secrets: Secrets

    @property
    def retries(self) -> int: ...
    def close(self) -> None: ...


class _Dialect(_Told, Protocol):
    """How requests to one kind of server are written and its replies are read."""

    @property
    def url(self) -> str: ...
    @property
    def one_at_a_time(self) -> bool: ...
    def encode(self, batch: Array) -> tuple[bytes, dict[str, str]]: ...
    def decode(self, reply: Reply, n_queries: int) -> Any: ...


class ServedOracle:
    """Answers of a server. `retries` counts requests that had to be sent again; the ledger counts queries
    that were answered. `close()` ends the connections; they also end with the oracle.

    How batches are cut does not depend on `concurrency`, so a run may go on with another one.
    """

    def __init__(self, spec: OracleSpec, per_request: int, sender: _Sender, options: HttpOptions) -> None:
        self.spec, self._per_request, self._options = spec, per_request, options
        self._served_by = sender
        self.close = weakref.finalize(self, sender.close)

    @property
    def retries(self) -> int:
        """Requests sent again until now."""
        return self._served_by.retries

    def __call__(self, batch: Array, /) -> Array:
        numbers = max(1, batch[:1].size)  # of a sequence
        size = max(1, min(self._per_request, _NUMBERS_A_REQUEST // numbers))
        pieces = [batch[i : i + size] for i in range(0, len(batch), size)]
        with self._served_by.secrets.kept():
            return np.concatenate(in_parallel(self._ask, pieces, self._options.concurrency))

    def _ask(self, piece: Array, stop: threading.Event) -> Array:
        raise NotImplementedError  # pragma: no cover - abstract

    def largest_reply(self, n_queries: int) -> int:
        """Most bytes of a reply that are read."""
        return _BYTES_A_REPLY + n_queries * (_BYTES_A_SEQUENCE + _BYTES_A_NUMBER * (self.spec.outputs or 1))


def spec_of(
    told: _Told, per_request: int, options: HttpOptions, outputs: int | None, name: str
) -> OracleSpec:
    """What is known of a target from its server's description and the user. outputs: as the user says."""
    if None not in (outputs, told.outputs) and outputs != told.outputs:
        raise UsageError(f"outputs={outputs}, but the target has {told.outputs}; pass outputs={told.outputs}")
    return OracleSpec(
        width=told.width if told.width is not None else options.width,
        outputs=told.outputs if outputs is None else outputs,
        max_batch=_REQUESTS_A_BATCH * per_request,
        name=name,
        fingerprint=told.fingerprint,
        arithmetic=told.arithmetic,
    )


class HttpOracle(ServedOracle):
    """Answers of a server over HTTP."""

    def __init__(
        self, dialect: _Dialect, sender: Sender, options: HttpOptions, *, outputs: int | None = None
    ) -> None:
        per_request = 1 if dialect.one_at_a_time else options.batch
        super().__init__(
            spec_of(dialect, per_request, options, outputs, sender.shown), per_request, sender, options
        )
        self._dialect, self._sender = dialect, sender

    @property
    def takes_ids(self) -> bool:
        """Whether the server wants token ids; how many there are, it does not say."""
        return isinstance(self._dialect, OpenInference) and self._dialect.told.takes_ids

    def _ask(self, piece: Array, stop: threading.Event) -> Array:
        n = len(piece)
        content, headers = self._dialect.encode(piece)
        request = Request(
            "POST", self._dialect.url, content, headers, n_queries=n, largest=self.largest_reply(n)
        )
        reply = self._sender.send(request, stop)
        return checked_answers(self._dialect.decode(reply, n), n, self.spec.outputs)


def http_oracle(url: str, options: HttpOptions | None = None, *, outputs: int | None = None) -> HttpOracle:
    """The oracle behind a web address: a model of an Open Inference Protocol server, or any JSON endpoint
    when `options` holds both templates.
    """
    options = options if options is not None else HttpOptions()
    sender = Sender(url, options)
    dialect: _Dialect
    try:
        with sender.secrets.kept():
            if options.request is None and options.answer is None and MODEL_ADDRESS.fullmatch(url):
                dialect = OpenInference.discover(url, sender, options)
            else:
                dialect = JsonEndpoint.from_options(url, options, sender.shown)
            return HttpOracle(dialect, sender, options, outputs=outputs)
    except BaseException:
        sender.close()
        raise
