"""Every token asks once and is asked about once: no column and no row of a score table goes unchecked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, cast

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.models import TokenHeads
from unsoftmax.models.tokens.rivals import rivals
from unsoftmax.oracles import Ids

__all__ = ["Coverage", "cover_tokens"]

MOST_TOKENS = 1 << 16  # of larger vocabularies as many are drawn
_FRESH, _MOST_REPEATS = 2000, 16  # further sequences where scores are strong, and how often each token asks
_RIVALS = 2  # of every token in every head
_UNREADABLE = 0.5  # error bar of a score from which it does not show


class _Answers(Protocol):
    def ask(self, batch: Array) -> Array: ...

    def batch_size(self, length: int) -> int: ...


@dataclass(frozen=True)
class Coverage:
    """What one pair for every asking token showed.

    max_error: largest deviation of an answer. score_error: root mean square deviation of the scores that can
    be read, their error bars included, relative to that of all scores. hidden: share of pairs whose score is
    too strong to show. n_queries: sequences asked.
    """

    max_error: float
    score_error: float
    hidden: float
    n_queries: int


def cover_tokens(
    answers: _Answers,
    model: TokenHeads,
    noise: float,
    longest: int,
    rng: np.random.Generator,
    most: int = MOST_TOKENS,
    thorough: bool = False,
) -> Coverage:
    """Asks [i, j] for every token j, with every token i once, and compares with the model.

    Scores are compared for models of one head with single answers; for others only answers are. Where some
    scores are too strong to show, or the check shall be thorough, every token asks in longer sequences too,
    and beside the tokens that compete with it.
    Where fixed tokens stand around those that are asked, only answers are compared as well.
    """
    size = model.vocabulary
    asking = np.arange(size) if size <= most else rng.choice(size, most, replace=False)
    tokens = np.roll(rng.permutation(asking), 1)
    pairs = np.stack([tokens, asking], axis=1)
    found = _ask(answers, pairs)
    coverage = Coverage(_largest(found - model(pairs)), float("nan"), 0.0, len(pairs))
    plain = model.longest is None and type(model) is TokenHeads
    if plain and len(model.heads) == 1 and model.outputs is None:
        coverage = _compared(model, pairs, found, coverage.max_error, noise)
    repeats = max(1, min(_MOST_REPEATS, _FRESH // len(asking)))
    if coverage.hidden == 0.0 and not thorough:
        return coverage
    sequences = [
        np.column_stack([rng.choice(asking, (len(asking), min(length, longest - 1))), asking])
        for length in (4, 32) * repeats
    ]
    for ids in [*sequences, *(_beside_rivals(model, asking) if plain else [])]:
        worst = max(coverage.max_error, _largest(_ask(answers, ids) - model(ids)))
        coverage = replace(coverage, max_error=worst, n_queries=coverage.n_queries + len(ids))
    return coverage


def _beside_rivals(model: TokenHeads, asking: Ids) -> list[Ids]:
    """Every asking token behind each of the few that compete with it: random sequences may hold none."""
    found = []
    for head in model.heads:
        queries = head.queries[asking]
        own = np.einsum("nk,nk->n", head.keys[asking], queries)
        before = rivals(head.keys, head.values, own, head.values[asking], queries, _RIVALS)
        found += [np.stack([tokens, asking], axis=1) for tokens in before.T]
    return found


def _ask(answers: _Answers, ids: Ids) -> Array:
    step = answers.batch_size(ids.shape[1])
    return np.concatenate([answers.ask(cast(Array, ids[at : at + step])) for at in range(0, len(ids), step)])


def _largest(difference: Array) -> float:
    return float(np.abs(difference).max())


def _compared(model: TokenHeads, pairs: Ids, found: Array, max_error: float, noise: float) -> Coverage:
    head = model.heads[0]
    u = head.values + np.asarray(model.c)
    u_i, u_j = u[pairs[:, 0]], u[pairs[:, 1]]
    expected = head.relative_scores(pairs[:, 0], pairs[:, 1])
    scale = float(np.sqrt(np.mean(expected**2)))
    with np.errstate(divide="ignore", invalid="ignore"):
        read = np.log((u_j - found) / (found - u_i))
        bar = noise * np.abs(u_i - u_j) / (np.abs(found - u_i) * np.abs(found - u_j))
    # pairs of close values say nothing of their score, and are left out without counting as hidden
    apart = np.abs(u_i - u_j) > 1e-3 * head.spread
    legible = apart & (bar < _UNREADABLE) & np.isfinite(read)
    hidden = float(np.mean(~legible[apart])) if apart.any() else 0.0
    if not legible.any() or scale == 0.0:
        return Coverage(max_error, EPS if scale == 0.0 else float("inf"), hidden, len(pairs))
    # a pair that is read poorly says little: each counts by how much of its deviation its own bar leaves open
    deviation = np.maximum(np.abs(read - expected)[legible] - 3.0 * bar[legible], 0.0)
    return Coverage(max_error, float(np.sqrt(np.mean(deviation**2))) / scale, hidden, len(pairs))
