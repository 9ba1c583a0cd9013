"""Scores of token pairs, from sequences of copies: e^T is the weight of a token against the one that asks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.tokens.sequences import Counts, Mask, TokenSequences
from unsoftmax.oracles import Ids

__all__ = ["Comparison", "PairRequest", "TokenPairMeter"]

_WEAK = 0.02  # of the spread of values: pairs whose values are closer than this are read with a third token
_UNREADABLE = 0.5  # an error bar of the score from which it only counts as large or small
_BEYOND = 3.0  # how far beyond the limit a score is expected that cannot be read
_CARRIERS = 3  # of either end
_FAR = 60.0  # e^±60 is beyond what copies and rounding can show


@dataclass(frozen=True, eq=False)
class PairRequest:
    """Pairs whose scores T_ij = s(i, j) − s(j, j) are wanted.

    tokens, asking: i and j, (P,). scores: what is expected of T_ij. carriers: a third token k for each pair
    (equal to j where there is none), with T_kj in carrier_scores and its error bar in carrier_errors.
    """

    tokens: Ids
    asking: Ids
    scores: Array
    carriers: Ids
    carrier_scores: Array
    carrier_errors: Array

    @classmethod
    def plain(cls, tokens: Ids, asking: Ids, scores: Array | None = None) -> PairRequest:
        """Pairs without a carrier."""
        zero = np.zeros(len(tokens))
        return cls(tokens, asking, zero if scores is None else scores, asking, zero, zero)

    def part(self, chosen: Ids) -> PairRequest:
        """Some of the pairs."""
        return replace(self, **{name: getattr(self, name)[chosen] for name in self.__dataclass_fields__})

    def where(self, first: Mask, other: PairRequest) -> PairRequest:
        """These pairs where `first`, else those of `other`."""
        return PairRequest(
            np.where(first, self.tokens, other.tokens),
            np.where(first, self.asking, other.asking),
            np.where(first, self.scores, other.scores),
            np.where(first, self.carriers, other.carriers),
            np.where(first, self.carrier_scores, other.carrier_scores),
            np.where(first, self.carrier_errors, other.carrier_errors),
        )

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, eq=False)
class Comparison:
    """value = T_ij − T_kj with the error bar `errors`, k in `references`; k = j means T_ij itself.

    Where errors are infinite, the score is beyond what an answer can show, and value is a guess.
    carried: whether a third token entered.
    """

    values: Array
    errors: Array
    references: Ids
    carried: Mask


@dataclass(frozen=True)
class TokenPairMeter:
    """Reads y([i×n, k×m, j×l]) = (a u_i + b u_k + l u_j)/(a + b + l), a = n e^{T_ij}, b = m e^{T_kj}.

    values: u, the answer to every token alone. noise: how far an answer may be off. Copies are chosen so that
    the answer moves most with T_ij. The carrier k serves where u_i and u_j nearly agree, and where both i and
    k outweigh j by far: then the difference of their scores is read.
    """

    sequences: TokenSequences
    values: Array
    noise: float

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return len(self.values)

    @cached_property
    def spread(self) -> float:
        """Difference between the largest and the smallest value."""
        return float(self.values.max() - self.values.min())

    @cached_property
    def extremes(self) -> tuple[int, int]:
        """The tokens of the largest and of the smallest value."""
        return int(self.values.argmax()), int(self.values.argmin())

    @cached_property
    def _plain_patterns(self) -> list[tuple[int, int, int]]:
        most = self.sequences.longest - 1
        counts = {
            (1, 1),
            (1, min(4, most)),
            (min(4, most), 1),
            (min(16, most), 1),
            (1, min(16, most)),
            (most, 1),
            (1, most),
        }
        return [(n, 0, own) for n, own in sorted(counts)]

    @cached_property
    def _carried_patterns(self) -> list[tuple[int, int, int]]:
        most = self.sequences.longest - 1
        few, half = min(4, max(1, most - 1)), max(1, most // 2)
        counts = {
            (1, 1),
            (1, few),
            (few, 1),
            (half, 1),
            (1, half),
            (max(1, most - 1), 1),
            (1, max(1, most - 1)),
        }
        return [(n, m, 1) for n, m in sorted(counts) if n + m + 1 <= self.sequences.longest]

    @cached_property
    def carriers(self) -> Ids:
        """Tokens that can serve as a third one: those of the largest and of the smallest values."""
        order = np.argsort(self.values, kind="stable")
        few = min(_CARRIERS, len(order))
        return np.unique(np.concatenate([order[:few], order[-few:]]))

    def influence(self, tokens: Ids, asking: Ids, scores: Array) -> Array:
        """How the answer to [tokens, j] moves with the score of every token, for each asking token j.

        tokens: (L,). asking: (n,). scores: (n, L). Returns (n, L).
        """
        top = np.maximum(scores.max(axis=1, initial=0.0), 0.0)[:, None]
        weights, own = np.exp(scores - top), np.exp(-top)
        total = weights.sum(axis=1, keepdims=True) + own
        u = self.values[tokens]
        y = (weights @ u + own[:, 0] * self.values[asking])[:, None] / total
        return np.asarray(weights / total * (u - y))

    def deviations(self, tokens: Ids, asking: Ids, scores: Array) -> Array:
        """How far the answers to [tokens, j] are from what the scores predict. One query for each j.

        tokens, scores: (n, L). asking: (n,).
        """
        own = np.column_stack([scores, np.zeros(len(asking))])
        weights = np.exp(own - own.max(axis=1, keepdims=True))
        ids = np.column_stack([tokens, asking])
        predicted = np.einsum("nl,nl->n", weights, self.values[ids]) / weights.sum(axis=1)
        return np.asarray(np.abs(self.sequences.ask(ids) - predicted))

    def farther_extreme(self, asking: Ids) -> Ids:
        """The one of the two tokens with extreme values whose value is farther from the asking token's."""
        high, low = self.extremes
        middle = (self.values[high] + self.values[low]) / 2.0
        return np.where(self.values[asking] < middle, high, low)

    def weak(self, tokens: Ids, asking: Ids) -> Mask:
        """Whether two values are too close for a sequence of two tokens."""
        return np.asarray(np.abs(self.values[tokens] - self.values[asking]) < _WEAK * self.spread)

    def prospect(self, request: PairRequest) -> Array:
        """The error bar that each pair would get, if the expected scores are right."""
        with np.errstate(divide="ignore"):
            return np.asarray(self.noise / self._patterns(request)[1])

    def compare(self, request: PairRequest) -> Comparison:
        """One query for each pair."""
        counts, _ = self._patterns(request)
        tokens = np.stack([request.tokens, request.carriers, request.asking], axis=1)
        answers = self.sequences.copies(tokens, counts)
        return self._read(request, counts, answers)

    def _patterns(self, request: PairRequest) -> tuple[Counts, Array]:
        """Copies (P, 3) of i, k and j, and how far the answer moves with the score."""
        size = len(request)
        best, counts = np.full(size, -1.0), np.ones((size, 3), dtype=np.int64)
        weight = np.exp(np.clip(request.scores, -_FAR, _FAR))
        carrier = np.exp(np.clip(request.carrier_scores, -_FAR, _FAR))
        u_i, u_k, u_j = (self.values[ids] for ids in (request.tokens, request.carriers, request.asking))
        carried = (request.carriers != request.asking) & (request.carriers != request.tokens)
        for n, m, own in (*self._plain_patterns, *self._carried_patterns):
            a, b = n * weight, m * carrier
            total = a + b + own
            y = (a * u_i + b * u_k + own * u_j) / total
            moves = a / total * np.abs(u_i - y)
            if m:  # an uncertain carrier makes the reading uncertain, unless it outweighs the asking token
                moves = moves / (1.0 + request.carrier_errors * moves / self.noise * np.minimum(1.0, own / b))
                moves = np.where(carried, moves, -1.0)
            better = moves > best * (1.0 + 1e-9)
            best = np.where(better, moves, best)
            counts[better] = (n, m, own)
        return counts, np.maximum(best, 0.0)

    def _read(self, request: PairRequest, counts: Counts, y: Array) -> Comparison:
        n, m, own = (counts[:, part] for part in range(3))
        u_i, u_k, u_j = (self.values[ids] for ids in (request.tokens, request.carriers, request.asking))
        b = m * np.exp(np.clip(request.carrier_scores, -_FAR, _FAR))
        with np.errstate(divide="ignore", invalid="ignore"):
            by_carrier, by_asking = b * (u_k - y), own * (u_j - y)
            a = (by_carrier + by_asking) / (y - u_i)
            score = np.log(a / n)
            error = self.noise * (a + b + own) / (a * np.abs(u_i - y))
            # the carrier's own error enters T_ij by `share`, and T_ij − T_kj by what is left of it
            share = by_carrier / (by_carrier + by_asking)
            relative = (m > 0) & (np.abs(1.0 - share) < np.abs(share))
            entering = request.carrier_errors * np.where(relative, np.abs(1.0 - share), np.abs(share))
            error = np.hypot(error, np.where(m > 0, entering, 0.0))
            lost = ~(error < _UNREADABLE) | ~np.isfinite(score)
            apart = np.maximum(np.abs(u_i - u_j), self.noise)
            # largest |log(a/own)| that shows
            readable = np.maximum(np.log(_UNREADABLE * apart / self.noise), 0.0)
            near = np.abs(y - u_i) < np.abs(y - u_j)
            guess = np.where(near, readable + _BEYOND, -readable - _BEYOND) + np.log(own / n)
        relative = relative & ~lost
        values = np.where(lost, guess, score) - np.where(relative, request.carrier_scores, 0.0)
        references = np.where(relative, request.carriers, request.asking)
        return Comparison(values, np.where(lost, np.inf, error), references, m > 0)
