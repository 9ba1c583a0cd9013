"""What models that add up heads share: heads matched best in a distance, and numbered heads in a file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import ModelFileError
from unsoftmax.models.base import relative

__all__ = ["constant_distance", "matched_heads", "numbered_heads"]


def matched_heads(costs: Array) -> float:
    """The largest of the distances of heads matched best; at least 1 when their numbers differ.

    >>> matched_heads(np.array([[3.0, 0.5], [0.25, 3.0]])), matched_heads(np.array([[0.5, 0.0]]))
    (0.5, 1.0)
    """
    from scipy.optimize import linear_sum_assignment

    matched = float(costs[linear_sum_assignment(np.minimum(costs, 1e300))].max())
    return matched if costs.shape[0] == costs.shape[1] else max(1.0, matched)


def constant_distance(mine: Array, theirs: Array, readouts: Sequence[Array]) -> float:
    """The difference of two constants against the larger of the constant and the longest readout."""
    size = max(float(np.linalg.norm(part)) for part in (mine, *readouts))
    return relative(float(np.linalg.norm(mine - theirs)), size)


def numbered_heads(tensors: dict[str, Array], file: str) -> list[dict[str, Array]]:
    """The arrays `heads.0.name`, `heads.1.name`, ... of a file, head by head; beside them only `c` may be.

    >>> numbered_heads({"heads.0.v": np.ones(1), "c": np.zeros(())}, "multi-head")
    [{'v': array([1.])}]
    """
    heads: dict[int, dict[str, Array]] = {}
    for name, part in tensors.items():
        if name == "c":
            continue
        prefix, index, inner = (*name.split(".", 2), "", "")[:3]
        if prefix != "heads" or not (index.isascii() and index.isdecimal()) or not inner:
            raise ModelFileError(f"a {file} file has no tensor {name!r}")
        heads.setdefault(int(index), {})[inner] = part
    if sorted(heads) != list(range(len(heads))) or not heads:
        raise ModelFileError(f"a {file} file numbers its heads 0, 1, ...; this one has {sorted(heads)}")
    return [heads[index] for index in range(len(heads))]
