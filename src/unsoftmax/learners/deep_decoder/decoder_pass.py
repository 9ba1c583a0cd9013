"""One pass of prompts of one length through a decoder, and exact derivatives by the parameters of its heads.

Derivatives run backwards. What the last state reads of every row of the stream is carried from the last layer
to the first, for all numbers of the state at once; every matrix adds a product of what reads its output and
what it reads itself, summed over the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.deep_stack.sublayer_slopes import before_norm, network_slope, normed
from unsoftmax.models.base import softmax
from unsoftmax.models.language_model import Attention, DecoderLayer, Rotary

__all__ = ["DecoderPass"]


@dataclass(frozen=True, eq=False)
class _Turns:
    """Rotary positions of N rows. cos, sin: (N, planes). by_theta: (N, planes), derivatives of the angles by
    the logarithm of the base."""

    cos: Array
    sin: Array
    by_theta: Array

    @classmethod
    def of(cls, log_theta: float, width: int, rows: int) -> _Turns:
        angles = np.arange(rows)[:, None] * Rotary(float(np.exp(log_theta))).frequencies(width)
        return cls(np.cos(angles), np.sin(angles), -angles * np.arange(0, width, 2) / width)

    def last(self) -> _Turns:
        """The turn of the last row alone."""
        return _Turns(self.cos[-1:], self.sin[-1:], self.by_theta[-1:])

    def turned(self, x: Array, back: bool = False) -> Array:
        """(..., N, heads, d_h), turned by the row's position, or back."""
        sin = -self.sin if back else self.sin
        first, second = np.split(x, 2, axis=-1)
        cos, sin = self.cos[:, None], sin[:, None]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)

    def slope(self, turned: Array) -> Array:
        """How turned rows change with the logarithm of the base."""
        first, second = np.split(turned, 2, axis=-1)
        speed = self.by_theta[:, None]
        return np.concatenate([-second * speed, first * speed], axis=-1)


class _AttentionStep:
    """Attention of all rows, or of the last one alone, with what derivatives need. n: (B, N, d), normed."""

    def __init__(self, part: Attention, n: Array, turns: _Turns, last_only: bool) -> None:
        B, N, _ = n.shape
        width = part.head_width
        self.part, self.n, self.keys_turn = part, n, turns
        self.asking = n[:, -1:] if last_only else n
        self.queries_turn = turns.last() if last_only else turns
        self.group = np.repeat(np.arange(part.groups), part.shared_by)
        asked = (self.asking @ part.query.T).reshape(B, -1, part.heads, width)
        self.q = self.queries_turn.turned(asked)  # (B, M, H, d_h)
        self.k = turns.turned((n @ part.key.T).reshape(B, N, part.groups, width))[:, :, self.group]
        self.v = (n @ part.value.T).reshape(B, N, part.groups, width)[:, :, self.group]
        self.scale = 1.0 / np.sqrt(width)
        scores = self.scale * np.einsum("brhe,bihe->bhri", self.q, self.k, optimize=True)
        if not last_only:
            scores = np.where(np.tri(N, dtype=bool), scores, -np.inf)
        self.weights = softmax(scores)
        mixed = np.einsum("bhri,bihe->brhe", self.weights, self.v, optimize=True)
        self.mixed = mixed.reshape(B, -1, part.heads * width)
        self.added = self.mixed @ part.output.T

    def backward(self, readers: Array) -> tuple[list[Array], Array, Array]:
        """From what reads the added rows, (B, O, M, d): derivatives by query, key, value and output, (B, O,
        size) each; by the logarithm of the base, (B, O); and what reads the normed rows, (B, O, N, d)."""
        part = self.part
        B, numbers, M, _ = readers.shape
        N, width = self.n.shape[1], part.head_width
        by_mixed = (readers @ part.output).reshape(B, numbers, M, part.heads, width)
        by_weight = np.einsum("borhe,bihe->bohri", by_mixed, self.v, optimize=True)
        held = self.weights[:, None]
        by_score = self.scale * held * (by_weight - (held * by_weight).sum(axis=-1, keepdims=True))
        by_q = np.einsum("bohri,bihe->borhe", by_score, self.k, optimize=True)
        by_k = np.einsum("bohri,brhe->boihe", by_score, self.q, optimize=True)
        by_v = np.einsum("bhri,borhe->boihe", self.weights, by_mixed, optimize=True)
        theta = np.einsum("borhe,brhe->bo", by_q, self.queries_turn.slope(self.q), optimize=True)
        theta += np.einsum("boihe,bihe->bo", by_k, self.keys_turn.slope(self.k), optimize=True)
        by_q = self.queries_turn.turned(by_q, back=True).reshape(B, numbers, M, -1)
        by_k, by_v = (
            each.reshape(B, numbers, N, part.groups, part.shared_by, width)
            .sum(axis=4)
            .reshape(B, numbers, N, -1)
            for each in (self.keys_turn.turned(by_k, back=True), by_v)
        )
        columns = [
            _summed(by_q, self.asking),
            _summed(by_k, self.n),
            _summed(by_v, self.n),
            _summed(readers, self.mixed),
        ]
        below = by_k @ part.key + by_v @ part.value
        below[:, :, -M:] += by_q @ part.query
        return columns, theta, below


def _summed(reader: Array, read: Array) -> Array:
    """Σ over rows of reader (B, O, M, K) times read (B, M, I), as (B, O, K·I)."""
    found = np.swapaxes(reader, 2, 3) @ read[:, None]
    return np.asarray(found.reshape(*found.shape[:2], -1))


class DecoderPass:
    """Prompts (B, N, d) through all layers, whose norms have gain one, to the last row behind the final norm,
    `seen` (B, d)."""

    def __init__(
        self, layers: Sequence[DecoderLayer], last_eps: float, prompts: Array, log_theta: float
    ) -> None:
        turns = _Turns.of(log_theta, layers[0].attention.head_width, prompts.shape[1])
        stream = prompts
        self.steps = []
        for layer in layers:
            last = layer is layers[-1]
            n, size = normed(stream, layer.attention_norm.eps)
            attention = _AttentionStep(layer.attention, n, turns, last)
            stream = stream[:, -1:] if last else stream
            stream = stream + attention.added
            read, read_size = normed(stream, layer.network_norm.eps)
            self.steps.append((attention, size, layer.network, read, read_size))
            stream = stream + layer.network(read)
        self.seen, self.last_size = normed(stream[:, -1], last_eps)

    def jacobian(self) -> Array:
        """(B·d, unknowns): query, key, value and output of every layer, and the logarithm of the base."""
        B, d = self.seen.shape
        eye = np.broadcast_to(np.eye(d), (B, d, d))
        readers = before_norm(eye, self.seen, self.last_size)[:, :, None]  # (B, O, 1, d)
        columns, theta = list[list[Array]](), np.zeros((B, d))
        for attention, size, network, read, read_size in reversed(self.steps):
            slope = network_slope(network, read)  # (B, M, d, d)
            through = np.einsum("bomi,bmij->bomj", readers, slope, optimize=True)
            readers = readers + before_norm(through, read, read_size)
            own, by_theta, below = attention.backward(readers)
            columns.append(own)
            theta += by_theta
            earlier = before_norm(below, attention.n, size)
            earlier[:, :, -readers.shape[2] :] += readers
            readers = earlier
        parts = [each for own in reversed(columns) for each in own] + [theta[..., None]]
        return np.concatenate(parts, axis=2).reshape(B * d, -1)
