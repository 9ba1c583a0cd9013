"""A start for all heads from vector answers: a least-squares fit to random sequences, which show all
parameters best. Where those would be too many: columns of every score matrix until its rank is passed, then
as many rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, lsqr

from unsoftmax.arrays import Array, rms
from unsoftmax.learners.computed.fit_progress import MANY
from unsoftmax.learners.computed.known_values import KnownValues
from unsoftmax.learners.computed.two_row_queries import (
    Baseline,
    TwoRowQueries,
    random_basis,
    random_sequences,
    unit,
)
from unsoftmax.learners.computed.vector_scores import (
    HeadScores,
    ScoreTable,
    complete_table,
    read_scores,
    table_of_scores,
)
from unsoftmax.solvers.head_fits.head_factors import with_one
from unsoftmax.solvers.head_fits.sequence_fit import SequenceBlock

__all__ = ["ScoreStart", "WrongValues", "start_scores"]

# standard deviation of the strongest head's scores: weights and their logarithms are then well resolved
_SPREAD = 1.2
# lengths of the rows of tables over those at which scores are moderate: in trained layers the scores of one
# head may be a product of two numbers, and one lost score spoils a column
_SHORTER = 0.6
_PILOTS = 6  # a cap: a pilot changes lengths by factors between 0.18 and 6.7
_PILOT_ROWS = 5  # asking rows of a pilot
_SPARE = 3  # columns beyond the rank, to see that it was reached
# rows over the rank: square systems of random rows have a condition near the rank, these one near ten
_OVERSAMPLING = 1.25
# heads up to which all entries are fitted at once, however many unknowns that makes
_FEW_HEADS = 2
_LEAST_SQUARES = 1.2  # scores over unknowns of one head's matrix, where all are fitted at once
# expected error of a score: right values give 1e-6 in float32, and values 1e-4 apart 1e-3; where two heads
# were taken for one, weights do not explain the answers at all
_UNREADABLE = 0.1
# singular values over what the errors alone would make them: ranks rather too high, as the fit shows that
_ABOVE_ERRORS = 1.0
# directions kept beyond these: the weakest of a trained head may lie just below its errors, and the fit drops
# what it does not need
_WEAK = 1


@dataclass(frozen=True)
class ScoreStart:
    """matrices [W w0] (H, d, d+1), their ranks, what was asked, and the size of Gaussian rows at which scores
    are moderate. random: whether random sequences were asked.
    """

    matrices: Array
    ranks: list[int]
    blocks: list[SequenceBlock]
    size: float
    random: bool = False


class WrongValues(Exception):
    """No weights explain the answers to a few sequences: two heads were taken for one."""


def start_scores(
    queries: TwoRowQueries,
    baseline: Baseline,
    values: KnownValues,
    rng: np.random.Generator,
    limit: float,
    most: float,
) -> ScoreStart:
    """limit: longest row allowed. most: queries that random sequences may take. Raises WrongValues."""
    H, d, _ = values.matrices.shape
    first, last = _moderate_lengths(queries, baseline, values, rng, limit)
    size = float(np.sqrt(first * last / d))
    few = H <= _FEW_HEADS or 2 * H * d * d <= MANY
    if baseline.coarse or (few and _count_at_once(values) <= max(most, _count_of_tables(values))):
        return _at_once(queries, baseline, values, size, rng, limit)
    first, last = _SHORTER * first, _SHORTER * last
    columns, blocks = _columns_until_the_ranks(queries, baseline, values, (first, last), rng)
    found = np.array([np.linalg.lstsq(columns.A, part, rcond=None)[0] for part in columns.scores])
    ranks = [max(_ranks(columns, found))] * H
    if len(columns.B) > d:
        design = with_one(columns.B)
        matrices = np.array([np.linalg.lstsq(design, part.T, rcond=None)[0].T for part in found])
        return ScoreStart(matrices, ranks, blocks, size)
    wanted = _whole(min(d, int(np.ceil(_OVERSAMPLING * max(ranks))) + 1), values.rows_shown)
    A = first * _directions(wanted, d, rng)
    B = np.concatenate([np.zeros((1, d)), last * random_basis(rng, d)])
    rows = complete_table(queries, baseline, values, A, B, "rows of scores")
    matrices = np.array([_from_both(found[h], ranks[h], rows, h) for h in range(values.heads)])
    return ScoreStart(matrices, ranks, [*blocks, *rows.blocks], size)


def _whole(count: int, rows: int) -> int:
    """The next multiple of the rows that show at once."""
    return -(-count // rows) * rows


def _directions(count: int, width: int, rng: np.random.Generator) -> Array:
    """Unit rows: orthonormal ones first, then random ones."""
    basis = random_basis(rng, width)[:count]
    return np.concatenate([basis, unit(rng.standard_normal((count - len(basis), width)))])


def _from_both(columns: Array, rank: int, rows: ScoreTable, h: int) -> Array:
    """W = L C: L spans the columns, and C follows from the rows."""
    basis = np.linalg.svd(columns, full_matrices=False)[0][:, :rank]
    parts = np.linalg.lstsq(rows.A @ basis, rows.scores[h], rcond=None)[0]
    return np.asarray(basis @ np.linalg.lstsq(with_one(rows.B), parts.T, rcond=None)[0].T)


def _moderate_lengths(
    queries: TwoRowQueries, baseline: Baseline, values: KnownValues, rng: np.random.Generator, limit: float
) -> tuple[float, float]:
    """Lengths of first and asking rows at which the strongest head's scores are moderate, with and without
    what the query bias adds.
    """
    _, d, _ = values.matrices.shape
    n = values.rows_shown
    first = last = min(float(np.sqrt(d)), limit / 2)
    for _ in range(_PILOTS):
        B = np.concatenate([np.zeros((1, d)), last * unit(rng.standard_normal((_PILOT_ROWS, d)))])
        A = first * unit(rng.standard_normal((n, d)))
        table = table_of_scores(queries, baseline, values, A, B, "pilot")
        if not baseline.coarse and float(np.median(table.errors)) > _UNREADABLE:
            raise WrongValues
        scores = table.scores
        bias = max(rms(part[:, 0]) for part in scores)
        spread = max(rms(part[:, 1:] - part[:, :1]) for part in scores)
        change = float(np.clip(np.sqrt(_SPREAD / max(spread, 1e-3)), 0.3, 4.0))
        tilt = 0.6 if bias > _SPREAD else 1.0
        if 0.8 < change < 1.3 and tilt == 1.0:
            break
        first, last = (min(length, limit / 2) for length in (first * change * tilt, last * change / tilt))
    return first, last


def _columns_until_the_ranks(
    queries: TwoRowQueries,
    baseline: Baseline,
    values: KnownValues,
    lengths: tuple[float, float],
    rng: np.random.Generator,
) -> tuple[ScoreTable, list[SequenceBlock]]:
    """Scores of all directions with some asking rows, the first of which is zero."""
    _, d, _ = values.matrices.shape
    A = lengths[0] * _directions(_whole(d, values.rows_shown), d, rng)
    every = np.concatenate([np.zeros((1, d)), lengths[1] * random_basis(rng, d)])
    A, every = queries.on_one_grid(A, every)
    step, asked = max(4, d // 16), 0
    parts: list[ScoreTable] = []
    while asked <= d:
        parts.append(
            complete_table(queries, baseline, values, A, every[asked : asked + step], "columns of scores")
        )
        asked += step
        table = _joined(parts)
        found = np.array([np.linalg.lstsq(table.A, part, rcond=None)[0] for part in table.scores])
        if max(_ranks(table, found)) + _SPARE <= len(table.B) - 1:
            break
    return table, list(table.blocks)


def _joined(parts: list[ScoreTable]) -> ScoreTable:
    scores = np.concatenate([part.scores for part in parts], axis=2)
    errors = np.concatenate([part.errors for part in parts], axis=2)
    B, lost = np.concatenate([part.B for part in parts]), np.concatenate([part.lost for part in parts])
    return ScoreTable(parts[0].A, B, scores, errors, lost, tuple(b for part in parts for b in part.blocks))


def _ranks(table: ScoreTable, columns: Array) -> list[int]:
    """Singular values of the columns (H, d, k) above those of a random matrix with the errors' entries."""
    length = float(np.sqrt(np.mean((table.A**2).sum(axis=1))))
    reach = np.sqrt(columns.shape[1]) + np.sqrt(columns.shape[2])
    found = []
    for part, errors in zip(columns, table.errors, strict=True):
        limit = _ABOVE_ERRORS * rms(errors) / length * reach
        above = int((np.linalg.svd(part, compute_uv=False) > limit).sum())
        found.append(min(max(1, above + _WEAK), *part.shape))
    return found


def _count_at_once(values: KnownValues) -> int:
    """Sequences that show every entry of every score matrix."""
    _, d, _ = values.matrices.shape
    return int(np.ceil(_LEAST_SQUARES * d * (d + 1) / values.rows_shown))


def _count_of_tables(values: KnownValues) -> int:
    """Sequences that columns and rows take where scores have the ranks of values. Random sequences serve the
    joint fit better: with them layers of width 32 and four heads deviate by half as much."""
    d, n, rank = values.matrices.shape[1], values.rows_shown, max(values.ranks)
    rows = min(d, int(np.ceil(_OVERSAMPLING * rank)) + 1)
    return int(-(-d // n) * min(d + 1, rank + _SPARE + 1) + -(-rows // n) * (d + 1))


def _at_once(
    queries: TwoRowQueries,
    baseline: Baseline,
    values: KnownValues,
    size: float,
    rng: np.random.Generator,
    limit: float,
) -> ScoreStart:
    """Weighted least squares of all entries of every matrix on random sequences."""
    rows = values.rows_shown
    shape = _count_at_once(values), rows
    block = random_sequences(queries, size, shape, rng, limit, "moderate scores")
    measured = read_scores(block, baseline, values)
    fits = [_least_squares(measured, h) for h in range(values.heads)]
    ranks = [
        max(1, int((np.linalg.svd(matrix, compute_uv=False) > 0.5 * error).sum())) for matrix, error in fits
    ]
    return ScoreStart(np.array([matrix for matrix, _ in fits]), ranks, [block], size, random=True)


def _least_squares(measured: HeadScores, h: int) -> tuple[Array, float]:
    """(matrix, largest singular value that errors alone would give)."""
    rows, asking = measured.rows, measured.asking
    trust, scores = measured.trust[:, h], measured.scores[:, h]
    (B, n, d), e = rows.shape, asking.shape[1]

    def forward(x: Array) -> Array:
        pulled = asking @ x.reshape(d, e).T
        return np.asarray(trust * np.einsum("bnd,bd->bn", rows, pulled)).ravel()

    def backward(y: Array) -> Array:
        pulled = np.einsum("bn,bnd->bd", trust * y.reshape(B, n), rows)
        return np.asarray(pulled.T @ asking).ravel()

    operator = LinearOperator((B * n, d * e), matvec=forward, rmatvec=backward, dtype=np.float64)
    solved = lsqr(operator, (trust * scores).ravel(), atol=1e-9, btol=1e-9, iter_lim=600)
    left = float(solved[3])
    freedom = max(int((trust > 0).sum()) - d * e, 1)
    # entry (i, j) is known up to residual / √(Σ trust² x_i² b_j²), and a random matrix of such entries has
    # singular values up to √d + √e times that; half as much again for the spread of the trust
    strength = np.sqrt(float(np.einsum("bn,bnd->", trust**2, rows**2)) / d * float(np.mean(asking**2)))
    error = 1.5 * left / np.sqrt(freedom) / strength * (np.sqrt(d) + np.sqrt(e))
    return np.asarray(solved[0]).reshape(d, e), float(error) * 1.5
