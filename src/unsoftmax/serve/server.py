"""A model as a server: standard library, loopback only, one thread for each connection."""

from __future__ import annotations

import re
import threading
from dataclasses import KW_ONLY, dataclass, field

from unsoftmax.errors import UsageError
from unsoftmax.oracles import Oracle, domain_of
from unsoftmax.serve.faults import FaultPlan, Faults
from unsoftmax.serve.handler import Handler
from unsoftmax.serve.limits import Limits, RateLimit
from unsoftmax.serve.listener import Listener, Listening

__all__ = ["ModelServer"]


@dataclass(eq=False)
class ModelServer(Listening):
    """Serves an oracle at `url` until closed. `requests`, `queries`: answered ones; `seen`: all queries that
    arrived, faults included.

    name: of the model in the address. port: 0 takes a free one. datatype: FP64 or FP32. binary: whether
    tensors may travel as bytes. token: what clients must send. rate_limit: most queries a second. delay:
    seconds that every answer takes longer. faults: what goes wrong, and how often.

    >>> import unsoftmax
    >>> with ModelServer(unsoftmax.as_oracle("demo:single-head?d=4")) as server:
    ...     str(unsoftmax.recover(server.url).status)
    'EXACT'
    """

    oracle: Oracle
    _: KW_ONLY
    name: str = "model"
    port: int = 0
    datatype: str = "FP64"
    binary: bool = True
    token: str | None = field(default=None, repr=False)
    rate_limit: float | None = None
    delay: float = 0.0
    faults: Faults = field(default_factory=Faults)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.datatype not in ("FP64", "FP32"):
            raise UsageError(f"the datatype must be FP64 or FP32, not {self.datatype!r}")
        if self.rate_limit is not None and not self.rate_limit > 0:
            raise UsageError(f"the rate limit must be a number > 0, not {self.rate_limit!r}")
        if not re.fullmatch(r"[A-Za-z0-9._~-]+", self.name):
            raise UsageError(
                f"the name {self.name!r} does not fit into an address; use letters, digits, . _ ~ -"
            )
        self.domain = domain_of(self.oracle.spec)
        self.width = self.domain.width
        self.fault_plan = FaultPlan(self.faults)
        self.requests = self.queries = self.seen = 0
        self.lock = threading.Lock()
        self.dead = False
        self._rate = RateLimit(self.rate_limit)
        try:
            listener = Listener(self.port, self, self.limits, Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"cannot serve on port {self.port}: {reason}; choose another port, 0 for a free one"
            ) from error
        self._listen(listener)

    @property
    def url(self) -> str:
        """The address of the model."""
        return f"http://127.0.0.1:{self._listener.server_address[1]}/v2/models/{self.name}"

    def wait_for(self, n_queries: int) -> float | None:
        """Seconds to wait when the rate limit is reached, else None."""
        return self._rate.wait_for(n_queries)

    def answered(self, n_queries: int) -> None:
        """Counts an answered request. After the last one that `faults` allows, the server answers no more."""
        with self.lock:
            self.requests += 1
            self.queries += n_queries
            limit = self.faults.die_after
            self.dead = limit is not None and self.requests >= limit
