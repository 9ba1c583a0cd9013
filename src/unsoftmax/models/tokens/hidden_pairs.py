"""Which scores of a head over tokens show in no answer, however sequences are chosen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array, Ids
from unsoftmax.models.tokens.token_head import TokenHead

__all__ = ["hidden_pairs", "hidden_scores", "hidden_share"]

Mask = NDArray[np.bool_]
_CHUNK = 1 << 22  # scores at once, 32 MB
_SAMPLE = 200  # asking tokens


def hidden_pairs(head: TokenHead, resolution: float, longest: int) -> Ids:
    """Pairs (token, asking token), (n, 2), whose score moves no answer of up to `longest` tokens by more than
    `resolution`."""
    found = [
        np.stack([tokens, start + askers], axis=1)
        for start, hidden in _columns(head, resolution, longest)
        for askers, tokens in [np.nonzero(hidden.T)]
    ]
    return np.concatenate(found)


def hidden_share(head: TokenHead, resolution: float, longest: int, rng: np.random.Generator) -> float:
    """The share of such pairs, in the columns of some asking tokens."""
    asking = rng.choice(head.vocabulary, min(_SAMPLE, head.vocabulary), replace=False)
    return float(np.mean(_hidden(head, asking, resolution, longest)))


def _columns(head: TokenHead, resolution: float, longest: int) -> Iterator[tuple[int, Mask]]:
    step = max(1, _CHUNK // head.vocabulary)
    for start in range(0, head.vocabulary, step):
        asking = np.arange(start, min(start + step, head.vocabulary))
        yield start, _hidden(head, asking, resolution, longest)


def _hidden(head: TokenHead, asking: Ids, resolution: float, longest: int) -> Mask:
    queries = head.queries[asking]
    scores = head.keys @ queries.T - np.einsum("jk,jk->j", head.keys[asking], queries)
    hidden = hidden_scores(scores, head.values, resolution, longest)
    hidden[asking, np.arange(len(asking))] = False  # zero by definition
    return hidden


def hidden_scores(scores: Array, values: Array, resolution: float, longest: int) -> Mask:
    """Whether each score T_ij (V, n) is hidden in its column. values: (V,) or (V, m). A mask (V, n).

    A token that weighs next to nothing beside the asking one, which is always there, moves answers by at most
    its weight times how far its value is from the others. Above the asking token, scores show against those
    next to them; where two neighbours are so far apart that either outweighs or vanishes beside the other,
    whatever their copies, the size of that gap does not show, and with it the level of all above.

    >>> scores = np.array([[0.0], [-3.0], [-60.0], [50.0]])
    >>> hidden_scores(scores, np.array([0.0, 1.0, 2.0, 3.0]), 1e-12, 64)[:, 0]
    array([False, False,  True,  True])
    """
    reach = np.maximum(values.max(axis=0) - values, values - values.min(axis=0))
    reach = reach if reach.ndim == 1 else reach.max(axis=1)
    copies = max(1, longest - 1)
    with np.errstate(divide="ignore"):
        faint = np.log(resolution) - np.log(copies * reach)
    hidden = scores < faint[:, None]
    gap = np.log(copies * max(float(reach.max()), resolution) / resolution)
    above = np.sort(np.maximum(scores, 0.0), axis=0)
    apart = np.diff(above, axis=0, prepend=0.0) > gap
    for column in np.flatnonzero(apart.any(axis=0)):
        first = above[int(apart[:, column].argmax()), column]
        hidden[:, column] |= scores[:, column] >= first
    return np.asarray(hidden)
