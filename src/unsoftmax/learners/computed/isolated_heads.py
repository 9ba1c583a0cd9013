"""One head at a time, with moderate scores: rows a orthogonal to the other heads' readouts show σ(score) =
excess / (a·v_h).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.computed.plateau_readouts import Readouts
from unsoftmax.learners.computed.two_row_queries import Baseline, TwoRowQueries, random_basis, unit
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.head_fits.head_factors import with_one
from unsoftmax.solvers.head_fits.two_row_fit import AnswerBlock

__all__ = ["IsolatedHead", "Surroundings", "isolate_head"]

# between a and the readout's own direction: the answer shows the share, the rest of a shows the scores
_COSINE = 0.7
# standard deviation of scores: the logistic curve is steep there, and its logarithm is still well resolved
_SPREAD = 1.5
# what the largest score of a column may usually be: a column with one score too high is asked again
_LARGEST = 3.5
_SPARE = 3  # columns and rows beyond the rank, to see that it was reached
# scores beyond: the share is within 1 % of 0 or 1, and rounding costs a hundredfold; the column is asked
# again
_HIGH = 4.5
_PILOTS = 12  # a cap: a pilot changes lengths by factors between 0.15 and 6, and the last ones only adjust
_LONGEST_RATIO = 30.0  # of asking rows to first rows; beyond, the asking row's readout drowns the first row's


@dataclass(frozen=True)
class Surroundings:
    """own: unit part of v_h orthogonal to the other readouts. free: basis of rows orthogonal to all. others:
    basis of the others' span.
    """

    own: Array
    free: Array
    others: Array

    @classmethod
    def of(cls, v: Array, h: int) -> Surroundings:
        """Fails (Unresolved) where v_h lies in the span of the other readouts."""
        H, d = v.shape
        rest = np.delete(v, h, axis=0)
        others = np.linalg.svd(unit(rest))[2][: H - 1] if H > 1 else np.zeros((0, d))
        own = v[h] - others.T @ (others @ v[h])
        share = float(np.linalg.norm(own) / np.linalg.norm(v[h]))
        if d < H or share < 1e-3:
            raise Unresolved(
                f"head {h + 1} of {H} has a readout that is a sum of the other heads' readouts (independent "
                f"part {share:.1g}), so no row shows it alone"
            )
        own = own / np.linalg.norm(own)
        free = np.linalg.svd(np.concatenate([others, own[None]]))[2][H:]
        return cls(own, free, others)

    @property
    def seen(self) -> Array:
        """Rows on which only this head acts."""
        return np.concatenate([self.own[None], self.free])


@dataclass(frozen=True)
class IsolatedHead:
    """matrix: [W w0] (d, d+1), without its rows along the other readouts."""

    matrix: Array
    rank: int
    blocks: tuple[AnswerBlock, ...]
    around: Surroundings


class _Scores:
    """Measures scores of one head and keeps what was asked."""

    def __init__(self, queries: TwoRowQueries, baseline: Baseline, readouts: Readouts, h: int) -> None:
        self.queries, self.baseline, self.readouts = queries, baseline, readouts
        self.v, self.group = readouts.v[h], f"head {h + 1} alone"
        self.limit = min(7.0, 0.7 * np.log(1.0 / baseline.noise))
        self.top = 0.0
        self.blocks: list[AnswerBlock] = []  # pilots too: what they show is as good as any answer

    def __call__(self, A: Array, B: Array) -> tuple[Array, Array, Array]:
        A, B = self.queries.on_one_grid(A, B, self.top)
        block = self.queries.grid(A, B, self.group)
        self.blocks.append(block)
        share = self.baseline.excess(A, B, block.answers) / (A @ self.v)[:, None]
        least = 1.0 / (1.0 + np.exp(self.limit))
        share = np.clip(share, least, 1.0 - least)
        return A, B, np.asarray(np.log(share / (1.0 - share)))

    def begin(self, top: float) -> None:
        """top: the length of the longest pair to come."""
        self.top = top

    def columns(self, A: Array, B: Array) -> tuple[Array, Array, Array]:
        """The same, but columns with a high score are asked again with a shorter b."""
        A, B, scores = self(A, B)
        B = B.copy()  # the block keeps what was asked first
        high = min(_HIGH, 0.8 * self.limit)
        for _ in range(4):
            largest = np.abs(scores).max(axis=0)
            again = np.flatnonzero((largest > high) & (B != 0).any(axis=1))
            if not len(again):
                break
            largest = largest[again]
            shorter = np.where(largest > 0.98 * self.limit, 0.3, np.minimum(0.6, 3.0 / largest))
            _, B[again], scores[:, again] = self(A, B[again] * shorter[:, None])
        return A, B, scores

    def merged(self) -> tuple[AnswerBlock, ...]:
        """Blocks with the same first rows become one."""
        groups: dict[bytes, list[AnswerBlock]] = {}
        for block in self.blocks:
            groups.setdefault(block.A.tobytes(), []).append(block)
        return tuple(
            AnswerBlock.of(
                same[0].A,
                np.concatenate([block.B for block in same]),
                np.concatenate([block.answers for block in same], axis=1),
                self.group,
            )
            for same in groups.values()
        )


def isolate_head(
    queries: TwoRowQueries, baseline: Baseline, readouts: Readouts, h: int, rng: np.random.Generator
) -> IsolatedHead:
    """[W w0] of head h on rows that show it alone: columns until the rank is passed, then as many rows."""
    around, scores = Surroundings.of(readouts.v, h), _Scores(queries, baseline, readouts, h)
    lengths = _moderate_lengths(scores, around, rng)
    scores.begin(sum(lengths))
    columns, asked = _columns_until_the_rank(scores, around, lengths, rng)
    seen = around.seen
    left, values, _ = np.linalg.svd(columns, full_matrices=False)
    rank = max(1, min(_rank(values, scores, lengths, columns.shape), len(seen)))
    if columns.shape[1] > queries.width:
        design = with_one(np.concatenate([np.zeros((1, queries.width)), asked]))
        matrix = np.linalg.lstsq(design, columns.T, rcond=None)[0].T
        return IsolatedHead(seen.T @ matrix, rank, scores.merged(), around)
    basis = left[:, :rank].T @ seen
    inside = unit(
        np.concatenate([random_basis(rng, rank), unit(rng.standard_normal((_SPARE, rank)))]) @ basis
    )
    if len(around.free):
        inside = unit(inside - np.outer(inside @ around.own, around.own))
    A = lengths[0] * (_COSINE * around.own + _sine() * inside * rng.choice([-1.0, 1.0], (len(inside), 1)))
    # rows inside the head's own space have larger scores than others: shorter asking rows balance that, but
    # show less through coarse arithmetic
    spread = _sine() * lengths[0] * float(np.sqrt((values[:rank] ** 2).sum() / (rank * columns.shape[1])))
    last = lengths[1] * (1.0 if baseline.coarse else min(1.0, _wanted_spread(queries.width) / spread))
    B = np.concatenate([np.zeros((1, queries.width)), last * random_basis(rng, queries.width)])
    A, B, found = scores.columns(A, B)
    parts = np.linalg.lstsq(A @ basis.T, found, rcond=None)[0]
    matrix = np.linalg.lstsq(with_one(B), parts.T, rcond=None)[0].T
    return IsolatedHead(basis.T @ matrix, rank, scores.merged(), around)


def _sine() -> float:
    return float(np.sqrt(1.0 - _COSINE**2))


def _wanted_spread(width: int) -> float:
    """Standard deviation of scores at which the largest of a column is still moderate."""
    return min(_SPREAD, _LARGEST / float(np.sqrt(2.0 * np.log(max(width, 2)))))


def _moderate_lengths(scores: _Scores, around: Surroundings, rng: np.random.Generator) -> tuple[float, float]:
    """Lengths of a and b at which scores have the wanted spread, and the query bias alone does not saturate
    them.
    """
    d = scores.queries.width
    wanted = _wanted_spread(d)
    first = last = float(np.sqrt(d))
    for _ in range(_PILOTS):
        free = (
            unit(rng.standard_normal((5, len(around.free))) @ around.free)
            if len(around.free)
            else np.zeros((5, d))
        )
        A = first * unit(_COSINE * around.own + _sine() * free)
        B = last * unit(rng.standard_normal((6, d)))
        B[0] = 0.0
        found = scores(A, B)[2]
        bias = found[:, 0].std() + 0.5 * abs(float(found[:, 0].mean()))
        spread = float((found - found[:, :1])[:, 1:].std())
        saturated = float(np.mean(np.abs(found) > 0.98 * scores.limit))
        both = float(np.clip(np.sqrt(wanted / max(spread, 1e-3)), 0.15, 6.0)) if saturated < 0.4 else 0.3
        tilt = 1.0
        if bias > 0.7 * wanted or np.abs(found[:, 0]).max() > 3.5:
            tilt = 0.6
        elif bias < 0.3 * wanted and first < last:
            tilt = float(np.sqrt(min(1.5, last / first)))
        if 0.7 < both < 1.4 and tilt >= 1.0 and saturated < 0.1:
            break
        first, last = first * both * tilt, min(last * both / tilt, first * both * tilt * _LONGEST_RATIO)
    return first, last


def _columns_until_the_rank(
    scores: _Scores, around: Surroundings, lengths: tuple[float, float], rng: np.random.Generator
) -> tuple[Array, Array]:
    """(columns W b + w0 on the seen rows, the first of them at b = 0; the other b)."""
    d, seen = scores.queries.width, around.seen
    turned = (random_basis(rng, len(around.free)) @ around.free) if len(around.free) else around.free
    signs = rng.choice([-1.0, 1.0], (len(turned), 1))
    A = lengths[0] * np.concatenate([around.own[None], _COSINE * around.own + _sine() * signs * turned])
    every = lengths[1] * random_basis(rng, d)
    asked, columns = np.zeros((0, d)), np.zeros((len(seen), 0))
    more = max(4, d // 8)
    while len(asked) < d:
        some = every[len(asked) : len(asked) + more]
        if not columns.size:
            some = np.concatenate([np.zeros((1, d)), some])
        sent, B, found = scores.columns(A, some)
        new = np.linalg.lstsq(sent @ seen.T, found, rcond=None)[0]
        asked = np.concatenate([asked, B if columns.size else B[1:]])
        columns = np.concatenate([columns, new], axis=1)
        values = np.asarray(np.linalg.svd(columns, compute_uv=False), dtype=np.float64)
        count, rank = columns.shape[1], _rank(values, scores, lengths, columns.shape)
        if count >= rank + _SPARE + 1:
            break
        if rank < count:
            more = rank + _SPARE + 1 - count
    return columns, asked


def _rank(values: Array, scores: _Scores, lengths: tuple[float, float], shape: tuple[int, ...]) -> int:
    """Singular values of measured columns above what rounding, and errors of the readouts, make of zero ones.

    An answer's error over a·v_h is that of the share; times 8, the slope of the logit at moderate scores;
    over the part of a that shows the score, that of a column's entries. In eight-bit arithmetic the same
    estimate is 30 times too careful, as measured.
    """
    first, last = lengths
    baseline, v = scores.baseline, scores.readouts.v
    usual = np.sqrt(v.shape[1])  # |a||v| over the usual size of a·v
    own = first * _COSINE * float(np.linalg.norm(scores.v))
    rounding = (
        own + (last * float(np.linalg.norm(baseline.v_sum)) + 0.6 * first * float(np.linalg.norm(v))) / usual
    )
    answer = baseline.noise * rounding + first * scores.readouts.error * np.sqrt(len(v)) / usual
    entry = 8.0 * answer / own / (_sine() * first)
    factor = 4.0 if not baseline.coarse else 0.15
    return int((values > factor * entry * (np.sqrt(shape[0]) + np.sqrt(shape[1]))).sum())
