"""One head over token ids, embeddings unknown: values from single tokens, scores from pairs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from unsoftmax.answers import Exact
from unsoftmax.arrays import Array
from unsoftmax.learners.tokens.books import RecordedBooks, TokenBooks
from unsoftmax.learners.tokens.checks import (
    MIXING_TEST,
    Agreement,
    agreement,
    mixes_as_one_head,
    refuse_other_functions,
)
from unsoftmax.learners.tokens.learned import STRONG, LearnedTokens, constant_answers, readout_of
from unsoftmax.learners.tokens.oversampled import can_oversample, oversample
from unsoftmax.meters.tokens import TokenPairMeter, TokenSequences
from unsoftmax.models import TokenHead, TokenHeads
from unsoftmax.models.base import relative
from unsoftmax.outcomes import NotIdentifiable, OutsideClass, Unresolved
from unsoftmax.solvers.score_table import CrossApproximation

__all__ = ["FINE", "OneTokenHead"]

FINE = 1e-10  # of the spread: answers as good as exact ones
_PAIRS_ALONE = (
    "the target takes at most two tokens, and one head answers any pair as several heads do; a target that "
    "takes three would tell"
)
# tokens up to which a table of noisy entries is only the start of a fit, for ranks up to 70: more entries for
# poor columns one by one took seven times as long (V = 300, r = 32), and the fit ended no better
_SURELY_OVERSAMPLED = 1000


@dataclass(frozen=True)
class OneTokenHead:
    """f(t_1..t_N) = Σ_i softmax_i(s(t_i, t_N)) u(t_i), with scores of any rank.

    Queries: V + r(2V − 1 − r), and about 70 for class tests; more where scores are strong, and `oversampling`
    times as many where answers round. Assumes: one head, no positions (`agreement`, `mixes_as_one_head`).
    Recovers: the centred table of scores and the values, up to nothing.
    """

    solver: CrossApproximation = field(default_factory=CrossApproximation)
    oversampling: float = 3.0

    def learn(self, asker: TokenBooks, longest: int, rng: np.random.Generator) -> LearnedTokens:
        """Queries through the ledger only."""
        with asker.phase("values"):
            values = TokenSequences(asker, longest).values()
        seen, meter = self.meter(asker, longest, values, rng)
        if meter is None:
            return constant_answers(values)
        against = self.refuted(asker, meter, rng)
        if against is not None:
            raise OutsideClass(MIXING_TEST, against)
        return self.scores(asker, meter, values, rng, seen)

    def refuted(self, asker: TokenBooks, meter: TokenPairMeter, rng: np.random.Generator) -> str | None:
        """The evidence against one head, if there is any."""
        if meter.sequences.longest < 3:
            raise Unresolved(_PAIRS_ALONE)
        with asker.phase("class tests"):
            fits, evidence = mixes_as_one_head(meter, rng)
        return None if fits else evidence

    def meter(
        self, asker: TokenBooks, longest: int, values: Array, rng: np.random.Generator
    ) -> tuple[Agreement, TokenPairMeter | None]:
        """The kind of answers, and what reads scores; None where all values are equal: no score can show."""
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
        return found, None if spread <= found.noise else TokenPairMeter(sequences, read, found.noise)

    def scores(
        self,
        asker: TokenBooks,
        meter: TokenPairMeter,
        values: Array,
        rng: np.random.Generator,
        seen: Agreement,
    ) -> LearnedTokens:
        """The table of scores, and the model."""
        noisy = not isinstance(seen.answers, Exact) and seen.noise > FINE * meter.spread
        books = RecordedBooks(asker, [(np.arange(len(values))[:, None], values)])
        if noisy:
            meter = replace(meter, sequences=replace(meter.sequences, answers=books))
        with asker.phase("scores"):
            paid = asker.bill.total
            starts = noisy and len(values) <= _SURELY_OVERSAMPLED
            solver = replace(self.solver, extra=0.0) if starts else self.solver
            table = solver.solve(meter, rng, lambda left: asker.expect(paid + left))
        if not table.resolved:
            raise Unresolved(f"the scores have a rank above {table.keys.shape[1]}; allow a larger rank")
        head = TokenHead(table.keys, table.queries, values)
        learned = LearnedTokens(
            TokenHeads([head]),
            meter.noise,
            table.loss,
            table.strong,
            score_error=relative(table.score_error * head.vocabulary, head.table.norm()),
            unseen=table.unseen,
            answers=seen.answers,
            seen=seen.evidence,
        )
        if not noisy or not can_oversample(head, self.oversampling):
            return learned
        with asker.phase("scores"):
            start = TokenHead(head.keys, head.queries, meter.values)
            found = oversample(start, meter, books, self.oversampling, rng)
        # values of vector answers are those of single tokens; a fit sees one direction of them
        fitted = TokenHead(found.head.keys, found.head.queries, values) if values.ndim > 1 else found.head
        return replace(
            learned,
            model=TokenHeads([fitted]),
            loss=found.loss,
            strong=head.table.norm() / head.table.width > STRONG,
            parameter_error=found.error,
            score_error=0.0,
            fitted=True,
        )
