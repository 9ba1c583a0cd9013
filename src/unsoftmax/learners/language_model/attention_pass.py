"""One forward pass of attention over prompts of one length, with everything that derivatives need.

Everything else of the layer is known. With z normed rows, c = Σ_h O_h·Σ_i α_i V·z_i is what attention adds to
the last row, and the state is a known function of it, linearised row by row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.learners.language_model.after_attention import AfterAttention
from unsoftmax.models.base import softmax
from unsoftmax.models.language_model import Attention, Rotary

__all__ = ["AttentionPass", "AttentionState", "Prompted"]


@dataclass(frozen=True, eq=False)
class AttentionState:
    """attention without biases, and the logarithm of the rotary base. drift (groups, d_h, d_h): what is added
    to the generator of all turns, a row; see `slow_planes`."""

    attention: Attention
    log_theta: float
    drift: Array | None = None

    @property
    def unknowns(self) -> int:
        """Numbers in all."""
        part = self.attention
        return part.query.size + part.key.size + part.value.size + part.output.size + 1

    def split(self, flat: Array) -> tuple[Array, Array, Array, Array, float]:
        """A step as query, key, value, output and the logarithm."""
        part = self.attention
        shapes = part.query.shape, part.key.shape, part.value.shape, part.output.shape
        cuts = np.cumsum([a * b for a, b in shapes])
        q, k, v, o, theta = np.split(flat, cuts)
        return (
            q.reshape(shapes[0]),
            k.reshape(shapes[1]),
            v.reshape(shapes[2]),
            o.reshape(shapes[3]),
            float(theta[0]),
        )

    def moved(self, step: Array) -> AttentionState:
        """The state plus a step."""
        q, k, v, o, theta = self.split(step)
        part = self.attention
        moved = replace(
            part, query=part.query + q, key=part.key + k, value=part.value + v, output=part.output + o
        )
        return AttentionState(moved, self.log_theta + theta, self.drift)


@dataclass(frozen=True, eq=False)
class Prompted:
    """Prompts of one length: normed rows (B, N, d), the last rows themselves (B, d), and the states that were
    seen (B, d)."""

    normed: Array
    last: Array
    seen: Array


class AttentionPass:
    """One forward pass over prompts of one length."""

    def __init__(self, state: AttentionState, data: Prompted, after: AfterAttention) -> None:
        part = state.attention
        self.part, self.data = part, data
        batch, length, _ = data.normed.shape
        width, each = part.head_width, part.shared_by
        self.group = np.repeat(np.arange(part.groups), each)
        frequencies = Rotary(np.exp(state.log_theta)).frequencies(width)
        distance = (length - 1) - np.arange(length)
        angles = distance[:, None] * frequencies  # (N, planes)
        self.turn = np.exp(1j * angles)
        q = _planes((data.normed[:, -1] @ part.query.T).reshape(batch, part.heads, width))  # (B, H, planes)
        k = _planes((data.normed @ part.key.T).reshape(batch, length, part.groups, width))[:, :, self.group]
        v = (data.normed @ part.value.T).reshape(batch, length, part.groups, width)[:, :, self.group]
        turned = q[:, None] * self.turn[:, None]  # (B, N, H, planes)
        products = k.conj() * turned
        scale = 1.0 / np.sqrt(width)
        scores = scale * products.real.sum(axis=-1)  # (B, N, H)
        self.distance, self.keys, self.queries = scale * distance, _real(k), _real(q)
        if state.drift is not None:
            drift = state.drift[self.group]
            drifted = self.distance[:, None, None] * np.einsum("hef,bhf->bhe", drift, self.queries)[:, None]
            scores = scores + np.einsum("bnhe,bnhe->bnh", self.keys, drifted)
        self.weights = np.moveaxis(softmax(np.moveaxis(scores, 1, 2)), 2, 1)
        self.mixed = np.einsum("bnh,bnhe->bhe", self.weights, v)
        self.rows = np.einsum("bnh,bnj->bhj", self.weights, data.normed)
        self.output = part.output.reshape(-1, part.heads, width)
        added = np.einsum("ohe,bhe->bo", self.output, self.mixed)
        self.seen, self.jacobian = after(data.last + added)
        # ds/dq as real coordinates, ds/dk, ds/dlog theta
        self.by_query = scale * _real(k * self.turn.conj()[:, None])  # (B, N, H, d_h)
        self.by_key = scale * _real(turned)
        if state.drift is not None:
            back = np.einsum("hfe,bnhf->bnhe", drift, self.keys)
            self.by_query = self.by_query + self.distance[:, None, None] * back
            self.by_key = self.by_key + drifted
        slopes = -(2.0 * np.arange(width // 2) / width) * frequencies
        self.by_theta = -scale * np.einsum("bnhp,n,p->bnh", products.imag, distance.astype(float), slopes)
        self.effect = self.weights[..., None] * (v - self.mixed[:, None])  # (B, N, H, d_h): dm/ds

    def forward(self, q: Array, k: Array, v: Array, o: Array, theta: float) -> Array:
        part, z = self.part, self.data.normed
        batch, length, _ = z.shape
        dq = (z[:, -1] @ q.T).reshape(batch, part.heads, -1)
        dk = (z @ k.T).reshape(batch, length, part.groups, -1)[:, :, self.group]
        scores = np.einsum("bnhe,bhe->bnh", self.by_query, dq) + np.einsum("bnhe,bnhe->bnh", self.by_key, dk)
        scores = scores + self.by_theta * theta
        value = v.reshape(part.groups, -1, part.width)[self.group]
        mixed = np.einsum("bnhe,bnh->bhe", self.effect, scores) + np.einsum("hej,bhj->bhe", value, self.rows)
        added = np.einsum("ohe,bhe->bo", self.output, mixed) + np.einsum(
            "ohe,bhe->bo", o.reshape(self.output.shape), self.mixed
        )
        return np.asarray(np.einsum("boi,bi->bo", self.jacobian, added))

    def backward(self, weights: Array) -> Array:
        part, z = self.part, self.data.normed
        added = np.einsum("boi,bo->bi", self.jacobian, weights)
        o = np.einsum("bo,bhe->ohe", added, self.mixed).reshape(part.output.shape)
        mixed = np.einsum("ohe,bo->bhe", self.output, added)
        v = _by_group(np.einsum("bhe,bhj->hej", mixed, self.rows), part)
        scores = np.einsum("bnhe,bhe->bnh", self.effect, mixed)
        q = np.einsum("bnh,bnhe,bj->hej", scores, self.by_query, z[:, -1], optimize=True)
        k = _by_group(np.einsum("bnh,bnhe,bnj->hej", scores, self.by_key, z, optimize=True), part)
        theta = float((scores * self.by_theta).sum())
        return np.concatenate([q.ravel(), k.ravel(), v.ravel(), o.ravel(), [theta]])

    def theta_column(self) -> Array:
        """The column of the Jacobian of the rotary base."""
        scores = np.einsum(
            "bohe,bnhe->bohn", np.einsum("boi,ihe->bohe", self.jacobian, self.output), self.effect
        )
        return np.asarray(np.einsum("bohn,bnh->bo", scores, self.by_theta).ravel())

    def drift_columns(self, g: int, slow: NDArray[np.intp]) -> Array:
        """Columns (B·d, slow²) of the Jacobian of the drift of a group between the coordinates `slow`."""
        own = np.flatnonzero(self.group == g)
        written = np.einsum("boi,ihe->bohe", self.jacobian, self.output[:, own], optimize=True)
        scores = np.einsum("bohe,bnhe->bohn", written, self.effect[:, :, own], optimize=True)
        keys = self.distance[:, None, None] * self.keys[:, :, own][..., slow]
        reached = np.einsum("bohn,bnhe->bohe", scores, keys, optimize=True)
        columns = np.einsum("bohe,bhf->boef", reached, self.queries[:, own][..., slow], optimize=True)
        return np.asarray(columns.reshape(-1, len(slow) ** 2))

    def dense(self) -> Array:
        """The Jacobian (B·d, unknowns)."""
        part, z = self.part, self.data.normed
        batch, _, d = z.shape
        written = np.einsum("boi,ihe->bohe", self.jacobian, self.output)
        scores = np.einsum("bohe,bnhe->bohn", written, self.effect)
        q = np.einsum("bohe,bj->bohej", np.einsum("bohn,bnhe->bohe", scores, self.by_query), z[:, -1])
        k = np.einsum("bohn,bnhe,bnj->bohej", scores, self.by_key, z, optimize=True)
        v = np.einsum("bohe,bhj->bohej", written, self.rows)
        shared = (batch, d, part.groups, part.shared_by, part.head_width, d)
        k, v = k.reshape(shared).sum(axis=3), v.reshape(shared).sum(axis=3)
        o = np.einsum("boi,bhe->boihe", self.jacobian, self.mixed)
        theta = np.einsum("bohn,bnh->bo", scores, self.by_theta)
        return np.concatenate([piece.reshape(batch * d, -1) for piece in (q, k, v, o, theta)], axis=1)


def _planes(x: Array) -> Array:
    first, second = np.split(x, 2, axis=-1)
    return np.asarray(first + 1j * second)


def _real(x: Array) -> Array:
    return np.concatenate([x.real, x.imag], axis=-1)


def _by_group(per_head: Array, part: Attention) -> Array:
    """(H, d_h, d) added up over the heads of a group."""
    return np.asarray(per_head.reshape(part.groups, part.shared_by, part.head_width, -1).sum(axis=1))
