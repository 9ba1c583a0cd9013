"""mlserver 1.7.1, a server that others wrote, in an environment and a process of its own."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import torch
from numpy.typing import NDArray

import unsoftmax

VERSION = "1.7.1"
FOLDER = Path(__file__).resolve().parents[2] / ".cache" / f"mlserver-{VERSION}"
CONSTRAINTS = Path(__file__).with_name("mlserver-constraints.txt")

RUNTIME = """
import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Head(MLModel):
    async def load(self):
        kind = self.settings.inputs[0].datatype
        with np.load(self.settings.parameters.uri) as archive:
            self.W, self.v = (archive[name].astype({"FP64": np.float64, "FP32": np.float32}[kind]) for name in
            ("W", "v"))
        return True

    async def predict(self, payload):
        X = NumpyCodec.decode_input(payload.inputs[0])
        scores = np.einsum("bnd,bd->bn", X, X[:, -1] @ self.W.T)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        answers = np.einsum("bn,bn->b", weights, X @ self.v)
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("answers", answers)])
"""


LAYER_RUNTIME = """
import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Layer(MLModel):
    async def load(self):
        with np.load(self.settings.parameters.uri) as archive:
            self.parts = {name: archive[name] for name in archive}
        return True

    async def predict(self, payload):
        X, part = NumpyCodec.decode_input(payload.inputs[0]), self.parts
        heads = part["queries"].shape[0]
        q = np.einsum("bd,hrd->bhr", X[:, -1], part["queries"]) + part["query_bias"]
        k = np.einsum("bnd,hrd->bhnr", X, part["keys"]) + part["key_bias"][:, None]
        v = np.einsum("bnd,hrd->bhnr", X, part["values"]) + part["value_bias"][:, None]
        scores = np.einsum("bhnr,bhr->bhn", k, q) * np.float32(q.shape[2] ** -0.5)
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        mixed = np.einsum("bhn,bhnr->bhr", weights, v).reshape(len(X), -1)
        answers = mixed @ part["out"].T + part["out_bias"]
        if "readout" in part:
            answers = answers @ part["readout"]
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("answers", answers)])
"""


@dataclass(frozen=True)
class Served:
    """A model of a server: the code that answers, its class there, its arrays, and the shapes."""

    runtime: str
    implementation: str
    arrays: Path
    datatype: str
    width: int
    outputs: int | None = None


def float32_layer(
    layer: torch.nn.MultiheadAttention, path: Path, readout: NDArray[np.float64] | None = None
) -> Served:
    """A layer of torch whose every step the server computes in float32, with numpy."""
    d, H = int(layer.embed_dim), int(layer.num_heads)
    named = {name: part.detach().float().numpy() for name, part in layer.named_parameters()}
    weights = named["in_proj_weight"].reshape(3, H, d // H, d)
    biases = named["in_proj_bias"].reshape(3, H, d // H)
    arrays = dict(zip(("queries", "keys", "values"), weights, strict=True))
    arrays |= dict(zip(("query_bias", "key_bias", "value_bias"), biases, strict=True))
    arrays |= {"out": named["out_proj.weight"], "out_bias": named["out_proj.bias"]}
    if readout is not None:
        arrays["readout"] = readout.astype(np.float32)
    np.savez(path, allow_pickle=False, **arrays)
    return Served(LAYER_RUNTIME, "runtime.Layer", path, "FP32", d, d if readout is None else None)


def install() -> Path:
    """The command `mlserver` in its environment; installed once into the checkout, in about a minute."""
    ready = FOLDER / "ready"
    FOLDER.parent.mkdir(exist_ok=True)
    with FOLDER.with_suffix(".lock").open("w") as lock:  # tests may run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            venv.create(FOLDER, with_pip=True, clear=True)
            pip = [
                str(FOLDER / "bin" / "python"),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--no-compile",
                "--disable-pip-version-check",
            ]
            environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
            subprocess.run(
                [*pip, "-c", str(CONSTRAINTS), f"mlserver=={VERSION}"], check=True, env=environment
            )
            ready.touch()
    return FOLDER / "bin" / "mlserver"


class Addresses(dict[str, str]):
    """Addresses over HTTP by datatype, and the port for gRPC."""

    grpc_port: int


def mlserver(folder: Path, head: unsoftmax.SingleHead) -> AbstractContextManager[Addresses]:
    """Serves the head as 'FP64' and as 'FP32'; their addresses."""
    arrays = head.save_npz(folder / "head.npz")
    return serve(
        folder, {kind: Served(RUNTIME, "runtime.Head", arrays, kind, head.width) for kind in ("FP64", "FP32")}
    )


@contextmanager
def serve(folder: Path, models: dict[str, Served]) -> Iterator[Addresses]:
    """Serves models by name; their addresses."""
    command = install()
    http, grpc, metrics = _free_ports(3)
    settings = {
        "host": "127.0.0.1",
        "http_port": http,
        "grpc_port": grpc,
        "metrics_port": metrics,
        "parallel_workers": 0,
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    for name, served in models.items():
        place = folder / name
        place.mkdir()
        (place / "runtime.py").write_text(served.runtime)
        answer = [-1] if served.outputs is None else [-1, served.outputs]
        model = {
            "name": name,
            "implementation": served.implementation,
            "parameters": {"uri": str(served.arrays)},
            "inputs": [{"name": "sequences", "datatype": served.datatype, "shape": [-1, -1, served.width]}],
            "outputs": [{"name": "answers", "datatype": served.datatype, "shape": answer}],
        }
        (place / "model-settings.json").write_text(json.dumps(model))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    log = folder / "log.txt"
    with (
        log.open("w") as output,
        subprocess.Popen(
            [str(command), "start", str(folder)], stdout=output, stderr=output, env=environment, cwd=folder
        ) as process,
    ):
        try:
            urls = Addresses({name: f"http://127.0.0.1:{http}/v2/models/{name}" for name in models})
            urls.grpc_port = grpc
            _wait(urls, process, log)
            yield urls
        finally:
            process.terminate()
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait(urls: dict[str, str], process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 120
    with httpx.Client(trust_env=False) as client:
        while time.monotonic() < end and process.poll() is None:
            try:
                if all(client.get(f"{url}/ready").status_code == 200 for url in urls.values()):
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
    raise RuntimeError(f"mlserver did not start: {log.read_text()[-2000:]}")


def _free_ports(n: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [int(s.getsockname()[1]) for s in sockets]
    for s in sockets:
        s.close()
    return ports


if __name__ == "__main__":
    sys.stdout.write(f"{install()}\n")
