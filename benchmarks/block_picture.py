"""Draws docs/images/block.png: a hidden encoder layer beside the recovered one.

python -m benchmarks.block_picture
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import unsoftmax
from benchmarks.encoder_blocks import layer
from unsoftmax.arrays import Array
from unsoftmax.audit.drawings.matrices import draw_recovery
from unsoftmax.models import EncoderBlock, Network, block_from_torch


def parts_of(block: EncoderBlock) -> list[Array]:
    """W and V of both heads; first and second layer of the network. All in canonical form."""
    form = block.canonical()
    assert isinstance(form.network, Network)
    heads = form.attention.heads
    return [*(head.W for head in heads), *(head.v for head in heads), form.network.A.T, form.network.U.T]


def main() -> None:
    target = layer(16, 2, 32, "relu", 7, norm_first=False)
    result = unsoftmax.recover(target, seed=7)
    assert isinstance(result.model, EncoderBlock), result.reason
    hidden, found = parts_of(block_from_torch(target)), parts_of(result.model)
    scales = [float(np.abs(part).max()) for part in hidden]

    def arranged(parts: list[Array]) -> Array:
        scaled = [part / scale for part, scale in zip(parts, scales, strict=True)]
        gap = np.zeros((1, 32))
        heads, values = np.hstack(scaled[:2]), np.hstack(scaled[2:4])
        return np.vstack([heads, gap, values, gap, scaled[4], gap, scaled[5]])

    path = Path(__file__).parent.parent / "docs" / "images" / "block.png"
    title = "from above: W of two heads, V of both, first and second layer of the network, each over its size"
    draw_recovery(arranged(hidden), arranged(found), path, title=title, hidden="hidden block")
    print(f"{result.status}, {result.queries.total} queries: {path.name}")


if __name__ == "__main__":
    main()
