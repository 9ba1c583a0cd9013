"""The Open Inference Protocol, version 2: what a model says of itself, and tensors as JSON or as bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault, UsageError
from unsoftmax.oracles.http.description import Described, Description, read_object
from unsoftmax.oracles.http.json_text import write_json
from unsoftmax.oracles.http.options import HttpOptions
from unsoftmax.oracles.http.sender import Reply, Request, Sender

__all__ = ["MODEL_ADDRESS", "NUMBER_TYPES", "OpenInference", "as_sent"]

MODEL_ADDRESS = re.compile(
    r"(?P<server>https?://[^?#]+?|https?:/)/v2/models/(?P<name>[^/?#]+)"
    r"(/versions/(?P<version>[^/?#]+))?(/infer)?/?"
)

_TRIES = 3  # attempts for a description: a user waits for the first sign that the address is right
_LENGTH_HEADER = "Inference-Header-Content-Length"
NUMBER_TYPES: dict[str, str] = {
    "FP64": "<f8", "FP32": "<f4", "FP16": "<f2", "BOOL": "?",
    "INT8": "<i1", "INT16": "<i2", "INT32": "<i4", "INT64": "<i8",
    "UINT8": "<u1", "UINT16": "<u2", "UINT32": "<u4", "UINT64": "<u8",
}  # fmt: skip


@dataclass(frozen=True)
class OpenInference(Described):
    """How one model of an Open Inference Protocol server is asked.

    `discover` asks the server for names, width and datatypes, and whether tensors may travel as bytes.
    """

    address: str
    told: Description
    binary: bool
    fingerprint: str

    @classmethod
    def discover(cls, url: str, sender: Sender, options: HttpOptions) -> OpenInference:
        """The model behind an address http(s)://host/v2/models/NAME."""
        match = MODEL_ADDRESS.fullmatch(url)
        if match is None:
            raise UsageError(
                f"{sender.shown} is not a model of an Open Inference Protocol server; pass "
                "http(s)://host/v2/models/NAME"
            )
        version = f"/versions/{match['version']}" if match["version"] else ""
        address = f"{match['server']}/v2/models/{match['name']}{version}"
        asked = sender.send(Request("GET", address, retries=min(_TRIES, options.retries)))
        told = Description.read(asked.body, options.output, sender.shown)
        binary = options.binary
        if binary is None:
            binary = _offers_binary(sender, f"{match['server']}/v2")
        return cls(address, told, binary, f"http:{sender.shown}:{told.digest}")

    @property
    def one_at_a_time(self) -> bool:
        return self.told.one_at_a_time

    @property
    def url(self) -> str:
        return f"{self.address}/infer"

    def encode(self, batch: Array) -> tuple[bytes, dict[str, str]]:
        """Body and headers that ask for the answers to a batch."""
        array = as_sent(batch, self.told.datatype)
        tensor: dict[str, Any] = {
            "name": self.told.input_name,
            "shape": list(array.shape),
            "datatype": self.told.datatype,
        }
        request: dict[str, Any] = {"inputs": [tensor]}
        if self.told.output_name is not None:
            request["outputs"] = [{"name": self.told.output_name}]
        if not self.binary:
            tensor["data"] = array.ravel()
            return write_json(request), {"Content-Type": "application/json"}
        raw = array.tobytes()
        tensor["parameters"] = {"binary_data_size": len(raw)}
        if self.told.output_name is not None:
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
            raise OracleFault(f"the server's reply is not an inference reply: {error}") from error

    def _decode(self, reply: Reply) -> Any:
        head, tail = reply.body, b""
        if _LENGTH_HEADER in reply.headers:
            text = reply.headers[_LENGTH_HEADER]
            length = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else -1
            if not 0 <= length <= len(reply.body):
                raise OracleFault(
                    f"the server announces {text!r} bytes of JSON in a reply of {len(reply.body)} bytes"
                )
            head, tail = reply.body[:length], reply.body[length:]
        content = read_object(head, "the server")
        tensors = content.get("outputs")
        if not isinstance(tensors, list) or not all(isinstance(tensor, dict) for tensor in tensors):
            raise OracleFault("the server's reply has no list of outputs")
        offset = 0
        for tensor in tensors:
            size = (tensor.get("parameters") or {}).get("binary_data_size")
            if self.told.output_name is None or tensor.get("name") == self.told.output_name:
                return _tensor(tensor, tail[offset : offset + size] if isinstance(size, int) else None)
            offset += size if isinstance(size, int) else 0
        raise OracleFault(f"the server's reply has no output {self.told.output_name!r}")


def as_sent(batch: Array, datatype: str) -> Array:
    """A batch in the datatype of a server's input, or a fault that says what does not fit."""
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(batch, dtype=NUMBER_TYPES[datatype])
    if not np.isfinite(array).all():
        raise OracleFault(
            f"a row has entries that {datatype} cannot hold; pass input_bound, the largest norm of a row"
        )
    return array


def _offers_binary(sender: Sender, server: str) -> bool:
    try:
        told = read_object(sender.send(Request("GET", server, retries=0)).body, "the server")
    except OracleFault:
        return False  # the description of the server is optional
    extensions = told.get("extensions")
    return isinstance(extensions, list) and "binary_tensor_data" in extensions


def _tensor(tensor: dict[str, Any], raw: bytes | None) -> Any:
    """The numbers of one output tensor; what cannot be one is a fault."""
    datatype, shape = tensor.get("datatype"), tensor.get("shape")
    if datatype not in NUMBER_TYPES:
        raise OracleFault(f"the server answered with datatype {datatype!r}, which is not a number")
    if not isinstance(shape, list) or not all(isinstance(n, int) and n >= 0 for n in shape):
        raise OracleFault(f"the server answered with the shape {shape!r}")
    try:
        if raw is not None:
            return np.frombuffer(raw, dtype=NUMBER_TYPES[datatype]).reshape(shape)
        values = np.asarray(tensor.get("data"))
        if values.dtype.kind not in "fiub":
            raise OracleFault("the server answered with null or text among the numbers")
        if datatype.startswith("FP"):
            # a server may write the shortest text that names a float32; it is exact only in that format
            values = values.astype(NUMBER_TYPES[datatype])
        return values.reshape(shape)
    except ValueError as error:
        raise OracleFault(f"the server announced shape {shape}, but sent other data ({error})") from error
