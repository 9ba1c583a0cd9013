"""Tokens and private headers: sent to the server, and never seen anywhere else."""

from __future__ import annotations

import os
from pathlib import Path

from unsoftmax.errors import UsageError

__all__ = ["TOKEN_VARIABLE", "Secrets"]

TOKEN_VARIABLE = "UNSOFTMAX_HTTP_TOKEN"  # noqa: S105 - the name of the variable, not its content
_HIDDEN = "***"
_SHORTEST = 4  # shorter values are no secrets, and hiding them would garble every message


class Secrets:
    """The bearer token of the environment and the headers of a file. Its text form shows neither.

    >>> Secrets({}, None).redact("nothing to hide")
    'nothing to hide'
    """

    def __init__(self, environment: os._Environ[str] | dict[str, str], headers_file: str | None) -> None:
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
        self._hidden = sorted((value for value in values if len(value) >= _SHORTEST), key=len, reverse=True)

    @property
    def has_token(self) -> bool:
        """Whether requests are signed."""
        return any(name.lower() == "authorization" for name in self._headers)

    def headers(self) -> dict[str, str]:
        """What goes with every request."""
        return dict(self._headers)

    def redact(self, text: str) -> str:
        """The text without any secret: servers like to repeat what they were sent."""
        for secret in self._hidden:
            text = text.replace(secret, _HIDDEN)
        return text

    def __repr__(self) -> str:
        return f"Secrets({_HIDDEN})"


def _read_headers(path: Path) -> dict[str, str]:
    """Lines 'Name: value'; empty ones and those with # are skipped. Errors name the line, never its
    content."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise UsageError(
            f"the file of headers {path} cannot be read; write one 'Name: value' a line"
        ) from None
    headers: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, value = line.partition(":")
        if (
            not colon
            or not name.strip().replace("-", "").replace("_", "").isalnum()
            or not value.strip()
            or not _sendable(name + value.strip())
        ):
            raise UsageError(f"line {number} of {path} is no header; write 'Name: value'")
        headers[name.strip()] = value.strip()
    return headers


def _sendable(text: str) -> bool:
    return text.isascii() and text.isprintable()
