"""One head behind answers that round: more pairs than unknowns, and a fit of everything to all answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Ids
from unsoftmax.learners.tokens.books import RecordedBooks
from unsoftmax.learners.tokens.joint_errors import fitted_errors
from unsoftmax.meters.tokens import PairRequest, TokenPairMeter
from unsoftmax.models import TokenHead, TokenHeads
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine
from unsoftmax.solvers.tokens.token_answers import FlatSequences
from unsoftmax.solvers.tokens.token_refinement import TokenFit

__all__ = ["Oversampled", "can_oversample", "oversample"]

_DRAWS = 3  # of errors that the table may have: a distance over thousands of numbers varies little
_MOST_NUMBERS = 3e7  # answers times rank: a fit holds a few arrays of that size
_SURE = 2.0  # of the largest draw: answers that share a rounded score are off alike
OPTIONS = RefinementOptions(
    iterations=8,
    damping=1e-6,
    least_damping=1e-9,
    improvement=1e-3,
    dense_limit=0,
    inner_iterations=60,
    inner_tolerance=1e-2,
)


@dataclass(frozen=True, eq=False)
class Oversampled:
    """The head; how far answers, and how far parameters are off, at most in 99 of 100 runs."""

    head: TokenHead
    loss: float
    error: float


def can_oversample(start: TokenHead, factor: float) -> bool:
    """Whether that many answers fit into memory at once."""
    return bool(factor * TokenHeads([start]).parameters * start.keys.shape[1] <= _MOST_NUMBERS)


def oversample(
    start: TokenHead, meter: TokenPairMeter, books: RecordedBooks, factor: float, rng: np.random.Generator
) -> Oversampled:
    """Asks pairs until there are `factor` answers for every degree of freedom, and fits all of them.

    start: what single entries gave. Every round asks each token once, and about each token once.
    """
    V = meter.vocabulary
    wanted = factor * TokenHeads([start]).parameters
    asked = sum(len(ids) for ids, _ in books.batches)
    for _ in range(max(0, int(np.ceil((wanted - asked) / V))) if V > 1 else 0):
        asking = rng.permutation(V)
        meter.compare(_request(start, meter, np.roll(asking, 1 + int(rng.integers(V - 1))), asking))
    readout = meter.sequences.readout
    flat = FlatSequences.of([ids for ids, _ in books.batches], positions=False)
    fit = TokenFit(flat, books.numbers(readout), meter.noise)
    refined = refine(fit, (start,), OPTIONS)
    state = refined.state
    options = replace(OPTIONS, least_damping=1e-7)
    errors = fitted_errors(fit, state, meter.sequences.longest, rng, options, _DRAWS)
    return Oversampled(state[0], _SURE * errors.answers, _SURE * errors.parameters)


def _request(head: TokenHead, meter: TokenPairMeter, tokens: Ids, asking: Ids) -> PairRequest:
    """Pairs, each with the third token that makes its answer move most: one of the extremes, or none."""
    scores = head.relative_scores(tokens, asking)
    best = PairRequest.plain(tokens, asking, scores)
    bars = meter.prospect(best)
    for extreme in meter.extremes:
        third = np.full(len(tokens), extreme)
        other = PairRequest(
            tokens, asking, scores, third, head.relative_scores(third, asking), np.zeros(len(tokens))
        )
        sharper = meter.prospect(other) < bars
        best = other.where(sharper, best)
        bars = np.where(sharper, meter.prospect(other), bars)
    return best
