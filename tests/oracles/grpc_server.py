"""A small server of the Open Inference Protocol over gRPC, with faults."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from unsoftmax.errors import UsageError
from unsoftmax.models import TokenHeads
from unsoftmax.models.base import Model
from unsoftmax.oracles.grpc.messages import message

KINDS = {"FP64": np.float64, "FP32": np.float32}


@dataclass
class Behaviour:
    """datatype: of input and answers. raw: whether answers are bytes. token: what clients must send. faults:
    codes that the next calls end with, in turn. queries: answered until now. outputs: shape of an answer
    after the batch. describe: changes what is said of the model. pushback: how long clients must wait after a
    fault, in milliseconds, as servers write it."""

    datatype: str = "FP64"
    raw: bool = True
    token: str | None = None
    faults: list[grpc.StatusCode] = field(default_factory=list)
    queries: int = 0
    spoil: Any = None
    describe: Any = None
    pushback: str | None = None
    last_metadata: dict[str, str] = field(default_factory=dict)


class _Service(grpc.GenericRpcHandler):  # type: ignore[misc]
    def __init__(self, model: Model, behaviour: Behaviour) -> None:
        self.model, self.behaviour = model, behaviour

    def service(self, handler_call_details: Any) -> Any:
        name = handler_call_details.method.rpartition("/")[2]
        methods = {
            "ModelMetadata": (self.metadata, "ModelMetadataRequest"),
            "ModelInfer": (self.infer, "ModelInferRequest"),
        }
        if name not in methods:
            return None
        function, request = methods[name]
        return grpc.unary_unary_rpc_method_handler(
            function,
            request_deserializer=message(request).FromString,
            response_serializer=lambda reply: reply.SerializeToString(),
        )

    def metadata(self, request: Any, context: Any) -> Any:
        self._check(request.name, context)
        reply = message("ModelMetadataResponse")(name=request.name, versions=["1"], platform="tests")
        kind = self.behaviour.datatype
        if isinstance(self.model, TokenHeads):
            reply.inputs.add(name="ids", datatype="INT64", shape=[-1, -1])
        else:
            reply.inputs.add(name="rows", datatype=kind, shape=[-1, -1, self.model.width])
        reply.outputs.add(name="answers", datatype=kind, shape=[-1])
        if self.behaviour.describe is not None:
            self.behaviour.describe(reply)
        return reply

    def infer(self, request: Any, context: Any) -> Any:
        self._check(request.model_name, context)
        told, kind = self.behaviour, KINDS[self.behaviour.datatype]
        if told.faults:
            if told.pushback is not None:
                context.set_trailing_metadata((("grpc-retry-pushback-ms", told.pushback),))
            context.abort(told.faults.pop(0), "a fault of the tests")
        sent: Any = np.int64 if isinstance(self.model, TokenHeads) else kind
        rows = np.frombuffer(request.raw_input_contents[0], dtype=sent).reshape(list(request.inputs[0].shape))
        try:
            answers = self.model(rows if sent is np.int64 else rows.astype(np.float64)).astype(kind)
        except UsageError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        told.queries += len(rows)
        reply = message("ModelInferResponse")(model_name=request.model_name)
        tensor = reply.outputs.add(name="answers", datatype=told.datatype, shape=answers.shape)
        if told.raw:
            reply.raw_output_contents.append(answers.tobytes())
        else:
            getattr(tensor.contents, f"{told.datatype.lower()}_contents").extend(answers.ravel().tolist())
        if told.spoil is not None:
            told.spoil(reply)
        return reply

    def _check(self, name: str, context: Any) -> None:
        sent = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        self.behaviour.last_metadata = sent
        if self.behaviour.token is not None and sent.get("authorization") != f"Bearer {self.behaviour.token}":
            context.abort(grpc.StatusCode.UNAUTHENTICATED, f"not {sent.get('authorization')}")
        if name != "model":
            context.abort(grpc.StatusCode.NOT_FOUND, f"no model {name}")


@contextmanager
def serving(model: Model, behaviour: Behaviour | None = None) -> Iterator[tuple[str, Behaviour]]:
    """The address of a server on loopback, and its behaviour, which may be changed while it runs."""
    told = behaviour if behaviour is not None else Behaviour()
    server = grpc.server(ThreadPoolExecutor(4), handlers=[_Service(model, told)])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}/v2/models/model", told
    finally:
        server.stop(None).wait()
