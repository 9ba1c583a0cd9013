"""A model of an Open Inference Protocol server over gRPC as an oracle: grpc(s)://host:port/v2/models/NAME."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import OracleFault, UsageError, brief
from unsoftmax.oracles.base import checked_answers
from unsoftmax.oracles.grpc.channel import Channel
from unsoftmax.oracles.grpc.messages import INFER, METADATA, message
from unsoftmax.oracles.http.description import Described, Description
from unsoftmax.oracles.http.open_inference import NUMBER_TYPES, as_sent
from unsoftmax.oracles.http.options import HttpOptions
from unsoftmax.oracles.http.oracle import ServedOracle, spec_of

__all__ = ["GrpcOracle", "grpc_oracle"]

_ADDRESS = re.compile(
    r"(?P<scheme>grpcs?)://(?P<host>[^/?#@]+)/v2/models/(?P<name>[^/?#]+)(/versions/(?P<version>[^/?#]+))?/?"
)
_TRIES = 3  # attempts for a description: a user waits for the first sign that the address is right
# where a server sends numbers as such, and not as bytes
_CONTENTS = {
    "FP64": "fp64_contents", "FP32": "fp32_contents", "BOOL": "bool_contents",
    "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents", "INT64": "int64_contents",
    "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents", "UINT64":
    "uint64_contents",
}  # fmt: skip


@dataclass(frozen=True)
class _Model(Described):
    """The model at an address, and what the server says of it."""

    name: str
    version: str
    told: Description
    fingerprint: str


class GrpcOracle(ServedOracle):
    """Answers of a server over gRPC. Tensors travel as bytes."""

    def __init__(
        self, model: _Model, channel: Channel, options: HttpOptions, *, outputs: int | None = None
    ) -> None:
        per_request = 1 if model.told.one_at_a_time else options.batch
        name = f"{channel.shown}/v2/models/{model.name}"
        super().__init__(spec_of(model, per_request, options, outputs, name), per_request, channel, options)
        self._model, self._channel = model, channel

    @property
    def takes_ids(self) -> bool:
        """Whether the server wants token ids; how many there are, it does not say."""
        return self._model.told.takes_ids

    def _ask(self, piece: Array, stop: threading.Event) -> Array:
        told = self._model.told
        array = as_sent(piece, told.datatype)
        request = message("ModelInferRequest")(model_name=self._model.name, model_version=self._model.version)
        request.inputs.add(name=told.input_name, datatype=told.datatype, shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
        if told.output_name is not None:
            request.outputs.add(name=told.output_name)
        reply = self._channel.call(INFER, request, "ModelInferResponse", n_queries=len(piece), stop=stop)
        return checked_answers(_answers(reply, told.output_name), len(piece), self.spec.outputs)


def _answers(reply: Any, wanted: str | None) -> Any:
    """The numbers of the wanted output, as an array that is still to be checked for shape and finiteness."""
    for place, tensor in enumerate(reply.outputs):
        if wanted is not None and tensor.name != wanted:
            continue
        if tensor.datatype not in NUMBER_TYPES:
            raise OracleFault(f"the server answered with datatype {tensor.datatype!r}, which is not a number")
        kind, shape = NUMBER_TYPES[tensor.datatype], list(tensor.shape)
        if min(shape, default=0) < 0:  # numpy would take it for whatever fits
            raise OracleFault(f"the server answered with the shape {shape}")
        try:
            if place < len(reply.raw_output_contents):
                return np.frombuffer(reply.raw_output_contents[place], dtype=kind).reshape(shape)
            if tensor.datatype not in _CONTENTS:
                raise OracleFault(f"the server answered with {tensor.datatype}, but sent no bytes")
            return np.array(getattr(tensor.contents, _CONTENTS[tensor.datatype]), dtype=kind).reshape(shape)
        except ValueError as error:
            raise OracleFault(f"the server announced shape {shape}, but sent other data ({error})") from error
    raise OracleFault(f"the server's reply has no output{'' if wanted is None else f' {wanted!r}'}")


def _described(channel: Channel, name: str, version: str, options: HttpOptions) -> _Model:
    asked = message("ModelMetadataRequest")(name=name, version=version)
    retries = min(_TRIES, options.retries)
    reply = channel.call(METADATA, asked, "ModelMetadataResponse", retries=retries)
    told = {
        "name": reply.name,
        "versions": list(reply.versions),
        "platform": reply.platform,
        "inputs": [_tensor(tensor) for tensor in reply.inputs],
        "outputs": [_tensor(tensor) for tensor in reply.outputs],
    }
    description = Description.of(told, options.output, f"{channel.shown}/v2/models/{name}")
    return _Model(name, version, description, f"grpc:{channel.shown}/{name}:{description.digest}")


def _tensor(tensor: Any) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype or "FP64", "shape": list(tensor.shape)}


def grpc_oracle(target: str, options: HttpOptions | None = None, *, outputs: int | None = None) -> GrpcOracle:
    """The oracle behind grpc(s)://host:port/v2/models/NAME, with the options of HTTP targets."""
    options = options if options is not None else HttpOptions()
    match = _ADDRESS.fullmatch(target)
    if match is None:
        raise UsageError(
            f"{brief(target)!r} is not a model over gRPC; pass grpc://host:port/v2/models/NAME, or grpcs:// "
            "with TLS. A token belongs in UNSOFTMAX_HTTP_TOKEN"
        )
    _check_host(match["host"], target)
    channel = Channel(match["host"], secure=match["scheme"] == "grpcs", options=options)
    try:
        with channel.secrets.kept():
            model = _described(channel, match["name"], match["version"] or "", options)
            return GrpcOracle(model, channel, options, outputs=outputs)
    except BaseException:
        channel.close()
        raise


def _check_host(host: str, target: str) -> None:
    """Refuses an address that no server can have; gRPC itself would try it again and again."""
    try:
        parts = urlsplit(f"//{host}")
        possible = bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number up to 65535, or brackets that do not close
        possible = False
    if not possible:
        raise UsageError(f"{brief(target)!r} has no host and port that a server can have")
