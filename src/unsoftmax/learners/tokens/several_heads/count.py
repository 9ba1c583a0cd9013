"""How many heads? The fewest sigmoids whose sum explains every pattern of copies of a few pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.tokens.checks import MIXING_TEST
from unsoftmax.meters.tokens import CopyPatterns, TokenSequences
from unsoftmax.outcomes import OutsideClass, Unresolved
from unsoftmax.solvers.tokens.sums_of_sigmoids import Sigmoids, fit_free_weights

__all__ = ["HeadCount", "count_heads"]

MOST_HEADS = 4  # sums of more sigmoids cannot be told apart in float64
_ASKERS, _TOKENS = 4, 4  # beside each asker: 16 pairs, all but _MOST_MISSES of which must fit
_PATTERNS = 2 * MOST_HEADS + 3  # a sigmoid has two unknowns and the sum a constant; two contradict
_FITS = 10.0  # units of noise
_APART = 100.0  # errors between what heads add up to and what tokens alone show
_MOST_MISSES = 2  # of 16 pairs: a fit may miss its minimum


@dataclass(frozen=True)
class HeadCount:
    """heads: how many. asker: of a few the one beside which they are told apart best."""

    heads: int
    asker: int


def _refuse_residual(fits: Sigmoids, apart: Array, noise: float) -> None:
    """Raises where as many heads explain all copies if what the asking token adds by itself is left out."""
    own = np.abs(fits.weights.sum(axis=1) - apart)
    if float(np.median(own / (noise + fits.weight_errors.sum(axis=1)))) > _APART:
        raise Unresolved(
            "what the last token adds to the answer by itself does not fade however many others are sent, as "
            "with a residual connection; that is not learnt over token ids"
        )


def count_heads(
    sequences: TokenSequences, totals: Array, noise: float, rng: np.random.Generator, evidence: str
) -> HeadCount:
    """Asks 16 pairs in 11 patterns. evidence: against one head, for the reason where several do not fit."""
    V = len(totals)
    patterns = CopyPatterns.even(_PATTERNS, sequences.longest)
    asking = np.repeat(rng.choice(V, min(V, _ASKERS), replace=False), _TOKENS)
    tokens = rng.integers(0, V - 1, len(asking))
    tokens = tokens + (tokens >= asking)
    found = patterns.ask(sequences, tokens, asking) - totals[asking][:, None]
    apart = totals[tokens] - totals[asking]
    best = np.inf
    for heads in range(1, min(MOST_HEADS, (len(patterns) - 1) // 2) + 1):
        own = fit_free_weights(patterns.ratios, found, None, heads, _FITS * noise, rng)
        if int((own.rms > _FITS * noise).sum()) <= _MOST_MISSES:
            _refuse_residual(own, apart, noise)
        if heads == 1:
            continue  # it was refuted
        fits = fit_free_weights(patterns.ratios, found, apart, heads, _FITS * noise, rng)
        missed = int((fits.rms > _FITS * noise).sum())
        if missed <= _MOST_MISSES:
            bars = np.where(fits.rms <= _FITS * noise, fits.errors.max(axis=1), np.inf)
            usual = np.median(bars.reshape(-1, _TOKENS), axis=1)
            return HeadCount(heads, int(asking.reshape(-1, _TOKENS)[int(usual.argmin()), 0]))
        best = min(best, float(np.median(fits.rms)))
    raise OutsideClass(
        MIXING_TEST,
        f"{evidence}; and copies of two tokens are not answered as by 2 to {MOST_HEADS} heads either: the "
        f"best sum of heads is off by {best:.2g}, the noise of answers is {noise:.1g}; five and more heads "
        "are not learnt",
    )
