"""A server as an oracle: batches cut into requests, several at a time, answers in order."""

from __future__ import annotations

import threading
import weakref
from typing import Any, Protocol

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.oracles.base import OracleSpec, checked_answers
from unsoftmax.oracles.http.json_endpoint import JsonEndpoint
from unsoftmax.oracles.http.open_inference import MODEL_ADDRESS, OpenInference
from unsoftmax.oracles.http.options import HttpOptions
from unsoftmax.oracles.http.pace import in_parallel
from unsoftmax.oracles.http.sender import Reply, Sender

__all__ = ["HttpOracle", "http_oracle"]

_REQUESTS_A_BATCH = (
    16  # a batch of the ledger: as many requests may be under way, and are asked again after a crash
)
_NUMBERS_A_REQUEST = 1 << 17


class _Dialect(Protocol):
    """How one kind of server is spoken to."""

    @property
    def url(self) -> str: ...
    @property
    def width(self) -> int | None: ...
    @property
    def outputs(self) -> int | None: ...
    @property
    def one_at_a_time(self) -> bool: ...
    @property
    def fingerprint(self) -> str: ...
    def encode(self, batch: Array) -> tuple[bytes, dict[str, str]]: ...
    def decode(self, reply: Reply, n_queries: int) -> Any: ...


class HttpOracle:
    """Answers of a server. `retries` counts requests that had to be sent again; queries that were answered
    are counted by the ledger. `close()` ends the connections; they also end with the oracle.

    How batches are cut does not depend on `concurrency`, so a run may go on with another one.
    """

    def __init__(
        self, dialect: _Dialect, sender: Sender, options: HttpOptions, *, outputs: int | None = None
    ) -> None:
        self._dialect = dialect
        self._sender = sender
        self._options = options
        self.close = weakref.finalize(self, sender.close)
        self._per_request = 1 if dialect.one_at_a_time else options.batch
        self.spec = OracleSpec(
            width=dialect.width if dialect.width is not None else options.width,
            outputs=dialect.outputs if outputs is None else outputs,
            max_batch=_REQUESTS_A_BATCH * self._per_request,
            name=sender.shown,
            fingerprint=dialect.fingerprint,
        )

    @property
    def retries(self) -> int:
        """Requests sent again until now."""
        return self._sender.retries

    def __call__(self, batch: Array, /) -> Array:
        size = max(1, min(self._per_request, _NUMBERS_A_REQUEST // (batch.shape[1] * batch.shape[2])))
        pieces = [batch[i : i + size] for i in range(0, len(batch), size)]
        return np.concatenate(in_parallel(self._ask, pieces, self._options.concurrency))

    def _ask(self, piece: Array, stop: threading.Event) -> Array:
        content, headers = self._dialect.encode(piece)
        reply = self._sender.send(
            "POST", self._dialect.url, content=content, headers=headers, n_queries=len(piece), stop=stop
        )
        return checked_answers(self._dialect.decode(reply, len(piece)), len(piece), self.spec.outputs)


def http_oracle(url: str, options: HttpOptions | None = None, *, outputs: int | None = None) -> HttpOracle:
    """The oracle behind a web address: a model of an Open Inference Protocol server, or with both templates
    any JSON endpoint."""
    options = options if options is not None else HttpOptions()
    sender = Sender(url, options)
    try:
        dialect: _Dialect
        if options.request is None and options.answer is None and MODEL_ADDRESS.fullmatch(url):
            dialect = OpenInference.discover(url, sender, options)
        else:
            dialect = JsonEndpoint.from_options(url, options, sender.shown)
    except BaseException:
        sender.close()
        raise
    return HttpOracle(dialect, sender, options, outputs=outputs)
