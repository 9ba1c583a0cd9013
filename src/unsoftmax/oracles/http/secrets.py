"""Tokens and private headers: sent to the server, and shown nowhere else."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from unsoftmax.errors import UnsoftmaxError, UsageError

__all__ = ["TOKEN_VARIABLE", "Secrets", "one_line"]

TOKEN_VARIABLE = "UNSOFTMAX_HTTP_TOKEN"  # noqa: S105 - the name of the variable, not its content
_HIDDEN = "***"
_SHORTEST = 4  # shorter values are not secrets, and hiding them would garble every message
_LONGEST_SPELLING = 6  # characters for one: \u002d
_LONGEST_MESSAGE = 1000  # characters; our own longest is about 400, the rest is what a server may add


class Secrets:
    """The bearer token of the environment and the headers of a file. Its text form shows neither.

    >>> Secrets({}, None).redact("nothing to hide")
    'nothing to hide'
    """

    def __init__(self, environment: Mapping[str, str], headers_file: str | None) -> None:
        token = environment.get(TOKEN_VARIABLE, "").strip()
        headers = {} if headers_file is None else _read_headers(Path(headers_file))
        if token and not _sendable(token):
            raise UsageError(
                f"{TOKEN_VARIABLE} holds characters that no header may carry; set it to the bare token"
            )
        if token and not any(name.lower() == "authorization" for name in headers):
            headers["Authorization"] = f"Bearer {token}"
        self._headers = headers
        values = {token, *headers.values(), *(value.split()[-1] for value in headers.values())}
        forms = {form for value in values if len(value) >= _SHORTEST for form in _forms(value)}
        hidden = sorted(forms, key=len, reverse=True)
        spellings = "|".join(_any_spelling(form) for form in hidden)
        self._pattern = re.compile(spellings, re.IGNORECASE) if hidden else None
        self._longest = _LONGEST_SPELLING * max(map(len, hidden), default=0)

    @property
    def has_token(self) -> bool:
        """Whether requests are signed."""
        return any(name.lower() == "authorization" for name in self._headers)

    def headers(self) -> dict[str, str]:
        """What goes with every request."""
        return dict(self._headers)

    def redact(self, text: str) -> str:
        """The text without any secret: servers may repeat what they were sent."""
        return text if self._pattern is None else self._pattern.sub(_HIDDEN, text)

    def excerpt(self, body: bytes, complete: bool, length: int) -> str:
        """The first `length` characters of a reply as one line. A secret that the end of an incomplete body
        cuts in two is left out with the end; a secret is hidden before anything else is cut.
        """
        text = body.decode(errors="replace")
        if not complete:
            text = text[: max(0, len(text) - self._longest)]
        return self.redact(one_line(self.redact(text)))[:length]

    def shown(self, text: str) -> str:
        """The text without any secret, in one line, and only then cut: a cut secret is not recognised.

        >>> Secrets({}, None).shown("two\\n lines")
        'two lines'
        """
        text = self.redact(one_line(self.redact(text)))
        return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}..."

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Errors raised inside leave without any secret, in one line, whoever wrote the text in them."""
        try:
            yield
        except UnsoftmaxError as error:
            text = self.shown(str(error))
            if text == str(error) and not self._in_causes(error):
                raise
            raise type(error)(text) from None

    def _in_causes(self, error: BaseException) -> bool:
        """Whether a traceback of this error would show a secret."""
        cause: BaseException | None = error
        while cause is not None:
            if self.redact(str(cause)) != str(cause):
                return True
            cause = cause.__cause__ or cause.__context__
        return False

    def __repr__(self) -> str:
        return f"Secrets({_HIDDEN})"


def one_line(text: str) -> str:
    """The text with everything unprintable and every run of spaces as one space.

    >>> one_line("two\\n lines")
    'two lines'
    """
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _forms(secret: str) -> set[str]:
    """A secret as a server may write it: plain, in JSON, in Python, in an address, in base64."""
    plain = {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], secret.replace("/", "\\/")}
    return plain | {quote(secret), quote(secret, safe=""), base64.b64encode(secret.encode()).decode()}


def _any_spelling(text: str) -> str:
    """A pattern for the text, each of its characters as it is or as addresses, JSON, HTML or Python escape
    it, needed or not."""
    return "".join(
        f"(?:{re.escape(each)}|%{ord(each):02x}|\\\\u{ord(each):04x}|\\\\x{ord(each):02x}"
        f"|&#0*{ord(each)};|&#x0*{ord(each):x};)"
        for each in text
    )


def _read_headers(path: Path) -> dict[str, str]:
    """Lines 'Name: value'; empty ones and those with # are skipped. Errors never show a line's content."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise UsageError(
            f"the file of headers {path} cannot be read; write one 'Name: value' per line"
        ) from None
    headers: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, value = line.partition(":")
        plain = name.strip().replace("-", "").replace("_", "").isalnum()
        if not colon or not plain or not value.strip() or not _sendable(name + value.strip()):
            raise UsageError(f"line {number} of {path} is not a header; write 'Name: value'")
        headers[name.strip()] = value.strip()
    return headers


def _sendable(text: str) -> bool:
    return text.isascii() and text.isprintable()
