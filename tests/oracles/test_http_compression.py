"""Compressed replies: undone layer by layer, and never beyond the limit."""

from __future__ import annotations

import gzip
import json
import zlib

import numpy as np
import pytest

from unsoftmax import OracleFault
from unsoftmax.oracles.http.decompression import Decompression, ReplyTooLarge

pytestmark = pytest.mark.usefixtures("limited_in_time")


def bomb(layers: int) -> bytes:
    """A few hundred bytes that become gigabytes: zeros, compressed again and again."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    data = b"".join(compressor.compress(bytes(1 << 20)) for _ in range(256)) + compressor.flush()
    for _ in range(layers - 1):
        data = gzip.compress(data, 9)
    return data


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_the_limit_holds_for_every_layer_of_compression(layers: int) -> None:
    data = bomb(layers)
    decompression = Decompression(", ".join(["gzip"] * layers), limit=1 << 20)
    with pytest.raises(ReplyTooLarge):
        decompression.feed(data)


@pytest.mark.parametrize(
    "names", ["gzip", "x-gzip", "deflate", "identity", "", "gzip, deflate", "GZIP ,identity"]
)
@pytest.mark.parametrize("step", [1, 7, 10**6])
def test_honest_compression_is_undone(names: str, step: int) -> None:
    content = json.dumps({"p": list(np.random.default_rng(0).standard_normal(500))}).encode()
    data = content
    for name in names.lower().replace(" ", "").split(","):
        if "gzip" in name:
            data = gzip.compress(data)
        elif name == "deflate":
            data = zlib.compress(data)
    decompression = Decompression(names, limit=1 << 20)
    parts = [decompression.feed(data[i : i + step]) for i in range(0, len(data), step)]
    assert b"".join(parts) + decompression.finish() == content


def test_deflate_without_its_header_is_read_and_damage_is_a_fault() -> None:
    raw = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = raw.compress(b"content") + raw.flush()
    assert Decompression("deflate", 100).feed(data) == b"content"
    for names, content, match in (
        ("gzip", b"not compressed", "cannot be decompressed"),
        ("deflate", b"\xff\xff\xff\xff", "cannot be decompressed"),
        ("br", b"", "only gzip and deflate"),
        ("gzip, gzip, gzip, gzip, gzip", b"", "5 times"),
    ):
        with pytest.raises(OracleFault, match=match):
            Decompression(names, 100).feed(content)
    half = Decompression("gzip", 100)
    half.feed(gzip.compress(b"content")[:-4])
    with pytest.raises(OracleFault, match="ends in the middle"):
        half.finish()
