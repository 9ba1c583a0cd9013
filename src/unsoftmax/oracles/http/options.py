"""How a server is asked: sizes, patience, speed, and the templates of a plain JSON endpoint."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from unsoftmax.errors import UsageError
from unsoftmax.text_files import read_small_text

__all__ = ["HttpOptions", "read_endpoint_file"]


@dataclass(frozen=True)
class HttpOptions:
    """How a server is asked.

    batch: most sequences a request. concurrency: most requests at a time. timeout: seconds for one request.
    retries: most attempts after the first one. backoff: seconds before the second attempt, doubled for each
    further one, with jitter. patience: seconds for one request with all its retries. rate: most queries a
    second (None: as fast as the server answers). headers: a file of further headers, a 'Name: value' a line.
    output: which output, where the model has several. binary: whether tensors travel as bytes (None: when the
    server offers it). request, answer: the templates of a plain JSON endpoint; width: columns of a sequence,
    where the server does not tell.

    >>> HttpOptions(concurrency=8).batch
    64
    """

    batch: int = 64
    concurrency: int = 4
    timeout: float = 30.0
    retries: int = 8
    backoff: float = 0.25
    patience: float = 60.0
    rate: float | None = None
    headers: str | None = None
    output: str | None = None
    binary: bool | None = None
    request: Any = None
    answer: str | None = None
    width: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("batch", 1), ("concurrency", 1), ("retries", 0)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{name} must be a whole number >= {least}, not {value!r}")
        for name in ("timeout", "backoff", "patience", "rate"):
            value = getattr(self, name)
            if value is None and name == "rate":
                continue
            if (
                isinstance(value, bool)
                or not isinstance(value, int | float)
                or not (math.isfinite(value) and value > 0)
            ):
                raise UsageError(f"{name} must be a number > 0, not {value!r}")


def read_endpoint_file(path: str | Path) -> tuple[str, HttpOptions]:
    """The address and the options in a JSON file such as {"url": ..., "request": {"instances": "$batch"},
    "answer": "predictions.*", "width": 64}.

    Secrets do not belong there: a token comes from UNSOFTMAX_HTTP_TOKEN, further headers from the file named
    by "headers".
    """
    source = Path(path)
    try:
        content = json.loads(read_small_text(source, "endpoint file"))
    except (RecursionError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{source} is not a readable JSON file: {error}") from error
    names = {field.name for field in fields(HttpOptions)}
    if not isinstance(content, dict) or not isinstance(content.get("url"), str):
        raise UsageError(
            f'{source} describes no endpoint; write {{"url": "https://...", '
            '"request": {"instances": "$batch"}, "answer": "predictions.*"}'
        )
    if strange := set(content) - names - {"url"}:
        raise UsageError(
            f"{source} has the unknown entry {sorted(strange)[0]!r}; an endpoint has url, "
            f"{', '.join(sorted(names))}"
        )
    options = HttpOptions(**{name: value for name, value in content.items() if name != "url"})
    if options.headers is not None:
        options = replace(options, headers=str(source.parent / options.headers))
    return content["url"], options
