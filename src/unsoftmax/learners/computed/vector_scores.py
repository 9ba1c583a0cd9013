"""Scores of all heads from vector answers, once their values are known: every sequence shows every weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.learners.computed.known_values import KnownValues
from unsoftmax.learners.computed.two_row_queries import Baseline, TwoRowQueries, ask_sequences
from unsoftmax.solvers.head_fits.head_factors import with_one
from unsoftmax.solvers.head_fits.sequence_fit import SequenceBlock

__all__ = ["HeadScores", "ScoreTable", "complete_table", "read_scores", "table_of_scores"]

_LEAST = 3e-3  # of a weight: below, its logarithm says more of the rounding than of the score
_MEDIAN = 0.6745  # of the size of normal numbers, in standard deviations
# halvings of an asking row that loses a score: enough for a score eight times the largest that weights tell
_SHORTER_ROWS = 3
_LEAST_NOISES = 1e3  # the same in fine arithmetic, in units of the noise


@dataclass(frozen=True)
class HeadScores:
    """scores (B, H, n) of the rows x_i − x_N (B, n, d), and their expected errors; trust (B, H, n): 0 where a
    weight is lost.
    """

    rows: Array
    asking: Array
    scores: Array
    errors: Array
    trust: Array


@dataclass(frozen=True)
class ScoreTable:
    """scores (H, len(A), len(B)) of every first row with every asking row, and their expected errors. lost
    (len(B),): asking rows with a score that its weights do not tell. blocks: what was asked.
    """

    A: Array
    B: Array
    scores: Array
    errors: Array
    lost: NDArray[np.bool_]
    blocks: tuple[SequenceBlock, ...]

    def with_again(self, again: NDArray[np.intp], other: Self) -> Self:
        """With the asking rows of these numbers replaced by those of another table."""
        B, scores, errors = (part.copy() for part in (self.B, self.scores, self.errors))
        lost = self.lost.copy()
        B[again], lost[again] = other.B, other.lost
        scores[:, :, again], errors[:, :, again] = other.scores, other.errors
        return type(self)(self.A, B, scores, errors, lost, self.blocks + other.blocks)


def read_scores(block: SequenceBlock, baseline: Baseline, values: KnownValues) -> HeadScores:
    """The weights α of every head are a linear system, Σ_h Σ_i α_i (x_i − x_N)ᵀV_h = y − c − x_NᵀΣV_h."""
    sent = block.rows.astype(np.float64)
    last = sent[:, -1]
    rows = sent[:, :-1] - last[:, None]
    wanted = block.answers - baseline.c - last @ baseline.v_sum
    weights, wrong = _weights(rows, values.matrices, wanted[:, None], _cut(baseline))
    scores, errors, trust = _scores_of(weights[:, 0], wrong[:, 0], baseline)
    return HeadScores(rows, with_one(last), scores, errors, trust)


def _cut(baseline: Baseline) -> float:
    """Heads with values 1e-2 apart differ in 1e-2 of what they show; ten roundings are noise."""
    return min(1e-4, 10.0 * baseline.noise)


def _weights(rows: Array, values: Array, wanted: Array, cut: float) -> tuple[Array, Array]:
    """rows (G, n, d), each with k answers wanted (G, k, m): weights (G, k, H, n), and their expected errors.
    cut: relative singular value of what the heads show, from which it counts.
    """
    (G, n, d), (H, _, m) = rows.shape, values.shape
    shown = rows.reshape(-1, d) @ values.transpose(1, 0, 2).reshape(d, -1)
    shown = shown.reshape(G, n, H, m).transpose(0, 2, 1, 3).reshape(G, H * n, m)
    inverse = np.linalg.pinv(shown.transpose(0, 2, 1), rcond=cut)  # (G, Hn, m)
    weights = wanted @ inverse.transpose(0, 2, 1)
    off = np.linalg.norm(wanted - weights @ shown, axis=2) / np.sqrt(max(m - H * n, 1))
    wrong = off[:, :, None] * np.linalg.norm(inverse, axis=2)[:, None]
    return weights.reshape(G, -1, H, n), wrong.reshape(G, -1, H, n)


def _scores_of(weights: Array, wrong: Array, baseline: Baseline) -> tuple[Array, Array, Array]:
    """Scores log(α_i / α_N), their expected errors, and their trust, from weights (…, n)."""
    own = 1.0 - weights.sum(axis=-1, keepdims=True)
    least = min(_LEAST, _LEAST_NOISES * baseline.noise)
    lost = (weights < least) | (own < least)
    weights, own = np.clip(weights, least, 1.0), np.clip(own, least, 1.0)
    trust = np.where(lost, 0.0, np.minimum(weights, own))
    errors = np.hypot(wrong / weights, np.linalg.norm(wrong, axis=-1, keepdims=True) / own)
    return np.log(weights / own), errors, trust


def table_of_scores(
    queries: TwoRowQueries, baseline: Baseline, values: KnownValues, A: Array, B: Array, group: str
) -> ScoreTable:
    """Every a with every b: sequences [a_1 + b; …; a_n + b; b], as many rows in each as show at once. The
    number of first rows must be a multiple of that.
    """
    n = min(values.rows_shown, len(A))
    A, B = queries.on_one_grid(A, B)
    groups = A.reshape(-1, n, A.shape[1])
    sums = groups[:, None] + B[None, :, None]  # (groups, k, n, d)
    last = np.broadcast_to(B[None, :, None], (len(groups), len(B), 1, A.shape[1]))
    batch = np.concatenate([sums, last], axis=2).reshape(-1, n + 1, A.shape[1])
    block = ask_sequences(queries, batch, group)
    wanted = block.answers.reshape(len(groups), len(B), -1) - baseline.c - B @ baseline.v_sum
    weights, wrong = _weights(groups, values.matrices, wanted, _cut(baseline))
    scores, errors, trust = _scores_of(weights, wrong, baseline)

    def arranged(part: Array) -> Array:
        """(groups, k, H, n) to (H, first rows, asking rows)."""
        return part.transpose(2, 0, 3, 1).reshape(values.heads, len(A), len(B))

    scores, errors = _shrunk(arranged(scores), arranged(errors))
    return ScoreTable(A, B, scores, errors, (trust == 0.0).any(axis=(0, 2, 3)), (block,))


def complete_table(
    queries: TwoRowQueries, baseline: Baseline, values: KnownValues, A: Array, B: Array, group: str
) -> ScoreTable:
    """The same, with asking rows that lose a score asked again at half their length: scores are linear in
    [b; 1], and one that is lost spoils the matrix of its head. The table holds the rows that it keeps.
    """
    table = table_of_scores(queries, baseline, values, A, B, group)
    for _ in range(_SHORTER_ROWS):
        again = np.flatnonzero(table.lost & table.B.any(axis=1))
        if not len(again):
            break
        shorter = table_of_scores(queries, baseline, values, table.A, table.B[again] / 2.0, group)
        table = table.with_again(again, shorter)
        if shorter.lost.all():  # because of the values, not of the length
            break
    return table


def _shrunk(scores: Array, errors: Array) -> tuple[Array, Array]:
    """Scores (H, ·, ·) towards zero where their errors are larger than the usual score of the head: a score
    that is lost counts as zero, not as whatever its rounding makes of it.
    """
    usual = np.median(np.abs(scores), axis=(1, 2), keepdims=True) / _MEDIAN
    share = usual**2 / (usual**2 + errors**2)
    return scores * share, errors * np.sqrt(share)
