"""After a joint fit: how far parameters may be off, and the values of vector answers."""

from __future__ import annotations

import numpy as np

from unsoftmax.late_scipy import cho_factor, cho_solve
from unsoftmax.learners.tokens.books import RecordedBooks
from unsoftmax.models import TokenHead, TokenHeads, TokenPositions
from unsoftmax.solvers.joint_refinement import Spread
from unsoftmax.solvers.token_refinement import TOKEN_OPTIONS, TokenFit, TokenState

__all__ = ["parameter_error", "vector_values"]

_DRAWS = 12  # of errors that parameters may have
_REFINEMENTS = 3  # of values by their residuals: normal equations alone lose half of the digits


def parameter_error(fit: TokenFit, state: TokenState, rng: np.random.Generator) -> float:
    """The largest relative distance of models that are off as the residuals allow."""
    gauge = sum(head.keys.shape[1] ** 2 + head.keys.shape[1] + 1 for head in state) - 1
    model = TokenHeads(state)
    draws = Spread.of(fit, state, gauge, TOKEN_OPTIONS).draw(_DRAWS, rng)
    return max(model.distance(TokenHeads(fit.moved(state, step))) for step in draws)


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
