"""One head over token ids, embeddings unknown: values from single tokens, scores from pairs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.claims import Claim
from unsoftmax.learners.tokens.checks import MIXING_TEST, agreement, mixes_as_one_head, refuse_other_functions
from unsoftmax.learners.tokens.claims import TOKEN_HEAD_CLAIM
from unsoftmax.ledger import Bill
from unsoftmax.meters.tokens import TokenAnswers, TokenPairMeter, TokenSequences
from unsoftmax.models import TokenHead, TokenHeads
from unsoftmax.outcomes import NotIdentifiable, OutsideClass, Unresolved
from unsoftmax.solvers.score_table import CrossApproximation

__all__ = ["LearnedTokens", "OneTokenHead", "TokenBooks", "constant_answers", "readout_of"]

LONGEST = 64  # tokens of a sequence, where the target sets no limit


class TokenBooks(TokenAnswers, Protocol):
    """What a learner of tokens asks through: a ledger, or a view of one."""

    @property
    def bill(self) -> Bill:
        """What was paid until now."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Bills everything asked inside the block to `name`."""

    def expect(self, total: int | None) -> None:
        """The present estimate of the whole bill."""


@dataclass(frozen=True, eq=False)
class LearnedTokens:
    """The model, the noise of the answers, and by how much the table's own errors move answers at most.

    strong: whether some scores are so strong that predictions of these errors are poor. claim: of the learner
    that made the model. parameter_error: how far parameters are off, relative, where a joint fit tells it.
    """

    model: TokenHeads
    noise: float
    loss: float
    strong: bool = False
    claim: Claim = TOKEN_HEAD_CLAIM
    parameter_error: float = 0.0


@dataclass(frozen=True)
class OneTokenHead:
    """f(t_1..t_N) = Σ_i softmax_i(s(t_i, t_N)) u(t_i), with scores of any rank.

    Queries: V + r(2V − 1 − r), and about 70 for class tests; more where scores are strong.
    Assumes: one head, no positions (`agreement`, `mixes_as_one_head`).
    Recovers: the centred table of scores and the values, up to nothing.
    """

    solver: CrossApproximation = field(default_factory=CrossApproximation)

    def learn(self, asker: TokenBooks, longest: int, rng: np.random.Generator) -> LearnedTokens:
        """Queries through the ledger only."""
        with asker.phase("values"):
            values = TokenSequences(asker, longest).values()
        meter = self.meter(asker, longest, values, rng)
        if meter is None:
            return constant_answers(values)
        against = self.refuted(asker, meter, rng)
        if against is not None:
            raise OutsideClass(MIXING_TEST, against)
        return self.scores(asker, meter, values, rng)

    def refuted(self, asker: TokenBooks, meter: TokenPairMeter, rng: np.random.Generator) -> str | None:
        """The evidence against one head, if there is any."""
        if meter.sequences.longest < 3:
            return None
        with asker.phase("class tests"):
            fits, evidence = mixes_as_one_head(meter, rng)
        return None if fits else evidence

    def meter(
        self, asker: TokenBooks, longest: int, values: Array, rng: np.random.Generator
    ) -> TokenPairMeter | None:
        """What reads scores; None where all values are equal, so that no score can show."""
        readout = readout_of(values)
        sequences = TokenSequences(asker, longest, readout)
        read = values if readout is None else np.asarray(values @ readout)
        spread, size = float(read.max() - read.min()), float(np.abs(read).max())
        if longest < 2:
            raise NotIdentifiable(
                "single tokens show the values of tokens, and no score; a target that takes two would"
            )
        with asker.phase("class tests"):
            found = agreement(sequences, read, rng)
        refuse_other_functions(found, spread, size)
        return None if spread <= found.noise else TokenPairMeter(sequences, read, found.noise)

    def scores(
        self, asker: TokenBooks, meter: TokenPairMeter, values: Array, rng: np.random.Generator
    ) -> LearnedTokens:
        """The table of scores, and the model."""
        with asker.phase("scores"):
            paid = asker.bill.total
            table = self.solver.solve(meter, rng, lambda left: asker.expect(paid + left))
        if not table.resolved:
            raise Unresolved(f"the scores have a rank above {table.keys.shape[1]}; allow a larger rank")
        return LearnedTokens(
            TokenHeads([TokenHead(table.keys, table.queries, values)]), meter.noise, table.loss, table.strong
        )


def readout_of(values: Array) -> Array | None:
    """For vector answers the direction along which values of tokens differ most, (m,)."""
    if values.ndim == 1:
        return None
    return np.asarray(np.linalg.svd(values - values.mean(axis=0), full_matrices=False)[2][0])


def constant_answers(values: Array) -> LearnedTokens:
    """All scores zero: no answer shows them."""
    nothing = np.zeros((len(values), 0))
    return LearnedTokens(TokenHeads([TokenHead(nothing, nothing, values)]), 0.0, 0.0)
