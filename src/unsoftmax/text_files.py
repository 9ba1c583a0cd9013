"""Small files that people write: read whole, after a look at their size."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from unsoftmax.errors import UsageError

__all__ = ["parse_toml", "read_small_text"]

_DEEP_KEY = re.compile(r"(?<![A-Za-z0-9_-])(?:[A-Za-z0-9_-]++\s*+\.\s*+){64}")  # a.a.a, 64 times and more
_LARGEST = 1 << 20  # bytes; the largest grids and configurations that people write have some kilobytes


def read_small_text(path: str | Path, what: str) -> str:
    """The text of a file of at most 1 MB; `what` names its kind in messages.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.toml").write_text("d = 4")
    ...     read_small_text(Path(folder, "a.toml"), "sweep")
    'd = 4'
    """
    source = Path(path)
    try:
        if source.exists() and not source.is_file():
            raise UsageError(f"the {what} {source} is not a file")
        if source.stat().st_size > _LARGEST:
            raise UsageError(
                f"the {what} {source} has {source.stat().st_size:,} bytes; at most {_LARGEST:,} are read"
            )
        return source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read the {what} {source}: {reason}") from error


def parse_toml(text: str, what: str) -> dict[str, Any]:
    """The content of a TOML text.

    >>> parse_toml("d = [4, 8]", "sweep")
    {'d': [4, 8]}
    """
    if _DEEP_KEY.search(text):  # the time to read such a key grows with the square of its parts
        raise UsageError(f"the {what} is nested too deeply")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"the {what} is nested too deeply") from None
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise UsageError(f"the {what} is not valid TOML: {error}") from error
