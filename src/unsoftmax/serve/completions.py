"""A language model as a server of OpenAI-style completions, to practise on: standard library, loopback
only."""

from __future__ import annotations

import base64
import io
import json
import math
import threading
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models import LanguageModel
from unsoftmax.models.language_model.forward import log_softmax
from unsoftmax.oracles.http.json_text import read_json
from unsoftmax.oracles.http.logit_bias import BiasShows
from unsoftmax.serve.faults import Fault, FaultPlan, Faults
from unsoftmax.serve.guarded import GuardedHandler, Refused
from unsoftmax.serve.limits import Limits, RateLimit
from unsoftmax.serve.listener import Listener, Listening

__all__ = ["CompletionsServer"]


@dataclass(eq=False)
class CompletionsServer(Listening):
    """Serves the next token's log-probabilities at `target` until closed.

    embeddings: whether prompts may be vectors. max_logprobs: most log-probabilities an answer, -1 for all, 0
    for none.
    logit_bias: whether requests may add to the logits of tokens, and what is told then (None: refused);
    max_bias: most that they may add. short: whether log-probabilities are computed from logits in float32.
    decimals, noise: log-probabilities are told with random errors of this deviation, drawn from `seed`, and
    rounded.
    token: what clients must send. rate_limit: most prompts a second. faults: what goes wrong, and how often.
    `queries` counts prompts that were answered.

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
    logit_bias: BiasShows | None = None
    max_bias: float = 100.0
    short: bool = False
    decimals: int | None = None
    noise: float = 0.0
    seed: int = 0
    token: str | None = field(default=None, repr=False)
    rate_limit: float | None = None
    faults: Faults = field(default_factory=Faults)
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        self.requests = self.queries = 0
        self.lock = threading.Lock()
        self.fault_plan = FaultPlan(self.faults)
        self.rate = RateLimit(self.rate_limit)
        self._rng = np.random.default_rng([0x4015E, self.seed])
        self._listen(Listener(0, self, self.limits, _Handler))

    @property
    def target(self) -> str:
        """The address as a target, width included."""
        port = self._listener.server_address[1]
        return f"openai+http://127.0.0.1:{port}/v1?model={self.name}&width={self.model.width}"

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """The reply to one request, or `Refused`."""
        if body.get("model") != self.name:
            raise Refused(404, f"The model `{body.get('model')}` does not exist.")
        wanted = body.get("logprobs")
        every = self.model.outputs
        most = every if self.max_logprobs == -1 else self.max_logprobs
        if (
            not isinstance(wanted, int)
            or (every if wanted == -1 else wanted) > most
            or self.max_logprobs == 0
        ):
            raise Refused(
                400, f"Requested {wanted} logprobs, which is greater than the maximum allowed: {most}"
            )
        kept, bias = every if wanted == -1 else wanted, self._bias(body)
        choices = []
        for index, rows in enumerate(self._prompts(body)):
            top = {f"token_id:{token}": value for token, value in self._told(rows, bias, kept).items()}
            choices.append({"index": index, "text": "", "logprobs": {"top_logprobs": [top]}})
        return {"object": "text_completion", "model": self.name, "choices": choices}

    def told(self, rows: Array) -> dict[int, float]:
        """What an honest user reads of one prompt (N, d), who asks for as much as there is and adds no
        bias."""
        every = self.model.outputs
        return self._told(rows, np.zeros(every), every if self.max_logprobs == -1 else self.max_logprobs)

    def _told(self, rows: Array, bias: Array, kept: int) -> dict[int, float]:
        """Log-probabilities by token: the largest, and that of the chosen token."""
        logits = self.model(rows[None])[0]
        if self.short:
            logits = logits.astype(np.float32).astype(np.float64)
        chosen = int((logits + bias).argmax())
        told = log_softmax(logits + bias) if self.logit_bias is BiasShows.IN_THE_ANSWERS else logits
        told = self._blurred(told)
        best = {int(token) for token in np.argsort(-told)[:kept]} | {chosen}
        return {token: float(told[token]) for token in sorted(best, key=lambda token: -told[token])}

    def _blurred(self, told: Array) -> Array:
        if self.noise:
            with self.lock:
                told = told + self.noise * self._rng.standard_normal(len(told))
        return told if self.decimals is None else np.round(told, self.decimals)

    def _bias(self, body: dict[str, Any]) -> Array:
        """What a request adds to the logits."""
        added = np.zeros(self.model.outputs)
        asked = body.get("logit_bias")
        if asked is None:
            return added
        if self.logit_bias is None:
            raise Refused(400, "logit_bias is not supported.")
        for name, size in asked.items():
            if not 0 <= int(name) < len(added):
                raise Refused(400, f"token_id {name} in logit_bias is out of the vocabulary")
            if not abs(size) <= self.max_bias:
                raise Refused(400, f"logit_bias must be at most {self.max_bias:g}")
            added[int(name)] = size
        return added

    def _prompts(self, body: dict[str, Any]) -> list[Array]:
        if "prompt_embeds" in body:
            if not self.embeddings:
                raise Refused(400, "You must set `--enable-prompt-embeds` to input `prompt_embeds`.")
            texts = body["prompt_embeds"]
            rows = [_rows_of(text) for text in ([texts] if isinstance(texts, str) else texts)]
            if any(each.ndim != 2 or each.shape[1] != self.model.width for each in rows):
                raise Refused(400, "prompt_embeds must be (tokens, hidden size)")
            return rows
        tokens = body.get("prompt")
        if not isinstance(tokens, list) or not tokens:
            raise Refused(400, "prompt must be a list of token ids")
        lists = tokens if isinstance(tokens[0], list) else [tokens]
        return list(self.model.embed(np.array(lists)))


def _rows_of(text: str) -> Array:
    import torch

    try:
        tensor = torch.load(io.BytesIO(base64.b64decode(text)), weights_only=True)
    except Exception as error:
        raise Refused(400, f"prompt_embeds holds no tensor: {type(error).__name__}") from error
    return np.asarray(tensor.to(torch.float64).numpy())


class _Handler(GuardedHandler):
    @property
    def owner(self) -> CompletionsServer:
        """The server of the model."""
        return self.server.owner  # type: ignore[no-any-return]

    @property
    def token(self) -> str | None:
        return self.owner.token

    def takes(self, path: str) -> bool:
        return path == "/v1/completions"

    def error_body(self, message: str) -> bytes:
        return json.dumps({"error": {"message": message}}).encode()

    def post(self, body: bytes, json_bytes: int) -> None:
        owner = self.owner
        try:
            request = read_json(body)
        except ValueError as error:
            raise Refused(400, "the request is not JSON") from error
        if not isinstance(request, dict):
            raise Refused(400, "the request is not a JSON object")
        prompts = request.get("prompt_embeds", request.get("prompt", []))
        count = len(prompts) if isinstance(prompts, list) else 1
        wait = owner.rate.wait_for(count)
        if wait is not None:
            raise Refused(429, "too many requests", {"Retry-After": str(math.ceil(wait))})
        fault = owner.fault_plan.draw()
        if fault is Fault.UNAVAILABLE:
            raise Refused(503, "try again")
        if fault is Fault.ERROR:
            raise Refused(500, "internal error")
        limit = owner.faults.die_after
        if fault is Fault.DROP or (limit is not None and owner.requests >= limit):
            self.drop()
            return
        try:
            reply = owner.answer(request)
        except Refused:
            raise
        except Exception as error:  # prompts of any type get here
            raise Refused(400, f"the prompts cannot be read: {str(error)[:200]}") from error
        with owner.lock:
            owner.requests += 1
            owner.queries += count
        self.reply(200, json.dumps(reply).encode())
