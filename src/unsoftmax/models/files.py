"""Files that are whole or not there."""

from __future__ import annotations

from pathlib import Path

from unsoftmax.errors import UsageError

__all__ = ["replace_file"]


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
