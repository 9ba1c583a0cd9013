"""The joint fit of several heads to every answer whose tokens are known."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.learners.tokens.several_heads.scores import HeadScores
from unsoftmax.models import TokenHead
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.tokens.token_answers import FlatSequences
from unsoftmax.solvers.tokens.token_refinement import TokenFit, refine_tokens

__all__ = ["fit_jointly", "fitted_answers", "heads_of"]

_EXPLAINED = 30.0  # units of noise; residuals of a good fit are below one
_ROUNDS = 5  # a cap: every round leaves out the tokens that do not fit


def heads_of(scores: HeadScores) -> tuple[TokenHead, ...]:
    """The heads as far as they are known."""
    values = scores.values.values
    return tuple(
        TokenHead(keys, queries, values[:, head])
        for head, (keys, queries) in enumerate(zip(scores.keys, scores.queries, strict=True))
    )


def fit_jointly(scores: HeadScores, batches: list[tuple[Ids, Array]]) -> float:
    """Fits all answers to well-known tokens that a fitted one asks. Returns the rms, in units of noise.

    batches: ids (B, N) and single numbers (B,). Askers and tokens that do not fit with the others are taken
    out, to be fitted anew.
    """
    rms = np.inf
    for _ in range(_ROUNDS):
        fit = _problem(scores, batches)
        refined = refine_tokens(fit, heads_of(scores))
        rms = refined.rms[-1]
        if rms > _EXPLAINED and _take_out(scores, fit, np.abs(fit.residual(refined.state))):
            continue
        keys, queries = [head.keys for head in refined.state], [head.queries for head in refined.state]
        values = np.stack([head.values for head in refined.state], axis=1)
        if rms <= _EXPLAINED:
            scores.sharpen(keys, queries, values)
        break
    return rms


def _problem(scores: HeadScores, batches: list[tuple[Ids, Array]]) -> TokenFit:
    chosen = []
    for ids, answers in batches:
        kept = scores.strong[ids].all(axis=1) & scores.fitted[ids[:, -1]]
        if kept.any():
            chosen.append((ids[kept], answers[kept]))
    if not chosen:
        raise Unresolved(f"no token shows its scores in {scores.pairs.heads} heads; another seed may help")
    return fitted_answers(chosen, scores.pairs.noise)


def fitted_answers(batches: list[tuple[Ids, Array]], noise: float) -> TokenFit:
    """All answers as a least-squares problem in units of noise."""
    flat = FlatSequences.of([ids for ids, _ in batches], positions=False)
    return TokenFit(flat, np.concatenate([answers for _, answers in batches]), noise)


def _take_out(scores: HeadScores, fit: TokenFit, off: Array) -> bool:
    """Takes out the asker or token whose answers are off most, if there are others; whether one was."""
    flat, V = fit.sequences, len(scores.fitted)
    worst: list[tuple[float, bool, int]] = []
    for of_askers, owners, values in ((True, flat.asking, off), (False, flat.tokens, off[flat.rows])):
        order = np.lexsort((values, owners))
        counts = np.bincount(owners, minlength=V)
        ends = np.cumsum(counts)
        middle = np.where(counts > 0, values[order][np.maximum(ends - 1 - counts // 2, 0)], 0.0)
        place = int(middle.argmax())
        worst.append((float(middle[place]), of_askers, place))
    size, of_askers, place = max(worst)
    if size <= _EXPLAINED:
        return False
    if of_askers:
        scores.fitted[place] = False
    else:
        scores.uncertain[place] = np.inf
    return True
