"""One forward pass of attention over prompts of one length, with everything that derivatives need.

Everything else of the layer is known. With z normed rows, c = Σ_h O_h·Σ_i α_i V·z_i is what attention adds to
the last row, and the state is a known function of it, linearised row by row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.language_model.after_attention import AfterAttention
from unsoftmax.models.base import softmax
from unsoftmax.models.language_model import Attention, Rotary

__all__ = ["AttentionPass", "AttentionState", "AttentionStep", "Prompted"]


@dataclass(frozen=True, eq=False)
class AttentionState:
    """attention without biases, and the logarithm of the rotary base. drift (groups, d_h, d_h): what is added
    to the generator of all turns, a row; see `slow_planes`."""

    attention: Attention
    log_theta: float
    drift: Array | None = None

    @property
    def unknowns(self) -> int:
        """Numbers in all, those of the drift last."""
        part = self.attention
        known = part.query.size + part.key.size + part.value.size + part.output.size + 1
        return known if self.drift is None else known + self.drift.size

    def split(self, flat: Array) -> AttentionStep:
        """A step by its parts, which are views."""
        part = self.attention
        d, width = part.width, part.head_width
        shapes = [
            (part.heads, width, d),
            (part.groups, width, d),
            (part.groups, width, d),
            (d, part.heads, width),
        ]
        cuts = np.cumsum([*(a * b * c for a, b, c in shapes), 1])
        *matrices, theta, drift = np.split(flat, cuts)
        q, k, v, o = (piece.reshape(shape) for piece, shape in zip(matrices, shapes, strict=True))
        return AttentionStep(
            q, k, v, o, float(theta[0]), None if self.drift is None else drift.reshape(self.drift.shape)
        )

    def moved(self, step: Array) -> AttentionState:
        """The state plus a step."""
        part, by = self.attention, self.split(step)
        moved = replace(
            part,
            query=part.query + by.query.reshape(part.query.shape),
            key=part.key + by.key.reshape(part.key.shape),
            value=part.value + by.value.reshape(part.value.shape),
            output=part.output + by.output.reshape(part.output.shape),
        )
        drift = None if self.drift is None or by.drift is None else self.drift + by.drift
        return AttentionState(moved, self.log_theta + by.theta, drift)


@dataclass(frozen=True, eq=False)
class AttentionStep:
    """query (H, d_h, d), key and value (groups, d_h, d), output (d, H, d_h), theta: of its logarithm; drift
    (groups, d_h, d_h) where the state has one."""

    query: Array
    key: Array
    value: Array
    output: Array
    theta: float
    drift: Array | None

    def flat(self) -> Array:
        """All numbers in a row."""
        pieces = [self.query, self.key, self.value, self.output, np.array([self.theta])]
        if self.drift is not None:
            pieces.append(self.drift)
        return np.concatenate([piece.ravel() for piece in pieces])


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
        self.part, self.data, self.drifts = part, data, state.drift is not None
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

    def forward(self, step: AttentionStep) -> Array:
        """J times a step, (B, d)."""
        z = self.data.normed
        dq = np.einsum("bj,hej->bhe", z[:, -1], step.query, optimize=True)
        dk = np.einsum("bnj,gej->bnge", z, step.key, optimize=True)[:, :, self.group]
        scores = np.einsum("bnhe,bhe->bnh", self.by_query, dq) + np.einsum("bnhe,bnhe->bnh", self.by_key, dk)
        scores = scores + self.by_theta * step.theta
        if step.drift is not None:
            drifted = np.einsum("hef,bhf->bhe", step.drift[self.group], self.queries)
            scores = scores + self.distance[:, None] * np.einsum("bnhe,bhe->bnh", self.keys, drifted)
        value = step.value[self.group]
        mixed = np.einsum("bnhe,bnh->bhe", self.effect, scores) + np.einsum("hej,bhj->bhe", value, self.rows)
        added = np.einsum("ohe,bhe->bo", self.output, mixed) + np.einsum(
            "ohe,bhe->bo", step.output, self.mixed
        )
        return np.asarray(np.einsum("boi,bi->bo", self.jacobian, added))

    def backward(self, weights: Array) -> AttentionStep:
        """Jᵀ times weights (B, d)."""
        part, z = self.part, self.data.normed
        added = np.einsum("boi,bo->bi", self.jacobian, weights)
        o = np.einsum("bo,bhe->ohe", added, self.mixed)
        mixed = np.einsum("ohe,bo->bhe", self.output, added)
        v = _by_group(np.einsum("bhe,bhj->hej", mixed, self.rows), part)
        scores = np.einsum("bnhe,bhe->bnh", self.effect, mixed)
        q = np.einsum("bnh,bnhe,bj->hej", scores, self.by_query, z[:, -1], optimize=True)
        k = _by_group(np.einsum("bnh,bnhe,bnj->hej", scores, self.by_key, z, optimize=True), part)
        drift = None
        if self.drifts:
            far = np.einsum("bnh,bnhe->bhe", scores * self.distance[:, None], self.keys)
            drift = _by_group(np.einsum("bhe,bhf->hef", far, self.queries), part)
        return AttentionStep(q, k, v, o, float((scores * self.by_theta).sum()), drift)

    def score_effects(self) -> Array:
        """(B, d, H, N): what a score of every head with every row does to the answers."""
        written = np.einsum("boi,ihe->bohe", self.jacobian, self.output, optimize=True)
        return np.asarray(np.einsum("bohe,bnhe->bohn", written, self.effect, optimize=True))

    def dense(self) -> Array:
        """The Jacobian (B·d, unknowns)."""
        part, z = self.part, self.data.normed
        batch, _, d = z.shape
        written = np.einsum("boi,ihe->bohe", self.jacobian, self.output)
        scores = self.score_effects()
        q = np.einsum("bohe,bj->bohej", np.einsum("bohn,bnhe->bohe", scores, self.by_query), z[:, -1])
        k = np.einsum("bohn,bnhe,bnj->bohej", scores, self.by_key, z, optimize=True)
        v = np.einsum("bohe,bhj->bohej", written, self.rows)
        shared = (batch, d, part.groups, part.shared_by, part.head_width, d)
        k, v = k.reshape(shared).sum(axis=3), v.reshape(shared).sum(axis=3)
        o = np.einsum("boi,bhe->boihe", self.jacobian, self.mixed)
        theta = np.einsum("bohn,bnh->bo", scores, self.by_theta)
        pieces = [q, k, v, o, theta]
        if self.drifts:
            far = np.einsum("bohn,n,bnhe->bohe", scores, self.distance, self.keys, optimize=True)
            drift = np.einsum("bohe,bhf->bohef", far, self.queries)
            pieces.append(drift.reshape(*shared[:-1], part.head_width).sum(axis=3))
        return np.concatenate([piece.reshape(batch * d, -1) for piece in pieces], axis=1)


def _planes(x: Array) -> Array:
    first, second = np.split(x, 2, axis=-1)
    return np.asarray(first + 1j * second)


def _real(x: Array) -> Array:
    return np.concatenate([x.real, x.imag], axis=-1)


def _by_group(per_head: Array, part: Attention) -> Array:
    """(H, d_h, d) added up over the heads of a group."""
    return np.asarray(per_head.reshape(part.groups, part.shared_by, part.head_width, -1).sum(axis=1))
