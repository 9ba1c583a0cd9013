"""A head over tokens whose embeddings are known: W itself, from as few tokens as span the embeddings."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.errors import UsageError
from unsoftmax.late_scipy import qr
from unsoftmax.learners.tokens.books import SomeTokens, TokenBooks
from unsoftmax.learners.tokens.learned import LearnedTokens
from unsoftmax.learners.tokens.one_head import OneTokenHead
from unsoftmax.models import SingleHead, TokenHead, TokenHeads
from unsoftmax.oracles import Ids
from unsoftmax.outcomes import OutsideClass, Test
from unsoftmax.solvers.score_table import CrossApproximation

__all__ = ["KnownEmbeddings", "LearnedHead", "over_tokens"]

EMBEDDING_TEST = Test("scores and values are those of a head over the given embeddings")
_ACCURACY = 1e-12  # of the scores: condition numbers of the embeddings magnify what is left
_ON_SPAN = (
    "W is zero on the others, and error_bound is that of model.on_rows(embeddings), the head on that span"
)
_SPARE = 8  # tokens more than span the embeddings, so that a wrong table shows
_DEPENDENT = 1e-10  # relative: directions in which embeddings differ by less are none
_DRAWS, _MOVED = 3, 1e-7  # tables that are off by so much, to see how the head moves
_MISFIT = 1e3  # of the errors that the table and rounding explain


@dataclass(frozen=True, eq=False)
class LearnedHead:
    """The head over rows, and the same over tokens.

    amplification: how much larger the relative error of the head is than that of scores. note: for people.
    """

    head: SingleHead
    tokens: LearnedTokens
    amplification: float
    note: str


@dataclass(frozen=True)
class KnownEmbeddings:
    """scores e_iᵀ(W e_j + w0) and values e_i·v + c, embeddings e known.

    Queries: those of one head over d + 9 tokens, whatever the vocabulary. Recovers: W, w0, v and c, as far as
    the embeddings span the space.
    """

    one_head: OneTokenHead = field(
        default_factory=lambda: OneTokenHead(CrossApproximation(accuracy=_ACCURACY))
    )

    def learn(
        self, asker: TokenBooks, embeddings: Array, longest: int, rng: np.random.Generator
    ) -> LearnedHead:
        """Queries through the asker only."""
        if len(embeddings) != asker.width:
            raise UsageError(
                f"{len(embeddings)} embeddings, but the target has {asker.width} tokens; pass one row each"
            )
        chosen, dimension = _spanning_tokens(embeddings)
        learned = self.one_head.learn(SomeTokens(asker, chosen), longest, rng)
        table, rows = learned.model.heads[0], embeddings[chosen]
        head, misfit = _head_over_rows(table, rows)
        amplification = _amplification(table, rows, head, rng)
        explained = (
            _MISFIT
            * amplification
            * (learned.loss + learned.noise)
            / max(learned.model.spread, learned.noise)
        )
        if misfit > max(explained, 1e-9):
            raise OutsideClass(
                EMBEDDING_TEST,
                f"a head over these embeddings leaves {misfit:.2g} of the scores or values unexplained",
            )
        d = embeddings.shape[1]
        note = "" if dimension == d else f"embeddings span {dimension} of {d} dimensions; {_ON_SPAN}"
        whole = replace(learned, model=over_tokens(head, embeddings))
        return LearnedHead(head, whole, amplification, note)


def over_tokens(head: SingleHead, embeddings: Array) -> TokenHeads:
    """The head as a function of ids."""
    left, sizes, right = head.matrix.svd()
    kept = slice(0, head.rank)
    keys = embeddings @ (left[:, kept] * sizes[kept])
    queries = embeddings @ right[:, kept]
    if head.w0 is not None:  # one more column: the asking token's query there is one
        keys, queries = (
            np.column_stack([keys, embeddings @ head.w0]),
            np.column_stack([queries, np.ones(len(queries))]),
        )
    return TokenHeads([TokenHead(keys, queries, embeddings @ head.v + head.c)])


def _spanning_tokens(embeddings: Array) -> tuple[Ids, int]:
    """Tokens whose embeddings span those of all, well conditioned, and the dimension of that span."""
    centred = embeddings - embeddings.mean(axis=0)
    triangle, order = qr(centred.T, mode="r", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    dimension = int((sizes > _DEPENDENT * sizes.max(initial=0.0)).sum())
    return np.sort(order[: min(len(embeddings), dimension + 1 + _SPARE)]).astype(np.int64), dimension


def _head_over_rows(table: TokenHead, rows: Array) -> tuple[SingleHead, float]:
    """W, w0, v and c, and the relative misfit."""
    centred = rows - rows.mean(axis=0)
    extended = np.column_stack([rows, np.ones(len(rows))])
    keys = table.keys - table.keys.mean(axis=0)
    left, right, readout = (
        _solve(centred, keys),
        _solve(extended, table.queries),
        _solve(extended, table.values),
    )
    scores, found = keys @ table.queries.T, (centred @ left) @ (extended @ right).T
    misfit = max(
        _relative(found - scores, scores), _relative(extended @ readout - table.values, table.values)
    )
    return SingleHead((left, right[:-1]), readout[:-1], left @ right[-1], readout[-1]), misfit


def _amplification(table: TokenHead, rows: Array, head: SingleHead, rng: np.random.Generator) -> float:
    """How much larger the relative error of the head is than that of the table: the worst of a few draws."""
    on_span, worst = head.on_rows(rows), 1.0
    for _ in range(_DRAWS):
        keys, queries, values = (
            part + _MOVED * np.sqrt(np.mean(part**2)) * rng.standard_normal(part.shape)
            for part in (table.keys - table.keys.mean(axis=0), table.queries, table.values)
        )
        moved, _ = _head_over_rows(TokenHead(keys, queries, values), rows)
        worst = max(worst, on_span.distance(moved.on_rows(rows)) / _MOVED)
    return worst


def _solve(system: Array, right: Array) -> Array:
    """The smallest least-squares solution."""
    u, sizes, v = np.linalg.svd(system, full_matrices=False)
    kept = sizes > max(_DEPENDENT, EPS * max(system.shape)) * sizes.max(initial=0.0)
    projected = u[:, kept].T @ right
    inverse = (1.0 / sizes[kept]).reshape(-1, *([1] * (right.ndim - 1)))
    return np.asarray(v[kept].T @ (inverse * projected))


def _relative(difference: Array, against: Array) -> float:
    size = float(np.linalg.norm(against))
    return float(np.linalg.norm(difference)) / size if size > 0.0 else float(np.linalg.norm(difference))
