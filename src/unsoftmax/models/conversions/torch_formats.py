"""Formats of torch modules, by the names that findings and people use."""

from __future__ import annotations

import torch

from unsoftmax.errors import UsageError
from unsoftmax.float_formats import FloatFormat

__all__ = ["torch_format"]

_NAMES = ("float64", *reversed(FloatFormat))


def torch_format(dtype: torch.dtype | str) -> torch.dtype:
    """torch's format of this name.

    >>> torch_format("bfloat16"), torch_format(torch.float32)
    (torch.bfloat16, torch.float32)
    """
    name = str(dtype).removeprefix("torch.")
    if name not in _NAMES:
        raise UsageError(f"a module computes in {', '.join(_NAMES)}, not {name}; pass one of them as dtype")
    found = getattr(torch, name)
    assert isinstance(found, torch.dtype)
    return found
