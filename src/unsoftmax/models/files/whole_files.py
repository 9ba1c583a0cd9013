"""Files that are whole or not there, and JSON files of others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unsoftmax.errors import ModelFileError, UsageError

__all__ = ["read_json_object", "replace_file"]


def replace_file(target: Path, content: bytes) -> Path:
    """Writes the file, replacing an older one only when the new one is complete."""
    partial = target.with_name(target.name + ".partial")
    try:
        partial.write_bytes(content)
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(f"cannot write {target}: {error.strerror}; choose another place") from error
    return target


def read_json_object(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds; anything else is a `ModelFileError`."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"cannot read {path}: {error}") from error
    if not isinstance(found, dict):
        raise ModelFileError(f"cannot read {path}: it holds no object, but {type(found).__name__}")
    return found
