"""What JᵀJ of the fit of attention is on average over prompts of independent rows: it preconditions the fit.

Heads of different groups, and scores beside values, are taken for free of each other. Nothing larger than
(heads of a group + 1)·d_h² is factored, however wide the model is; blocks of JᵀJ itself, which have d_h·d
rows, take longer to factor than all products of a fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.language_model.attention_pass import AttentionPass, AttentionState, AttentionStep
from unsoftmax.learners.language_model.score_metric import ScoreMetric
from unsoftmax.learners.language_model.value_metric import ValueMetric
from unsoftmax.models.language_model import Attention, Rotary

__all__ = ["AttentionMetric"]


class AttentionMetric:
    """squares: the diagonal. Steps end with the drift where the state has one."""

    def __init__(self, state: AttentionState, passes: Sequence[AttentionPass]) -> None:
        self.state, part = state, state.attention
        sums = _Sums.of(part, passes)
        turns = _turns(state, sums.scores.shape[1])
        self.theta = sums.theta
        self.own = [np.arange(part.shared_by) + g * part.shared_by for g in range(part.groups)]
        query = part.query.reshape(part.heads, part.head_width, part.width)
        key, value = (
            each.reshape(part.groups, part.head_width, part.width) for each in (part.key, part.value)
        )
        output = part.output.reshape(part.width, part.heads, part.head_width)
        self.scores = [
            ScoreMetric(query[own], key[g], sums.scores[own], turns[g]) for g, own in enumerate(self.own)
        ]
        self.values = [
            ValueMetric(value[g], output[:, own], sums.reach, sums.alike[np.ix_(own, own)])
            for g, own in enumerate(self.own)
        ]

    @cached_property
    def squares(self) -> Array:
        """In the order of a step."""
        d, drift = self.state.attention.width, self.state.drift
        scores, values = self.scores, self.values
        rows = [np.concatenate([each.query_squares for each in scores])]
        rows += [np.concatenate([each.key_squares for each in scores])]
        rows += [np.concatenate([each.value_squares for each in values])]
        pieces = [np.repeat(each, d) for each in rows]
        pieces += [np.concatenate([each.output_squares for each in values], axis=1).ravel()]
        pieces += [np.array([self.theta])]
        if drift is not None:
            pieces += [each.drift_squares for each in scores]
        return np.concatenate(pieces)

    def inverse(self, damping: Array) -> Callable[[Array], Array]:
        """The inverse of the metric plus the mean damping of every part."""
        damped = self.state.split(damping)
        scores = [
            each.inverse(float(np.append(damped.query[own], damped.key[g]).mean()))
            for g, (each, own) in enumerate(zip(self.scores, self.own, strict=True))
        ]
        values = [
            each.inverse(float(damped.value[g].mean()), float(damped.output[:, own].mean()))
            for g, (each, own) in enumerate(zip(self.values, self.own, strict=True))
        ]
        drifts = [
            each.drift_inverse(float(damped.drift[g].mean()))
            for g, each in enumerate(self.scores)
            if damped.drift is not None
        ]

        turned = self.theta + damped.theta

        def solve(vector: Array) -> Array:
            step = self.state.split(vector)
            out = self.state.split(np.empty_like(vector))
            for g, own in enumerate(self.own):
                out.query[own], out.key[g] = scores[g](step.query[own], step.key[g])
                out.value[g], out.output[:, own] = values[g](step.value[g], step.output[:, own])
                if step.drift is not None and out.drift is not None:
                    out.drift[g] = drifts[g](step.drift[g])
            theta = step.theta / turned if turned else 0.0  # heads of one plane do not show the base
            return AttentionStep(out.query, out.key, out.value, out.output, theta, out.drift).flat()

        return solve


@dataclass(frozen=True, eq=False)
class _Sums:
    """scores (H, D): how much a score at every distance counts. reach (d, d): the same of what attention
    adds. alike (H, H): how alike the rows are that two heads look at. theta: of the rotary base."""

    scores: Array
    reach: Array
    alike: Array
    theta: float

    @classmethod
    def of(cls, part: Attention, passes: Sequence[AttentionPass]) -> _Sums:
        longest = max(each.data.normed.shape[1] for each in passes)
        scores, reach = np.zeros((part.heads, longest)), np.zeros((part.width, part.width))
        alike, total, theta = np.zeros((part.heads, part.heads)), 0.0, 0.0
        for each in passes:
            effects = each.score_effects()
            scores[:, : effects.shape[3]] += (effects**2).sum(axis=(0, 1))[:, ::-1]
            theta += float((np.einsum("bohn,bnh->bo", effects, each.by_theta) ** 2).sum())
            looked = (each.rows**2).sum(axis=2).mean(axis=1) / part.width
            reach += np.einsum("b,boi,boj->ij", looked, each.jacobian, each.jacobian, optimize=True)
            size = (each.jacobian**2).sum(axis=(1, 2))
            alike += np.einsum("b,bhj,bkj->hk", size, each.rows, each.rows, optimize=True) / part.width
            total += float((size * looked).sum())
        return cls(scores, reach, alike / total, theta)


def _turns(state: AttentionState, distances: int) -> Array:
    """(groups, D, d_h, d_h): a score at the distance δ is kᵀ·turns[δ]·q."""
    width = state.attention.head_width
    half, at = width // 2, np.arange(width // 2)
    distance = np.arange(distances)[:, None]
    angles = distance * Rotary(float(np.exp(state.log_theta))).frequencies(width)
    turns = np.zeros((distances, width, width))
    turns[:, at, at] = turns[:, at + half, at + half] = np.cos(angles)
    turns[:, at, at + half], turns[:, at + half, at] = -np.sin(angles), np.sin(angles)
    every = np.broadcast_to(turns, (state.attention.groups, *turns.shape))
    if state.drift is not None:
        every = every + distance[:, :, None] * state.drift[:, None]
    return np.asarray(every / np.sqrt(width))
