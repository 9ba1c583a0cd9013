"""The parts of JᵀJ inside one group of heads, which precondition the fit of attention.

Symmetries and planes that turn slowly couple queries with their key, and values with their outputs, so each
pair is one block. All answers are in them: blocks of a half of the answers make conjugate gradients take more
than ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.late_scipy import cho_factor, cho_solve
from unsoftmax.learners.language_model.attention_pass import AttentionPass, AttentionState
from unsoftmax.models.language_model import Attention

__all__ = ["AttentionBlocks", "KeptBlocks"]

_MOVED = 0.1  # relative change of all parameters after which blocks are made anew
_SLIGHT = 1e-8  # damping over the diagonal that changes no preconditioner
_FLOOR = 1e-12  # of the mean of a block's diagonal, added to it: symmetries of a head change nothing


class AttentionBlocks:
    """The blocks of all groups, summed over prompts of all lengths."""

    def __init__(self, state: AttentionState, passes: Sequence[AttentionPass]) -> None:
        part = state.attention
        self.places = [_places(part, g) for g in range(part.groups)]
        self.blocks = [
            (
                sum((_score_block(each, g) for each in passes), np.zeros(1)),
                sum((_value_block(each, g) for each in passes), np.zeros(1)),
            )
            for g in range(part.groups)
        ]
        self.theta = sum(float((each.theta_column() ** 2).sum()) for each in passes)
        self.squares = np.empty(state.unknowns)
        self.squares[-1] = self.theta
        for pair, found in zip(self.places, self.blocks, strict=True):
            for own, block in zip(pair, found, strict=True):
                self.squares[own] = np.diag(block)

    @cached_property
    def _undamped(self) -> list[tuple[NDArray[np.intp], tuple[Array, bool]]]:
        return self._factors(np.zeros_like(self.squares))

    def _factors(self, damping: Array) -> list[tuple[NDArray[np.intp], tuple[Array, bool]]]:
        found = []
        for pair, blocks in zip(self.places, self.blocks, strict=True):
            for own, block in zip(pair, blocks, strict=True):
                floor = _FLOOR * float(np.trace(block)) / len(block)
                found.append((own, cho_factor(block + np.diag(damping[own] + floor))))
        return found

    def inverse(self, damping: Array) -> Callable[[Array], Array]:
        """The inverse of the blocks plus damping."""
        slight = bool((damping <= _SLIGHT * self.squares).all())
        factors = self._undamped if slight else self._factors(damping)
        last = self.theta + float(damping[-1])

        def solve(vector: Array) -> Array:
            out = np.empty_like(vector)
            for own, factor in factors:
                out[own] = cho_solve(factor, vector[own])
            out[-1] = vector[-1] / last
            return out

        return solve


class KeptBlocks:
    """The blocks of a state nearby: they only precondition, and take longer than the steps that use them."""

    def __init__(self) -> None:
        self._made: tuple[AttentionState, AttentionBlocks] | None = None

    def near(self, state: AttentionState, passes: Sequence[AttentionPass]) -> AttentionBlocks:
        """Those that are kept, where the state moved little since, or new ones."""
        if self._made is None or _change(self._made[0].attention, state.attention) > _MOVED:
            self._made = state, AttentionBlocks(state, passes)
        return self._made[1]


def _change(old: Attention, new: Attention) -> float:
    pairs = ((old.query, new.query), (old.key, new.key), (old.value, new.value), (old.output, new.output))
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(a)) for a, b in pairs)


def _score_block(each: AttentionPass, g: int) -> Array:
    """Of a group's queries and its key. A column of a query is the product of a factor for its head and one
    for the last row, so sums over the outputs come first."""
    own = np.flatnonzero(each.group == g)
    z = each.data.normed
    batch, _, d = z.shape
    written = np.einsum("boi,ihe->bohe", each.jacobian, each.output[:, own], optimize=True)
    scores = np.einsum("bohe,bnhe->bohn", written, each.effect[:, :, own], optimize=True)
    asked = np.einsum("bohn,bnhe->bohe", scores, each.by_query[:, :, own], optimize=True)
    asked = asked.reshape(batch, d, -1)
    # a column of the key is a sum over rows and heads; where these are fewer than outputs, so are its entries
    rows = np.moveaxis(each.by_key[:, :, own], 2, 1)[..., None] * z[:, None, :, None]  # (B, H, N, d_h, d)
    turn, left = np.linalg.qr(scores.reshape(batch, d, -1))
    key = left @ rows.reshape(batch, left.shape[2], -1)
    queries = _outer_sum(asked.transpose(0, 2, 1) @ asked, z[:, -1, :, None] * z[:, -1, None, :])
    mixed = (asked.transpose(0, 2, 1) @ turn) @ key  # (B, heads·d_h, d_h·d)
    both = (z[:, -1].T @ mixed.reshape(batch, -1)).reshape(d, mixed.shape[1], -1).transpose(1, 0, 2)
    columns = key.reshape(-1, key.shape[2])
    return _joined(queries, both.reshape(len(queries), -1), columns.T @ columns)


def _value_block(each: AttentionPass, g: int) -> Array:
    """Of a group's value and its outputs: all columns are products."""
    own = np.flatnonzero(each.group == g)
    batch, d = each.data.last.shape
    written = np.einsum("boi,ihe->bohe", each.jacobian, each.output[:, own], optimize=True)
    mixed, rows = each.mixed[:, own].reshape(batch, -1), each.rows[:, own]
    width = written.shape[3]
    heads = range(len(own))
    values = sum(
        _outer_sum(
            written[:, :, h].transpose(0, 2, 1) @ written[:, :, k], rows[:, h, :, None] * rows[:, k, None]
        )
        for h in heads
        for k in heads
    )
    both = np.zeros((width, d, d, mixed.shape[1]))
    for h in heads:
        reached = (written[:, :, h].transpose(0, 2, 1) @ each.jacobian).reshape(batch, -1)  # (e, i)
        beside = (rows[:, h, :, None] * mixed[:, None]).reshape(batch, -1)  # (j, he)
        both += (reached.T @ beside).reshape(width, d, d, -1).transpose(0, 2, 1, 3)
    outputs = _outer_sum(each.jacobian.transpose(0, 2, 1) @ each.jacobian, mixed[:, :, None] * mixed[:, None])
    return _joined(np.asarray(values), both.reshape(width * d, -1), outputs)


def _outer_sum(left: Array, right: Array) -> Array:
    """Σ_b left_b ⊗ right_b for stacks of matrices."""
    batch, a, b = left.shape
    _, c, e = right.shape
    product = left.reshape(batch, -1).T @ right.reshape(batch, -1)
    return np.asarray(product.reshape(a, b, c, e).transpose(0, 2, 1, 3).reshape(a * c, b * e))


def _joined(first: Array, both: Array, second: Array) -> Array:
    return np.block([[first, both], [both.T, second]])


def _places(part: Attention, g: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where the queries and the key, and the value and the outputs, of a group are in a step."""
    wide, narrow, d, width = len(part.query), len(part.key), part.width, part.head_width
    heads = np.arange(part.shared_by) + g * part.shared_by
    rows = (heads[:, None] * width + np.arange(width)).ravel()
    shared = g * width + np.arange(width)
    columns = np.arange(d)
    query = (rows[:, None] * d + columns).ravel()
    key = wide * d + (shared[:, None] * d + columns).ravel()
    value = (wide + narrow) * d + (shared[:, None] * d + columns).ravel()
    output = (wide + 2 * narrow) * d + (columns[:, None] * wide + rows).ravel()
    return np.concatenate([query, key]), np.concatenate([value, output])
