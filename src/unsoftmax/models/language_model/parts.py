"""What a decoder is made of: attention with shared keys, gated networks and feed-forward ones, positions, and
a layer of them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.models.parts import GELU_TANH, SILU, Activation, Norm

__all__ = [
    "Attention",
    "DecoderLayer",
    "FeedForward",
    "GatedNetwork",
    "LearnedPositions",
    "Network",
    "Positions",
    "Rotary",
]


def _hold_arrays(part: object) -> None:
    """Replaces every array field by a finite float64 copy."""
    for field in fields(part):  # type: ignore[arg-type]
        value = getattr(part, field.name)
        if value is None or isinstance(value, int | float | Activation):
            continue
        array = np.array(value, dtype=np.float64)
        if not np.isfinite(array).all():
            raise UsageError(f"{field.name} holds NaN or infinity")
        object.__setattr__(part, field.name, array)


def _expect(name: str, array: Array | None, shape: tuple[int, ...]) -> None:
    if array is not None and array.shape != shape:
        raise UsageError(f"{name} must be {shape} to fit the others, not {array.shape}")


@dataclass(frozen=True)
class Rotary:
    """Rotary positions: plane j of a head turns by `theta`**(-2j/d_h) a row; its coordinates are j and j +
    d_h/2.

    >>> Rotary(100.0).frequencies(4)
    array([1. , 0.1])
    """

    theta: float = 10_000.0

    def __post_init__(self) -> None:
        if not 0.0 < self.theta < np.inf:
            raise UsageError(f"theta must be a finite number > 0, not {self.theta!r}")

    def frequencies(self, head_width: int) -> Array:
        """Radians a row, one entry a plane."""
        return np.asarray(self.theta ** (-np.arange(0, head_width, 2) / head_width))

    def rotate(self, x: Array) -> Array:
        """Turns (B, N, heads, d_h) by the row's position."""
        half = x.shape[3] // 2
        angles = np.arange(x.shape[1])[:, None] * self.frequencies(x.shape[3])
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        first, second = x[..., :half], x[..., half:]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


@dataclass(frozen=True, eq=False)
class LearnedPositions:
    """A vector for every position, added to the row there. table: (longest prompt, d)."""

    table: Array

    def __post_init__(self) -> None:
        _hold_arrays(self)
        if self.table.ndim != 2:
            raise UsageError(f"a table of positions must be (length, d), not {self.table.shape}")


Positions: TypeAlias = Rotary | LearnedPositions


@dataclass(frozen=True, eq=False)
class Attention:
    """Causal attention of `heads` heads; groups of heads share keys and values.

    query: (heads·d_h, d). key, value: (groups·d_h, d). output: (d, heads·d_h). The biases may be None.
    Scores are divided by √d_h.
    """

    query: Array
    key: Array
    value: Array
    output: Array
    heads: int
    groups: int
    query_bias: Array | None = None
    key_bias: Array | None = None
    value_bias: Array | None = None
    output_bias: Array | None = None

    def __post_init__(self) -> None:
        _hold_arrays(self)
        if self.heads < 1 or self.groups < 1 or self.heads % self.groups:
            raise UsageError(f"{self.heads} heads cannot share {self.groups} groups of keys evenly")
        if self.query.ndim != 2 or self.query.shape[0] % self.heads:
            raise UsageError(f"query must be ({self.heads}·d_h, d), not {self.query.shape}")
        wide, narrow, d = len(self.query), self.groups * self.head_width, self.width
        _expect("key", self.key, (narrow, d))
        _expect("value", self.value, (narrow, d))
        _expect("output", self.output, (d, wide))
        _expect("query_bias", self.query_bias, (wide,))
        _expect("key_bias", self.key_bias, (narrow,))
        _expect("value_bias", self.value_bias, (narrow,))
        _expect("output_bias", self.output_bias, (d,))

    @property
    def width(self) -> int:
        """Columns of a row."""
        return int(self.query.shape[1])

    @property
    def head_width(self) -> int:
        """Coordinates d_h of one head."""
        return len(self.query) // self.heads

    @property
    def shared_by(self) -> int:
        """Heads of one group."""
        return self.heads // self.groups


@dataclass(frozen=True, eq=False)
class GatedNetwork:
    """down·(φ(gate·x) * up·x): SwiGLU when φ is SiLU. gate, up: (m, d). down: (d, m)."""

    gate: Array
    up: Array
    down: Array
    activation: Activation = SILU

    def __post_init__(self) -> None:
        _hold_arrays(self)
        if self.gate.ndim != 2:
            raise UsageError(f"gate must be (m, d), not {self.gate.shape}")
        _expect("up", self.up, self.gate.shape)
        _expect("down", self.down, self.gate.shape[::-1])

    @property
    def neurons(self) -> int:
        """Hidden units m."""
        return len(self.gate)

    def __call__(self, x: Array) -> Array:
        return np.asarray((self.activation(x @ self.gate.T) * (x @ self.up.T)) @ self.down.T)


@dataclass(frozen=True, eq=False)
class FeedForward:
    """outer·φ(inner·x + inner_bias) + outer_bias. inner: (m, d). outer: (d, m)."""

    inner: Array
    inner_bias: Array
    outer: Array
    outer_bias: Array
    activation: Activation = GELU_TANH

    def __post_init__(self) -> None:
        _hold_arrays(self)
        if self.inner.ndim != 2:
            raise UsageError(f"inner must be (m, d), not {self.inner.shape}")
        m, d = self.inner.shape
        _expect("inner_bias", self.inner_bias, (m,))
        _expect("outer", self.outer, (d, m))
        _expect("outer_bias", self.outer_bias, (d,))

    @property
    def neurons(self) -> int:
        """Hidden units m."""
        return len(self.inner)

    def __call__(self, x: Array) -> Array:
        hidden = self.activation(x @ self.inner.T + self.inner_bias)
        return np.asarray(hidden @ self.outer.T + self.outer_bias)


Network: TypeAlias = GatedNetwork | FeedForward


@dataclass(frozen=True, eq=False)
class DecoderLayer:
    """x <- x + attention(norm(x)), then x <- x + network(norm(x))."""

    attention_norm: Norm
    attention: Attention
    network_norm: Norm
    network: Network

    def __post_init__(self) -> None:
        d = self.attention.width
        columns = self.network.gate if isinstance(self.network, GatedNetwork) else self.network.inner
        _expect("the network's first matrix", columns, (len(columns), d))
        for name, norm in (("attention_norm", self.attention_norm), ("network_norm", self.network_norm)):
            _expect(f"the gain of {name}", norm.gain, (d,))
