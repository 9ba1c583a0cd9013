"""All heads, from what other rows add to the answer of an asking row.

S(K, b) = Σ_h V_h Σ_i α_i (k_i - b) with weights α over the keys k_i and the asking row b. Copies of one key
take the heads apart for one difference a = k - b; done for a basis of differences this gives all V_h. Then
several keys a query give their weights, and the weights' logarithms the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.late_scipy import linear_sum_assignment
from unsoftmax.learners.encoder_block.responses import Responses
from unsoftmax.learners.encoder_block.tokens import Tokens, unit_rows
from unsoftmax.learners.several_heads.attempt import Restart
from unsoftmax.learners.vector_answers.unmix_by_copies import lift
from unsoftmax.outcomes import Unresolved

__all__ = [
    "CopiedResponses",
    "FoundHeads",
    "ScoresAt",
    "Split",
    "copied_responses",
    "find_heads",
    "scores_of_heads",
    "values_of_heads",
    "whole_path",
]

# outputs V_h a (H, m) of all heads for a difference a; None where they cannot be taken apart
Split: TypeAlias = Callable[[Array], Array | None]
# scores (H, p) of p keys at most so far from an asking row b, and the keys' differences from it (p, p); None
# where a weight is not readable
ScoresAt: TypeAlias = Callable[[Array, float], tuple[Array | None, Array]]

# numbers of copies: 3 and 8 move a weight of a half to 0.75 and 0.89, which two curves tell apart
_COPIES = (3, 8)
_SIZES = 0.9 * 0.6 ** np.arange(16.0)  # of the reach: how far keys may be from the asking row
_NEGLIGIBLE = 1e-5  # relative singular value of responses that counts as none
# singular values of V and W, over the largest and over the one before, from which on they are errors of the
# start, which is good to 1e-4; those of one drawn head of full rank fell to 1e-4, by a fifth at most each
_NONE, _GAP = 1e-3, 0.05
_FITS = 1e-4  # what a lifting may leave of the responses
_MATCHES = 0.05  # of a head's output: how well outputs of a sum are the sums of outputs
_WEIGHTS = (0.004, 0.996)  # scores of ±5.5: beyond, an error of a weight counts 250 times in its score
# attempts at outputs along one direction, of which the first few are at the direction itself
_ATTEMPTS, _STRAIGHT_ATTEMPTS = 16, 4
_MOST_HEADS = 32  # a cap: so many take 840 asking rows, 1.5 (H(H + 1)/2 + H)
_LEAST = 16  # asking rows of one lifting, where the number of heads is not known
_LEAST_KNOWN = 10  # the same where it is: two heads have five unknowns that every asking row sees


@dataclass(frozen=True)
class FoundHeads:
    """values: (H, m, p). scores: (H, p, p + 1), [W w0]. rank: the largest of any head's W and V."""

    values: Array
    scores: Array
    rank: int

    @classmethod
    def of(cls, values: Array, scores: Array) -> FoundHeads:
        return cls(values, scores, max(_rank(matrix) for matrix in (*values, *scores[:, :, :-1])))


def whole_path(path: Array) -> FoundHeads:
    """One head that stands for all of them, where single rows are asked: path (m, p), and no scores."""
    return FoundHeads(path[None], np.zeros((1, path.shape[1], path.shape[1] + 1)), min(path.shape))


def find_heads(
    respond: Responses, tokens: Tokens, rng: np.random.Generator, *, negligible: float = _NEGLIGIBLE
) -> FoundHeads:
    """All heads. negligible: relative singular value of responses that counts as none."""
    reason = "copies of rows do not take the heads apart at any size of rows"
    for lifting, size in _liftings(respond, tokens, negligible, rng):
        try:
            values = values_of_heads(lifting, tokens.width, size, rng)
            scores = scores_of_heads(partial(_scores_at, respond, values, tokens, rng), tokens, size, rng)
        except (
            Unresolved
        ) as stop:  # three directions were taken apart, another one is not: smaller ones may be
            reason = stop.reason
            continue
        return FoundHeads.of(values, scores)
    raise Unresolved(reason)


def _rank(matrix: Array) -> int:
    """Singular values before the first gap that is followed by two or more: the smallest of a head of full
    rank may be anything."""
    sizes = np.linalg.svd(matrix, compute_uv=False)
    none = (sizes[1:-1] <= _NONE * sizes[0]) & (sizes[1:-1] <= _GAP * sizes[:-2])
    return int(np.flatnonzero(none)[0]) + 1 if none.any() else len(sizes)


@dataclass(frozen=True)
class _Lifting:
    """Outputs V_h a of all heads for one difference a."""

    respond: Responses
    tokens: Tokens
    heads: int
    rng: np.random.Generator

    def __call__(self, a: Array) -> Array | None:
        """(H, m), or None where copies do not take the heads apart."""
        count = max(_LEAST_KNOWN, int(1.8 * (self.heads * (self.heads + 1) // 2 + self.heads)))
        return self.of(copied_responses(self.respond, a, count, self.tokens, self.rng))

    def of(self, copied: CopiedResponses) -> Array | None:
        """The same from responses that were asked."""
        once, often = copied.settled(self.respond, self.heads)
        try:
            outputs, weights = lift(once, often, copied.copies, self.heads, self.rng)
        except (Restart, np.linalg.LinAlgError):
            return None
        off = float(np.abs(weights @ outputs - once).max()) / float(np.abs(once).max())
        good = off < _FITS and float(weights.min()) > -1e-3 and float(weights.max()) < 1.001
        return outputs if good else None


@dataclass(frozen=True)
class CopiedResponses:
    """Responses to one key a + b (n, m) and to several copies (n,) of it, over asking rows b."""

    once: Array
    often: Array
    asking: Array
    copies: Array

    def settled(self, respond: Responses, heads: int) -> tuple[Array, Array]:
        """What the keys add, once and often."""
        both = np.concatenate([self.asking, self.asking])
        found = respond.settle(np.concatenate([self.once, self.often]), both, heads)
        return found[: len(self.once)], found[len(self.once) :]

    def heads(self, respond: Responses, negligible: float) -> int:
        """Dimensions of what the keys add."""
        most = int(min(_MOST_HEADS + 1, len(self.copies), self.once.shape[1]))
        for heads in range(1, most):
            sizes = np.linalg.svd(np.vstack(self.settled(respond, heads)), compute_uv=False)
            if sizes[heads] <= negligible * sizes[0]:
                return heads
        return most


def copied_responses(
    respond: Responses, a: Array, count: int, tokens: Tokens, rng: np.random.Generator
) -> CopiedResponses:
    """Over `count` asking rows, less those whose answers tell nothing."""
    b = tokens.askers_beside(a, count, rng)
    copies = np.where(np.arange(count) % 2 == 0, float(_COPIES[0]), float(_COPIES[1]))
    keys = (a + b)[:, None]
    once = respond.ask(keys, b)
    often = np.empty_like(once)
    for number in _COPIES:
        chosen = copies == number
        often[chosen] = respond.ask(np.repeat(keys[chosen], number, axis=1), b[chosen])
    told = np.isfinite(once).all(axis=1) & np.isfinite(often).all(axis=1)
    return CopiedResponses(once[told], often[told], b[told], copies[told])


def _liftings(
    respond: Responses, tokens: Tokens, negligible: float, rng: np.random.Generator
) -> Iterator[tuple[_Lifting, float]]:
    """The number of heads, and sizes of differences at which random ones are taken apart, largest first."""
    for part in _SIZES:
        size, good, heads = part * tokens.reach, 0, 0
        for _ in range(3):
            a = size * unit_rows(rng.standard_normal(tokens.width))
            count = _LEAST
            while True:
                copied = copied_responses(respond, a, count, tokens, rng)
                heads = max(heads, copied.heads(respond, negligible))
                if len(copied.copies) >= 1.5 * (heads * (heads + 1) // 2 + heads) or heads > _MOST_HEADS:
                    break
                if count > 8 * _MOST_HEADS**2:
                    break
                count = max(int(1.9 * (heads * (heads + 1) // 2 + heads)) + 4, int(1.5 * count))
            lifting = _Lifting(respond, tokens, heads, rng)
            if heads <= min(_MOST_HEADS, copied.once.shape[1] - 1) and lifting.of(copied) is not None:
                good += 1
            elif good == 0:
                break
        if good >= 2:
            yield _Lifting(respond, tokens, heads, rng), size


def values_of_heads(split: Split, width: int, size: float, rng: np.random.Generator) -> Array:
    """V_h (H, m, p): outputs along p directions, heads matched by V_h(a_0 + a_i) = V_h a_0 + V_h a_i."""
    start, first = _first(split, width, size, rng)
    directions, columns = [start[0]], [first]
    for a in start[1:]:
        direction, outputs = _beside(split, (start[0], first), a, rng)
        directions.append(direction)
        columns.append(outputs)
    stacked = np.stack(columns, axis=2)  # (H, m, p): V_h directionsᵀ
    return np.asarray(stacked @ np.linalg.inv(np.array(directions).T))


def _first(split: Split, width: int, size: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """A basis (p, p), and the outputs along its first row."""
    for _ in range(_ATTEMPTS):
        basis = size * np.linalg.qr(rng.standard_normal((width, width)))[0].T
        outputs = split(basis[0])
        if outputs is not None:
            return basis, outputs
    raise Unresolved("copies of rows do not take the heads apart in one direction")


def _beside(
    split: Split, known: tuple[Array, Array], a: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """A direction near a, and the outputs along it in the order of those of a known direction. Where outputs
    of two heads along a are nearly parallel, or one nearly vanishes, others are taken apart."""
    start, first = known
    size, found = float(np.linalg.norm(a)), False
    for attempt in range(_ATTEMPTS):
        turned = a
        if attempt >= _STRAIGHT_ATTEMPTS:
            turned = size * unit_rows(unit_rows(a) + unit_rows(rng.standard_normal(len(a))))
        outputs = split(turned)
        both = None if outputs is None else split(0.7 * (start + turned))
        if outputs is None or both is None:
            continue
        found = True
        sums = 0.7 * (first[:, None] + outputs[None])  # (H, H, m)
        gaps = np.linalg.norm(both[:, None, None] - sums[None], axis=-1).min(axis=0)
        gaps = gaps / np.median(np.linalg.norm(both, axis=1))
        mine, theirs = linear_sum_assignment(gaps)
        if float(gaps[mine, theirs].max()) < _MATCHES:
            return turned, outputs[theirs]
    raise Unresolved(
        "heads cannot be matched between directions"
        if found
        else "copies of rows do not take the heads apart in one direction"
    )


def scores_of_heads(scores_at: ScoresAt, tokens: Tokens, size: float, rng: np.random.Generator) -> Array:
    """[W w0] of every head: p scores at each of p + 4 asking rows, all keys near the asking row."""
    asking = tokens.askers(tokens.width + 4, rng)
    directions = []
    for b in asking:
        reach = size
        for _ in range(14):
            scores, differences = scores_at(b, reach)
            if scores is not None:
                directions.append(np.linalg.solve(differences, scores.T).T)
                break
            reach *= 0.6
        else:
            raise Unresolved("the heads' weights cannot be solved for at one asking row")
    design = np.column_stack([asking, np.ones(len(asking))])
    by_head = np.stack(directions, axis=1)  # (H, asking rows, p)
    return np.stack([np.linalg.lstsq(design, there, rcond=None)[0].T for there in by_head])


def _scores_at(
    respond: Responses, values: Array, tokens: Tokens, rng: np.random.Generator, b: Array, reach: float
) -> tuple[Array | None, Array]:
    """Scores (H, p) of p keys around b, n keys a query; None where a weight is not readable."""
    H, m, p = values.shape
    n = max(1, min((m - 1) // H - 1, 6))
    turned = np.linalg.qr(rng.standard_normal((p, p)))[0].T
    keys = tokens.around(b, turned, reach)
    differences = keys - b
    groups = [np.arange(start, min(start + n, p)) for start in range(0, p, n)]
    if len(groups[-1]) < n:
        groups[-1] = np.arange(p - n, p)
    found = respond.ask(np.stack([keys[group] for group in groups]), np.repeat(b[None], len(groups), axis=0))
    if not np.isfinite(found).all():
        return None, differences
    scores = np.empty((H, p))
    for group, answer in zip(groups, found, strict=True):
        design = np.concatenate([values[h] @ differences[group].T for h in range(H)], axis=1)
        weights = respond.weights(answer, b, design).reshape(H, -1)
        rest = 1.0 - weights.sum(axis=1)
        low, high = _WEIGHTS
        if weights.min() < low or rest.min() < low or weights.max() > high:
            return None, differences
        scores[:, group] = np.log(weights) - np.log(rest)[:, None]
    return scores, differences
