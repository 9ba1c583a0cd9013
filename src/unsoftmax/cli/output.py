"""Where a command writes: facts to standard output, sentences for people to standard error."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from unsoftmax.errors import UsageError

__all__ = ["print_json", "say", "writable_folder"]


def say(text: str) -> None:
    """A line for people, on standard error; lost without a word when that cannot be written."""
    with suppress(OSError):
        typer.echo(text, err=True)


def print_json(content: dict[str, Any]) -> None:
    """The one object on standard output; numbers that JSON cannot say become null."""
    typer.echo(json.dumps(_finite(content), indent=2, ensure_ascii=False))


def _finite(content: Any) -> Any:
    if isinstance(content, dict):
        return {str(key): _finite(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    if isinstance(content, float) and content - content != 0.0:
        return None
    return content


def writable_folder(folder: Path) -> Path:
    """The folder, made if need be, before any query is paid."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".unsoftmax-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error
    return folder
