"""The HTTP oracle by templates: JSON endpoints, what they refuse, and how long they let wait."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unsoftmax
from tests.oracles.test_http import TOKEN
from unsoftmax import HttpOptions, OracleFault, UsageError
from unsoftmax.oracles.http import http_oracle


@contextmanager
def scripted(replies: list[tuple[int, dict[str, str], bytes]]) -> Iterator[tuple[str, list[bytes]]]:
    """A server that gives these replies, one after the other, and then the last for ever."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            status, headers, content = replies[min(len(bodies), len(replies)) - 1]
            self.send_response_only(status)
            for name, value in ({"Content-Length": str(len(content))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/predict?key=hidden-in-query", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def endpoint(request: Any, answer: str, **options: Any) -> HttpOptions:
    return HttpOptions(
        **({"request": request, "answer": answer, "width": 2, "backoff": 0.001, "concurrency": 1} | options)
    )


def test_a_json_endpoint_by_templates() -> None:
    batch = np.arange(8.0).reshape(2, 2, 2)
    reply: tuple[int, dict[str, str], bytes] = (200, {}, b'{"predictions": [{"score": 1.5}, {"score": -2}]}')
    with scripted([reply]) as (url, bodies):
        oracle = http_oracle(url, endpoint({"instances": "$batch", "model": "m"}, "predictions.*.score"))
        np.testing.assert_array_equal(oracle(batch), [1.5, -2.0])
        assert json.loads(bodies[0]) == {"instances": batch.tolist(), "model": "m"}
        assert "hidden-in-query" not in str(oracle.spec)


def test_a_json_endpoint_one_sequence_at_a_time() -> None:
    with scripted([(200, {}, b"[[3.0]]"), (200, {}, b"[[4.0]]")]) as (url, bodies):
        oracle = http_oracle(url, endpoint('{"x": "$sequence"}', "0.0"))
        np.testing.assert_array_equal(oracle(np.ones((2, 1, 2))), [3.0, 4.0])
        assert json.loads(bodies[0]) == {"x": [[1.0, 1.0]]}


@pytest.mark.parametrize(
    ("reply", "match"),
    [
        (b'{"p": [1.0, null]}', "instead of real numbers"),
        (b'{"p": [1.0, NaN]}', "NaN or infinity"),
        (b'{"p": [1.0]}', "shape"),
        (b'{"p": ["1.0", "2.0"]}', "instead of real numbers"),
        (b'{"q": [1.0, 2.0]}', "nothing at 'p'"),
        (b'{"p": {"a": 1}}', "not an array|instead of real|nothing|list|shape"),
        (b"<html>", "not JSON"),
        (b"", "not JSON"),
    ],
)
def test_json_replies_that_are_no_answer(reply: bytes, match: str) -> None:
    with scripted([(200, {}, reply)]) as (url, bodies), pytest.raises(OracleFault, match=match):
        http_oracle(url, endpoint({"x": "$batch"}, "p"))(np.ones((2, 1, 2)))
    assert len(bodies) == 1


@pytest.mark.parametrize(
    ("status", "match"),
    [
        (401, "wants a token"),
        (403, "forbids this .*ask for access"),
        (404, "nothing at"),
        (413, "too large"),
        (422, "does not take the request .*check the width"),
        (500, "server's log"),
        (307, "redirects .* pass that address"),
        (204, "status 204"),
    ],
)
def test_refusals_are_told_once_and_hide_the_query(status: int, match: str) -> None:
    with scripted(
        [
            (
                status,
                {"Location": "/other"} if status == 307 else {},
                b"" if status == 204 else b"no\x1b[31m\nway",
            )
        ]
    ) as (url, bodies):
        with pytest.raises(OracleFault, match=match) as refusal:
            http_oracle(url, endpoint({"x": "$batch"}, "p"))(np.ones((2, 1, 2)))
        assert "hidden-in-query" not in str(refusal.value)
        assert "\n" not in str(refusal.value)
        assert len(bodies) == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_temporary_refusals_are_asked_again(status: int) -> None:
    fine: tuple[int, dict[str, str], bytes] = (200, {}, b'{"p": [1.0, 2.0]}')
    with scripted([(status, {"Retry-After": "0"}, b""), (status, {}, b""), fine]) as (url, bodies):
        oracle = http_oracle(url, endpoint({"x": "$batch"}, "p"))
        np.testing.assert_array_equal(oracle(np.ones((2, 1, 2))), [1.0, 2.0])
        assert (len(bodies), oracle.retries) == (3, 2)


@pytest.mark.parametrize("wait", ["7200", "Fri, 31 Dec 2100 23:59:59 GMT"])
def test_a_server_that_asks_for_hours_is_not_waited_for(wait: str) -> None:
    with (
        scripted([(429, {"Retry-After": wait}, b"")]) as (url, bodies),
        pytest.raises(OracleFault, match=r"asks to wait .* s; run again then"),
    ):
        http_oracle(url, endpoint({"x": "$batch"}, "p"))(np.ones((2, 1, 2)))
    assert len(bodies) == 1


def test_secrets_that_a_server_repeats_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNSOFTMAX_HTTP_TOKEN", TOKEN)
    with (
        scripted([(403, {}, f"token {TOKEN} may not".encode())]) as (url, _),
        pytest.raises(OracleFault, match=r"token \*\*\* may not") as refusal,
    ):
        http_oracle(url, endpoint({"x": "$batch"}, "p"))(np.ones((2, 1, 2)))
    assert TOKEN not in str(refusal.value)


@pytest.mark.parametrize("request_template", ["{", {"x": "nothing"}, {"x": "$batch", "y": "$batch"}])
def test_templates_are_checked(request_template: Any) -> None:
    with pytest.raises(UsageError, match="template"):
        http_oracle("http://127.0.0.1:9/predict", endpoint(request_template, "p"))


def test_an_endpoint_file_is_a_target(tmp_path: Path) -> None:
    with scripted([(200, {}, b'{"p": [1.0, 2.0]}')]) as (url, _):
        path = tmp_path / "endpoint.json"
        path.write_text(json.dumps({"url": url, "request": {"x": "$batch"}, "answer": "p", "width": 2}))
        np.testing.assert_array_equal(unsoftmax.as_oracle(path)(np.ones((2, 1, 2))), [1.0, 2.0])
    for content, match in (
        ("[]", "no endpoint"),
        ('{"url": "http://a", "speed": 1}', "unknown entry 'speed'"),
        ("{", "not a readable JSON"),
    ):
        path.write_text(content)
        with pytest.raises(UsageError, match=match):
            unsoftmax.as_oracle(str(path))
