"""Servers that try to hold, fill, crash or read the client. Every attack ends in a fault, in bounded time."""

from __future__ import annotations

import gzip
import json
import socket
import subprocess
import sys
import threading
import time
import traceback
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import unsoftmax
from tests.oracles.hostile_server import Script, always, flood, hostile, read_request, response, trickle
from unsoftmax import HttpOptions, OracleFault, Status, UnsoftmaxError, UsageError
from unsoftmax.oracles.http import http_oracle
from unsoftmax.oracles.http.retries import retry_after

pytestmark = pytest.mark.usefixtures("limited_in_time")
TOKEN = "tok/9f\"31-'private'-\\token"
BATCH = np.ones((2, 1, 2))
DEADLINE = 0.5  # seconds that the client may wait for one reply
SLACK = 40.0  # seconds that a busy machine may add; without a deadline every attack here lasts longer
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n"


def options(**more: Any) -> HttpOptions:
    usual: dict[str, Any] = {
        "request": {"x": "$batch"},
        "answer": "p",
        "width": 2,
        "retries": 0,
        "concurrency": 1,
    }
    return HttpOptions(**(usual | {"timeout": DEADLINE, "patience": 5.0, "backoff": 0.001} | more))


def ask(host: str, **more: Any) -> Any:
    return http_oracle(f"{host}/predict", options(**more))(BATCH)


def empty_blocks() -> bytes:
    """Compressed data that never ends and never yields a byte: stored blocks of length 0."""
    return b"\x00\x00\x00\xff\xff" * 200


ENDLESS: dict[str, Script] = {
    "nothing": lambda connection: time.sleep(60),
    "trickled status": trickle(b"HTTP/1.1 200 ", b"O"),
    "trickled headers": trickle(OK, b"X"),
    "one header after the other": trickle(OK, b"X-Name: value\r\n"),
    "trickled body": trickle(OK + b"Content-Length: 100000\r\n\r\n", b" "),
    "body without length": trickle(OK + b"Connection: close\r\n\r\n", b" "),
    "trickled chunk extension": trickle(CHUNKED + b"\r\n1;", b"e"),
    "trickled chunks": trickle(CHUNKED + b"\r\n", b"1\r\n \r\n"),
    "trickled trailers": trickle(CHUNKED + b"\r\n0\r\n", b"T"),
    "100 Continue, slowly": trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "100 Continue, fast": flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "103 Early Hints": trickle(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
    "gzip that yields nothing": trickle(
        CHUNKED + b"Content-Encoding: deflate\r\n\r\n", b"3e8\r\n" + empty_blocks() + b"\r\n"
    ),
}


@pytest.mark.parametrize("attack", ENDLESS)
def test_no_server_holds_a_request_beyond_its_deadline(attack: str) -> None:
    with hostile(ENDLESS[attack]) as host:
        start = time.monotonic()
        with pytest.raises(OracleFault, match=r"gave no answer in 1 attempts|more than .* KB|decompressed"):
            ask(host)
        assert time.monotonic() - start < DEADLINE + SLACK


def test_a_handshake_that_stalls_does_not_hold_a_request() -> None:
    with hostile(ENDLESS["nothing"]) as host:
        start = time.monotonic()
        with pytest.raises(OracleFault, match="gave no answer in 1 attempts"):
            ask(host.replace("http", "https"))
        assert time.monotonic() - start < DEADLINE + SLACK


def test_a_name_service_that_never_answers_does_not_hold_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(60) and [])
    start = time.monotonic()
    with pytest.raises(OracleFault, match="gave no answer in 1 attempts"):
        ask("http://name.invalid:8000")
    over.set()
    assert time.monotonic() - start < DEADLINE + SLACK


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with hostile(always(response(b'{"p": [1, 2]}'))) as host:
        port = int(host.rpartition(":")[2])
        kind = socket.AF_INET, socket.SOCK_STREAM, 6, ""
        # nothing listens on the first one, which leads to this machine as well
        places = [(*kind, ("127.0.0.2", port)), (*kind, ("127.0.0.1", port))]
        real = socket.getaddrinfo
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda name, *a, **k: places if name == "two.test" else real(name, *a, **k)
        )
        assert ask(f"http://two.test:{port}").tolist() == [1.0, 2.0]


def test_a_name_that_is_none_is_a_fault() -> None:
    with pytest.raises(UnsoftmaxError):
        ask(f"http://{'a' * 70}.test:8000")


def test_patience_holds_for_all_attempts_together() -> None:
    with hostile(ENDLESS["trickled headers"]) as host:
        start = time.monotonic()
        with pytest.raises(OracleFault, match=r"gave no answer in [2-9] attempts: no complete answer within"):
            ask(host, retries=1000, patience=1.5)
        assert time.monotonic() - start < 1.5 + SLACK


def test_a_server_that_reads_slowly_does_not_hold_a_request() -> None:
    def script(connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        while connection.recv(1):
            time.sleep(0.02)

    listener = socket.create_server(("127.0.0.1", 0))
    with listener, hostile(script) as host:  # the listener accepts nothing: its queue is all there is
        for place in (host, f"http://127.0.0.1:{listener.getsockname()[1]}"):
            start = time.monotonic()
            with pytest.raises(OracleFault, match="gave no answer"):
                http_oracle(f"{place}/predict", options(width=60_000))(np.ones((2, 60, 60_000)))
            assert time.monotonic() - start < DEADLINE + 2 * SLACK


TWICE = response(gzip.compress(gzip.compress(b" " * (16 << 20))))
FLOODS: dict[str, Script] = {
    "announced length": always(OK + b"Content-Length: 999999999999999999999\r\n\r\n"),
    "announced length that comes": flood(OK + b"Content-Length: 9999999999\r\n\r\n", b" " * (1 << 16)),
    "chunks": flood(CHUNKED + b"\r\n", b"10000\r\n" + b" " * (1 << 16) + b"\r\n"),
    "headers": flood(OK, b"X: " + b"y" * 1000 + b"\r\n"),
    "chunk extension": flood(CHUNKED + b"\r\n1;", b"e" * 5000),
    "error page": flood(b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n", b"5\r\npage \r\n" * 1000),
    "gzip": always(response(gzip.compress(b" " * (16 << 20)), Content_Encoding="gzip")),
    "deflate": always(response(zlib.compress(b" " * (16 << 20)), Content_Encoding="deflate")),
    "gzip of gzip": always(
        response(gzip.compress(gzip.compress(b" " * (16 << 20))), Content_Encoding="gzip, gzip")
    ),
    "gzip of gzip, in two header lines": always(
        OK + b"Content-Encoding: gzip\r\n" + TWICE.replace(OK, b"Content-Encoding: gzip\r\n", 1)
    ),
    "a list of empty lists": flood(CHUNKED + b"\r\n", b"4000\r\n" + b"[]," * 5461 + b" \r\n"),
}


@pytest.mark.parametrize("attack", FLOODS)
def test_no_server_fills_the_memory(attack: str) -> None:
    with hostile(FLOODS[attack]) as host:
        tracemalloc.start()
        try:
            with pytest.raises(
                OracleFault, match=r"more than .* KB|gave no answer|failed on a request \(500"
            ):
                ask(host, timeout=5.0)
            assert tracemalloc.get_traced_memory()[1] < 8 << 20  # the limit of this reply is 1.2 MB
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_no_description_fills_the_memory(encoding: str) -> None:
    packed = gzip.compress if encoding == "gzip" else zlib.compress
    bomb = packed(b'{"inputs": [' + b" " * (16 << 20) + b"]}")
    with hostile(always(response(bomb, Content_Encoding=encoding))) as host:
        tracemalloc.start()
        try:
            with pytest.raises(OracleFault, match=r"more than .* KB"):
                http_oracle(f"{host}/v2/models/m", options(request=None, answer=None, timeout=5.0))
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()


def described(**tensor: Any) -> Script:
    """A server whose model describes its input like this."""
    usual = {"name": "x", "datatype": "FP64", "shape": [-1, -1, 4]}
    return always(response(json.dumps({"name": "m", "inputs": [usual | tensor], "outputs": []}).encode()))


@pytest.mark.parametrize("size", [10**7, 10**12, 2**63])
@pytest.mark.parametrize("part", ["inputs", "outputs"])
def test_advertised_sizes_are_checked_before_anything_is_allocated(size: int, part: str) -> None:
    tensor = {"name": "x", "datatype": "FP64", "shape": [-1, -1, size] if part == "inputs" else [-1, size]}
    with (
        hostile(always(response(json.dumps({part: [tensor]}).encode()))) as host,
        pytest.raises(OracleFault, match="sizes up to 1,048,576 are supported"),
    ):
        http_oracle(f"{host}/v2/models/m", options(request=None, answer=None))


@pytest.mark.parametrize(
    "tensor",
    [
        {"shape": [-1, -1, True]},
        {"shape": [-1, -1, 4.0]},
        {"shape": [-1, -1, "4"]},
        {"shape": {"0": -1}},
        {"shape": [[-1], -1, 4]},
        {"name": {"a": 1}},
        {"name": "n" * 100_000},
        {"name": ["x"]},
    ],
)
def test_descriptions_that_make_no_sense_are_faults(tensor: dict[str, Any]) -> None:
    with hostile(described(**tensor)) as host, pytest.raises(OracleFault, match="the model at") as fault:
        http_oracle(f"{host}/v2/models/m", options(request=None, answer=None))
    assert len(str(fault.value)) < 1100


@pytest.mark.parametrize(
    "shape", [[2**62, 2**62], [2, 2**40], [0, 2**60], [10**30], [-2], [2.0], [True, True]]
)
def test_shapes_of_answers_are_checked(shape: list[Any]) -> None:
    answer = {"outputs": [{"name": "y", "datatype": "FP64", "shape": shape, "data": [1.0, 2.0]}]}
    description = {"inputs": [{"name": "x", "shape": [-1, -1, 2]}], "outputs": [{"name": "y", "shape": [-1]}]}

    def script(connection: socket.socket) -> None:
        for reply in (description, {}, answer):  # the model, the server, the answer to a query
            connection.sendall(response(json.dumps(reply).encode()))
            read_request(connection)

    with hostile(script) as host:
        oracle = http_oracle(f"{host}/v2/models/m", options(request=None, answer=None))
        with pytest.raises(OracleFault, match=r"shape|inference reply"):
            oracle(BATCH)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("2.5", 2.5),
        ("9" * 400, 1e9),
        ("1e400", None),
        ("inf", None),
        ("nan", None),
        ("-5", None),
        ("1_0", None),
        ("\u00b2", None),
        ("\u0663", None),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 +2400", None),
        ("Sat, 01 Jan 2000 00:00:00 GMT", 0.0),
        ("soon", None),
        ("", None),
        ("x" * 100_000, None),
    ],
)
def test_retry_after_is_a_number_of_seconds_or_nothing(text: str, seconds: float | None) -> None:
    assert retry_after(text) == seconds


@pytest.mark.parametrize("wait", ["9" * 400, "86400", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_an_absurd_retry_after_is_not_waited_for(wait: str) -> None:
    with hostile(always(response(b"", "503 Later", Retry_After=wait))) as host:
        start = time.monotonic()
        with pytest.raises(OracleFault, match=r"asks to wait \d+ s; run again then"):
            ask(host, retries=8, patience=3600.0)
        assert time.monotonic() - start < SLACK


def test_a_retry_after_of_nothing_does_not_ask_for_ever() -> None:
    with hostile(always(response(b"", "429 Slow", Retry_After="0"))) as host:
        start = time.monotonic()
        with pytest.raises(OracleFault, match="gave no answer in 6 attempts"):
            ask(host, retries=5)
        assert time.monotonic() - start < SLACK


ESCAPED = json.dumps(TOKEN)[1:-1]
PADDING = " " * 65_400  # an error page is read up to 65,536 bytes: the token lies across that border
REPEATED: dict[str, bytes] = {
    "name": json.dumps({"inputs": [{"name": TOKEN, "datatype": "X"}]}).encode(),
    "datatype": json.dumps({"inputs": [{"name": "x", "datatype": TOKEN}]}).encode(),
    "shape": json.dumps({"inputs": [{"name": "x", "shape": [TOKEN]}]}).encode(),
    "outputs": json.dumps({"outputs": [{"name": TOKEN}, {"name": f"2{TOKEN}"}]}).encode(),
    "key": json.dumps({"inputs": {TOKEN: 1}}).encode(),
    "a list for a name": json.dumps({"inputs": [{"name": ["x" * 30, TOKEN]}]}).encode(),
}
REFUSED: dict[str, bytes] = {
    "body": response(f"token {TOKEN} may not".encode(), "403 No"),
    "body in JSON": response(json.dumps({"error": f"token {TOKEN} may not"}).encode(), "400 No"),
    "upper case": response(TOKEN.upper().encode(), "422 No"),
    "location": response(b"", "307 Elsewhere", Location=f"/login?token={TOKEN}"),
    "percent": response("".join(f"%{ord(each):02X}" for each in TOKEN).encode(), "403 No"),
    "escaped": response("".join(f"\\u{ord(each):04x}" for each in TOKEN).encode(), "403 No"),
    "cut by the excerpt": response(b"x" * 190 + TOKEN.encode() + b" end", "500 No"),
    "cut by the limit": response(PADDING.encode() + TOKEN.encode() * 30, "500 No"),
    "encoding": response(b"", Content_Encoding=TOKEN),
    "a broken header line": b"HTTP/1.1 200 OK\r\n" + TOKEN.encode() + b"\r\n\r\n",
    "a broken status line": b"HTTP/9.9 " + TOKEN.encode() + b"\r\n\r\n",
    "announced length": response(b"{}", Inference_Header_Content_Length=TOKEN),
}


def parts_of(secret: str) -> list[str]:
    """Every run of 8 characters of the secret: what a cut of it would leave."""
    return [secret[i : i + 8] for i in range(len(secret) - 7)]


@pytest.mark.parametrize("where", [*REPEATED, *REFUSED])
def test_the_token_is_hidden_wherever_a_server_repeats_it(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSOFTMAX_HTTP_TOKEN", TOKEN)
    script = always(REFUSED[where] if where in REFUSED else response(REPEATED[where]))
    with hostile(script) as host, pytest.raises(UnsoftmaxError) as refusal:
        if where in REPEATED:
            http_oracle(f"{host}/v2/models/m", options(request=None, answer=None))
        else:
            ask(host)
    shown = "".join(traceback.format_exception(refusal.value))
    assert not any(part.lower() in shown.lower() for part in parts_of(TOKEN)), shown
    assert "\n" not in str(refusal.value)


def test_the_token_is_hidden_in_an_answer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSOFTMAX_HTTP_TOKEN", TOKEN)
    description = {"inputs": [{"name": "x", "shape": [-1, -1, 2]}], "outputs": [{"name": "y", "shape": [-1]}]}
    for answer in (
        {"outputs": [{"name": "y", "datatype": TOKEN, "shape": [2], "data": [1.0, 2.0]}]},
        {"outputs": [{"name": "y", "datatype": "FP64", "shape": [TOKEN], "data": [1.0, 2.0]}]},
        {"outputs": [{"name": "y", "datatype": "FP64", "shape": [2], "data": [1.0, TOKEN]}]},
    ):

        def script(connection: socket.socket, answer: dict[str, Any] = answer) -> None:
            for reply in (description, {}, answer):
                connection.sendall(response(json.dumps(reply).encode()))
                read_request(connection)

        with hostile(script) as host:
            oracle = http_oracle(f"{host}/v2/models/m", options(request=None, answer=None))
            with pytest.raises(OracleFault) as fault:
                oracle(BATCH)
        shown = "".join(traceback.format_exception(fault.value))
        assert not any(part in shown for part in parts_of(TOKEN)), shown


@pytest.mark.parametrize("padding", [0, 12, 25], ids=["whole", "near a cut", "at a cut"])
def test_the_token_is_hidden_in_the_parts_of_an_answer(padding: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSOFTMAX_HTTP_TOKEN", TOKEN)
    body = json.dumps({"p": {"x" * padding + TOKEN: [1.0, 2.0]}}).encode()
    with hostile(always(response(body))) as host, pytest.raises(OracleFault) as fault:
        ask(host)
    shown = "".join(traceback.format_exception(fault.value))
    assert not any(part in shown for part in parts_of(TOKEN)), shown


PLACES: dict[str, Callable[[str], dict[str, Any]]] = {
    "the text of a token": lambda text: {"index": 0, "logprobs": {"top_logprobs": [{text: -1.0}]}},
    "an index": lambda text: {"index": text, "logprobs": {"top_logprobs": [{"token_id:0": -1.0}]}},
}


@pytest.mark.parametrize("padding", ["", "x" * 12, "x" * 990])
@pytest.mark.parametrize("place", PLACES)
def test_the_token_is_hidden_in_what_is_said_of_completions(
    place: str, padding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNSOFTMAX_HTTP_TOKEN", TOKEN)
    body = json.dumps({"choices": [PLACES[place](padding + TOKEN)]}).encode()
    with hostile(always(response(body))) as host:
        result = unsoftmax.recover(f"openai+{host}/v1?model=a&width=2")
    assert result.status is Status.UNRESOLVED
    shown = f"{result.reason} {result.as_json()}"
    assert "log-probabilities that can be read" in shown
    assert not any(part in shown for part in parts_of(TOKEN)), shown


def test_the_command_ends_with_3_and_one_sentence() -> None:
    with hostile(described(shape=[-1, -1, 10**12])) as host:
        command = [sys.executable, "-m", "unsoftmax", "recover", f"{host}/v2/models/m"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "sizes up to 1,048,576" in done.stderr


@pytest.mark.parametrize("start", ["http://h:", "openai+http://h:", "h:", "openai+http://h/"])
def test_an_address_of_5000_digits_is_not_repeated_whole(start: str) -> None:
    with pytest.raises(UsageError) as refusal:
        unsoftmax.as_oracle(start + "1" * 5000)
    assert len(str(refusal.value)) < 700


def test_a_proxy_of_the_environment_is_used_and_never_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        hostile(always(response(b'{"p": [1.0, 2.0]}'))) as proxy,
        hostile(always(response(b'{"p": [3.0, 4.0]}'))) as direct,
    ):
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, proxy)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        np.testing.assert_array_equal(ask("http://model.invalid", timeout=10.0), [1.0, 2.0])
        np.testing.assert_array_equal(ask(direct, timeout=10.0), [3.0, 4.0])
        monkeypatch.setenv("no_proxy", "model.invalid")
        with pytest.raises(OracleFault, match="gave no answer"):
            ask("http://model.invalid")


def test_widths_beyond_reason_are_refused() -> None:
    with pytest.raises(UsageError, match="width must be at most 1,048,576"):
        unsoftmax.recover(lambda X: X[:, -1, 0], width=10**12)
