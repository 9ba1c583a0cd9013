"""Keys and queries of all tokens from sequences of two: T_ab = k_a·q_b − τ_b."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.learners.tokens.checks import ORDER_TEST
from unsoftmax.learners.tokens.positions.second_place import SecondPlace, pair_scores
from unsoftmax.meters.tokens import Mask, TokenSequences
from unsoftmax.outcomes import OutsideClass, Unresolved

__all__ = ["PairTable", "learn_pairs"]

_SPARE = 3  # pairs of a column beyond its rank: the own score, and two to contradict
_SHARP = 1e-6  # error bar of a score that counts as known
_POOL = 4  # times as many tokens as a column has pairs, to choose them from
_EXPLAINED = 1e-4  # scores off by more than this refute the class; joint fits remove less


@dataclass(frozen=True, eq=False)
class PairTable:
    """keys, queries: (V, r). place: the key of the second place, less that of the first, (r,)."""

    keys: Array
    queries: Array
    place: Array


def learn_pairs(
    sequences: TokenSequences, values: Array, second: SecondPlace, noise: float, rng: np.random.Generator
) -> PairTable:
    """Whole columns of a few askers give keys; a few pairs of every other column its query."""
    V, r = len(values), second.rank
    askers = rng.choice(second.low, min(len(second.low), r + _SPARE - 1), replace=False)
    scores, bars = _read(sequences, values, second, noise, np.arange(V)[:, None], askers[None, :])
    sharp: Mask = np.asarray((bars < _SHARP).all(axis=1))
    if sharp.sum() < 2 * r + 2:
        raise Unresolved(f"only {int(sharp.sum())} of {V} tokens show their scores beside others")
    centred = scores - scores[sharp].mean(axis=0)
    right = np.linalg.svd(centred[sharp], full_matrices=False)[2][:r]
    keys = centred @ right.T
    weak = np.flatnonzero(~sharp)
    for token in weak:  # from the askers that show it
        seen = bars[token] < _SHARP
        if seen.sum() < r:
            raise Unresolved(
                f"order matters, and token {token} shows its scores beside {int(seen.sum())} of "
                f"{len(askers)} tokens only, as one that outweighs all others does, or that resets what came "
                "before it; another seed asks others"
            )
        keys[token] = np.linalg.lstsq(right[:, seen].T, centred[token, seen], rcond=None)[0]
    scale = np.maximum(keys[sharp].std(axis=0), 1e-300)
    keys = keys / scale
    queries, own, misfit = _columns(sequences, values, second, noise, keys, sharp, rng)
    place = np.linalg.lstsq(queries, own - np.einsum("vk,vk->v", keys, queries), rcond=None)[0]
    off = np.abs(queries @ place + np.einsum("vk,vk->v", keys, queries) - own)
    worst = max(float(np.median(misfit)), float(np.median(off)))
    if worst > _EXPLAINED:
        raise OutsideClass(
            ORDER_TEST,
            "order matters, and pairs of tokens are not answered as by a head with learned positions: scores "
            f"are usually off by {worst:.2g}",
        )
    return PairTable(keys, queries, place)


def _read(
    sequences: TokenSequences, values: Array, second: SecondPlace, noise: float, tokens: Ids, asking: Ids
) -> tuple[Array, Array]:
    a, b = np.broadcast_arrays(tokens, asking)
    answers = sequences.ask(np.stack([a.ravel(), b.ravel()], axis=1)).reshape(a.shape)
    return pair_scores(answers, values[a], values[b], second.value, noise)


def _columns(
    sequences: TokenSequences,
    values: Array,
    second: SecondPlace,
    noise: float,
    keys: Array,
    sharp: Mask,
    rng: np.random.Generator,
) -> tuple[Array, Array, Array]:
    """Queries (V, r), own scores τ (V,), and the misfit of every column."""
    V, r = keys.shape
    tokens = np.stack([_chosen(values, j, keys, sharp, second, rng) for j in range(V)])
    scores, bars = _read(sequences, values, second, noise, tokens, np.arange(V)[:, None])
    design = np.concatenate([keys[tokens], -np.ones((*tokens.shape, 1))], axis=2)
    heavy = 1.0 / np.maximum(np.minimum(bars, 10.0), 1e-12)
    heavy = heavy / heavy.max(axis=1, keepdims=True)
    inverse = np.linalg.pinv(design * heavy[:, :, None], rcond=1e-12)
    solved = np.einsum("vkr,vr->vk", inverse, scores * heavy)
    misfit = np.abs(np.einsum("vrk,vk->vr", design, solved) - scores)
    misfit = np.where(bars < _SHARP, misfit, 0.0).max(axis=1)
    return solved[:, :r], solved[:, r], misfit


def _chosen(
    values: Array, asking: int, keys: Array, sharp: Mask, second: SecondPlace, rng: np.random.Generator
) -> Ids:
    """Tokens for one column: values far from the asking one's, keys that span, of several draws."""
    r = keys.shape[1]
    size = r + _SPARE
    apart = np.abs(values - values[asking] - second.value)
    usable = np.flatnonzero(sharp & (np.arange(len(values)) != asking))
    far = usable[np.argsort(-apart[usable], kind="stable")[: max(_POOL * size, len(usable) // 2)]]
    best, chosen = -1.0, far[:size]
    for _ in range(12):
        drawn = rng.choice(far, min(size, len(far)), replace=False)
        design = np.column_stack([keys[drawn], np.ones(len(drawn))]) * apart[drawn][:, None]
        worth = float(np.linalg.svd(design, compute_uv=False)[-1])
        if worth > best:
            best, chosen = worth, drawn
    return chosen
