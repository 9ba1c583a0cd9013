"""Any JSON endpoint, by two templates: the body of a request, and the path to the answer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.float_formats import FloatFormat
from unsoftmax.oracles.http.json_text import read_json, write_json
from unsoftmax.oracles.http.options import HttpOptions
from unsoftmax.oracles.http.sender import Reply

__all__ = ["JsonEndpoint"]

_BATCH, _SEQUENCE = "$batch", "$sequence"


@dataclass(frozen=True)
class JsonEndpoint:
    """An endpoint that takes `request` with "$batch" (all sequences) or "$sequence" (one) filled in, and has
    the answer at the path `answer`.

    A path is names and numbers with dots; a * stands for every element of a list: "predictions.*.score",
    "outputs.0".

    >>> endpoint = JsonEndpoint.from_options("https://host/predict", HttpOptions(
    ...     request={"instances": "$batch"}, answer="predictions.*"))
    >>> endpoint.encode(np.zeros((1, 1, 2)))[0]
    b'{"instances":[[[0.0,0.0]]]}'
    """

    url: str
    request: Any
    answer: tuple[str, ...]
    one_at_a_time: bool
    width: int | None
    fingerprint: str
    outputs: int | None = None
    arithmetic: FloatFormat | None = None

    @classmethod
    def from_options(cls, url: str, options: HttpOptions, shown: str = "") -> JsonEndpoint:
        """Checks the templates."""
        if options.request is None or options.answer is None:
            raise UsageError(
                f"{shown or url} is not a model address (.../v2/models/NAME), so it needs two templates, in "
                "a JSON file as the target: "
                '{"url": "...", "request": {"instances": "$batch"}, "answer": "predictions.*", "width": 64}'
            )
        request = options.request
        if isinstance(request, str):
            try:
                request = json.loads(request)
            except ValueError as error:
                raise UsageError(
                    f"the request template is not JSON ({error}); write for instance "
                    '{"instances": "$batch"}'
                ) from error
        places = [_count(request, mark) for mark in (_BATCH, _SEQUENCE)]
        if sum(places) != 1:
            raise UsageError(
                f'the request template must hold "{_BATCH}" or "{_SEQUENCE}" once, as a JSON string; '
                f"it has {sum(places)}"
            )
        path = tuple(part for part in options.answer.split(".") if part)
        templates = write_json([request, path]).decode()
        return cls(url, request, path, places[1] == 1, options.width, f"http:{shown or url}:{templates}")

    def encode(self, batch: Array) -> tuple[bytes, dict[str, str]]:
        """Body and headers that ask for the answers to a batch."""
        mark, content = (_SEQUENCE, batch[0]) if self.one_at_a_time else (_BATCH, batch)
        return write_json(_filled(self.request, mark, np.ascontiguousarray(content))), {
            "Content-Type": "application/json"
        }

    def decode(self, reply: Reply, n_queries: int) -> Any:
        """The answers in a reply."""
        try:
            found = read_json(reply.body)
        except ValueError as error:
            raise OracleFault("the endpoint answered with something that is not JSON") from error
        found = _follow(found, self.answer, "")
        return [found] if self.one_at_a_time else found


def _count(template: Any, mark: str) -> int:
    if isinstance(template, dict):
        return sum(_count(part, mark) for part in template.values())
    if isinstance(template, list):
        return sum(_count(part, mark) for part in template)
    return int(template == mark)


def _filled(template: Any, mark: str, content: Array) -> Any:
    if isinstance(template, dict):
        return {name: _filled(part, mark, content) for name, part in template.items()}
    if isinstance(template, list):
        return [_filled(part, mark, content) for part in template]
    return content if isinstance(template, str) and template == mark else template


def _follow(content: Any, path: tuple[str, ...], been: str) -> Any:
    for i, part in enumerate(path):
        here = f"{been}.{part}".lstrip(".")
        if part == "*":
            if not isinstance(content, list):
                raise OracleFault(
                    f"the endpoint's answer has no list at {been or 'its top'!r}; check the path of the "
                    "answer"
                )
            return [_follow(element, path[i + 1 :], here) for element in content]
        try:
            content = content[int(part)] if isinstance(content, list) else content[part]
        except (KeyError, IndexError, TypeError, ValueError):
            raise OracleFault(
                f"the endpoint's answer has nothing at {here!r}; check the path of the answer"
            ) from None
        been = here
    return content
