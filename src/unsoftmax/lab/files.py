"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from unsoftmax.errors import UsageError

__all__ = ["write_atomically"]


def write_atomically(path: Path, content: bytes) -> Path:
    """The file with this content, or as it was before; never half of it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder, "a.txt"), b"all of it").read_text()
    'all of it'
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}; make room, or choose another --out, and run the same "
            "command again"
        ) from error
    finally:
        draft.unlink(missing_ok=True)
    return path
