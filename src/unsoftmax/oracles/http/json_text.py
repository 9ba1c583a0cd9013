"""JSON with arrays, by orjson where it is installed. Both write float64 so that reading gives the same
bits."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

try:
    import orjson
except ImportError:  # pragma: no cover - the environment of the tests has it
    orjson = None  # type: ignore[assignment]

__all__ = ["read_json", "write_json"]


def write_json(content: Any) -> bytes:
    """The content as UTF-8; numpy arrays become nested lists.

    >>> write_json({"data": np.array([0.1, 2.0])})
    b'{"data":[0.1,2.0]}'
    """
    if orjson is not None:
        return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return json.dumps(content, default=np.ndarray.tolist, separators=(",", ":")).encode()  # pragma: no cover


def read_json(text: bytes) -> Any:
    """The content; NaN and Infinity are read too, so that they can be named as the fault they are.

    >>> read_json(b"[1.5, NaN]")
    [1.5, nan]
    """
    if orjson is not None:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
