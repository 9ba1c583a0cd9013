"""Neurons of all layers side by side: what each gives, how that changes, and what they write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, TypeAlias

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.parts import SILU, Activation
from unsoftmax.outcomes import Unresolved

__all__ = [
    "Collapsed",
    "GatedNeurons",
    "Neurons",
    "PlainNeurons",
    "beside",
    "solve_written",
    "without_trifles",
]

_RIDGE = 1e-13  # of the mean diagonal of normal equations: one direction, a multiple of n, is not seen at all
_ORIENTED = 0.5  # |s| of a neuron's orientation, which is 1 in either case


@dataclass(frozen=True, eq=False)
class PlainNeurons:
    """φ(inner·n + bias). inner: (J, d)."""

    inner: Array
    bias: Array
    activation: Activation

    def __len__(self) -> int:
        return len(self.inner)

    def values(self, n: Array) -> Array:
        """(B, J)."""
        return self.activation(n @ self.inner.T + self.bias)

    def gradients(self, n: Array) -> Array:
        """(B, J, d)."""
        slopes = self.activation.first(n @ self.inner.T + self.bias)
        return np.asarray(slopes[..., None] * self.inner)

    def cores(self, n: Array) -> Array:
        """Values without the part that is odd in the argument where the rest is even: the same for a neuron
        and its reflection."""
        half = 0.5 * self.activation.reflection.slope
        return np.asarray(self.values(n) + half * (n @ self.inner.T + self.bias))

    def oriented(self, signs: Array) -> Self:
        """With arguments that change their sign where asked."""
        return replace(self, inner=signs[:, None] * self.inner, bias=signs * self.bias)


@dataclass(frozen=True, eq=False)
class GatedNeurons:
    """φ(gate·n)·(up·n). gate, up: (J, d)."""

    gate: Array
    up: Array
    activation: Activation = SILU

    def __len__(self) -> int:
        return len(self.gate)

    def values(self, n: Array) -> Array:
        """(B, J)."""
        return np.asarray(self.activation(n @ self.gate.T) * (n @ self.up.T))

    def gradients(self, n: Array) -> Array:
        """(B, J, d)."""
        active, offered = n @ self.gate.T, n @ self.up.T
        by_gate, by_up = self.activation.first(active) * offered, self.activation(active)
        return np.asarray(by_gate[..., None] * self.gate + by_up[..., None] * self.up)

    def cores(self, n: Array) -> Array:
        """As `values`: nothing is reflected."""
        return self.values(n)


Neurons: TypeAlias = PlainNeurons | GatedNeurons


@dataclass(frozen=True, eq=False)
class Collapsed:
    """F(n) = Σ_j written_j·value_j(n) + path·n + constant. written: (J, d).

    path: (d, d), known up to a multiple of 1, or None. constant: (d,), zero where there is none. misfit: rms
    of c0 that is left, relative.
    """

    neurons: Neurons
    written: Array
    path: Array | None
    constant: Array
    misfit: float

    @property
    def width(self) -> int:
        return int(self.written.shape[1])

    def values(self, n: Array) -> Array:
        """F of rows n, (B, d)."""
        out = self.neurons.values(n) @ self.written + self.constant
        return np.asarray(out if self.path is None else out + n @ self.path.T)


def beside(values: Array, n: Array) -> Array:
    """Values (..., d) without their part along n."""
    return np.asarray(values - n * (values * n).mean(axis=-1, keepdims=True))


def solve_written(neurons: Neurons, n: Array, c0: Array) -> Collapsed:
    """What all neurons write, from c0 = P·F of rows n (B, d), at least 1.3·(J + d + 1) of them.

    Plain neurons with an activation φ(z) - φ(-z) = z are known up to reflection, and without paths: the
    linear part must be what the neurons add, with the right orientations.
    """
    J, d = len(neurons), n.shape[1]
    plain = isinstance(neurons, PlainNeurons)
    reflects = plain and neurons.activation.reflection.slope != 0.0
    features = np.column_stack([neurons.cores(n), n, np.ones((len(n), 1))]) if plain else None
    if features is None:
        features = np.column_stack([neurons.cores(n), n])
    found = _projected_fit(features, n, c0)
    written = found[:J]
    path: Array | None = found[J : J + d].T
    constant = found[-1] if plain else np.zeros(d)
    if isinstance(neurons, PlainNeurons) and reflects and path is not None:
        neurons, constant = _orient(neurons, written, path, constant)
        path = None
    collapsed = Collapsed(neurons, written, path, constant, 0.0)
    misfit = np.linalg.norm(beside(collapsed.values(n), n) - c0) / np.linalg.norm(c0)
    return replace(collapsed, misfit=float(misfit))


def without_trifles(collapsed: Collapsed, n: Array, c0: Array, faint: float) -> Collapsed:
    """A path or constant that adds up to `faint` of what the neurons write is left out; the misfit is that of
    the rest."""
    size = float(np.abs(collapsed.neurons.values(n) @ collapsed.written).max())
    path, constant = collapsed.path, collapsed.constant
    if path is not None and float(np.abs(beside(n @ path.T, n)).max()) <= faint * size:
        path = None
    if float(np.abs(constant).max()) <= faint * size:
        constant = np.zeros_like(constant)
    kept = replace(collapsed, path=path, constant=constant)
    misfit = np.linalg.norm(beside(kept.values(n), n) - c0) / np.linalg.norm(c0)
    return replace(kept, misfit=float(misfit))


def _projected_fit(features: Array, n: Array, c0: Array) -> Array:
    """(k, d): least squares of P·(weightsᵀ·features) = c0, P = 1 - n·nᵀ/d; normal equations of size k·d."""
    k, d = features.shape[1], n.shape[1]
    normal = np.einsum("bk,bl->kl", features, features)[:, None, :, None] * np.eye(d)[None, :, None, :]
    with_n = np.einsum("bk,bi->bki", features, n).reshape(len(n), -1)
    normal = normal.reshape(k * d, k * d) - with_n.T @ with_n / d
    right = np.einsum("bk,bi->ki", features, c0).reshape(-1)
    scale = 1.0 / np.sqrt(np.maximum(np.diag(normal), 1e-300))
    scaled = normal * scale[:, None] * scale + _RIDGE * np.eye(k * d)
    solved = np.linalg.solve(scaled, scale * right)
    rest = right - normal @ (scale * solved)
    solved = scale * (solved + np.linalg.solve(scaled, scale * rest))
    return np.asarray(solved.reshape(k, d))


def _orient(
    neurons: PlainNeurons, written: Array, path: Array, constant: Array
) -> tuple[PlainNeurons, Array]:
    """Orientations s_j = ±1 with path = λ·1 + Σ s_j·slope·written_j·inner_jᵀ; the constant that is left."""
    d, half = written.shape[1], -0.5 * neurons.activation.reflection.slope
    columns = half * np.einsum("jo,ji->oij", written, neurons.inner).reshape(d * d, -1)
    design = np.column_stack([columns, np.eye(d).ravel()])
    signs = np.linalg.lstsq(design, path.ravel(), rcond=None)[0][:-1]
    if np.abs(signs).min() < _ORIENTED or np.abs(signs).max() > 1.0 / _ORIENTED:
        raise Unresolved(
            f"the linear part is not what the neurons add: orientations between {np.abs(signs).min():.2g} "
            f"and {np.abs(signs).max():.2g}, not 1; value paths beside neurons that have a reflection are "
            "not told apart"
        )
    signs = np.where(signs < 0.0, -1.0, 1.0)
    return neurons.oriented(signs), constant - half * (signs * neurons.bias) @ written
