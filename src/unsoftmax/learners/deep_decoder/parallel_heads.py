"""Heads of all layers of a decoder from prompts of large rows, where they act side by side.

1. One row b behind k zero rows: a rational function of k whose poles count the heads. 2. The same row twice,
then turned a little in the first place: what every head writes, linear. 3. Prompts of two rows before the
last: weights, linear again, and their logarithms are scores. 4. Heads belong to the layer whose path they add
up to. 5. Score matrices give keys, queries and the rotary base.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, complement
from unsoftmax.late_scipy import linear_sum_assignment
from unsoftmax.meters.deep.collapsed_attention import CollapsedAttention
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.models.language_model import Attention
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.attention_heads.poles import HeadPoles, find_poles
from unsoftmax.solvers.attention_heads.rotary_factors import (
    KeySpace,
    RotaryFactors,
    factor_scores,
    group_by_rows,
)

__all__ = ["ParallelHeads", "learn_parallel_heads"]

_ZEROS = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0])
_TRIES = 12  # rows whose poles are looked at; the two that tell the heads apart best are used
_NOISE = 1e-7  # relative misfit of a row's poles; all heads leave 1e-9, one too few 1e-5
_TURN = 3e-3  # angle of differences in a row: two sizes leave its fourth power, 1e-6 in score matrices
_ROW_ZEROS = 2  # zero rows in front of prompts of which scores are read
_FURTHER = 24  # rows between the distances at which slow rotary planes are told apart
_SLOW = 3e-3  # radians: what errors of score matrices turn a plane by
_SPARE, _FURTHER_SPARE = 1.4, 3.0  # prompts over unknowns; behind many copies of a row some heads see little
_LEAST_WEIGHT = 1e-5  # weights below are too uncertain for their logarithm
_RANK_GAP = 20.0  # ratio of neighbouring singular values of what heads write that ends their rank
_USUAL_BASE = float(np.log(10_000.0))  # where no plane but the first is seen to turn
_CLEAR = 0.25  # distance of a head's share in a layer from 0 or 1 beyond which it is neither


@dataclass(frozen=True, eq=False)
class ParallelHeads:
    """attentions: one a layer, good to about 1e-5. theta: of rotary positions. condition: how well heads were
    told apart."""

    attentions: list[Attention]
    theta: float
    condition: float


def learn_parallel_heads(
    outputs: CollapsedAttention, paths: Array, rng: np.random.Generator
) -> ParallelHeads:
    """paths: (L, d, d), what all heads of a layer add up to."""
    d = paths.shape[1]
    first, second = _separating_rows(outputs, d, rng)
    one, two = (_written(outputs, row, poles, paths.sum(axis=0)) for row, poles in (first, second))
    written = _joined((first[0], one), (second[0], two))
    layers = _layers_of_heads(written, paths)
    beside, apart = (_Weights.measured(outputs, written, copies, rng) for copies in (1, _FURTHER))
    near, far, further = beside.scores(1), beside.scores(0), apart.scores(0)
    attentions, counted = [], list[RotaryFactors]()
    for layer in range(len(paths)):
        own = np.flatnonzero(layers == layer)
        rank = _common_rank(written[own])
        groups = group_by_rows(written[own], rank)
        if len({len(group) for group in groups}) != 1:
            raise Unresolved(f"heads of layer {layer} share values in groups of {sorted(map(len, groups))}")
        keys = [KeySpace.of(list(near[own[group]]), list(far[own[group]]), rank) for group in groups]
        factors = [
            factor_scores(key, key.basis.T @ np.concatenate(further[own[group]], axis=1), _FURTHER, _SLOW)
            for key, group in zip(keys, groups, strict=True)
        ]
        pairs = [_value_factors(written[own[group]], rank) for group in groups]
        attentions.append(
            Attention(
                np.concatenate([query for part in factors for query in part.queries]),
                np.concatenate([part.key for part in factors]),
                np.concatenate([value for value, _ in pairs]),
                np.concatenate([output for _, output in pairs], axis=1),
                len(own),
                len(groups),
            )
        )
        counted += factors
    condition = max(first[1].condition, second[1].condition)
    weight = sum(part.weight for part in counted)
    log_theta = sum(part.weight * part.log_theta for part in counted) / weight if weight else _USUAL_BASE
    return ParallelHeads(attentions, float(np.exp(log_theta)), condition)


def _separating_rows(
    outputs: CollapsedAttention, d: int, rng: np.random.Generator
) -> tuple[tuple[Array, HeadPoles], tuple[Array, HeadPoles]]:
    """The two rows whose own scores differ most between heads, with their poles."""
    rows = unit_rows(rng, _TRIES, d)
    empty = np.zeros((_TRIES, 0, d))
    samples = np.stack([outputs(int(k), empty, rows) for k in _ZEROS], axis=1)  # (tries, K, d)
    for heads in range(1, len(_ZEROS) // 2 + 1):
        found = [(row, find_poles(sample, _ZEROS, heads)) for row, sample in zip(rows, samples, strict=True)]
        good = [(row, poles) for row, poles in found if poles is not None and poles.misfit < _NOISE]
        if 2 * len(good) >= _TRIES:
            good.sort(key=lambda pair: pair[1].condition)
            return good[0], good[1]
    raise Unresolved(
        f"no number of heads up to {len(_ZEROS) // 2} in all layers explains a row behind zero rows"
    )


def _written(outputs: CollapsedAttention, row: Array, poles: HeadPoles, total: Array) -> Array:
    """P·A_h (H, d, d): from the row twice behind k zero rows, and the first of the two turned a little."""
    d, heads = len(row), len(poles.rho)
    counts = np.arange(1, 2 * heads + 5)
    alike = np.array([outputs(int(k), row[None, None], row[None])[0] for k in counts])
    weights = np.linalg.lstsq(poles.residues.T, alike.T, rcond=None)[0].T  # (K, H): R/(k + R)
    weights = np.clip(weights, 1e-6, 1.0 - 1e-6)
    both = np.exp(np.mean(np.log(counts[:, None] * weights / (1.0 - weights)), axis=0))  # R
    before = both - poles.rho  # of the first of the two rows
    if before.min() <= 0.0:
        raise Unresolved("weights of a row beside itself are smaller than alone; heads are not told apart")
    tangents = complement(row / np.sqrt(d)).T  # (d - 1, d)
    slopes = np.array([_slopes(outputs, row, tangents, int(k)) for k in counts])  # (K, d - 1, d)
    near = before / (counts[:, None] + both)
    bent = before * counts[:, None] / (counts[:, None] + both) ** 2
    design = np.zeros((len(counts) + 1, d, heads * d + heads))
    place = np.arange(d)
    for h in range(heads):
        design[:-1, place, h * d + place] = near[:, h][:, None]
        design[-1, place, h * d + place] = 1.0
        design[:-1, :, heads * d + h] = bent[:, h][:, None] * poles.residues[h]
    whole = tangents @ total.T
    whole = whole - np.outer(whole @ row, row) / d
    right = np.concatenate([slopes, whole[None]]).transpose(0, 2, 1).reshape(-1, d - 1)
    solved = np.linalg.lstsq(design.reshape(-1, heads * (d + 1)), right, rcond=None)[0][: heads * d]
    across_row = np.einsum("hov,vi->hoi", solved.reshape(heads, d, d - 1), tangents)
    return np.asarray(across_row + np.einsum("ho,i->hoi", poles.residues, row) / d)


def _slopes(outputs: CollapsedAttention, row: Array, tangents: Array, zeros: int) -> Array:
    """(d - 1, d): derivatives as the first of two equal rows moves along tangents, at two angles."""
    found = []
    for angle in (_TURN, 2.0 * _TURN):
        moved = [
            np.cos(angle) * row + sign * np.sin(angle) * np.sqrt(len(row)) * tangents for sign in (1, -1)
        ]
        last = np.broadcast_to(row, (2 * len(tangents), len(row)))
        up, down = np.split(outputs(zeros, np.concatenate(moved)[:, None], last), 2)
        found.append((up - down) / (2.0 * angle * np.sqrt(len(row))))
    return np.asarray((4.0 * found[0] - found[1]) / 3.0)


def _joined(one: tuple[Array, Array], two: tuple[Array, Array]) -> Array:
    """A_h (H, d, d) from P·A_h for two rows: heads matched; what either row hides is seen by the other."""
    d = len(one[0])
    hide = [np.eye(d) - np.outer(row, row) / d for row, _ in (one, two)]
    views = hide[1] @ one[1], hide[0] @ two[1]
    plain = np.linalg.qr(np.column_stack([one[0], two[0]]))[0]
    across = np.eye(d) - plain @ plain.T
    cost = ((across @ views[0])[:, None] - (across @ views[1])[None]) ** 2
    order = linear_sum_assignment(cost.sum(axis=(2, 3)))[1]
    stacked = np.linalg.pinv(np.concatenate(hide))
    return np.array([stacked @ np.concatenate([a, b]) for a, b in zip(one[1], two[1][order], strict=True)])


def _layers_of_heads(written: Array, paths: Array) -> Array:
    """The layer of every head: paths are sums of what their heads write."""
    columns = written.reshape(len(written), -1).T
    shares = np.linalg.lstsq(columns, paths.reshape(len(paths), -1).T, rcond=None)[0]  # (H, L)
    layers = shares.argmax(axis=1)
    off = float(np.abs(shares - np.eye(len(paths))[layers]).max())
    if off > _CLEAR or len(set(layers.tolist())) < len(paths):
        raise Unresolved(f"heads do not add up to the paths of layers: shares are {off:.2g} from 0 and 1")
    return np.asarray(layers)


@dataclass(frozen=True, eq=False)
class _Weights:
    """Prompts of zero rows, one row `far`, copies of a row `near`, and a row `last`, (B, d) each, and what
    heads give them: shares (B, H, 3) of far, of all of near, and of last; none (B, H): of one zero row."""

    far: Array
    near: Array
    last: Array
    shares: Array
    none: Array

    @classmethod
    def measured(
        cls, outputs: CollapsedAttention, written: Array, copies: int, rng: np.random.Generator
    ) -> _Weights:
        """Linear, because what every head writes of a row is known."""
        heads, d, _ = written.shape
        if 3 * heads > d - 1:
            raise Unresolved(
                f"{heads} heads are too many for scores of rows of {d} columns; at most {(d - 1) // 3}"
            )
        count = int((_SPARE if copies == 1 else _FURTHER_SPARE) * d * d) + 8
        rows = unit_rows(rng, 3 * count, d).reshape(3, count, d)
        far, near, last = rows
        before = np.concatenate([far[:, None], np.repeat(near[:, None], copies, axis=1)], axis=1)
        seen = outputs(_ROW_ZEROS, before, last)
        parts = np.einsum("hoi,rbi->bohr", written, rows).reshape(count, d, -1)
        parts = parts - last[:, :, None] * np.einsum("bo,bok->bk", last, parts)[:, None] / d
        shares = np.einsum("bko,bo->bk", np.linalg.pinv(parts), seen).reshape(count, heads, 3)
        return cls(far, near, last, shares, (1.0 - shares.sum(axis=2)) / _ROW_ZEROS)

    def scores(self, place: int) -> Array:
        """K (H, d, d) of the distance of the row at a place: 0 far, 1 near (one copy). The score of a row z
        before b is zᵀ·K·b, and that of a zero row is zero."""
        count, d = self.last.shape
        design = np.einsum("bi,bj->bij", (self.far, self.near)[place], self.last).reshape(count, -1)
        matrices = []
        for share, zero in zip(self.shares[:, :, place].T, self.none.T, strict=True):
            good = (share > _LEAST_WEIGHT) & (zero > _LEAST_WEIGHT)
            if good.sum() < d * d:
                raise Unresolved(f"only {int(good.sum())} of {count} prompts show scores of a head")
            trust = np.minimum(share, zero)[good]
            value = np.log(share[good] / zero[good])
            solved = np.linalg.lstsq(design[good] * trust[:, None], value * trust, rcond=None)[0]
            matrices.append(solved.reshape(d, d))
        return np.array(matrices)


def _common_rank(written: Array) -> int:
    """d_h: the even rank of what all heads of a layer write, by the widest gap; all columns without a gap."""
    sizes = np.exp(np.log(np.linalg.svd(written, compute_uv=False)).mean(axis=0))
    even = np.arange(2, len(sizes), 2)
    gaps = sizes[even - 1] / sizes[even]
    if len(even) and gaps.max() > _RANK_GAP:
        return int(even[gaps.argmax()])
    if len(sizes) % 2:
        raise Unresolved(f"what heads write has the odd rank {len(sizes)}; rotary heads have an even width")
    return len(sizes)


def _value_factors(written: Array, rank: int) -> tuple[Array, Array]:
    """value (d_h, d), and the outputs (d, heads·d_h) of the heads of one group."""
    heads, d, _ = written.shape
    left, sizes, right = np.linalg.svd(written.reshape(heads * d, d), full_matrices=False)
    root = np.sqrt(sizes[:rank])
    outputs = (left[:, :rank] * root).reshape(heads, d, rank)
    return root[:, None] * right[:rank], outputs.transpose(1, 0, 2).reshape(d, heads * rank)
