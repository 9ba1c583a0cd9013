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
from contextlib import contextmanager
from pathlib import Path

import httpx

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


@contextmanager
def mlserver(folder: Path, head: unsoftmax.SingleHead) -> Iterator[Addresses]:
    """Serves the head as 'FP64' and as 'FP32'; their addresses."""
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
    for kind in ("FP64", "FP32"):
        place = folder / kind
        place.mkdir()
        (place / "runtime.py").write_text(RUNTIME)
        model = {
            "name": kind,
            "implementation": "runtime.Head",
            "parameters": {"uri": str(head.save_npz(place / "head.npz"))},
            "inputs": [{"name": "sequences", "datatype": kind, "shape": [-1, -1, head.width]}],
            "outputs": [{"name": "answers", "datatype": kind, "shape": [-1]}],
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
            urls = Addresses({kind: f"http://127.0.0.1:{http}/v2/models/{kind}" for kind in ("FP64", "FP32")})
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
