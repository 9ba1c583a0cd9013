"""Every model as the same few parts, for those who write it in another form: heads that add up, a residual, a
network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.models.base import Model
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.networks.relu_network import ReluNetwork
from unsoftmax.models.single_head import SingleHead
from unsoftmax.models.transformer import Transformer

__all__ = ["Parts", "parts_of"]


@dataclass(frozen=True)
class Parts:
    """answers = network(constant + Σ heads + residual·x_N + x_N·skip), without a network where it is None;
    `scalar`: one number per query.

    Heads have v (d, m), as has skip, and their own constants are in `constant` (m,). first_row: whether x_N
    is the first row.
    """

    heads: tuple[SingleHead, ...]
    constant: Array
    residual: float
    network: ReluNetwork | None
    scalar: bool
    skip: Array | None = None
    first_row: bool = False


def parts_of(model: Model) -> Parts:
    """The parts of any model of this library.

    >>> parts = parts_of(SingleHead(np.eye(2), np.ones(2), c=3.0))
    >>> parts.heads[0].v.shape, parts.constant
    ((2, 1), array([3.]))
    """
    if isinstance(model, SingleHead | MultiHead):
        heads = model.heads if isinstance(model, MultiHead) else (model,)
        columns = tuple(SingleHead(head.matrix, head.v.reshape(head.width, -1), head.w0) for head in heads)
        constant = np.broadcast_to(np.asarray(model.c, dtype=np.float64), columns[0].v.shape[1:]).copy()
        skip = model.skip if isinstance(model, MultiHead) else None
        beside = None if skip is None else skip.reshape(model.width, -1)
        first = isinstance(model, MultiHead) and model.first_row
        return Parts(columns, constant, 0.0, None, model.outputs is None, beside, first)
    if isinstance(model, Transformer):
        rows = SingleHead(model.matrix, np.eye(model.width), model.w0)
        return Parts((rows,), np.zeros(model.width), model.residual, model.network, True)
    if isinstance(model, ReluNetwork):
        return Parts((), np.zeros(model.width), 1.0, model, True)
    raise UsageError(
        f"a {model.family} model cannot be written in this form; save it as .safetensors or .npz"
    )
