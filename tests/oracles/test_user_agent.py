"""Requests say who sends them."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

import unsoftmax


def test_requests_carry_a_recognisable_user_agent() -> None:
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["User-Agent"])
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            with pytest.raises(unsoftmax.UnsoftmaxError):
                unsoftmax.recover(f"http://127.0.0.1:{server.server_port}/v2/models/none")
        finally:
            server.shutdown()
            thread.join()
    assert set(seen) == {f"unsoftmax/{unsoftmax.__version__}"}
