"""Sequences of token ids of the user's own: a corpus on which a certificate compares as well."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import cast

import numpy as np

from unsoftmax.arrays import read_npy
from unsoftmax.errors import UsageError
from unsoftmax.oracles import Ids, TokenIds

__all__ = ["checked_id_sequences"]

_LARGEST_FILE = 1 << 30  # bytes: more ids than any certificate looks at


def checked_id_sequences(sequences: object, vocabulary: int, longest: int | None) -> list[Ids] | None:
    """Sequences of ids from lists, an array (n, N), a .npy file, or a text file with one sequence per line.

    longest: the most tokens that the target takes.

    >>> [len(each) for each in checked_id_sequences([[1, 2, 3], [4]], 9, None)]
    [3, 1]
    """
    if sequences is None:
        return None
    if isinstance(sequences, str | Path):
        sequences = _read(Path(sequences))
    if not isinstance(sequences, Iterable):
        raise UsageError(f"sequences must be lists of token ids, not {sequences!r}")
    domain = TokenIds(vocabulary)
    found = []
    for number, each in enumerate(cast("Iterable[object]", sequences), start=1):
        row = np.asarray(each)
        if row.ndim != 1 or not row.size or not np.issubdtype(row.dtype, np.integer):
            raise UsageError(f"sequence {number} must be a list of token ids, not {each!r}")
        if longest is not None and row.size > longest:
            raise UsageError(
                f"sequence {number} has {row.size} tokens, and the target takes at most {longest}"
            )
        found.append(domain.checked(row[None])[0].astype(np.int64))
    if not found:
        raise UsageError("sequences hold no sequence of token ids")
    return found


def _read(path: Path) -> object:
    """An array of a .npy file, or the lines of a text file."""
    try:
        if path.suffix == ".npy":
            return read_npy(path)
        if path.stat().st_size > _LARGEST_FILE:
            raise UsageError(f"{path} is larger than 1 GB; pass some of its sequences")
        lines = path.read_text(encoding="utf-8").splitlines()
        return [[int(word) for word in line.replace(",", " ").split()] for line in lines if line.strip()]
    except (OSError, ValueError, EOFError) as error:
        raise UsageError(
            f"cannot read sequences of token ids from {path}: {error}; pass a .npy file (n, N), or a text "
            "file with the ids of one sequence on each line"
        ) from error
