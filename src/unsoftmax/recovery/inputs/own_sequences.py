"""Sequences of the user's own, on which a certificate compares as well."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unsoftmax.arrays import Array, read_npy, real_numbers
from unsoftmax.errors import UsageError

__all__ = ["checked_sequences"]


def checked_sequences(sequences: object, width: int, bound: float | None) -> Array | None:
    """Sequences (n, N, d), or rows (n, d), from an array or a .npy file; None when there are none.

    >>> checked_sequences([[[1.0, 2.0], [3.0, 4.0]]], 2, None).shape
    (1, 2, 2)
    """
    if sequences is None:
        return None
    if isinstance(sequences, str | Path):
        try:
            sequences = read_npy(sequences)
        except (OSError, ValueError, EOFError) as error:
            raise UsageError(f"cannot read sequences from {sequences}: {error}; pass a .npy file") from error
    try:
        found = real_numbers(sequences)
    except (TypeError, ValueError) as error:
        raise UsageError(f"sequences must be an array of numbers: {error}") from error
    if found.ndim not in (2, 3) or found.shape[-1] != width or found.size == 0:
        raise UsageError(f"sequences must be (n, N, {width}), or rows (n, {width}), not {found.shape}")
    if not np.isfinite(found).all():
        raise UsageError("sequences hold NaN or infinity")
    with np.errstate(over="ignore"):
        longest = float(np.linalg.norm(found, axis=-1).max())
    if not np.isfinite(longest):
        raise UsageError("sequences hold a row whose norm is beyond float64")
    if bound is not None and longest > bound * (1.0 + 1e-9):
        raise UsageError(f"sequences hold a row of norm {longest:.6g}, and rows may be {bound:g} long")
    return found
