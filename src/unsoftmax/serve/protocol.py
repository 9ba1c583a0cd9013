"""The server's side of the Open Inference Protocol: tensors in, tensors out, as JSON or as bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.oracles.http.json_text import read_json, write_json

__all__ = ["LENGTH_HEADER", "BadRequest", "model_metadata", "read_request", "server_metadata", "write_answer"]

LENGTH_HEADER = "Inference-Header-Content-Length"
_TYPES = {"FP64": "<f8", "FP32": "<f4"}


class BadRequest(Exception):
    """The request cannot be answered; the text says why."""


def server_metadata(binary: bool) -> dict[str, Any]:
    """What GET /v2 tells."""
    return {"name": "unsoftmax", "version": "2", "extensions": ["binary_tensor_data"] if binary else []}


def model_metadata(name: str, width: int, outputs: int | None, datatype: str) -> dict[str, Any]:
    """What GET /v2/models/NAME tells."""
    return {
        "name": name,
        "versions": ["1"],
        "platform": "unsoftmax",
        "inputs": [{"name": "sequences", "datatype": datatype, "shape": [-1, -1, width]}],
        "outputs": [
            {"name": "answers", "datatype": datatype, "shape": [-1] if outputs is None else [-1, outputs]}
        ],
    }


def read_request(body: bytes, head_length: str | None, datatype: str, width: int) -> tuple[Array, bool]:
    """The batch, and whether the answer is wanted as bytes."""
    head, tail = body, b""
    if head_length is not None:
        if not head_length.isdecimal() or int(head_length) > len(body):
            raise BadRequest(f"the header {LENGTH_HEADER} does not fit the body")
        head, tail = body[: int(head_length)], body[int(head_length) :]
    try:
        request = read_json(head)
        (tensor,) = request["inputs"]
        shape = [int(n) for n in tensor["shape"]]
        if tensor["datatype"] != datatype:
            raise BadRequest(f"the input has datatype {tensor['datatype']}; it must be {datatype}")
        size = (tensor.get("parameters") or {}).get("binary_data_size")
        values = (
            np.asarray(tensor["data"], dtype=_TYPES[datatype])
            if size is None
            else np.frombuffer(tail[:size], dtype=_TYPES[datatype])
        )
        batch = values.reshape(shape).astype(np.float64)
    except (ValueError, KeyError, TypeError) as error:
        raise BadRequest(f"the request is no inference request: {error}") from error
    if batch.ndim != 3 or batch.shape[2] != width or batch.shape[0] < 1 or batch.shape[1] < 1:
        raise BadRequest(f"the input has shape {list(batch.shape)}; it must be [-1, -1, {width}]")
    if not np.isfinite(batch).all():
        raise BadRequest("the input holds NaN or infinity")
    wanted = [output.get("parameters") or {} for output in request.get("outputs") or []] + [
        request.get("parameters") or {}
    ]
    return batch, any(p.get("binary_data") or p.get("binary_data_output") for p in wanted)


def write_answer(
    name: str, answers: Array, datatype: str, as_bytes: bool, fault: str | None = None
) -> tuple[bytes, dict[str, str]]:
    """Body and headers of the reply; `fault` replaces the numbers by something that is no answer."""
    array = answers.astype(_TYPES[datatype])
    tensor: dict[str, Any] = {"name": "answers", "datatype": datatype, "shape": list(array.shape)}
    reply = {"model_name": name, "model_version": "1", "outputs": [tensor]}
    if fault == "shape":
        array = array[:-1]
    elif fault == "nan":
        array = np.full_like(array, np.nan)
    if fault == "null":
        tensor["data"] = [None] * array.size
    elif as_bytes:
        raw = array.tobytes()
        tensor["parameters"] = {"binary_data_size": len(raw)}
        head = write_json(reply)
        return head + raw, {"Content-Type": "application/octet-stream", LENGTH_HEADER: str(len(head))}
    else:
        tensor["data"] = array.ravel()
    return write_json(reply), {"Content-Type": "application/json"}
