"""Queries a second through the HTTP oracle, against a bare loop of the same requests on the same server.

python -m benchmarks.http_throughput

The server runs in a process of its own (`unsoftmax serve`), once as it is and once 20 ms away, as a real one
would be. The bare loop encodes a body with the same fast encoder, posts it over one kept-alive connection of
httpx and decodes the reply, and nothing else. The oracle does what it does in a recovery: it cuts the batch,
keeps to limits, watches time and size, checks and orders the answers. Rounds are taken in turns; a ratio is
the median over rounds of the two times taken right after each other, so that other load meets both alike.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import numpy as np

from unsoftmax.oracles.http import HttpOptions, Sender, http_oracle
from unsoftmax.oracles.http.json_text import read_json
from unsoftmax.oracles.http.open_inference import OpenInference

WIDTH, LENGTH, PER_REQUEST, REQUESTS, ROUNDS = 64, 2, 64, 64, 15


@contextmanager
def served(*switches: str) -> Iterator[str]:
    command = [
        sys.executable,
        "-m",
        "unsoftmax",
        "serve",
        f"demo:single-head?d={WIDTH}",
        "--port",
        "0",
        *switches,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=20)


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(url: str, binary: bool, requests: int) -> tuple[float, dict[int, float]]:
    """Queries a second of the bare loop, and the ratio of the oracle to it at each concurrency."""
    batch = np.random.default_rng(0).standard_normal((requests * PER_REQUEST, LENGTH, WIDTH))
    options = HttpOptions(batch=PER_REQUEST, binary=binary)
    sender = Sender(url, options)
    dialect = OpenInference.discover(url, sender, options)
    client = httpx.Client(trust_env=False)

    def bare() -> None:
        for i in range(0, len(batch), PER_REQUEST):
            content, headers = dialect.encode(batch[i : i + PER_REQUEST])
            reply = client.post(dialect.url, content=content, headers=headers)
            if binary:
                np.frombuffer(reply.content[int(reply.headers["Inference-Header-Content-Length"]) :])
            else:
                read_json(reply.content)

    oracles = {
        n: http_oracle(url, HttpOptions(batch=PER_REQUEST, concurrency=n, binary=binary)) for n in (1, 4, 16)
    }
    alone: list[float] = []
    ratios: dict[int, list[float]] = {n: [] for n in oracles}
    for _ in range(ROUNDS):
        for n, oracle in oracles.items():
            alone.append(seconds(bare))
            ratios[n].append(alone[-1] / seconds(lambda oracle=oracle: oracle(batch)))  # type: ignore[misc]
    client.close()
    sender.close()
    return len(batch) / float(np.median(alone)), {n: float(np.median(found)) for n, found in ratios.items()}


def main() -> None:
    print(f"{WIDTH} columns, {LENGTH} rows, {PER_REQUEST} sequences a request")
    print(
        f"{'server':<13}{'tensors':<9}{'bare loop, queries/s':>22}"
        f"{'ratio at concurrency 1':>26}{'4':>8}{'16':>8}"
    )
    for label, switches, requests in (("loopback", (), REQUESTS), ("20 ms away", ("--delay", "0.02"), 32)):
        with served(*switches) as url:
            for kind, binary in (("bytes", True), ("JSON", False)):
                alone, ratios = measure(url, binary, requests)
                print(
                    f"{label:<13}{kind:<9}{alone:>22,.0f}"
                    f"{ratios[1]:>26.2f}{ratios[4]:>8.2f}{ratios[16]:>8.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
