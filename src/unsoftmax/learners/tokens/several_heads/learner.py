"""Several heads over token ids, embeddings unknown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.claims import Size
from unsoftmax.learners.tokens.books import RecordedBooks, TokenBooks
from unsoftmax.learners.tokens.claims import TOKEN_HEADS_CLAIM
from unsoftmax.learners.tokens.joint_errors import fitted_errors, vector_values
from unsoftmax.learners.tokens.learned import STRONG, LearnedTokens, readout_of
from unsoftmax.learners.tokens.several_heads.count import count_heads
from unsoftmax.learners.tokens.several_heads.joint import fit_jointly, fitted_answers, heads_of
from unsoftmax.learners.tokens.several_heads.pairs import HeadPairs
from unsoftmax.learners.tokens.several_heads.scores import HeadScores
from unsoftmax.learners.tokens.several_heads.values import learn_values, repair_values
from unsoftmax.meters.tokens import TokenSequences
from unsoftmax.models import TokenHead, TokenHeads
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.tokens.token_refinement import LAST_STEPS, TokenFit, TokenState, refine_tokens

__all__ = ["SeveralTokenHeads"]

_ROUNDS = 6  # of a joint fit and what it left out
_EXPLAINED = 30.0  # units of noise; residuals of a good fit are below one, and fresh sequences judge
_USUAL_RANK = 4  # for progress, before ranks are known
_ABSENT = 1e-9  # relative: directions of keys this faint are rounding


@dataclass(frozen=True)
class SeveralTokenHeads:
    """f(t_1..t_N) = Σ_h Σ_i softmax_i(s_h(t_i, t_N)) u_h(t_i), number of heads and ranks unknown.

    Queries: about twice the degrees of freedom for two heads, 2.5 times for three.
    Assumes: no positions; at most four heads; heads differ in scores and values.
    Recovers: scores and values of every head, values up to constants that add up.
    """

    def learn(
        self, asker: TokenBooks, longest: int, rng: np.random.Generator, values: Array, noise: float, why: str
    ) -> LearnedTokens:
        """values: the answers to single tokens, (V,) or (V, m). why: the evidence against one head."""
        readout = readout_of(values)
        books = RecordedBooks(asker, [(np.arange(len(values))[:, None], values)])
        sequences = TokenSequences(books, longest, readout)
        totals = values if readout is None else np.asarray(values @ readout)
        with asker.phase("class tests"):
            count = count_heads(sequences, totals, noise, rng, why)
        pairs = HeadPairs(sequences, totals, count.heads, noise, rng)
        usual = Size(len(values), (min(_USUAL_RANK, len(values)),) * count.heads)
        asker.expect(TOKEN_HEADS_CLAIM.queries.expected(usual))
        with asker.phase("values"):
            found = learn_values(pairs, count.asker)
        with asker.phase("scores"):
            table = HeadScores(pairs, found)
            table.learn()
            _complete(table, books, readout)
        fit = fitted_answers(books.read(readout), noise)
        state = _without_absent_directions(heads_of(table), fit)
        state = refine_tokens(fit, state, LAST_STEPS).state
        model = TokenHeads(state if readout is None else vector_values(state, fit, books))
        errors = fitted_errors(fit, state, longest, rng)
        return LearnedTokens(
            model,
            noise,
            errors.answers,
            claim=TOKEN_HEADS_CLAIM,
            parameter_error=errors.parameters,
            strong=model.score_strength() > STRONG,
            fitted=True,
        )


def _complete(table: HeadScores, books: RecordedBooks, readout: Array | None) -> None:
    """Joint fits, and between them fits of what they left out, until all tokens take part."""
    for last in [False] * _ROUNDS + [True]:
        rms = fit_jointly(table, books.read(readout))
        if rms > _EXPLAINED:
            break
        table.check_tokens()
        if table.complete:
            return
        if last:
            break
        repair_values(table.pairs, table.values, np.flatnonzero(table.complete_tokens))
        left = table.fit_rest()
        table.values.uncertain[left[~table.strong[left]]] = np.inf  # their values may be in another order
        open_ = left[table.strong[left]]
        if len(open_):
            table.add_column(int(open_[0]))
    missing, usual = int(np.sum(~table.complete_tokens)), float(np.median(np.abs(table.values.scores)))
    why = f"; scores are strong (usually {usual:.2g}) and hide each other" if usual > STRONG else ""
    raise Unresolved(
        f"{missing} of {len(table.fitted)} tokens do not fit with the others in {table.pairs.heads} heads "
        f"(residuals of the others are {rms:.2g} times the noise){why}; another seed may help"
    )


def _without_absent_directions(state: TokenState, fit: TokenFit) -> TokenState:
    """Heads of their true ranks, where a direction was added for an error."""
    cut = []
    for head in state:
        left, sizes, right = head.table.svd()
        rank = int((sizes > _ABSENT * sizes.max(initial=0.0)).sum())
        cut.append(
            TokenHead(left[:, :rank] * sizes[:rank], right[:, :rank], head.values)
            if rank < head.keys.shape[1]
            else head
        )
    good = float(np.sqrt(np.mean(fit.residual(tuple(cut)) ** 2))) <= _EXPLAINED
    return tuple(cut) if good else state
