"""All of V once every head's scores are known: one linear system over pairs at which the heads weigh
differently."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.vector_answers.row_answers import VectorResponses
from unsoftmax.models import MultiHead, SingleHead
from unsoftmax.outcomes import Unresolved

__all__ = ["MOST_UNKNOWNS", "pairs_for_values", "values_of_heads"]

MOST_UNKNOWNS = 6000  # of the linear system: 300 MB
_SURPLUS = 1.4  # equations for every unknown; with 1.2 one layer in fifty had a system of condition above 1e4
_EXTRA = 12  # pairs for few unknowns, where 1.4 times as many leave little to average
_SIZE = 2.0**16  # of first rows, where nothing limits them: answers far above any constant
_WORST_CONDITION = 1e7  # nine digits are left


def values_of_heads(
    respond: VectorResponses, heads: Sequence[SingleHead], bound: float | None, rng: np.random.Generator
) -> MultiHead:
    """The heads with V_h from 1.4·H·d + 12 pairs (a + b, b): the response is Σ_h σ(aᵀ(W_h b + w_h)) V_hᵀa.

    Scores are moderate, each head's in turn, so that no two heads are on and off together, as saturated ones
    with similar scores are. A head without scores takes half of every row: what the others leave is its part.
    """
    d = respond.width
    flat = [head for head in heads if not head.scores_anything]
    scored = [head for head in heads if head.scores_anything]
    H = len(scored)
    if H * d > MOST_UNKNOWNS:
        raise Unresolved(
            f"the readouts of {H} heads of width {d} are too many to solve for at once ({H * d} unknowns, at "
            f"most {MOST_UNKNOWNS})"
        )
    if not scored:
        return MultiHead([SingleHead(np.zeros((d, d)), respond.V)], respond.c)
    A, B, weights = _pairs(scored, pairs_for_values(H, d), bound, rng)
    found = respond(A[:, None], B)
    if flat:
        found, weights = found - 0.5 * A @ respond.V, weights - 0.5
    length = np.linalg.norm(A, axis=1)
    design = (weights[:, :, None] * (A / length[:, None])[:, None]).reshape(len(A), H * d)
    V, _, _, sizes = np.linalg.lstsq(design, found / length[:, None], rcond=None)
    if not sizes[-1] * _WORST_CONDITION > sizes[0]:
        raise Unresolved("the heads weigh rows too much alike for their readouts to be told apart")
    V = V.reshape(H, d, -1)
    parts = [SingleHead(head.matrix, V[h], head.w0) for h, head in enumerate(scored)]
    if flat:
        parts.append(SingleHead(np.zeros((d, d)), respond.V - V.sum(axis=0)))
    return MultiHead(parts, respond.c)


def pairs_for_values(heads: int, width: int) -> int:
    """How many pairs determine V of all heads.

    >>> pairs_for_values(2, 10)
    40
    """
    return int(_SURPLUS * heads * width) + _EXTRA


def _pairs(
    heads: list[SingleHead], n: int, bound: float | None, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """(A, B, weights (n, H)): asking rows b at which W_h b and w_h are alike in size for the usual head, and
    first rows at which one head, each in turn, has a score between 0.5 and 2 as far as rows may be so long.

    Without query biases b may be short and a long, so that answers stand far above a constant.
    """
    d, turn = heads[0].width, np.arange(n) % len(heads)
    A, B = (rng.standard_normal((n, d)) for _ in range(2))
    for rows in (A, B):
        rows /= np.linalg.norm(rows, axis=1)[:, None]
    strength = float(np.median([max(head.score_strength(), 1e-300) for head in heads]))
    biased = any(head.w0 is not None for head in heads)
    longest = np.inf if bound is None else bound / 2
    B *= min(1.0 / np.sqrt(strength) if biased else 1.0 / (strength * min(_SIZE, longest)), longest)
    if bound is not None and not biased:  # weak scores need all the length that is allowed
        B *= min(
            max(1.0, longest / max(float(np.linalg.norm(B[0])), 1e-300)), 1.0 / (strength * longest**2) + 1
        )
    against = np.stack([head.matrix.apply(B) + (0.0 if head.w0 is None else head.w0) for head in heads])
    scores = np.einsum("nd,hnd->hn", A, against)
    usual = np.median(np.abs(scores), axis=1)[turn]
    wanted = rng.uniform(0.5, 2.0, n) / np.maximum(np.abs(scores[turn, np.arange(n)]), 0.3 * usual)
    if bound is not None:  # of lengths that differ: pairs of one length tell one column of weights only
        along = np.einsum("nd,nd->n", A, B)
        reach = np.sqrt(np.square(along) + bound**2 - np.square(B).sum(axis=1)) - along
        wanted = np.minimum(wanted, reach * rng.uniform(0.3, 0.999, n))
    A *= wanted[:, None]
    scores = np.einsum("nd,hnd->nh", A, against)
    return A, B, np.asarray(1.0 / (1.0 + np.exp(-np.clip(scores, -700.0, 700.0))))
