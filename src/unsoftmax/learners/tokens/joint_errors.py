"""After a joint fit: how far parameters may be off, and the values of vector answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.late_scipy import cho_factor, cho_solve
from unsoftmax.learners.tokens.books import RecordedBooks
from unsoftmax.models import TokenHead, TokenHeads, TokenPositions
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, Spread
from unsoftmax.solvers.tokens.token_refinement import TOKEN_OPTIONS, TokenFit, TokenState

__all__ = ["FittedErrors", "fitted_errors", "vector_values"]

_DRAWS = 12  # of errors that parameters may have
_SAMPLES, _LENGTHS = 1000, (2, 4, 16, 64)  # sequences on which the answers of draws are compared
_REFINEMENTS = 3  # of values by their residuals: normal equations alone lose half of the digits


@dataclass(frozen=True)
class FittedErrors:
    """How far answers, and parameters relative to their size, are off where residuals are noise."""

    answers: float
    parameters: float


def fitted_errors(
    fit: TokenFit,
    state: TokenState,
    longest: int,
    rng: np.random.Generator,
    options: RefinementOptions = TOKEN_OPTIONS,
    draws: int = _DRAWS,
) -> FittedErrors:
    """The largest of several draws of what the residuals allow. longest: the most tokens of a sequence."""
    gauge = sum(head.keys.shape[1] ** 2 + head.keys.shape[1] + 1 for head in state) - 1
    steps = Spread.of(fit, state, gauge, options).draw(draws, rng)
    model, moved = TokenHeads(state), [TokenHeads(fit.moved(state, step)) for step in steps]
    samples = [rng.integers(0, model.vocabulary, (_SAMPLES, min(n, longest))) for n in _LENGTHS]
    answers = max(float(np.abs(model(ids) - each(ids)).max()) for each in moved for ids in samples)
    return FittedErrors(answers, max(model.distance(each) for each in moved))


def vector_values(state: TokenState, fit: TokenFit, books: RecordedBooks) -> list[TokenHead]:
    """Values (V, m) of every head, and of every place: linear in the answers once scores are known."""
    V, outputs = books.width, books.outputs or 1
    answers = np.concatenate([part for _, part in books.batches]).reshape(-1, outputs)
    weights = fit.value_weights(state)
    normal = (weights.T @ weights).toarray()
    normal[np.diag_indices_from(normal)] += 1e-13 * float(np.diag(normal).max())
    factor = cho_factor(normal, lower=True)
    values = np.zeros((weights.shape[1], outputs))
    for _ in range(1 + _REFINEMENTS):
        values += cho_solve(factor, weights.T @ (answers - weights @ values))
    heads = []
    for head, part in zip(state, np.split(values, len(state)), strict=True):
        places = head.positions
        if places is not None:
            places = TokenPositions(places.keys, places.queries, part[V:])
        heads.append(TokenHead(head.keys, head.queries, part[:V], places))
    return heads
