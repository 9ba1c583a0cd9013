"""Compressed replies, decompressed piece by piece within one limit that holds for every layer."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator

from unsoftmax.errors import OracleFault

__all__ = ["Decompression", "ReplyTooLarge"]

_PIECE = 1 << 16  # bytes that one step may produce: small beside any limit, large enough to be fast
_MOST_LAYERS = 4  # servers use one; a few more cost nothing because the limit holds for each of them
_GZIP, _ZLIB, _RAW = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS


class ReplyTooLarge(Exception):
    """The reply, or what it decompresses to, exceeds the limit."""


class Decompression:
    """The content of a reply with this Content-Encoding; no layer may produce more than `limit` bytes.

    check: called between steps; it raises when time is up.

    >>> import gzip
    >>> twice = gzip.compress(gzip.compress(b"content"))
    >>> decompression = Decompression("gzip, gzip", limit=100)
    >>> decompression.feed(twice) + decompression.finish()
    b'content'
    """

    def __init__(self, encodings: str, limit: int, check: Callable[[], None] = lambda: None) -> None:
        names = [name for name in (part.strip().lower() for part in encodings.split(",")) if name]
        names = [name for name in names if name != "identity"]
        if len(names) > _MOST_LAYERS:
            raise OracleFault(
                f"the server compressed its reply {len(names)} times; at most {_MOST_LAYERS} are read"
            )
        for name in names:
            if name not in ("gzip", "x-gzip", "deflate"):
                raise OracleFault(
                    f"the server compressed its reply with {name!r}; only gzip and deflate are read"
                )
        self._layers = [_Layer("deflate" if name == "deflate" else "gzip") for name in reversed(names)]
        self._produced = [0] * (len(names) + 1)
        self._limit = limit
        self._check = check

    def feed(self, data: bytes) -> bytes:
        """The content that these bytes of the reply add."""
        return b"".join(self._through(data, 0))

    def finish(self) -> bytes:
        """Refuses a reply that ended in the middle of its compressed data. Returns b''."""
        if any(layer.unfinished for layer in self._layers):
            raise OracleFault("the server's compressed reply ends in the middle")
        return b""

    def _through(self, data: bytes, depth: int) -> Iterator[bytes]:
        self._check()
        self._produced[depth] += len(data)
        if self._produced[depth] > self._limit:
            raise ReplyTooLarge
        if depth == len(self._layers):
            yield data
            return
        for piece in self._layers[depth].pieces(data):
            yield from self._through(piece, depth + 1)


class _Layer:
    """One compression, undone in bounded steps."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._decoder = zlib.decompressobj(_GZIP if name == "gzip" else _ZLIB)
        self._begun = False

    @property
    def unfinished(self) -> bool:
        return self._begun and not self._decoder.eof

    def pieces(self, data: bytes) -> Iterator[bytes]:
        while data and not self._decoder.eof:
            yield self._step(data)
            data = self._decoder.unconsumed_tail

    def _step(self, data: bytes) -> bytes:
        try:
            piece = self._decoder.decompress(data, _PIECE)
        except zlib.error as error:
            if self._begun or self._name != "deflate":
                raise OracleFault(f"the server's reply cannot be decompressed: {error}") from error
            self._decoder = zlib.decompressobj(_RAW)  # some servers send deflate without its header
            try:
                piece = self._decoder.decompress(data, _PIECE)
            except zlib.error as worse:
                raise OracleFault(f"the server's reply cannot be decompressed: {worse}") from worse
        self._begun = True
        return piece
