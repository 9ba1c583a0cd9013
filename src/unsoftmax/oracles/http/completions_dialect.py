"""How requests for completions are written, and how replies are read.

Embeddings travel as vLLM takes them: `prompt_embeds`, a list of base64 texts, each a tensor written by
torch.save.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from operator import itemgetter
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault, UsageError, brief
from unsoftmax.oracles.base import LARGEST_WIDTH
from unsoftmax.oracles.http.json_text import read_json, write_json
from unsoftmax.oracles.http.sender import Reply

__all__ = ["CompletionsDialect", "Unread"]

_MARK = "token_id:"
# log-probabilities beyond are none: one that is rounded to bfloat16 may be a little above 0
_BELOW, _ABOVE = -1e30, 1e-2
_SHOWN = 20  # characters of an option that is none, in the message
_BARRED = -9999.0  # what vLLM writes for minus infinity


class CompletionsDialect:
    """How requests are written and replies are read."""

    def __init__(self, target: str) -> None:
        try:
            parts = urlsplit(target.removeprefix("openai+"))
        except ValueError as error:
            raise UsageError(f"{brief(target)!r} is not a web address: {brief(str(error))}") from error
        query = dict(parse_qsl(parts.query))
        if not query.get("model"):
            raise UsageError(f"{brief(target)!r} names no model; write openai+http(s)://host/v1?model=NAME")
        if strange := set(query) - {"model", "width", "vocabulary"}:
            raise UsageError(
                f"the target has the unknown option {min(strange)!r}; it takes model, width and vocabulary"
            )
        self.model = query["model"]
        self.width, self.vocabulary = _size(query, "width"), _size(query, "vocabulary")
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
            found = sorted(((each["index"], _told(each["logprobs"])) for each in choices), key=itemgetter(0))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
            raise OracleFault(
                f"the server's reply holds no log-probabilities by token id: {error}"
            ) from error
        indices = [index for index, _ in found]
        if indices != list(range(n_queries)):
            raise Unread(f"the server answered {n_queries} prompts by choices of index {indices[:20]}")
        for _, told in found:
            _check(told)
        return [told for _, told in found]


class Unread(OracleFault):
    """A reply in good form that does not say what was asked for."""


def _size(query: Mapping[str, str], name: str) -> int | None:
    """An option of the target that is a whole number; None where it is left out."""
    text = query.get(name)
    if text is None:
        return None
    plain = text.isascii() and text.isdecimal() and len(text) <= len(str(LARGEST_WIDTH))
    if not plain or not 1 <= int(text) <= LARGEST_WIDTH:
        raise UsageError(
            f"the target's {name} must be a whole number from 1 to {LARGEST_WIDTH:,}, not {text[:_SHOWN]!r}"
        )
    return int(text)


def _told(logprobs: Any) -> dict[int, float]:
    """Log-probabilities of the next token by token id."""
    places = logprobs.get("top_logprobs") if logprobs else None
    if places and len(places) > 1:
        raise Unread(
            f"one token was asked for, and the reply tells log-probabilities at {len(places)} places; it may "
            "repeat the prompt"
        )
    if not places or not places[0]:
        raise Unread("log-probabilities were asked for, and the reply has none")
    told: dict[str, Any] = places[0]
    text = next((name for name in told if not name.removeprefix(_MARK).isdecimal()), None)
    if text is not None:
        raise Unread(
            f"tokens are named by their text, such as {text!r}, where return_tokens_as_token_ids asks for ids"
        )
    return {
        int(name.removeprefix(_MARK)): float("nan" if value is None else value)  # what JSON has for it
        for name, value in told.items()
    }


def _check(told: Mapping[int, float]) -> None:
    values = np.fromiter(told.values(), dtype=float, count=len(told))
    lost = ~np.isfinite(values) | (values == _BARRED)
    if lost.any():
        token, value = list(told.items())[int(lost.argmax())]
        raise OracleFault(
            f"the server told {value:g} for token {token}: it bars tokens, or overflows, and their logits "
            "are lost; where large rows overflow, pass input_bound, the largest norm of a row"
        )
    for value in (values.min(), values.max()):
        if not _BELOW <= value <= _ABOVE:
            raise OracleFault(
                f"the server told {value:.6g}, which is not a log-probability (vLLM tells these with "
                "--logprobs-mode raw_logprobs)"
            )


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
