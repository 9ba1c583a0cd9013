"""Where a command writes: facts to standard output, sentences for people to standard error."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer

from unsoftmax.errors import UsageError
from unsoftmax.schemas import SCHEMA_VERSION

__all__ = ["in_paragraph", "print_json", "say", "writable_folder"]

_NARROWEST, _WIDEST = 40, 110  # columns: lines of more are hard to read, of fewer not worth folding


def say(text: str) -> None:
    """A line for people, on standard error; lost without a word when that cannot be written."""
    with suppress(OSError):
        typer.echo(text, err=True)


def in_paragraph(name: str, text: str, *, indent: int = 12) -> str:
    """A long text behind its name, in lines that fit a terminal.

    >>> print(in_paragraph("try", "another seed"))
    try         another seed
    """
    first = f"{name:<{indent - 1}} " if name else " " * indent
    return textwrap.fill(
        text or " ",
        _columns(),
        initial_indent=first,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _columns() -> int:
    """Of the terminal, if there is one."""
    if not sys.stdout.isatty():
        return _WIDEST
    return min(_WIDEST, max(_NARROWEST, shutil.get_terminal_size((_WIDEST, 24)).columns))


def print_json(command: str, content: dict[str, Any]) -> None:
    """The one object on standard output, with the name and version of its schema (`unsoftmax schema`);
    numbers that JSON cannot say become null."""
    whole = {"schema": f"unsoftmax/{SCHEMA_VERSION}/{command}"} | content
    typer.echo(json.dumps(_finite(whole), indent=2, ensure_ascii=False))


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
