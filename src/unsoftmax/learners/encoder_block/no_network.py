"""Blocks that are x + attention(norm(x)), without a network: f = C·x + Σ_h V_h Σ_i α_i n(x_i) + c."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.heads_by_copies import find_heads
from unsoftmax.learners.encoder_block.norm_eps import norm_eps
from unsoftmax.learners.encoder_block.pre_norm import pre_norm_responses, state_of
from unsoftmax.learners.encoder_block.pre_norm_rows import PreNormRows
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.learners.encoder_block.tokens import SphereTokens
from unsoftmax.models import Network

__all__ = ["find_without_network"]

_RAYS = 6  # two for an eps that is a power of ten, four more where it is not
_EPS_FLOOR = 1e-12  # answers beside the row itself are exact up to their rounding
_FAR = 1e3  # size of rows at which a norm only sees their direction


def find_without_network(
    asks: AsksSequences, shape: BlockShape, rng: np.random.Generator
) -> tuple[BlockShape, BlockState]:
    """A start for the joint refinement: single rows show the constant, eps and the sum of all V at once."""
    d, basis = shape.width, shape.basis
    k = basis.shape[1]

    def beside(rows: Array) -> Array:
        return np.asarray(asks(rows[:, None]) - rows)

    rays = rng.standard_normal((_RAYS, k))
    rays *= np.sqrt(d) / np.linalg.norm(rays, axis=1, keepdims=True)
    constant = beside(np.zeros((1, d)))[0]
    scale = float(np.abs(beside(rays @ basis.T)).max())

    def direction(seen: Array) -> Array:
        return np.column_stack([beside(seen @ basis.T), np.full(len(seen), scale)])

    eps = norm_eps(direction, rays, floor=_EPS_FLOOR)
    far = _FAR * np.sqrt(d)
    token = far / np.sqrt(far**2 / d + eps)
    path = (beside(far * basis.T) - constant).T / token
    rows = PreNormRows(shape, path, np.zeros(d), eps, eps)
    network = Network(np.empty((0, k)), np.empty((0, d)), None, constant, activation=shape.activation)
    tokens = SphereTokens(k, float(np.sqrt(d)))
    return shape, state_of(rows, network, find_heads(pre_norm_responses(asks, rows, network), tokens, rng))
