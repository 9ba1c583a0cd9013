"""One head over token ids with learned positions, embeddings unknown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.tokens.books import RecordedBooks, TokenBooks
from unsoftmax.learners.tokens.claims import POSITIONS_CLAIM
from unsoftmax.learners.tokens.joint_errors import fitted_errors, vector_values
from unsoftmax.learners.tokens.learned import STRONG, LearnedTokens, readout_of
from unsoftmax.learners.tokens.positions.pairs import learn_pairs
from unsoftmax.learners.tokens.positions.places import learn_places
from unsoftmax.learners.tokens.positions.second_place import find_second_place
from unsoftmax.meters.tokens import TokenSequences
from unsoftmax.models import TokenHead, TokenHeads, TokenPositions
from unsoftmax.solvers.tokens.token_answers import FlatSequences
from unsoftmax.solvers.tokens.token_refinement import LAST_STEPS, TokenFit, refine_tokens

__all__ = ["PositionedHead"]

_EXPLAINED = 30.0  # units of noise; residuals of a good fit are below one, and those of none excuse nothing


@dataclass(frozen=True)
class PositionedHead:
    """Keys k_t + p_i, queries q_t + ρ_N and values u_t + π_i of token t at place i of N.

    Queries: about twice the 2r(V + L) − r² − 4r + V + L − 1 degrees of freedom.
    Assumes: one head; every place adds to keys, queries and values.
    Recovers: all of them up to shifts between tokens and places, a shift of all keys, and the first query.
    """

    def learn(
        self, asker: TokenBooks, longest: int, rng: np.random.Generator, values: Array, noise: float
    ) -> LearnedTokens:
        """values: answers to single tokens, (V,) or (V, m)."""
        readout = readout_of(values)
        books = RecordedBooks(asker, [(np.arange(len(values))[:, None], values)])
        sequences = TokenSequences(books, longest, readout)
        read = values if readout is None else np.asarray(values @ readout)
        with asker.phase("class tests"):
            second = find_second_place(sequences, read)
        V, r = len(values), second.rank
        asker.expect(asker.bill.total + V * (2 * r + 5) + 3 * (2 * r + 1) * (longest - 2))
        with asker.phase("scores"):
            table = learn_pairs(sequences, read, second, noise, rng)
        places = TokenPositions(
            np.stack([np.zeros(r), table.place]), np.zeros((2, r)), np.array([0.0, second.value])
        )
        head = TokenHead(table.keys, table.queries, read, places)

        def problem() -> TokenFit:
            flat = FlatSequences.of([ids for ids, _ in books.batches], positions=True)
            return TokenFit(flat, books.numbers(readout), noise)

        with asker.phase("positions"):
            head = learn_places(
                sequences, head, longest, noise, rng, lambda one: refine_tokens(problem(), (one,)).state[0]
            )
        fit = problem()
        refined = refine_tokens(fit, refine_tokens(fit, (head,)).state, LAST_STEPS)
        state = refined.state
        errors, rms = fitted_errors(fit, state, longest, rng), refined.rms[-1]
        model = TokenHeads(state if readout is None else vector_values(state, fit, books))
        return LearnedTokens(
            model,
            noise,
            errors.answers if rms <= _EXPLAINED else noise,
            claim=POSITIONS_CLAIM,
            parameter_error=errors.parameters,
            strong=model.score_strength() > STRONG,
            fitted=True,
        )
