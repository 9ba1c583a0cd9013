"""Further places, one after the other: 2r + 1 numbers each, from random sequences of that length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, Ids
from unsoftmax.learners.tokens.checks import ORDER_TEST
from unsoftmax.learners.tokens.learned import STRONG
from unsoftmax.meters.tokens import TokenSequences
from unsoftmax.models import TokenHead, TokenPositions
from unsoftmax.models.base import softmax
from unsoftmax.outcomes import OutsideClass, Unresolved
from unsoftmax.solvers.least_squares.many_small_fits import fit_many

__all__ = ["learn_places"]

_OVERSAMPLED = 3  # sequences for every unknown
_STARTS = (8, 24, 72)  # three times as many a try: places that are easy to fit stay cheap
_EXPLAINED = 1e-5  # of the spread of values; joint fits remove less
_GROWN = 1e-9  # of the same: the errors of one place make those of the next, up to tenfold


@dataclass(frozen=True, eq=False)
class _Place:
    """Sequences of one length; unknown are key, query and value of its last place. Problems are starts.

    scores_keys: (n, N, r), keys of all entries with the last place's left out. queries: (n, r), tokens' own.
    values: (n, N). found: (n,).
    """

    keys: Array
    queries: Array
    values: Array
    found: Array

    def linearised(self, unknowns: Array, which: Ids) -> tuple[Array, Array]:
        r = self.queries.shape[1]
        key, query, value = unknowns[:, :r], unknowns[:, r : 2 * r], unknowns[:, -1]
        asked = self.queries[None] + query[:, None]
        scores = np.einsum("nlr,snr->snl", self.keys, asked)
        scores[:, :, -1] += np.einsum("sr,snr->sn", key, asked)
        weights = softmax(scores)
        values = np.broadcast_to(self.values, scores.shape).copy()
        values[:, :, -1] += value[:, None]
        answers = np.einsum("snl,snl->sn", weights, values)
        moves = weights * (values - answers[:, :, None])
        by_query = np.einsum("snl,nlr->snr", moves, self.keys) + moves[:, :, -1:] * key[:, None]
        slopes = np.concatenate([moves[:, :, -1:] * asked, by_query, weights[:, :, -1:]], axis=2)
        return answers - self.found, slopes


def learn_places(
    sequences: TokenSequences,
    head: TokenHead,
    longest: int,
    noise: float,
    rng: np.random.Generator,
    refined: Callable[[TokenHead], TokenHead],
) -> TokenHead:
    """The head with positions up to `longest`; those of two places are there already. refined: the head
    fitted to all answers until then, which is called where errors have grown from place to place."""
    assert head.positions is not None
    r = head.keys.shape[1]
    limit, grown = _EXPLAINED * head.spread, _GROWN * head.spread
    for length in range(3, longest + 1):
        places = head.positions
        assert places is not None
        ids = rng.integers(0, head.vocabulary, (_OVERSAMPLED * (2 * r + 1), length))
        own = np.vstack([places.keys, np.zeros((1, r))])
        problem = _Place(
            head.keys[ids] + own,
            head.queries[ids[:, -1]],
            head.values[ids] + np.append(places.values, 0.0),
            sequences.ask(ids),
        )
        found, rms = _best(problem, _usual(head), noise, limit, rng)
        if rms > limit and head.table.norm() > STRONG * head.table.width:
            raise Unresolved(
                f"scores are strong, and no start was found from which sequences of {length} tokens are "
                f"explained: {rms:.2g} is left of answers that spread over {head.spread:.2g}; another seed "
                "may help"
            )
        if rms > limit:
            raise OutsideClass(
                ORDER_TEST,
                f"order matters, and sequences of {length} tokens are not answered as by a head with learned "
                f"positions: {rms:.2g} is left of answers that spread over {head.spread:.2g}",
            )
        places = TokenPositions(
            np.vstack([places.keys, found[:r]]),
            np.vstack([places.queries, found[r : 2 * r]]),
            np.append(places.values, found[-1]),
        )
        head = TokenHead(head.keys, head.queries, head.values, places)
        head = refined(head) if rms > grown else head
    return head


def _usual(head: TokenHead) -> Array:
    """Sizes of keys, queries and values, (2r + 1,)."""
    return np.concatenate([head.keys.std(axis=0), head.queries.std(axis=0), head.values.std(keepdims=True)])


def _best(
    problem: _Place, usual: Array, noise: float, limit: float, rng: np.random.Generator
) -> tuple[Array, float]:
    best, rms = np.zeros(len(usual)), np.inf
    for count in _STARTS:
        starts = 0.5 * usual * rng.standard_normal((count, len(usual)))
        starts[0] = 0.0
        fits = fit_many(problem, starts, np.arange(count), good=noise)
        at = int(fits.rms.argmin())
        if fits.rms[at] < rms:
            best, rms = fits.unknowns[at], float(fits.rms[at])
        if rms <= limit:
            break
    return best, rms
