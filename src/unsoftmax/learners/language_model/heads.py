"""Heads of a one-layer decoder with rotary positions, from what attention adds to the last row.

Zero rows have key and value zero, so k of them lower the weights of all others evenly. 1. One row behind k
zero rows: a rational
function of k, whose poles count the heads. 2. Derivatives in a row before it, at several k: what every head
writes. 3. Prompts
with two such rows, at distances one and two: score matrices. 4. Their factors: groups, keys, queries, the
rotary base.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.language_model.attention_outputs import AttentionOutputs
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.models.language_model import Attention
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.attention_heads.poles import HeadPoles, find_poles
from unsoftmax.solvers.attention_heads.rotary_factors import factor_scores, group_by_rows, rotary_base

__all__ = ["HeadsStart", "learn_heads"]

_ZEROS = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0])
_TRIES = 10  # rows whose poles are looked at; the one that tells the heads apart best is used
_NOISE = (
    1e-6  # relative misfit of a row's poles on the worst of all rows; all heads leave 1e-8, one too few 1e-4
)
_STEP = 4e-2  # of derivatives in a normed row: two sizes leave 1e-6
_OWN_ZEROS = (1.0, 4.0, 16.0)
_ASKERS = (
    2  # candidates for every asking row of which scores are read; those with moderate own scores are taken
)
_SIZE = 0.7  # of the normed rows of which scores are read
_SPARE = 1.3  # prompts over unknowns, for scores
_RANK_GAP = 1e-3  # relative singular value of what a head writes below which a direction is noise


@dataclass(frozen=True, eq=False)
class HeadsStart:
    """attention: the four matrices, good to about 1e-4. theta: of rotary positions. condition: how well heads
    were told apart."""

    attention: Attention
    theta: float
    condition: float


def learn_heads(outputs: AttentionOutputs, value_path: Array, rng: np.random.Generator) -> HeadsStart:
    """All heads, up to the symmetries."""
    d = len(value_path)
    row, poles = _separating_row(outputs, d, rng)
    written = _written_matrices(outputs, row, poles, value_path)
    rank = _common_rank(written)
    near, far = _score_matrices(outputs, written, rng)
    groups = group_by_rows(written, rank)
    if len({len(group) for group in groups}) != 1:
        raise Unresolved(
            f"heads share values in groups of {sorted(len(group) for group in groups)}, and not evenly"
        )
    parts = [factor_scores([near[h] for h in group], [far[h] for h in group], rank) for group in groups]
    theta = float(np.exp(np.mean([np.log(rotary_base(part.frequencies, rank)) for part in parts])))
    values, outs = zip(*(_value_factors(written[group], rank) for group in groups), strict=True)
    attention = Attention(
        np.concatenate([query for part in parts for query in part.queries]),
        np.concatenate([part.key for part in parts]),
        np.concatenate(values),
        np.concatenate(outs, axis=1),
        len(written),
        len(groups),
    )
    return HeadsStart(attention, theta, poles.condition)


def _separating_row(outputs: AttentionOutputs, d: int, rng: np.random.Generator) -> tuple[Array, HeadPoles]:
    """A row whose own scores differ between heads, with its poles."""
    rows = unit_rows(rng, _TRIES, d)
    samples = np.stack(
        [outputs(np.zeros((_TRIES, int(k), d)), rows) for k in _ZEROS], axis=1
    )  # (tries, K, d)
    for heads in range(1, len(_ZEROS) // 2 + 1):
        found = [(row, find_poles(sample, _ZEROS, heads)) for row, sample in zip(rows, samples, strict=True)]
        good = [(row, poles) for row, poles in found if poles is not None]
        if 2 * len(good) >= _TRIES and max(poles.misfit for _, poles in good) < _NOISE:
            return min(good, key=lambda pair: pair[1].condition)
    raise Unresolved(f"no number of heads up to {len(_ZEROS) // 2} explains a row behind zero rows")


def _written_matrices(outputs: AttentionOutputs, row: Array, poles: HeadPoles, value_path: Array) -> Array:
    """output_h·value_h (H, d, d): linear in the derivatives in a row before `row`, with k zero rows in front,
    once ρ is known."""
    d, heads = len(row), len(poles.rho)
    counts = np.arange(2 * heads + 2)
    jacobians = np.array([_jacobian(outputs, row, int(k)) for k in counts])  # (K, d, d): [k, out, in]
    near = 1.0 / (counts[:, None] + 1.0 + poles.rho)
    bent = -poles.rho * near**2
    # unknown for every column: what H heads write, and H entries of the slopes of their scores
    design = np.zeros((len(counts) + 1, d, heads * d + heads))
    for h in range(heads):
        i = np.arange(d)
        design[:-1, i, h * d + i] = near[:, h][:, None]
        design[-1, i, h * d + i] = 1.0
        design[:-1, :, heads * d + h] = bent[:, h][:, None] * poles.residues[h]
    right = np.concatenate([jacobians, value_path[None]]).reshape(-1, d)
    solved = np.linalg.lstsq(design.reshape(-1, heads * (d + 1)), right, rcond=None)[0]
    return np.asarray(solved[: heads * d].reshape(heads, d, d))


def _jacobian(outputs: AttentionOutputs, row: Array, zeros: int) -> Array:
    """Derivative of the output in a normed row at zero, just before `row`: central differences at two
    sizes."""
    d = len(row)
    found = []
    for step in (_STEP, 2.0 * _STEP):
        before = np.zeros((2 * d, zeros + 1, d))
        before[:, -1] = step * np.concatenate([np.eye(d), -np.eye(d)])
        up, down = np.split(outputs(before, np.broadcast_to(row, (2 * d, d))), 2)
        found.append((up - down).T / (2.0 * step))
    return np.asarray((4.0 * found[0] - found[1]) / 3.0)


def _common_rank(written: Array) -> int:
    """d_h: the even rank that most heads have."""
    ranks = []
    for matrix in written:
        values = np.linalg.svd(matrix, compute_uv=False)
        ranks.append(int((values > _RANK_GAP * values[0]).sum()))
    rank = max(set(ranks), key=ranks.count)
    if rank % 2 or len(set(ranks)) > 1:
        raise Unresolved(f"what heads write has ranks {ranks}; heads of one even width were expected")
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


def _score_matrices(
    outputs: AttentionOutputs, written: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """K(1) and K(2), each (H, d, d), in units where the score of normed rows z before b is zᵀ·K·b."""
    d = written.shape[1]
    askers = unit_rows(rng, _ASKERS * d, d)
    own = _own_scores(outputs, written, askers)
    chosen = np.argsort(np.abs(np.log(own)).max(axis=1))[: d + d // 4 + 2]
    columns = np.stack(
        [_scores_of(outputs, written, askers[i], own[i], rng) for i in chosen], axis=3
    )  # (2, H, d, askers)
    solved = columns @ np.linalg.pinv(askers[chosen].T)
    return solved[0], solved[1]


def _scores_of(
    outputs: AttentionOutputs, written: Array, row: Array, own: Array, rng: np.random.Generator
) -> Array:
    """K·row at distances one and two, (2, H, d): shares of two random rows before `row`, solved for, and
    their logarithms."""
    heads, d, _ = written.shape
    count = int(_SPARE * d) + 2
    z = _SIZE * unit_rows(rng, 2 * count, d).reshape(count, 2, d)  # [:, 0] at distance one
    out = outputs(z[:, ::-1], np.broadcast_to(row, (count, d)))
    mine = written @ row  # (H, d)
    design = (np.einsum("hij,nsj->nshi", written, z) - mine).reshape(count, 2 * heads, d).transpose(0, 2, 1)
    shares = np.einsum("nkd,nd->nk", np.linalg.pinv(design), out - mine.sum(axis=0)).reshape(count, 2, heads)
    shares = np.clip(shares, 1e-5, 1.0)
    rest = np.clip(1.0 - shares.sum(axis=1), 1e-5, 1.0)
    scores = np.log(shares) - np.log(rest)[:, None] + np.log(own)
    trust = np.minimum(shares, rest[:, None])
    found = np.empty((2, heads, d))
    for s in range(2):
        for h in range(heads):
            weight = trust[:, s, h]
            found[s, h] = np.linalg.lstsq(z[:, s] * weight[:, None], scores[:, s, h] * weight, rcond=None)[0]
    return found


def _value_factors(written: Array, rank: int) -> tuple[Array, Array]:
    """value (d_h, d) and output (d, heads·d_h) of one group."""
    heads, d, _ = written.shape
    left, sizes, right = np.linalg.svd(written.reshape(-1, d), full_matrices=False)
    root = np.sqrt(sizes[:rank])
    output = (left[:, :rank] * root).reshape(heads, d, rank).transpose(1, 0, 2).reshape(d, heads * rank)
    return root[:, None] * right[:rank], output
