"""Clients that send nonsense, nothing, or too much. The server refuses or drops them, and goes on."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unsoftmax
from unsoftmax import HttpOptions, OracleSpec, Status
from unsoftmax.oracles import FunctionOracle
from unsoftmax.oracles.http import http_oracle
from unsoftmax.serve import Limits, ModelServer

HEAD = unsoftmax.random_single_head(3, seed=2)
pytestmark = pytest.mark.usefixtures("limited_in_time")
SLACK = 40.0  # seconds that a busy machine may add
GOOD = {"inputs": [{"name": "sequences", "datatype": "FP64", "shape": [1, 1, 3], "data": [1.0, 2.0, 3.0]}]}
INFER = "POST /v2/models/model/infer HTTP/1.1\r\nHost: h\r\n"


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with ModelServer(unsoftmax.as_oracle(HEAD)) as running:
        yield running


def address(server: ModelServer) -> tuple[str, int]:
    return "127.0.0.1", int(server.url.split(":")[2].split("/")[0])


def exchange(server: ModelServer, sent: bytes, *, end: bool = True) -> tuple[int, bytes]:
    """Status and body of the reply to these bytes; 0 when the server ends the connection without one."""
    with socket.create_connection(address(server), timeout=30.0) as client:
        with suppress(OSError):
            client.sendall(sent)
            if end:
                client.shutdown(socket.SHUT_WR)
        data = b""
        with suppress(ConnectionError):
            while piece := client.recv(1 << 16):
                data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    match = re.match(rb"HTTP/1.1 (\d{3}) ", head)
    return int(match[1]) if match else 0, body


def post(body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{header}\r\n" for header in (f"Content-Length: {len(body)}", *headers))
    return f"{INFER}{lines}Connection: close\r\n\r\n".encode() + body


def tensor(**changed: Any) -> bytes:
    return json.dumps({"inputs": [GOOD["inputs"][0] | changed]}).encode()


BODIES: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "binary": bytes(range(256)),
    "a list": b"[]",
    "a number": b"1",
    "null": b"null",
    "deep": b"[" * 100_000,
    "deep objects": b'{"inputs":' * 50_000,
    "no inputs": b"{}",
    "inputs are text": b'{"inputs": "abc"}',
    "inputs are empty": b'{"inputs": []}',
    "two inputs": json.dumps({"inputs": GOOD["inputs"] * 2}).encode(),
    "an input is text": b'{"inputs": ["x"]}',
    "no data": b'{"inputs": [{"datatype": "FP64", "shape": [1, 1, 3]}]}',
    "data are text": tensor(data="abc"),
    "numbers as text": tensor(data=["1", "2", "3"]),
    "null among numbers": tensor(data=[1.0, None, 3.0]),
    "ragged": tensor(data=[[1.0], [2.0, 3.0]]),
    "too few": tensor(data=[1.0]),
    "not finite": b'{"inputs": [{"datatype": "FP64", "shape": [1, 1, 3], "data": [NaN, 1, Infinity]}]}',
    "beyond floats": b'{"inputs": [{"datatype": "FP64", "shape": [1, 1, 3], "data": [1e999, 1, 1]}]}',
    "huge integer": tensor(data=[10**400, 1, 1]),
    "shape of floats": tensor(shape=[1.0, 1.0, 3.0]),
    "shape of truths": tensor(shape=[True, True, 3]),
    "negative shape": tensor(shape=[-1, 1, 3]),
    "huge shape": tensor(shape=[2**62, 2**62, 3]),
    "shape is an object": tensor(shape={"a": 1}),
    "shape is a number": tensor(shape=3),
    "empty shape": tensor(shape=[]),
    "no sequences": tensor(shape=[0, 1, 3], data=[]),
    "no rows": tensor(shape=[1, 0, 3], data=[]),
    "another width": tensor(shape=[1, 1, 1], data=[1.0]),
    "four dimensions": tensor(shape=[1, 1, 1, 3]),
    "another datatype": tensor(datatype="FP32"),
    "datatype is an object": tensor(datatype={"FP64": 1}),
    "parameters are text": tensor(parameters="abc"),
    "outputs are text": json.dumps(GOOD | {"outputs": ["abc"]}).encode(),
    "outputs are a number": json.dumps(GOOD | {"outputs": 7}).encode(),
    "parameters of the request are text": json.dumps(GOOD | {"parameters": "abc"}).encode(),
    "bytes announced, none sent": tensor(parameters={"binary_data_size": 24}),
    "negative bytes": tensor(parameters={"binary_data_size": -24}),
    "bytes as text": tensor(parameters={"binary_data_size": "24"}),
    "bytes as truth": tensor(parameters={"binary_data_size": True}),
}


@pytest.mark.parametrize("what", BODIES)
def test_a_malformed_body_gets_400_and_a_sentence(server: ModelServer, what: str) -> None:
    status, body = exchange(server, post(BODIES[what]))
    assert status == 400, body
    assert json.loads(body)["error"]
    assert len(body) < 1000


def binary_request(announced: str, size: int, tail: bytes) -> bytes:
    described = {"datatype": "FP64", "shape": [1, 1, 3], "parameters": {"binary_data_size": size}}
    head = json.dumps({"inputs": [described]}).encode()
    length = announced if announced else str(len(head))
    return post(head + tail, f"Inference-Header-Content-Length: {length}")


@pytest.mark.parametrize(
    "announced", ["-1", "+5", "0x10", "1e3", "\u00b2".encode().decode("latin-1"), "9" * 40, "99999"]
)
def test_malformed_lengths_of_the_json_part_get_400(server: ModelServer, announced: str) -> None:
    assert exchange(server, binary_request(announced, 24, bytes(24)))[0] == 400


@pytest.mark.parametrize(
    ("size", "tail"), [(24, bytes(16)), (16, bytes(24)), (24, bytes(32)), (2**70, bytes(24))]
)
def test_bytes_that_do_not_fit_get_400(server: ModelServer, size: int, tail: bytes) -> None:
    assert exchange(server, binary_request("", size, tail))[0] == 400
    assert exchange(server, binary_request("", 24, bytes(24)))[0] == 200


HEADS: dict[str, tuple[bytes, int]] = {
    "no request line": (b"nonsense\r\n\r\n", 400),
    "binary": (bytes(range(256)) + b"\r\n\r\n", 400),
    "another version": (b"GET /v2 HTTP/9.9\r\n\r\n", 400),
    "no version number": (b"GET /v2 HTTP/x.y\r\n\r\n", 400),
    "five words": (b"GET / a b HTTP/1.1\r\n\r\n", 400),
    "a long line": (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", 400),
    "a long header": (b"GET /v2 HTTP/1.1\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 400),
    "many headers": (b"GET /v2 HTTP/1.1\r\n" + b"X: y\r\n" * 500 + b"\r\n", 400),
    "another method": (b"BREW /v2 HTTP/1.1\r\n\r\n", 501),
    "another path": (b"GET /../../etc/passwd HTTP/1.1\r\nConnection: close\r\n\r\n", 404),
    "no length": (INFER.encode() + b"\r\n", 411),
    "chunked": (INFER.encode() + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
    "negative length": (INFER.encode() + b"Content-Length: -5\r\n\r\n", 400),
    "signed length": (INFER.encode() + b"Content-Length: +5\r\n\r\nabcde", 400),
    "length in superscript": (INFER.encode() + "Content-Length: \u00b2\r\n\r\nab".encode("latin-1"), 400),
    "two lengths": (INFER.encode() + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef", 400),
    "length and chunks": (INFER.encode() + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
    "absurd length": (INFER.encode() + b"Content-Length: " + b"9" * 60 + b"\r\n\r\n", 400),
    "too large": (INFER.encode() + b"Content-Length: 99999999999\r\n\r\n", 413),
    "too much JSON": (INFER.encode() + b"Content-Length: 30000000\r\n\r\n", 413),
    "body that ends early": (INFER.encode() + b"Content-Length: 500\r\n\r\n{}", 400),
    "a body behind GET": (b"GET /v2 HTTP/1.1\r\nContent-Length: 20\r\n\r\nGET /v2 HTTP/1.1\r\n\r\n", 200),
}


@pytest.mark.parametrize("what", HEADS)
def test_a_malformed_request_is_refused(server: ModelServer, what: str) -> None:
    sent, status = HEADS[what]
    seen, body = exchange(server, sent)
    assert seen == status
    # one reply only: what follows a refused head is not taken for a request
    assert not re.search(rb"HTTP/1.1 [0-9]", body)
    assert json.loads(body)


def test_random_bytes_never_end_the_server(server: ModelServer) -> None:
    rng = np.random.default_rng(0)
    whole = post(json.dumps(GOOD).encode())
    for _ in range(60):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 5):
            damaged[place] = rng.integers(256)
        exchange(server, bytes(damaged))
    assert exchange(server, whole)[0] == 200


def test_the_token_is_checked_before_the_body_is_read() -> None:
    with ModelServer(unsoftmax.as_oracle(HEAD), token="right", limits=Limits(request=60.0)) as server:
        wrong = f"{INFER}Authorization: Bearer wrong\r\nContent-Length: 1000000\r\n"
        start = time.monotonic()
        assert exchange(server, f"{wrong}\r\n".encode(), end=False)[0] == 401  # no byte of the body was sent
        expecting = exchange(server, f"{wrong}Expect: 100-continue\r\n\r\n".encode(), end=False)
        assert expecting[0] == 401  # and none was asked for
        assert time.monotonic() - start < SLACK
        assert (
            exchange(server, f"{wrong}\r\n".encode() + bytes(1_000_000))[0] == 401
        )  # the refusal is not lost
        body = json.dumps(GOOD).encode()
        assert exchange(server, post(body, "Authorization: Bearer right"))[0] == 200
        assert exchange(server, post(body, "Authorization: Bearer right\u00e9"))[0] == 401
        assert exchange(server, post(body))[0] == 401
        assert "right" not in repr(server)


@pytest.mark.parametrize(
    ("sent", "drop"),
    [
        (b"", b""),
        (b"GET /v2 HT", b""),
        (b"GET /v2 HTTP/1.1\r\n", b"X"),
        (INFER.encode() + b"Content-Length: 1000\r\n\r\n", b"a"),
    ],
    ids=["silent", "half a line", "trickled header", "trickled body"],
)
def test_silent_and_slow_clients_are_dropped(sent: bytes, drop: bytes) -> None:
    with ModelServer(unsoftmax.as_oracle(HEAD), limits=Limits(idle=0.3, request=0.6)) as server:
        with socket.create_connection(address(server), timeout=SLACK) as client:
            start = time.monotonic()
            client.sendall(sent)
            with suppress(ConnectionError):
                while time.monotonic() - start < SLACK:
                    client.settimeout(0.1)
                    try:
                        if not client.recv(1000):
                            break
                    except TimeoutError:
                        client.sendall(drop)
            assert time.monotonic() - start < SLACK
        assert unsoftmax.recover(server.url).status is Status.EXACT


def test_a_client_that_does_not_read_its_answers_is_dropped() -> None:
    wide = FunctionOracle(lambda X: np.ones((len(X), 500_000)), OracleSpec(width=3, outputs=500_000))
    with ModelServer(wide, limits=Limits(request=2.0)) as server:
        with socket.create_connection(address(server), timeout=SLACK) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(post(json.dumps(GOOD).encode()))
            assert client.recv(1) == b"H"  # it has begun to answer, and nothing else is read
            _until(lambda: not server._listener._open)
        _until(lambda: server._listener.memory.left == Limits().memory)


def _until(holds: Callable[[], bool]) -> None:
    """Waits until it holds; fails after a time that no machine needs."""
    deadline = time.monotonic() + SLACK
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@contextmanager
def served(*arguments: str) -> Iterator[tuple[str, int]]:
    """`unsoftmax serve` in its own process; its address and its process id."""
    command = [sys.executable, "-m", "unsoftmax", "serve", *arguments, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process.pid
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=30) == 0


def megabytes(pid: int, what: str = "VmHWM") -> float:
    match = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match
    return int(match[1]) / 1000.0


def send_all(port: int, content: bytes) -> None:
    """A whole request, and its answer read."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60.0) as client:
        client.sendall(content)
        client.recv(1000)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process in /proc")
def test_memory_stays_bounded_with_500_clients() -> None:
    with served("demo:single-head?d=3&seed=2") as (url, pid), ExitStack() as clients:
        port = int(url.split(":")[2].split("/")[0])
        before = megabytes(pid)
        lists = b'{"inputs": [' + b"[]," * 1_300_000  # 4 MB of JSON: about 90 MB as Python objects
        head = f"{INFER}Content-Length: {len(lists)}\r\n\r\n".encode()
        for i in range(500):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30.0))
            client.setblocking(False)
            with suppress(OSError):
                client.send([b"", b"GET /v2", head + lists, head + lists[:100_000]][i % 4])
        whole = [threading.Thread(target=send_all, args=(port, head + lists), daemon=True) for _ in range(12)]
        for thread in whole:  # together they would take 1.1 GB
            thread.start()
        result = unsoftmax.recover(http_oracle(url, HttpOptions(retries=40, backoff=0.05)))
        for thread in whole:
            thread.join(timeout=60.0)
        assert result.status is Status.EXACT  # somebody who asks is served meanwhile
        assert megabytes(pid) - before < 600.0  # 512 MB for requests under way, and the threads


def test_when_all_connections_wait_the_oldest_makes_room() -> None:
    with (
        ModelServer(unsoftmax.as_oracle(HEAD), limits=Limits(connections=4)) as server,
        ExitStack() as clients,
    ):
        for _ in range(40):
            clients.enter_context(socket.create_connection(address(server), timeout=SLACK))
        assert exchange(server, post(json.dumps(GOOD).encode()))[0] == 200


def test_when_all_connections_work_a_new_one_is_told_to_come_back() -> None:
    with (
        ModelServer(unsoftmax.as_oracle(HEAD), limits=Limits(connections=2)) as server,
        ExitStack() as clients,
    ):
        for _ in range(2):
            client = clients.enter_context(socket.create_connection(address(server), timeout=SLACK))
            client.sendall(INFER.encode() + b"Content-Length: 100\r\n\r\n{")
        deadline = time.monotonic() + SLACK
        while len(server._listener._open) < 2 or server._listener._waiting:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with socket.create_connection(address(server), timeout=SLACK) as late:
            assert late.recv(1000).startswith(b"HTTP/1.1 503")


def test_requests_beyond_the_memory_are_told_to_come_back() -> None:
    with ModelServer(unsoftmax.as_oracle(HEAD), limits=Limits(memory=10_000)) as server:
        assert exchange(server, post(json.dumps(GOOD).encode()))[0] == 200
        assert exchange(server, post(b" " * 500 + json.dumps(GOOD).encode()))[0] == 503
        assert server._listener.memory.left == 10_000


@pytest.mark.parametrize("name", ["a/b", "", "two words", "a\r\nX: y", "\u00e4"])
def test_names_that_fit_no_address_are_refused(name: str) -> None:
    with pytest.raises(unsoftmax.UsageError, match="does not fit into an address"):
        ModelServer(unsoftmax.as_oracle(HEAD), name=name)


def test_a_model_that_raises_is_a_500_and_the_server_goes_on() -> None:
    class Odd:
        spec = OracleSpec(width=3)

        def __call__(self, batch: Any, /) -> Any:
            raise RuntimeError("private detail")

    with ModelServer(Odd()) as server:
        status, body = exchange(server, post(json.dumps(GOOD).encode()))
        assert (status, b"private" in body) == (500, False)
        assert exchange(server, b"GET /v2 HTTP/1.1\r\nConnection: close\r\n\r\n")[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 50_000,
        b'{"model": "practice", "logprobs": true}',
        b'{"model": "practice", "logprobs": 2, "prompt": [["a"]]}',
        b'{"model": "practice", "logprobs": 2, "prompt": [[1, 2], [1]]}',
        b'{"model": "practice", "logprobs": 2, "prompt": [[1e300]]}',
        b'{"model": "practice", "logprobs": 2, "prompt": [[99999]]}',
        b'{"model": "practice", "logprobs": 2, "prompt": 7}',
        b'{"model": "practice", "logprobs": 2, "prompt_embeds": 7}',
        b'{"model": "practice", "logprobs": 2, "prompt_embeds": ["!!"]}',
        b'{"model": "practice", "logprobs": "all", "prompt": [[1]]}',
    ],
)
def test_the_server_of_completions_refuses_malformed_requests_too(body: bytes) -> None:
    from unsoftmax.models import random_language_model
    from unsoftmax.serve.completions import CompletionsServer

    with CompletionsServer(random_language_model(8, 8, seed=0), token="right") as server:
        port = int(server.target.split(":")[2].split("/")[0])
        head = f"POST /v1/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
        statuses = []
        for token in ("wrong", "right"):
            with socket.create_connection(("127.0.0.1", port), timeout=30.0) as client:
                client.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode() + body)
                statuses.append(int(client.recv(100).split()[1]))
        assert statuses == [401, 400]
