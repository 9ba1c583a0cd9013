"""Rotary planes that hardly turn over all prompts, told apart.

Planes that turn by a few hundredths of a radian are nearly free to mix: queries and keys can change a lot and
answers hardly, so a fit that starts with mixed planes creeps along a bent valley. The way out is linear. A
score is kᵀ·exp(δ·Ω)·q at the distance δ; beside the wrong planes the true generator is Ω + X, and for small
δ·X the answers are linear in X. Fitted along with everything else, X gives the true planes: they are those of
the eigenvectors of Ω + X.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.learners.language_model.attention_fit import AttentionFit
from unsoftmax.learners.language_model.attention_pass import AttentionState
from unsoftmax.models.language_model import Attention, Rotary
from unsoftmax.solvers.least_squares.joint_refinement import (
    DenseJacobian,
    Inverse,
    Linearisation,
    Products,
    RefinementOptions,
    refine,
)

__all__ = ["settle_slow_planes"]

_SLOW = 0.5  # radians over the longest prompt: a plane that turns by more is found by its own turns
# X is linear to the square of δ·X: in float64 every round leaves a hundredth of what the one before left, and
# rounding ends them; in float32 the first one does, and two more take the square
_LEAST_ROUNDS, _MOST_ROUNDS = 3, 10


def settle_slow_planes(
    fit: AttentionFit, start: AttentionState, options: RefinementOptions
) -> AttentionState:
    """The state whose slow planes explain how scores change with the distance; `start` where none are
    slow."""
    longest = max(part.normed.shape[1] for part in fit.data)
    state, least = start, np.inf
    for number in range(_MOST_ROUNDS):
        turns = Rotary(float(np.exp(state.log_theta))).frequencies(state.attention.head_width)
        planes = np.flatnonzero((longest - 1) * turns < _SLOW)
        if len(planes) < 2:
            break
        part = state.attention
        none = np.zeros((part.groups, part.head_width, part.head_width))
        drifting = _DriftFit(fit, np.concatenate([planes, planes + part.head_width // 2]))
        found = refine(drifting, replace(state, drift=none), options)
        turned = _turned(found.state, planes, turns)
        if turned is None:
            return replace(found.state, drift=None)
        state = turned
        if number + 1 >= _LEAST_ROUNDS and found.rms[-1] > 0.5 * least:
            break
        least = found.rms[-1]
    return state


def _turned(state: AttentionState, planes: NDArray[np.intp], turns: Array) -> AttentionState | None:
    """The state in the planes of Ω + X, without a drift; None where these are not turns."""
    part, drift = state.attention, state.drift
    assert drift is not None
    half, count = part.head_width // 2, len(planes)
    slow = np.concatenate([planes, planes + half])
    omega = np.zeros((2 * count, 2 * count))
    at = np.arange(count)
    omega[at + count, at], omega[at, at + count] = turns[planes], -turns[planes]
    query = part.query.reshape(part.groups, part.shared_by, part.head_width, -1).copy()
    key = part.key.reshape(part.groups, part.head_width, -1).copy()
    for g in range(part.groups):
        values, vectors = np.linalg.eig(omega + drift[g][np.ix_(slow, slow)])
        positive = np.flatnonzero(values.imag > 0.0)
        if len(positive) != count:
            return None
        ordered = vectors[:, positive[np.argsort(-values.imag[positive])]]
        mix = np.concatenate([ordered.imag, ordered.real], axis=1)
        key[g, slow] = mix.T @ key[g, slow]
        query[g][:, slow] = np.linalg.solve(mix, query[g][:, slow])
        asked = (query[g][:, slow].reshape(-1, 2, count, part.width) ** 2).sum(axis=(0, 1, 3))
        sizes = (asked / (key[g, slow].reshape(2, count, -1) ** 2).sum(axis=(0, 2))) ** 0.25
        key[g, slow] *= np.tile(sizes, 2)[:, None]
        query[g][:, slow] /= np.tile(sizes, 2)[:, None]
    mixed: Attention = replace(part, query=query.reshape(part.query.shape), key=key.reshape(part.key.shape))
    return AttentionState(mixed, state.log_theta)


@dataclass(frozen=True, eq=False)
class _DriftFit:
    """`fit` of a state with a drift that is zero but between the coordinates `slow` of every group."""

    fit: AttentionFit
    slow: NDArray[np.intp]

    def residual(self, state: AttentionState, /) -> Array:
        return self.fit.residual(state)

    def moved(self, state: AttentionState, step: Array, /) -> AttentionState:
        whole = np.zeros(state.unknowns)
        whole[self._kept(state)] = step
        return state.moved(whole)

    def linearise(self, state: AttentionState, /) -> Linearisation:
        inner, kept = self.fit.linearise(state), self._kept(state)
        if isinstance(inner, DenseJacobian):
            return DenseJacobian(inner.jacobian[:, kept])

        def whole(step: Array) -> Array:
            out = np.zeros(state.unknowns)
            out[kept] = step
            return out

        def inverse(damping: Array) -> Inverse:
            solve = inner.preconditioner(whole(damping))
            assert solve is not None
            return lambda vector: solve(whole(vector))[kept]

        return Products(
            int(kept.sum()),
            lambda step: inner.forward(whole(step)),
            lambda weights: inner.backward(weights)[kept],
            inner.diagonal()[kept],
            inverse,
        )

    def _kept(self, state: AttentionState) -> NDArray[np.bool_]:
        """Which numbers of a step may change."""
        assert state.drift is not None
        drift = np.zeros(state.drift.shape, bool)
        drift[np.ix_(np.arange(len(drift)), self.slow, self.slow)] = True
        return np.concatenate([np.ones(state.unknowns - drift.size, bool), drift.ravel()])
