"""Tensors of .safetensors files that others wrote: only those that are wanted are read, as float64."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import ModelFileError

__all__ = ["read_tensors"]

_KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_LARGEST_HEADER = 100 << 20  # bytes; that of a model with 100,000 tensors has a tenth of it


def read_tensors(path: Path, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, Array]:
    """Tensors by name; bfloat16 through its bits, which numpy has no type for."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            length = int.from_bytes(file.read(8), "little")
            if length > min(_LARGEST_HEADER, size):
                raise ValueError(f"its header claims {length:,} bytes, the file has {size:,}")
            header = json.loads(file.read(length))
            header.pop("__metadata__", None)
            entries = {name: entry for name, entry in header.items() if wanted(name)}
            _check_places(entries, size - 8 - length)
            return {name: _tensor(entry, file, 8 + length) for name, entry in entries.items()}
    except (OSError, AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ModelFileError(f"cannot read {path} as a safetensors file: {error}") from error


def _check_places(entries: dict[str, Any], room: int) -> None:
    """Refuses tensors outside the file, and more of them than it has room for, before any is read."""
    total = 0
    for entry in entries.values():
        first, end = entry["data_offsets"]
        if not (isinstance(first, int) and isinstance(end, int) and 0 <= first <= end <= room):
            raise ValueError("a tensor lies outside the file")
        total += end - first
    if total > room:
        raise ValueError(f"its tensors share bytes: {total:,} in a file with room for {room:,}")


def _tensor(entry: dict[str, Any], file: Any, start: int) -> Array:
    if entry["dtype"] not in _KINDS:
        raise ValueError(f"a tensor has the datatype {entry['dtype']}")
    first, end = entry["data_offsets"]
    file.seek(start + first)
    raw = np.frombuffer(file.read(end - first), dtype=_KINDS[entry["dtype"]])
    if entry["dtype"] == "BF16":
        raw = (raw.astype(np.uint32) << 16).view(np.float32)
    return np.asarray(raw.reshape(entry["shape"]), dtype=np.float64)
