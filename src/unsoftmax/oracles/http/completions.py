"""OpenAI-style completions: log-probabilities of the next token, for vectors or token ids."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault, RequestRefused
from unsoftmax.oracles.base import OracleSpec, check_width, checked_answers
from unsoftmax.oracles.domain import TokenIds
from unsoftmax.oracles.http.completions_dialect import CompletionsDialect, Unread
from unsoftmax.oracles.http.logit_bias import Bias, Told, find_bias
from unsoftmax.oracles.http.options import HttpOptions
from unsoftmax.oracles.http.pace import in_parallel
from unsoftmax.oracles.http.sender import Request, Sender

__all__ = ["CompletionsLook", "CompletionsOracle", "completions_oracle", "look_at_completions"]

_ALL = -1  # what vLLM takes for all log-probabilities
# asked for when all are refused; 5 and 20 are the limits of public servers
_FEWER = (100, 50, 20, 10, 5, 3, 2, 1)
# of what probabilities add up to: rounded to one decimal, or to bfloat16, each is at most 5 % off
_TOTAL = 0.2
_DRIFT = 1e-12  # beyond the rounding of float64 in the order of sums
_REQUESTS_A_BATCH = 16  # all of them are asked again if the run is killed meanwhile
_BYTES_A_TOKEN = 96  # of a reply: the name of a token and its log-probability as JSON, three times over
_BYTES_A_REPLY = 1 << 20  # beside its log-probabilities


@dataclass(frozen=True)
class CompletionsLook:
    """What an endpoint offers. logprobs: most log-probabilities an answer. all_tokens: whether that is the
    whole vocabulary.

    embeddings: whether prompts may be vectors (None: not tried, because the width is not known). said: why
    not, or why no log-probabilities were read. bias: what a logit bias does, where answers do not hold all
    tokens (None: nothing). requests: sent to find that out. lists: whether a request may hold several
    prompts. drift: how far an answer moves where a request holds two prompts.
    """

    logprobs: int
    all_tokens: bool
    embeddings: bool | None
    said: str = ""
    bias: Bias | None = None
    requests: int = 3
    lists: bool = True
    drift: float = 0.0

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
        if not self.logprobs:
            return (f"An answer holds no log-probabilities that can be read ({self.said}).",)
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
        told = [f"An answer holds {offers}."]
        if self.bias is not None:
            each = self.requests_a_prompt
            costs = f"all {self.bias.tokens} of a prompt take {each} requests (the bill counts prompts)"
            costs = costs if self.bias.readable else "one an answer is too few to compare"
            told.append(
                f"A logit bias of {self.bias.size:g} is taken, and log-probabilities are told "
                f"{self.bias.shows.value}: {costs}."
            )
        elif not self.all_tokens:
            told.append("A logit bias is refused or does nothing, so the others stay hidden.")
        if not self.lists:
            told.append("A request takes one prompt.")
        if self.drift > _DRIFT:
            told.append(
                f"An answer moves by {self.drift:.1g} with the number of prompts in a request; ask one at a "
                "time (HttpOptions(batch=1)) where that is more than its rounding."
            )
        return (*told, takes)


class CompletionsOracle:
    """Log-probabilities of the next token, all of them, as a vector. `look` says what the endpoint offers.

    Prompts are rows where the server takes them, else token ids. Rows are rounded to float32 on the way, as
    servers take them.
    """

    def __init__(
        self, dialect: CompletionsDialect, sender: Sender, options: HttpOptions, look: CompletionsLook
    ) -> None:
        self._dialect, self._sender, self._options, self.look = dialect, sender, options, look
        self.close = weakref.finalize(self, sender.close)
        self._size = options.batch if look.lists else 1
        name = blake2b(f"{dialect.url} {dialect.model}".encode(), digest_size=8).hexdigest()
        self.spec = OracleSpec(
            width=dialect.width if look.embeddings else None,
            outputs=max(look.tokens, 2),
            max_batch=_REQUESTS_A_BATCH * self._size,
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
        size = self._size
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
    dialect: CompletionsDialect,
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


def look_at_completions(dialect: CompletionsDialect, sender: Sender) -> CompletionsLook:
    """What the endpoint offers: at most ten requests of one prompt and one of two, and where answers hold few
    tokens, about forty to find out what a logit bias does, and the vocabulary."""
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
    every = _all_told(told, logprobs, dialect.vocabulary)
    total = float(np.exp(list(told.values())).sum())
    if every and abs(total - 1.0) > _TOTAL:
        said = (
            f"the probabilities of all tokens add up to {total:.2g}, not to 1; vLLM tells log-probabilities "
            "with --logprobs-mode raw_logprobs"
        )
        return CompletionsLook(0, False, None, said, None, look.requests)
    bias = None
    if not every and told:
        bias = find_bias(lambda asked: look.try_to(first, len(told), asked), told, dialect.vocabulary)
    embeddings, said, taken, alone = None, "", first, told
    if dialect.width is not None:
        look.said, vectors = "", np.ones((1, 1, check_width(dialect.width)))
        answer = look.try_to(vectors, len(told))
        embeddings, said = answer is not None, look.said
        if answer is not None:
            taken, alone = vectors, answer
    found = CompletionsLook(len(told), every, embeddings, said, bias)
    if found.readable:
        beside = look.try_to(np.repeat(taken, 2, axis=0), len(told))
        found = replace(found, lists=beside is not None, drift=_difference(alone, beside or alone))
    return replace(found, requests=look.requests)


def _difference(one: Told, other: Told) -> float:
    """Of two answers, at the tokens that both tell."""
    return max((abs(one[token] - other[token]) for token in one if token in other), default=0.0)


def _all_told(told: Told, asked: int, vocabulary: int | None) -> bool:
    """Whether an answer holds the whole vocabulary. Some servers cut longer lists without a word."""
    if set(told) != set(range(len(told))):
        return False
    return asked == _ALL or len(told) < asked if vocabulary is None else len(told) >= vocabulary


class _Look:
    """Requests that may be refused. said: the first refusal in the server's words."""

    def __init__(self, dialect: CompletionsDialect, sender: Sender) -> None:
        self._dialect, self._sender = dialect, sender
        self.said, self.requests = "", 0

    def try_to(
        self, prompt: Array, logprobs: int, bias: Mapping[int, float] | None = None
    ) -> dict[int, float] | None:
        """What is told for one prompt, or None when the request is refused. Vectors are asked for after ids
        were answered, so whatever the server fails with then, they are what it does not take."""
        self.requests += 1
        try:
            return _exchange(self._dialect, self._sender, prompt, logprobs, bias=bias)[0]
        except RequestRefused as fault:
            if not (fault.malformed or prompt.ndim == 3):
                raise
            self.said = self.said or fault.said
        except Unread as fault:
            self.said = self.said or self._sender.secrets.shown(str(fault))
        return None


def completions_oracle(target: str, options: HttpOptions | None = None) -> CompletionsOracle:
    """The oracle behind openai+http(s)://host/v1?model=NAME, `&width=d` for prompts of embeddings of d
    numbers, `&vocabulary=V` where a server that tells few tokens does not show their number."""
    options = options if options is not None else HttpOptions()
    dialect = CompletionsDialect(target)
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
