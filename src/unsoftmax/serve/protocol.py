"""The server's side of the Open Inference Protocol: tensors in, tensors out, as JSON or as bytes."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.oracles.base import LARGEST_WIDTH
from unsoftmax.oracles.domain import Domain, TokenIds
from unsoftmax.oracles.http.json_text import read_json, write_json
from unsoftmax.serve.faults import Fault

__all__ = [
    "LENGTH_HEADER",
    "BadRequest",
    "model_metadata",
    "read_request",
    "server_metadata",
    "whole_number",
    "write_answer",
]

LENGTH_HEADER = "Inference-Header-Content-Length"
_TYPES = {"FP64": "<f8", "FP32": "<f4", "INT64": "<i8"}


class BadRequest(Exception):
    """The request cannot be answered; the text says why."""


def server_metadata(binary: bool) -> dict[str, Any]:
    """What GET /v2 tells."""
    return {"name": "unsoftmax", "version": "2", "extensions": ["binary_tensor_data"] if binary else []}


def model_metadata(name: str, domain: Domain, outputs: int | None, datatype: str) -> dict[str, Any]:
    """What GET /v2/models/NAME tells."""
    asked = {"name": "sequences", "datatype": datatype, "shape": [-1, -1, domain.width]}
    if isinstance(domain, TokenIds):
        asked = {"name": "ids", "datatype": "INT64", "shape": [-1, -1]}
    return {
        "name": name,
        "versions": ["1"],
        "platform": "unsoftmax",
        "inputs": [asked],
        "outputs": [
            {"name": "answers", "datatype": datatype, "shape": [-1] if outputs is None else [-1, outputs]}
        ],
    }


def whole_number(text: str) -> int | None:
    """The number in a header, or None for anything but a few plain digits.

    >>> whole_number("12"), whole_number("-1"), whole_number("\u00b2"), whole_number("9" * 30)
    (12, None, None, None)
    """
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else None


def read_request(body: bytes, json_bytes: int, datatype: str, domain: Domain) -> tuple[Array, bool]:
    """The batch, and whether the answer is wanted as bytes. json_bytes: how much of the body is JSON."""
    try:
        request = read_json(body[:json_bytes])
        (tensor,) = request["inputs"]
        batch = _batch(tensor, body[json_bytes:], "INT64" if isinstance(domain, TokenIds) else datatype)
        asked = [*(request.get("outputs") or []), request]
        parameters = [part.get("parameters") or {} for part in asked]
        as_bytes = any(p.get("binary_data") or p.get("binary_data_output") for p in parameters)
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise BadRequest(f"the request is not an inference request: {str(error)[:200]}") from error
    wanted = [-1, -1] if isinstance(domain, TokenIds) else [-1, -1, domain.width]
    if batch.ndim != len(wanted) or batch.size == 0 or batch.shape[2:] != tuple(wanted[2:]):
        raise BadRequest(f"the input has shape {list(batch.shape)}; it must be {wanted}")
    if isinstance(domain, TokenIds):
        try:
            return domain.checked(batch), as_bytes
        except UsageError as error:
            raise BadRequest(str(error)) from error
    if not np.isfinite(batch).all():
        raise BadRequest("the input holds NaN or infinity")
    return batch, as_bytes


def _batch(tensor: dict[str, Any], tail: bytes, datatype: str) -> Array:
    """The numbers of the one input, from JSON or from the bytes behind it."""
    if tensor["datatype"] != datatype:
        raise BadRequest(f"the input has datatype {str(tensor['datatype'])[:50]!r}; it must be {datatype}")
    shape = tensor["shape"]
    if not all(type(size) is int and 0 <= size <= LARGEST_WIDTH for size in shape):
        raise BadRequest(
            f"the input has shape {str(shape)[:50]}; it must be [-1, -1, width] in whole numbers"
        )
    size = (tensor.get("parameters") or {}).get("binary_data_size")
    if size is not None:
        if (
            type(size) is not int
            or size != len(tail)
            or size != prod(shape) * np.dtype(_TYPES[datatype]).itemsize
        ):
            raise BadRequest(
                f"the input of shape {shape} announces {str(size)[:30]} bytes, and {len(tail)} came"
            )
        values = np.frombuffer(tail, dtype=_TYPES[datatype])
    else:
        values = np.asarray(tensor["data"])
        if values.dtype.kind not in "fiub":
            raise BadRequest("the input holds something else than numbers")
        if datatype == "INT64" and values.dtype.kind not in "iu":
            raise BadRequest("the input holds numbers that are not whole, where INT64 is wanted")
        values = values.astype(_TYPES[datatype])
    return values.reshape(shape) if datatype == "INT64" else values.reshape(shape).astype(np.float64)


def write_answer(
    name: str, answers: Array, datatype: str, as_bytes: bool, fault: Fault | None = None
) -> tuple[bytes, dict[str, str]]:
    """Body and headers of the reply; `fault` replaces the numbers by something that is not an answer."""
    array = answers.astype(_TYPES[datatype])
    tensor: dict[str, Any] = {"name": "answers", "datatype": datatype, "shape": list(array.shape)}
    reply = {"model_name": name, "model_version": "1", "outputs": [tensor]}
    if fault is Fault.SHAPE:
        array = array[:-1]
    elif fault is Fault.NAN:
        array = np.full_like(array, np.nan)
    if fault is Fault.NULL:
        tensor["data"] = [None] * array.size
    elif as_bytes:
        raw = array.tobytes()
        tensor["parameters"] = {"binary_data_size": len(raw)}
        head = write_json(reply)
        return head + raw, {"Content-Type": "application/octet-stream", LENGTH_HEADER: str(len(head))}
    else:
        tensor["data"] = array.ravel()
    return write_json(reply), {"Content-Type": "application/json"}
