"""OpenAI-style completions: log-probabilities of the next token, for prompts of embeddings or of token ids.

Embeddings travel as vLLM takes them: `prompt_embeds`, a list of base64 texts, each a tensor written by
torch.save.
"""

from __future__ import annotations

import base64
import io
import math
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault, RequestRefused, UsageError
from unsoftmax.oracles.base import OracleSpec, check_width, checked_answers
from unsoftmax.oracles.domain import TokenIds
from unsoftmax.oracles.http.json_text import read_json, write_json
from unsoftmax.oracles.http.logit_bias import Bias, Told, find_bias
from unsoftmax.oracles.http.options import HttpOptions
from unsoftmax.oracles.http.pace import in_parallel
from unsoftmax.oracles.http.sender import Reply, Request, Sender

__all__ = ["CompletionsLook", "CompletionsOracle", "completions_oracle", "look_at_completions"]

_ALL = -1  # what vLLM takes for all log-probabilities
# asked for when all are refused; 5 and 20 are the limits of public servers
_FEWER = (100, 50, 20, 10, 5, 3, 2, 1)
_REQUESTS_A_BATCH = 16  # all of them are asked again if the run is killed meanwhile
_BYTES_A_TOKEN = 96  # of a reply: the name of a token and its log-probability as JSON, three times over
_BYTES_A_REPLY = 1 << 20  # beside its log-probabilities
_MARK = "token_id:"
# log-probabilities beyond are none: one that is rounded to bfloat16 may be a little above 0
_BELOW, _ABOVE = -1e30, 1e-2


@dataclass(frozen=True)
class CompletionsLook:
    """What an endpoint offers. logprobs: most log-probabilities an answer. all_tokens: whether that is the
    whole vocabulary.

    embeddings: whether prompts may be vectors (None: not tried, because the width is not known). said: why
    not, in its words. bias: what a logit bias does, where answers do not hold all tokens (None: nothing).
    requests: sent to find that out.
    """

    logprobs: int
    all_tokens: bool
    embeddings: bool | None
    said: str = ""
    bias: Bias | None = None
    requests: int = 2

    @property
    def readable(self) -> bool:
        """Whether all log-probabilities of a prompt can be had."""
        return self.all_tokens or (self.bias is not None and self.bias.readable)

    @property
    def tokens(self) -> int:
        """Tokens of the vocabulary; those that are told, where it is not known."""
        return self.logprobs if self.bias is None else self.bias.tokens

    @property
    def requests_a_prompt(self) -> int:
        """How often a prompt is sent until all of its log-probabilities are known."""
        return len(self.bias.groups) if self.bias is not None and self.bias.readable else 1

    @property
    def sentences(self) -> tuple[str, ...]:
        """The findings in words."""
        offers = (
            f"all log-probabilities ({self.logprobs} tokens)"
            if self.all_tokens
            else f"the {self.logprobs} largest log-probabilities"
        )
        takes = {
            True: "Prompts may be vectors (prompt_embeds).",
            False: f"Prompts may not be vectors ({self.said}).",
            None: "Whether prompts may be vectors was not tried; pass the width.",
        }[self.embeddings]
        told = [f"An answer holds {offers}." if self.logprobs else "An answer holds no log-probabilities."]
        if self.bias is not None:
            costs = f"all {self.bias.tokens} of a prompt take {self.requests_a_prompt} requests"
            costs = costs if self.bias.readable else "one an answer is too few to compare"
            told.append(
                f"A logit bias of {self.bias.size:g} is taken, and log-probabilities are told "
                f"{self.bias.shows.value}: {costs}."
            )
        elif not self.all_tokens:
            told.append("A logit bias is refused or does nothing, so the others stay hidden.")
        return (*told, takes)


class _Dialect:
    """How requests are written and replies are read."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target.removeprefix("openai+"))
        query = dict(parse_qsl(parts.query))
        if not query.get("model"):
            raise UsageError(f"{target!r} names no model; write openai+http(s)://host/v1?model=NAME")
        if strange := set(query) - {"model", "width", "vocabulary"}:
            raise UsageError(
                f"the target has the unknown option {min(strange)!r}; it takes model, width and vocabulary"
            )
        self.model = query["model"]
        self.width = int(query["width"]) if query.get("width", "").isdecimal() else None
        self.vocabulary = int(query["vocabulary"]) if query.get("vocabulary", "").isdecimal() else None
        self.url = urlunsplit((parts.scheme, parts.netloc, f"{parts.path.rstrip('/')}/completions", "", ""))

    def encode(self, prompts: Array, logprobs: int, bias: Mapping[int, float] | None = None) -> bytes:
        """The body that asks for the token after each prompt: rows (B, N, d) or ids (B, N)."""
        body: dict[str, Any] = {
            "model": self.model,
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": logprobs,
            "return_tokens_as_token_ids": True,
        }
        if bias is not None:
            body["logit_bias"] = {str(token): size for token, size in bias.items()}
        if prompts.ndim == 3:
            body["prompt_embeds"] = [_tensor_text(rows) for rows in prompts]
        else:
            body["prompt"] = prompts.tolist()
        return write_json(body)

    @staticmethod
    def decode(reply: Reply, n_queries: int) -> list[dict[int, float]]:
        """For every prompt, log-probabilities by token id."""
        try:
            choices = read_json(reply.body)["choices"]
            found: list[dict[int, float]] = [{} for _ in range(n_queries)]
            for choice in choices:
                told = choice["logprobs"]["top_logprobs"][0]
                found[choice["index"]] = {
                    int(name.removeprefix(_MARK)): float(value) for name, value in told.items()
                }
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
            raise OracleFault(
                f"the server's reply holds no log-probabilities by token id: {error}"
            ) from error
        if any(not each for each in found):
            raise OracleFault(f"the server answered {len(choices)} of {n_queries} prompts")
        for value in (end(each.values()) for each in found for end in (min, max)):
            if value > _ABOVE or -math.inf < value < _BELOW:
                raise OracleFault(
                    f"the server told {value:.6g}, which is no log-probability (vLLM tells these with "
                    "--logprobs-mode raw_logprobs)"
                )
        return found


def _tensor_text(rows: Array) -> str:
    try:
        import torch
    except ImportError as error:
        raise UsageError(
            "prompts of embeddings travel as torch tensors; pip install 'unsoftmax[torch]'"
        ) from error
    with np.errstate(over="ignore"):
        short = np.asarray(rows, dtype=np.float32)
    if not np.isfinite(short).all():
        raise OracleFault(
            "a row has entries that float32 cannot hold; pass input_bound, the largest norm of a row"
        )
    buffer = io.BytesIO()
    torch.save(torch.from_numpy(short.copy()), buffer)
    return base64.b64encode(buffer.getvalue()).decode()


class CompletionsOracle:
    """Log-probabilities of the next token, all of them, as a vector. `look` says what the endpoint offers.

    Prompts are rows where the server takes them, else token ids. Rows are rounded to float32 on the way, as
    servers take them.
    """

    def __init__(
        self, dialect: _Dialect, sender: Sender, options: HttpOptions, look: CompletionsLook
    ) -> None:
        self._dialect, self._sender, self._options, self.look = dialect, sender, options, look
        self.close = weakref.finalize(self, sender.close)
        name = blake2b(f"{dialect.url} {dialect.model}".encode(), digest_size=8).hexdigest()
        self.spec = OracleSpec(
            width=dialect.width if look.embeddings else None,
            outputs=max(look.tokens, 2),
            max_batch=_REQUESTS_A_BATCH * options.batch,
            name=f"{sender.shown} ({dialect.model})",
            fingerprint=f"openai:{name}:{'rows' if look.embeddings else 'ids'}",
            domain=None if look.embeddings else TokenIds(max(look.tokens, 2)),
            log_probabilities=True,
        )

    @property
    def retries(self) -> int:
        """Requests sent again until now."""
        return self._sender.retries

    def __call__(self, batch: Array, /) -> Array:
        size = self._options.batch
        pieces = [batch[i : i + size] for i in range(0, len(batch), size)]
        with self._sender.secrets.kept():
            return np.concatenate(in_parallel(self._ask, pieces, self._options.concurrency))

    def _ask(self, piece: Array, stop: threading.Event) -> Array:
        look = self.look
        if not look.readable:
            raise OracleFault(" ".join(look.sentences))
        if look.bias is not None:
            groups = [
                _exchange(
                    self._dialect, self._sender, piece, look.logprobs, stop, bias=look.bias.request(group)
                )
                for group in look.bias.groups
            ]
            answers = [look.bias.combine([group[i] for group in groups]) for i in range(len(piece))]
            return checked_answers(answers, len(piece), self.spec.outputs)
        found = _exchange(self._dialect, self._sender, piece, look.logprobs, stop)
        if any(len(each) < look.logprobs for each in found):
            raise OracleFault(
                f"an answer holds fewer than {look.logprobs} log-probabilities, unlike the first one"
            )
        try:
            full = [[each[token] for token in range(look.logprobs)] for each in found]
        except KeyError as error:
            raise OracleFault(f"an answer has no log-probability of token {error}") from error
        return checked_answers(full, len(piece), self.spec.outputs)


def _exchange(
    dialect: _Dialect,
    sender: Sender,
    prompts: Array,
    logprobs: int,
    stop: threading.Event | None = None,
    bias: Mapping[int, float] | None = None,
) -> list[dict[int, float]]:
    largest = _BYTES_A_REPLY + len(prompts) * _BYTES_A_TOKEN * max(
        logprobs, 1 << 17 if logprobs == _ALL else 1
    )
    asked = _ALL if logprobs == _ALL else logprobs
    request = Request(
        "POST",
        dialect.url,
        dialect.encode(prompts, asked, bias),
        {"Content-Type": "application/json"},
        n_queries=len(prompts),
        largest=largest,
    )
    return dialect.decode(sender.send(request, stop), len(prompts))


def look_at_completions(dialect: _Dialect, sender: Sender) -> CompletionsLook:
    """What the endpoint offers: at most ten requests of one prompt each, and where answers hold few tokens,
    about forty to find out what a logit bias does, and the vocabulary."""
    look = _Look(dialect, sender)
    first: Any = np.zeros((1, 1), dtype=np.int64)
    told: Told = {}
    for logprobs in (_ALL, *_FEWER):
        answer = look.try_to(first, logprobs)
        if answer is not None:
            told = answer
            break
    else:
        return CompletionsLook(0, False, None, look.said, None, look.requests)
    every = logprobs == _ALL and (dialect.vocabulary is None or len(told) >= dialect.vocabulary)
    bias = None
    if not every and told:
        bias = find_bias(lambda asked: look.try_to(first, len(told), asked), told, dialect.vocabulary)
    embeddings, said = None, ""
    if dialect.width is not None:
        look.said = ""
        embeddings = look.try_to(np.zeros((1, 1, check_width(dialect.width))), len(told)) is not None
        said = look.said
    return CompletionsLook(len(told), every, embeddings, said, bias, look.requests)


class _Look:
    """Requests that may be refused. said: the first refusal in the server's words."""

    def __init__(self, dialect: _Dialect, sender: Sender) -> None:
        self._dialect, self._sender = dialect, sender
        self.said, self.requests = "", 0

    def try_to(
        self, prompt: Array, logprobs: int, bias: Mapping[int, float] | None = None
    ) -> dict[int, float] | None:
        """What is told for one prompt, or None when the request is refused."""
        self.requests += 1
        try:
            return _exchange(self._dialect, self._sender, prompt, logprobs, bias=bias)[0]
        except RequestRefused as fault:
            self.said = self.said or str(fault)
            return None


def completions_oracle(target: str, options: HttpOptions | None = None) -> CompletionsOracle:
    """The oracle behind openai+http(s)://host/v1?model=NAME, `&width=d` for prompts of embeddings of d
    numbers, `&vocabulary=V` where a server that tells few tokens does not show their number."""
    options = options if options is not None else HttpOptions()
    dialect = _Dialect(target)
    if dialect.width is None and options.width is not None:
        dialect.width = options.width
    sender = Sender(dialect.url, replace(options, request=None, answer=None))
    try:
        with sender.secrets.kept():
            look = look_at_completions(dialect, sender)
        return CompletionsOracle(dialect, sender, options, look)
    except BaseException:
        sender.close()
        raise
