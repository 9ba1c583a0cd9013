"""Norms over the last axis: LayerNorm and RMSNorm, with their derivatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError

__all__ = ["LayerNorm", "Norm", "RMSNorm", "centred"]


def centred(x: Array) -> Array:
    """The rows without their mean.

    >>> centred(np.array([1.0, 2.0, 6.0]))
    array([-2., -1.,  3.])
    """
    return np.asarray(x - x.mean(axis=-1, keepdims=True))


@dataclass(frozen=True, eq=False)
class _RootMeanSquare:
    """What both norms share: gain·x/√(mean x² + eps) + bias, of x as it is or of x without its mean."""

    gain: Array
    bias: Array | None = None
    eps: float = 1e-5

    def __post_init__(self) -> None:
        """Holds float64 copies, and refuses shapes that do not fit."""
        object.__setattr__(self, "gain", np.array(self.gain, dtype=np.float64))
        if self.bias is not None:
            object.__setattr__(self, "bias", np.array(self.bias, dtype=np.float64))
        if self.gain.ndim != 1 or not len(self.gain):
            raise UsageError(f"gain must be (d,), not {self.gain.shape}")
        if self.bias is not None and self.bias.shape != self.gain.shape:
            raise UsageError(f"bias must be {self.gain.shape} to fit the gain, not {self.bias.shape}")
        if not np.isfinite(self.gain).all() or (self.bias is not None and not np.isfinite(self.bias).all()):
            raise UsageError("gain or bias holds NaN or infinity")
        if not 0.0 <= self.eps < np.inf:
            raise UsageError(f"eps must be a finite number >= 0, not {self.eps!r}")

    @property
    def width(self) -> int:
        """Number of columns d."""
        return len(self.gain)

    def prepared(self, x: Array) -> Array:
        """What is divided by its size."""
        raise NotImplementedError  # pragma: no cover - abstract

    def size(self, x: Array) -> Array:
        """√(mean + eps), with the last axis kept."""
        kept = self.prepared(x)
        return np.asarray(np.sqrt((kept * kept).mean(axis=-1, keepdims=True) + self.eps))

    def standard(self, x: Array) -> Array:
        """The norm before gain and bias."""
        return np.asarray(self.prepared(x) / self.size(x))

    def __call__(self, x: Array, /) -> Array:
        out = self.gain * self.standard(np.asarray(x, dtype=np.float64))
        return out if self.bias is None else out + self.bias

    def forward(self, x: Array, direction: Array) -> Array:
        """Derivative of the norm at x along a direction: the Jacobian times it."""
        return np.asarray(self.gain * self._standard_forward(x, direction))

    def backward(self, x: Array, weights: Array) -> Array:
        """Gradient of weights·norm(x): the transposed Jacobian times the weights."""
        return self._standard_forward(x, self.gain * weights)  # the Jacobian of `standard` is symmetric

    def jacobian(self, x: Array) -> Array:
        """(..., d, d): row i is the gradient of output i."""
        return self.backward(np.asarray(x)[..., None, :], np.eye(self.width))

    def _standard_forward(self, x: Array, direction: Array) -> Array:
        unit, moved = self.standard(x), self.prepared(direction)
        return np.asarray((moved - unit * (unit * moved).mean(axis=-1, keepdims=True)) / self.size(x))

    @classmethod
    def plain(cls, width: int, eps: float = 1e-5) -> _RootMeanSquare:
        """Gain one, no bias."""
        return cls(np.ones(width), None, eps)


@dataclass(frozen=True, eq=False)
class LayerNorm(_RootMeanSquare):
    """gain·(x - mean)/√(variance + eps) + bias, as torch's nn.LayerNorm; `bias` may be None.

    >>> LayerNorm(np.ones(2), eps=0.0)(np.array([1.0, 5.0]))
    array([-1.,  1.])
    """

    def prepared(self, x: Array) -> Array:
        return centred(np.asarray(x, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class RMSNorm(_RootMeanSquare):
    """gain·x/√(mean x² + eps), as torch's nn.RMSNorm; a bias is allowed, but unusual.

    >>> RMSNorm(np.ones(2), eps=0.0)(np.array([3.0, 3.0]))
    array([1., 1.])
    """

    def prepared(self, x: Array) -> Array:
        return np.asarray(x, dtype=np.float64)


Norm: TypeAlias = LayerNorm | RMSNorm
