"""The Open Inference Protocol, version 2: what a model says of itself, and tensors as JSON or as bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.oracles.http.json_text import read_json, write_json
from unsoftmax.oracles.http.options import HttpOptions
from unsoftmax.oracles.http.sender import Reply, Sender

__all__ = ["MODEL_ADDRESS", "OpenInference"]

MODEL_ADDRESS = re.compile(
    r"(?P<server>https?://[^?#]+?|https?:/)/v2/models/(?P<name>[^/?#]+)(/versions/(?P<version>[^/?#]+))?(/infer)?/?"
)

_LENGTH_HEADER = "Inference-Header-Content-Length"
_TYPES: dict[str, str] = {
    "FP64": "<f8", "FP32": "<f4", "FP16": "<f2", "BOOL": "?",
    "INT8": "<i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8", "UINT8": "<u1", "UINT16": "<u2",
    "UINT32": "<u4", "UINT64": "<u8",
}  # fmt: skip


@dataclass(frozen=True)
class OpenInference:
    """How one model of an Open Inference Protocol server is asked.

    `discover` asks the server for names, width and datatypes, and whether tensors may travel as bytes.
    """

    address: str
    input_name: str
    datatype: str
    width: int | None
    output_name: str | None
    outputs: int | None
    one_at_a_time: bool
    binary: bool
    fingerprint: str

    @classmethod
    def discover(cls, url: str, sender: Sender, options: HttpOptions) -> OpenInference:
        """The model behind an address http(s)://host/v2/models/NAME."""
        match = MODEL_ADDRESS.fullmatch(url)
        if match is None:
            raise UsageError(
                f"{sender.shown} is no model of an Open Inference Protocol server; pass "
                "http(s)://host/v2/models/NAME"
            )
        address = f"{match['server']}/v2/models/{match['name']}" + (
            f"/versions/{match['version']}" if match["version"] else ""
        )
        told = _object(sender.send("GET", address, retries=min(3, options.retries)), sender.shown)
        try:
            name, datatype, width, one_at_a_time = _input(told, sender.shown)
            output, outputs = _output(told, options.output, sender.shown)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise OracleFault(
                f"the model at {sender.shown} describes itself in a way that cannot be read: {error}"
            ) from error
        binary = options.binary
        if binary is None:
            binary = _offers_binary(sender, f"{match['server']}/v2")
        facts = {part: told.get(part) for part in ("name", "versions", "platform", "inputs", "outputs")}
        digest = blake2b(write_json(facts), digest_size=8).hexdigest()
        return cls(
            address,
            name,
            datatype,
            width,
            output,
            outputs,
            one_at_a_time,
            binary,
            f"http:{sender.shown}:{digest}",
        )

    @property
    def url(self) -> str:
        return f"{self.address}/infer"

    def encode(self, batch: Array) -> tuple[bytes, dict[str, str]]:
        """Body and headers that ask for the answers to a batch."""
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(batch, dtype=_TYPES[self.datatype])
        if not np.isfinite(array).all():
            raise OracleFault(
                f"a row has entries that {self.datatype} cannot hold; pass input_bound, the largest norm of "
                "a row"
            )
        tensor: dict[str, Any] = {
            "name": self.input_name,
            "shape": list(array.shape),
            "datatype": self.datatype,
        }
        request: dict[str, Any] = {"inputs": [tensor]}
        if self.output_name is not None:
            request["outputs"] = [{"name": self.output_name}]
        if not self.binary:
            tensor["data"] = array.ravel()
            return write_json(request), {"Content-Type": "application/json"}
        raw = array.tobytes()
        tensor["parameters"] = {"binary_data_size": len(raw)}
        if self.output_name is not None:
            request["outputs"][0]["parameters"] = {"binary_data": True}
        else:
            request["parameters"] = {"binary_data_output": True}
        head = write_json(request)
        return head + raw, {"Content-Type": "application/octet-stream", _LENGTH_HEADER: str(len(head))}

    def decode(self, reply: Reply, n_queries: int) -> Any:
        """The answers in a reply, as an array that is still to be checked for shape and finiteness."""
        try:
            return self._decode(reply)
        except (AttributeError, IndexError, KeyError, OverflowError, TypeError) as error:
            raise OracleFault(f"the server's reply is no inference reply: {error}") from error

    def _decode(self, reply: Reply) -> Any:
        head, tail = reply.body, b""
        if _LENGTH_HEADER in reply.headers:
            text = reply.headers[_LENGTH_HEADER]
            length = int(text) if text.isdecimal() and len(text) < 20 else -1
            if not 0 <= length <= len(reply.body):
                raise OracleFault(
                    f"the server announces {text!r} bytes of JSON in a reply of {len(reply.body)} bytes"
                )
            head, tail = reply.body[:length], reply.body[length:]
        content = _object(Reply(reply.status, reply.headers, head), "the server")
        tensors = content.get("outputs")
        if not isinstance(tensors, list) or not all(isinstance(tensor, dict) for tensor in tensors):
            raise OracleFault("the server's reply has no list of outputs")
        offset = 0
        for tensor in tensors:
            size = (tensor.get("parameters") or {}).get("binary_data_size")
            if self.output_name is None or tensor.get("name") == self.output_name:
                return _tensor(tensor, tail[offset : offset + size] if isinstance(size, int) else None)
            offset += size if isinstance(size, int) else 0
        raise OracleFault(f"the server's reply has no output {self.output_name!r}")


def _object(reply: Reply, who: str) -> dict[str, Any]:
    try:
        content = read_json(reply.body)
    except ValueError as error:
        raise OracleFault(
            f"{who} answered with something that is no JSON; is this the address of a model server?"
        ) from error
    if not isinstance(content, dict):
        raise OracleFault(f"{who} answered with a JSON {type(content).__name__} instead of an object")
    return content


def _input(told: dict[str, Any], who: str) -> tuple[str, str, int | None, bool]:
    inputs = told.get("inputs") or []
    if not inputs:
        return "input-0", "FP64", None, False  # a server may keep silent; then the user tells the width
    if len(inputs) > 1:
        raise UsageError(f"the model at {who} has {len(inputs)} inputs; this library asks models with one")
    name, datatype, shape = (
        inputs[0].get("name", "input-0"),
        inputs[0].get("datatype", "FP64"),
        inputs[0].get("shape") or [-1, -1, -1],
    )
    if datatype not in ("FP64", "FP32"):
        raise UsageError(
            f"the input {name!r} of the model at {who} has datatype {datatype}; this library sends FP64 or "
            "FP32 sequences"
        )
    if len(shape) != 3 or shape[1] > 0 or shape[0] > 1:
        raise UsageError(
            f"the input {name!r} of the model at {who} has shape {shape}; it must be [-1, -1, width], with "
            "any number of rows"
        )
    return name, datatype, shape[2] if shape[2] > 0 else None, shape[0] == 1


def _output(told: dict[str, Any], wanted: str | None, who: str) -> tuple[str | None, int | None]:
    outputs = {str(output.get("name")): output for output in told.get("outputs") or []}
    if wanted is None and len(outputs) > 1:
        raise UsageError(
            f"the model at {who} has the outputs {', '.join(outputs)}; choose one with the option output"
        )
    if wanted is not None and outputs and wanted not in outputs:
        raise UsageError(f"the model at {who} has no output {wanted!r}, only {', '.join(outputs)}")
    if not outputs:
        return wanted, None
    name = wanted if wanted is not None else next(iter(outputs))
    shape = outputs[name].get("shape") or [-1]
    return name, shape[1] if len(shape) == 2 and shape[1] > 1 else None


def _offers_binary(sender: Sender, server: str) -> bool:
    try:
        told = _object(sender.send("GET", server, retries=0), "the server")
    except OracleFault:
        return False  # the description of the server is optional
    extensions = told.get("extensions")
    return isinstance(extensions, list) and "binary_tensor_data" in extensions


def _tensor(tensor: dict[str, Any], raw: bytes | None) -> Any:
    """The numbers of one output tensor; what cannot be one is a fault."""
    datatype, shape = tensor.get("datatype"), tensor.get("shape")
    if datatype not in _TYPES:
        raise OracleFault(f"the server answered with datatype {datatype!r}, which is no number")
    if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise OracleFault(f"the server answered with the shape {shape!r}")
    try:
        if raw is not None:
            return np.frombuffer(raw, dtype=_TYPES[datatype]).reshape(shape)
        values = np.asarray(tensor.get("data"))
        if values.dtype.kind not in "fiub":
            raise OracleFault("the server answered with null or text among the numbers")
        if datatype.startswith("FP"):
            values = values.astype(
                _TYPES[datatype]
            )  # text may be the shortest that names a float32: only there it is exact
        return values.reshape(shape)
    except ValueError as error:
        raise OracleFault(f"the server announced shape {shape}, but sent other data ({error})") from error
