"""Heads of a one-layer decoder with rotary positions, from what attention adds to the last row.

Zero rows have key and value zero, so k of them lower the weights of all others evenly. 1. One row behind k
zero rows: a rational function of k, whose poles count the heads. 2. Derivatives in a row before it, at
several k: what every head writes. 3. Prompts with two such rows, at distances one and two: score matrices. 4.
Their factors: groups, keys, queries, the rotary base.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.late_scipy import linear_sum_assignment
from unsoftmax.meters.language_model.attention_outputs import AttentionOutputs
from unsoftmax.meters.language_model.precision import FLOAT64, Precision
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.models.language_model import Attention
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.attention_heads.poles import HeadPoles, find_poles
from unsoftmax.solvers.attention_heads.rotary_factors import KeySpace, factor_scores, group_by_rows

__all__ = ["HeadsStart", "learn_heads"]

_ZEROS = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0])
# rows whose poles are looked at; the one that tells the heads apart best is used. Rounding hides the poles
# of most rows
_TRIES, _SHORT_TRIES = 10, 32
# relative misfit of a row's poles on the worst of all rows; all heads leave 1e-8, one too few 1e-4. Rounding
# leaves five
# to thirty times the noise of a state
_NOISE, _ROUNDED = 1e-6, 60.0
_SHORT_ROWS = 4  # rows of which derivatives are read where answers are rounded, each behind so many zero rows
_SHORT_COUNTS = np.array([0, 1, 2, 4, 8, 16])
_ALL_ORDERS = 4  # heads up to which all orders of a further row are tried
_TOTAL = 30.0  # weight of the sum of all heads, the value path, which is known better than derivatives
_CONDITION = 3e-2  # most of a row's misfit times its condition: what poles are known to
_STEP = 4e-2  # of derivatives in a normed row: two sizes leave 1e-6
# the fifth root of so many times the noise: rounding over the step is what two sizes leave
_SHORT_STEP = 100.0
# rows of zeros: for ρ from 1/2 to 32 the weight beside some of them is between 1/3 and 2/3
_OWN_ZEROS = (1.0, 4.0, 16.0)
# candidates for every asking row of which scores are read; those with moderate own scores are taken
_ASKERS = 2
_SIZE = 0.7  # of the normed rows of which scores are read
_SPARE = 1.3  # prompts over unknowns, for scores
_LEAST_SHARE = 1e-5  # scores of -11.5: smaller shares are rounding, and their logarithm would be any number
_FURTHER = 24  # rows between the distances at which slow rotary planes are told apart
_SLOW, _SHORT_SLOW = 3e-3, 0.1  # radians: what errors of score matrices turn a plane by
_RANK = 1e-4  # relative singular value of what a head writes below which a direction is noise
_EDGE = 3.0  # the same where answers are rounded, over the largest one that the errors of the fit make
NO_PRODUCTS = (
    "Scores that are not products of a query and a key (queries and keys that are normed or have biases, "
    "scores that are capped) look like this, and are not learned"
)


@dataclass(frozen=True, eq=False)
class HeadsStart:
    """attention: the four matrices, good to about 1e-4. theta: of rotary positions. condition: how well heads
    were told apart."""

    attention: Attention
    theta: float
    condition: float


def learn_heads(
    outputs: AttentionOutputs, value_path: Array, rng: np.random.Generator, precision: Precision = FLOAT64
) -> HeadsStart:
    """All heads, up to the symmetries."""
    d = len(value_path)
    asked = _separating_rows(outputs, d, rng, precision)
    step = max(_STEP, (_SHORT_STEP * precision.noise) ** 0.2)
    counts = _SHORT_COUNTS if precision.short else np.arange(2 * len(asked[0].poles.rho) + 2)
    fit = _written_matrices(outputs, asked, value_path, counts, step)
    written = fit.written
    rank = _common_rank(written, max(_RANK, fit.floor) if precision.short else _RANK)
    groups = group_by_rows(written, rank)
    if len({len(group) for group in groups}) != 1:
        raise Unresolved(
            f"heads share values in groups of {sorted(len(group) for group in groups)}, and not evenly"
        )
    written = _of_rank(written, groups, rank)
    askers = _choose_askers(outputs, written, rng)
    near, far = _score_matrices(outputs, written, askers, rng)
    keys = [KeySpace.of([near[h] for h in group], [far[h] for h in group], rank) for group in groups]
    further = _further_scores(outputs, written, askers, groups, keys, rng)
    slow = _SHORT_SLOW if precision.short else _SLOW
    parts = [factor_scores(key, more, _FURTHER, slow) for key, more in zip(keys, further, strict=True)]
    counted = sum(part.weight for part in parts)
    theta = float(
        np.exp(
            sum(part.weight * part.log_theta for part in parts) / counted if counted else parts[0].log_theta
        )
    )
    values, outs = zip(*(_value_factors(written[group], rank) for group in groups), strict=True)
    attention = Attention(
        np.concatenate([query for part in parts for query in part.queries]),
        np.concatenate([part.key for part in parts]),
        np.concatenate(values),
        np.concatenate(outs, axis=1),
        len(written),
        len(groups),
    )
    return HeadsStart(attention, theta, asked[0].poles.condition)


@dataclass(frozen=True, eq=False)
class _SeparatingRow:
    """A row (d,) whose own scores differ between heads, with its poles."""

    row: Array
    poles: HeadPoles


def _separating_rows(
    outputs: AttentionOutputs, d: int, rng: np.random.Generator, precision: Precision
) -> list[_SeparatingRow]:
    """One row that tells heads apart, the best of several; where answers are rounded, the best few."""
    tries = _SHORT_TRIES if precision.short else _TRIES
    rows = unit_rows(rng, tries, d)
    samples = np.stack([outputs(np.zeros((tries, int(k), d)), rows) for k in _ZEROS], axis=1)  # (tries, K, d)
    across = samples - (samples * rows[:, None]).mean(axis=2, keepdims=True) * rows[:, None]
    limit = max(_NOISE, _ROUNDED * precision.noise)
    for heads in range(1, len(_ZEROS) // 2 + 1):
        found = [(i, find_poles(sample, _ZEROS, heads)) for i, sample in enumerate(across)]
        good = [(i, poles) for i, poles in found if poles is not None]
        if precision.short:  # poles that rounding could have moved anywhere tell nothing
            good = [(i, poles) for i, poles in good if poles.condition * poles.misfit < _CONDITION]
        few = 2 if precision.short else tries // 2
        misfits = [poles.misfit for _, poles in good]
        usual = np.median if precision.short else np.max  # rounding is larger where a row nearly cancels
        if len(good) >= few and float(usual(misfits)) < limit:
            good.sort(key=lambda pair: pair[1].condition)
            kept = good[: _SHORT_ROWS if precision.short else 1]
            return [_SeparatingRow(rows[i], poles.with_outputs(samples[i], _ZEROS)) for i, poles in kept]
    raise Unresolved(
        f"no number of heads up to {len(_ZEROS) // 2} explains a row behind zero rows. {NO_PRODUCTS}"
    )


def _of_rank(written: Array, groups: list[list[int]], rank: int) -> Array:
    """What heads write, of the rank of a group's value."""
    kept = np.empty_like(written)
    for group in groups:
        space = np.linalg.svd(written[group].reshape(-1, written.shape[2]), full_matrices=False)[2][:rank]
        kept[group] = written[group] @ space.T @ space
    return kept


def _written_matrices(
    outputs: AttentionOutputs,
    asked: list[_SeparatingRow],
    value_path: Array,
    counts: NDArray[np.int64],
    step: float,
) -> _WrittenFit:
    """output_h·value_h (H, d, d): linear in the derivatives in a row before `row`, with k zero rows in front,
    once ρ is known. Further rows, whose heads are matched by what they write, tell apart what one leaves
    open."""
    # (K, d, d): [k, out, in]
    measured = [np.array([_jacobian(outputs, each.row, int(k), step) for k in counts]) for each in asked]
    known = _WrittenFit(asked[:1], measured[:1], counts, value_path)
    for number, each in enumerate(asked[1:], start=1):
        known = min(
            (
                _WrittenFit(
                    [*known.asked, _SeparatingRow(each.row, poles)],
                    measured[: number + 1],
                    counts,
                    value_path,
                )
                for poles in _orders(each, known.written)
            ),
            key=lambda fit: fit.misfit,
        )
    return known


def _orders(each: _SeparatingRow, written: Array) -> list[HeadPoles]:
    """The heads of a row in the order of `written`: in all orders while they are few, else in the
    likeliest."""
    heads = len(written)
    if heads <= _ALL_ORDERS:
        return [each.poles.ordered(np.array(order)) for order in permutations(range(heads))]
    distances = np.linalg.norm((written @ each.row)[:, None] - each.poles.residues, axis=2)
    return [each.poles.ordered(linear_sum_assignment(distances)[1])]


@dataclass(frozen=True, eq=False)
class _WrittenFit:
    """Rows with their heads in one order, and the derivatives (K, d, d) measured before each of them."""

    asked: list[_SeparatingRow]
    measured: list[Array]
    counts: NDArray[np.int64]
    value_path: Array

    @cached_property
    def _solved(self) -> tuple[Array, float, Array]:
        d, heads = len(self.value_path), len(self.asked[0].poles.rho)
        unknowns = heads * (d + len(self.asked))
        i = np.arange(d)
        designs = []
        for number, each in enumerate(self.asked):
            near = 1.0 / (self.counts[:, None] + 1.0 + each.poles.rho)
            bent = -each.poles.rho * near**2
            # unknown for every column: what H heads write, and for every row H entries of the slopes of
            # their scores
            design = np.zeros((len(self.counts), d, unknowns))
            for h in range(heads):
                design[:, i, h * d + i] = near[:, h][:, None]
                design[:, :, heads * (d + number) + h] = bent[:, h][:, None] * each.poles.residues[h]
            designs.append(design)
        total = np.zeros((1, d, unknowns))
        for h in range(heads):
            total[0, i, h * d + i] = _TOTAL
        left = np.concatenate([*designs, total]).reshape(-1, unknowns)
        right = np.concatenate([*self.measured, _TOTAL * self.value_path[None]]).reshape(-1, d)
        solved = np.linalg.lstsq(left, right, rcond=None)[0]
        off = float(np.linalg.norm(left @ solved - right))
        variances = np.diag(np.linalg.pinv(left.T @ left)) * off**2 / (d * (len(left) - unknowns))
        return solved, off, variances

    @property
    def written(self) -> Array:
        """output_h·value_h, (H, d, d)."""
        d, heads = len(self.value_path), len(self.asked[0].poles.rho)
        return np.asarray(self._solved[0][: heads * d].reshape(heads, d, d))

    @property
    def floor(self) -> float:
        """The largest singular value, relative to that of the head, that errors of the fit may make: of
        independent errors in a d×d matrix it is 2√d of them."""
        d, heads = len(self.value_path), len(self.written)
        errors = np.sqrt(self._solved[2][: heads * d].reshape(heads, d).mean(axis=1))
        sizes = np.linalg.norm(self.written, 2, axis=(1, 2))
        return _EDGE * 2.0 * float(np.sqrt(d) * (errors / sizes).max())

    @property
    def misfit(self) -> float:
        """The misfit of all derivatives together."""
        return self._solved[1]


def _jacobian(outputs: AttentionOutputs, row: Array, zeros: int, first: float) -> Array:
    """Derivative of the output in a normed row at zero, just before `row`: central differences at two
    sizes."""
    d = len(row)
    found = []
    for step in (first, 2.0 * first):
        before = np.zeros((2 * d, zeros + 1, d))
        before[:, -1] = step * np.concatenate([np.eye(d), -np.eye(d)])
        up, down = np.split(outputs(before, np.broadcast_to(row, (2 * d, d))), 2)
        found.append((up - down).T / (2.0 * step))
    return np.asarray((4.0 * found[0] - found[1]) / 3.0)


def _common_rank(written: Array, floor: float) -> int:
    """d_h: how many singular values, relative to the largest and the geometric mean over all heads, are above
    the floor."""
    values = np.linalg.svd(written, compute_uv=False)
    pooled = np.exp(np.log(np.maximum(values / values[:, :1], 1e-300)).mean(axis=0))
    rank = int((pooled > floor).sum())
    if rank % 2:
        raise Unresolved(
            f"what heads write has rank {rank}; heads of one even width were expected. {NO_PRODUCTS}"
        )
    return rank


def _own_scores(outputs: AttentionOutputs, written: Array, rows: Array) -> Array:
    """ρ_h (B, H) of rows, from weights behind k zero rows, at the k where the weight is nearest to a half."""
    directions = np.einsum("hij,bj->bih", written, rows)
    inverse = np.linalg.pinv(directions)
    shares = [
        np.einsum("bhi,bi->bh", inverse, outputs(np.zeros((len(rows), int(k), rows.shape[1])), rows))
        for k in _OWN_ZEROS
    ]
    weights = np.clip(np.array(shares), 1e-4, 1.0 - 1e-4)
    rho = np.array(_OWN_ZEROS)[:, None, None] * weights / (1.0 - weights)
    best = np.abs(weights - 0.5).argmin(axis=0)
    return np.asarray(np.take_along_axis(rho, best[None], axis=0)[0])


@dataclass(frozen=True, eq=False)
class _Askers:
    """Last rows (n, d) of which scores are read, and exp of their own scores (n, H)."""

    rows: Array
    own: Array


def _choose_askers(outputs: AttentionOutputs, written: Array, rng: np.random.Generator) -> _Askers:
    """Rows with moderate own scores, a quarter more than dimensions."""
    d = written.shape[1]
    rows = unit_rows(rng, _ASKERS * d, d)
    own = _own_scores(outputs, written, rows)
    chosen = np.argsort(np.abs(np.log(own)).max(axis=1))[: d + d // 4 + 2]
    return _Askers(rows[chosen], own[chosen])


def _score_matrices(
    outputs: AttentionOutputs, written: Array, askers: _Askers, rng: np.random.Generator
) -> tuple[Array, Array]:
    """K(1) and K(2), each (H, d, d), in units where the score of normed rows z before b is zᵀ·K·b."""
    heads, d, _ = written.shape
    count = int(_SPARE * d) + 2
    columns = []
    for row, own in zip(askers.rows, askers.own, strict=True):
        z = _SIZE * unit_rows(rng, 2 * count, d).reshape(count, 2, d)  # [:, 0] at distance one
        scores, trust = _scores(outputs, written, row, own, z, z[:, ::-1])
        found = np.empty((2, heads, d))
        for s in range(2):
            for h in range(heads):
                found[s, h] = _weighted(z[:, s], scores[:, s, h], trust[:, s, h])
        columns.append(found)
    solved = np.stack(columns, axis=3) @ np.linalg.pinv(askers.rows.T)
    return solved[0], solved[1]


def _further_scores(
    outputs: AttentionOutputs,
    written: Array,
    askers: _Askers,
    groups: list[list[int]],
    keys: list[KeySpace],
    rng: np.random.Generator,
) -> list[Array]:
    """K(1 + gap) of every group in the basis of its key, heads side by side: one row far before the asker,
    and zero rows between them."""
    heads, d, _ = written.shape
    rank = keys[0].basis.shape[1]
    count = int(_SPARE * rank) + 6
    found = np.empty((heads, rank, len(askers.rows)))
    for number, (row, own) in enumerate(zip(askers.rows, askers.own, strict=True)):
        z = _SIZE * unit_rows(rng, count, d)[:, None]
        before = np.zeros((count, 1 + _FURTHER, d))
        before[:, 0] = z[:, 0]
        scores, trust = _scores(outputs, written, row, own, z, before)
        for group, key in zip(groups, keys, strict=True):
            for h in group:
                found[h, :, number] = _weighted(z[:, 0] @ key.basis, scores[:, 0, h], trust[:, 0, h])
    solved = found @ np.linalg.pinv(askers.rows.T)
    return [np.concatenate([solved[h] for h in group], axis=1) for group in groups]


def _weighted(rows: Array, scores: Array, weight: Array) -> Array:
    return np.asarray(np.linalg.lstsq(rows * weight[:, None], scores * weight, rcond=None)[0])


def _scores(
    outputs: AttentionOutputs, written: Array, row: Array, own: Array, z: Array, before: Array
) -> tuple[Array, Array]:
    """Scores (n, S, H) of rows z (n, S, d) with an asker, and how far they can be trusted. before: whole
    prompts but the asker, in which zero rows may be; the shares of rows in the output are solved for, and
    their logarithms are scores."""
    count, several, d = z.shape
    heads = len(written)
    mine = written @ row  # (H, d)
    rows = np.concatenate(
        [np.einsum("hij,nsj->nshi", written, z), np.broadcast_to(mine, (count, 1, heads, d))], axis=1
    )
    out = outputs(before, np.broadcast_to(row, (count, d)))
    if before.shape[1] == several:  # without zero rows shares add up to one
        rows = rows[:, :several] - mine
        out = out - mine.sum(axis=0)
    design = rows.reshape(count, -1, d).transpose(0, 2, 1)
    shares = np.einsum("nkd,nd->nk", np.linalg.pinv(design), out).reshape(count, -1, heads)
    shares = np.clip(shares, _LEAST_SHARE, 1.0)
    rest = (
        shares[:, several]
        if before.shape[1] > several
        else np.clip(1.0 - shares.sum(axis=1), _LEAST_SHARE, 1.0)
    )
    shares = shares[:, :several]
    scores = np.log(shares) - np.log(rest)[:, None] + np.log(own)
    return scores, np.minimum(shares, rest[:, None])


def _value_factors(written: Array, rank: int) -> tuple[Array, Array]:
    """value (d_h, d) and output (d, heads·d_h) of one group."""
    heads, d, _ = written.shape
    left, sizes, right = np.linalg.svd(written.reshape(-1, d), full_matrices=False)
    root = np.sqrt(sizes[:rank])
    output = (left[:, :rank] * root).reshape(heads, d, rank).transpose(1, 0, 2).reshape(d, heads * rank)
    return root[:, None] * right[:rank], output
