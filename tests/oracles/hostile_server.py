"""Servers on loopback that send whatever a test tells them to, byte by byte, for as long as it likes."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Script = Callable[[socket.socket], None]


@contextmanager
def hostile(script: Script) -> Iterator[str]:
    """Reads one request of every connection and then runs `script` on the socket; gives the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_now: set[socket.socket] = set()

    def serve(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            read_request(connection)
            script(connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection = listener.accept()[0]
                open_now.add(connection)
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for connection in open_now:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join()


def read_request(connection: socket.socket) -> bytes:
    """The head of a request, and its body as far as Content-Length announces one."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _some(connection)
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.split(b":")[1])
    while len(body) < length:
        body += _some(connection)
    return head


def _some(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 16)
    if not data:
        raise OSError("the client has gone")
    return data


def always(reply: bytes) -> Script:
    """Sends the reply to every request of a connection."""

    def script(connection: socket.socket) -> None:
        connection.sendall(reply)
        while True:
            read_request(connection)
            connection.sendall(reply)

    return script


def trickle(start: bytes, drop: bytes, pause: float = 0.02) -> Script:
    """Sends `start`, and then `drop` again and again until the client goes."""

    def script(connection: socket.socket) -> None:
        connection.sendall(start)
        while True:
            connection.sendall(drop)
            time.sleep(pause)

    return script


def flood(start: bytes, block: bytes) -> Script:
    """Sends `start`, and then `block` as fast as the client takes it."""
    return trickle(start, block, 0.0)


def response(body: bytes, status: str = "200 OK", **headers: str) -> bytes:
    """A whole reply."""
    given = {"Content-Length": str(len(body))} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode("latin-1") + body
