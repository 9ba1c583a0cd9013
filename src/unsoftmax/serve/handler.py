"""Requests of the Open Inference Protocol: what the model says of itself, and its answers."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from unsoftmax.errors import OracleFault
from unsoftmax.oracles.http.json_text import write_json
from unsoftmax.serve.faults import Fault
from unsoftmax.serve.guarded import GuardedHandler, Refused
from unsoftmax.serve.protocol import BadRequest, model_metadata, read_request, server_metadata, write_answer

if TYPE_CHECKING:
    from unsoftmax.serve.server import ModelServer

__all__ = ["Handler"]


class Handler(GuardedHandler):
    """Answers for the model of its listener."""

    @property
    def model(self) -> ModelServer:
        """The server of the model."""
        return self.server.owner  # type: ignore[no-any-return]

    @property
    def token(self) -> str | None:
        return self.model.token

    def takes(self, path: str) -> bool:
        return path in (
            f"/v2/models/{self.model.name}/infer",
            f"/v2/models/{self.model.name}/versions/1/infer",
        )

    def do_POST(self) -> None:
        if self.model.dead:
            self.drop()
        else:
            super().do_POST()

    def get(self) -> None:
        model = self.model
        path = self.path.rstrip("/")
        if model.dead:
            self.drop()
            return
        if path in ("/v2/health/live", "/v2/health/ready", f"/v2/models/{model.name}/ready"):
            self.reply(200, b"{}")
            return
        self.check_token()
        if path == "/v2":
            self.reply(200, write_json(server_metadata(model.binary)))
        elif path in (f"/v2/models/{model.name}", f"/v2/models/{model.name}/versions/1"):
            told = model_metadata(model.name, model.domain, model.oracle.spec.outputs, model.datatype)
            self.reply(200, write_json(told))
        else:
            raise Refused(404, "there is no such model")

    def post(self, body: bytes, json_bytes: int) -> None:
        model = self.model
        try:
            batch, as_bytes = read_request(body, json_bytes, model.datatype, model.domain)
        except BadRequest as error:
            raise Refused(400, str(error)) from error
        with model.lock:
            model.seen += len(batch)
        fault = model.fault_plan.draw()
        wait = model.wait_for(len(batch))
        if wait is not None:
            raise Refused(429, "too many queries", {"Retry-After": str(math.ceil(wait))})
        if fault is Fault.UNAVAILABLE:
            raise Refused(503, "try again")
        if fault is Fault.ERROR:
            raise Refused(500, "internal error")
        if fault is Fault.DROP:
            self.drop()
            return
        time.sleep(model.delay + (model.faults.slow_seconds if fault is Fault.SLOW else 0.0))
        content, headers = write_answer(
            model.name, self._answers(batch), model.datatype, as_bytes and model.binary, fault
        )
        model.answered(len(batch))
        self.reply(200, content, headers)

    def _answers(self, batch: Any) -> Any:
        try:
            with self.model.lock:
                return self.model.oracle(batch)
        except OracleFault as error:
            raise Refused(422, str(error)) from error
        except Exception as error:
            raise Refused(500, f"the model raised {type(error).__name__}") from error
