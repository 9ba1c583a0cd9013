"""A language model as a server of OpenAI-style completions, to practise on: standard library, loopback
only."""

from __future__ import annotations

import base64
import io
import json
import math
import threading
from dataclasses import KW_ONLY, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models import LanguageModel
from unsoftmax.serve.faults import FaultPlan, Faults
from unsoftmax.serve.limits import RateLimit

__all__ = ["CompletionsServer"]

_LARGEST = 64 << 20  # bytes of a request


class _Refused(Exception):
    def __init__(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers or {}


@dataclass(eq=False)
class CompletionsServer:
    """Serves the next token's log-probabilities at `target` until closed.

    embeddings: whether prompts may be vectors. max_logprobs: most log-probabilities an answer, -1 for all.
    token: what clients must
    send. rate_limit: most prompts a second. faults: what goes wrong, and how often. `queries` counts prompts
    that were answered.

    >>> from unsoftmax.models import random_language_model
    >>> with CompletionsServer(random_language_model(8, 8, seed=0)) as server:
    ...     server.target.partition("?")[2]
    'model=practice&width=8'
    """

    model: LanguageModel
    _: KW_ONLY
    name: str = "practice"
    embeddings: bool = True
    max_logprobs: int = -1
    token: str | None = field(default=None, repr=False)
    rate_limit: float | None = None
    faults: Faults = field(default_factory=Faults)

    def __post_init__(self) -> None:
        self.requests = self.queries = 0
        self.lock = threading.Lock()
        self.fault_plan = FaultPlan(self.faults)
        self.rate = RateLimit(self.rate_limit)
        self._server = _Listener(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def target(self) -> str:
        """The address as a target, width included."""
        port = self._server.server_address[1]
        return f"openai+http://127.0.0.1:{port}/v1?model={self.name}&width={self.model.width}"

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request, or `_Refused`."""
        if body.get("model") != self.name:
            raise _Refused(404, f"The model `{body.get('model')}` does not exist.")
        wanted = body.get("logprobs")
        every = self.model.outputs
        most = every if self.max_logprobs == -1 else self.max_logprobs
        if not isinstance(wanted, int) or (every if wanted == -1 else wanted) > most:
            raise _Refused(
                400, f"Requested {wanted} logprobs, which is greater than the maximum allowed: {most}"
            )
        kept = every if wanted == -1 else wanted
        choices = []
        for index, rows in enumerate(self._prompts(body)):
            told = self.model(rows[None])[0]
            best = np.argsort(-told)[:kept]
            top = {f"token_id:{token}": float(told[token]) for token in best}
            choices.append({"index": index, "text": "", "logprobs": {"top_logprobs": [top]}})
        return {"object": "text_completion", "model": self.name, "choices": choices}

    def _prompts(self, body: dict[str, Any]) -> list[Array]:
        if "prompt_embeds" in body:
            if not self.embeddings:
                raise _Refused(400, "You must set `--enable-prompt-embeds` to input `prompt_embeds`.")
            texts = body["prompt_embeds"]
            rows = [_rows_of(text) for text in ([texts] if isinstance(texts, str) else texts)]
            if any(each.ndim != 2 or each.shape[1] != self.model.width for each in rows):
                raise _Refused(400, "prompt_embeds must be (tokens, hidden size)")
            return rows
        tokens = body.get("prompt")
        if not isinstance(tokens, list) or not tokens:
            raise _Refused(400, "prompt must be a list of token ids")
        lists = tokens if isinstance(tokens[0], list) else [tokens]
        return list(self.model.embed(np.array(lists)))

    def close(self) -> None:
        """Stops listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _rows_of(text: str) -> Array:
    import torch

    try:
        tensor = torch.load(io.BytesIO(base64.b64decode(text)), weights_only=True)
    except Exception as error:
        raise _Refused(400, f"prompt_embeds holds no tensor: {type(error).__name__}") from error
    return np.asarray(tensor.to(torch.float64).numpy())


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    owner: CompletionsServer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def do_POST(self) -> None:
        owner = self.server.owner
        try:
            content = json.dumps(self._answered(owner)).encode()
        except _Refused as refused:
            self._reply(
                refused.status, json.dumps({"error": {"message": str(refused)}}).encode(), refused.headers
            )
        except ConnectionAbortedError:
            self.close_connection = True
        else:
            self._reply(200, content, {})

    def _answered(self, owner: CompletionsServer) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > _LARGEST:
            raise _Refused(413, "the request is too large")
        body = json.loads(self.rfile.read(int(length)))
        if owner.token is not None and self.headers.get("Authorization") != f"Bearer {owner.token}":
            raise _Refused(401, "a bearer token is needed")
        if self.path != "/v1/completions":
            raise _Refused(404, "Not Found")
        prompts = body.get("prompt_embeds", body.get("prompt", []))
        count = len(prompts) if isinstance(prompts, list) else 1
        wait = owner.rate.wait_for(count)
        if wait is not None:
            raise _Refused(429, "too many requests", {"Retry-After": str(math.ceil(wait))})
        fault = owner.fault_plan.draw()
        if fault == "unavailable":
            raise _Refused(503, "try again")
        if fault == "error":
            raise _Refused(500, "internal error")
        limit = owner.faults.die_after
        if fault == "drop" or (limit is not None and owner.requests >= limit):
            raise ConnectionAbortedError
        reply = owner.answer(body)
        with owner.lock:
            owner.requests += 1
            owner.queries += count
        return reply

    def _reply(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response_only(status)
        for name, value in (
            {"Content-Type": "application/json", "Content-Length": str(len(content))} | headers
        ).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Says nothing."""
