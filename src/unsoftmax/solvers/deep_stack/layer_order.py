"""Which neuron comes before which: linear in c1 where no layer has a path.

P·G = Σ_jk before_jk · P·written_j · (gradient_j · P·written_k) · value_k, and before_jk is 1 where neuron k
is in an earlier layer than j, else 0. Constants written by layers add an unknown vector per neuron.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.deep_stack.neurons import Collapsed, beside

__all__ = ["layers_of", "order_layers"]

_CLEAR = 0.25  # distance from 0 or 1 beyond which an entry is neither


def order_layers(collapsed: Collapsed, n: Array, c1: Array) -> NDArray[np.int64]:
    """The layer of every neuron, (J,), from 0 on; at least 1.2·J²/(d - 1) rows n are needed.

    Raises `Unresolved` where the order is not one of layers.
    """
    J, d = collapsed.written.shape
    whole = collapsed.values(n)
    across_rows = beside(collapsed.written[None], n[:, None])  # (B, J, d)
    values, gradients = collapsed.neurons.values(n), collapsed.neurons.gradients(n)
    reads = np.einsum("bji,bki->bjk", gradients, across_rows) * values[:, None]
    columns = np.einsum("bjo,bjk->bojk", across_rows, reads).reshape(-1, J * J)
    if np.any(collapsed.constant):
        inside = beside(gradients, n[:, None])  # gradient·P·vector
        more = np.einsum("bjo,bji->boji", across_rows, inside).reshape(-1, J * d)
        columns = np.column_stack([columns, more])
    right = c1 + (n * whole).mean(axis=1, keepdims=True) * beside(whole, n)
    scale = 1.0 / np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
    scaled = columns * scale
    normal = scaled.T @ scaled + 1e-13 * np.eye(scaled.shape[1])
    solved = scale * np.linalg.solve(normal, scaled.T @ right.ravel())
    before = solved[: J * J].reshape(J, J)
    return layers_of(before)


def layers_of(before: Array) -> NDArray[np.int64]:
    """Layers (J,) from a table that says which neuron (column) comes before which (row).

    >>> layers_of(np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 0.01, 0.0]]))
    array([0, 1, 1])
    """
    rounded = (before > 0.5).astype(np.int64)
    off = float(np.abs(before - rounded).max())
    counts = rounded.sum(axis=1)
    levels = np.searchsorted(np.unique(counts), counts)
    if off > _CLEAR or (rounded != (levels[:, None] > levels[None])).any():
        raise Unresolved(
            f"neurons do not fall into layers: entries of their order are up to {off:.2g} from 0 and 1"
        )
    return np.asarray(levels, dtype=np.int64)
