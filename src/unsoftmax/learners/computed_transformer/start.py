"""Scores of attention before a known network, one at a time, through rounding.

[a + b; b] is answered G(b + τ a) with τ = ρ σ(aᵀ(W b + w0)). Where G is monotone along a, the answer tells τ.
Whether it is can be computed, because G is known, so no query is spent on other pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, logit
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.computed_transformer.attention_fit import Attention
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.models.networks.canonical_network import CanonicalNetwork
from unsoftmax.outcomes import Unresolved

__all__ = ["Pairs", "find_attention"]

_COPIES = 7  # of the first row, which multiply e^score
_PILOTS = 24  # a quarter of them must be moderate, and their median is taken
_ROUNDS = 8  # a cap: a round changes the size by a factor of up to 4
_SPREAD = 1.5  # standard deviation of scores that is aimed at: the logistic curve is steep there
_CLOSE = 1.5  # times that, either way: near enough
_HIGHEST = 4.0  # scores beyond it hardly tell
_CANDIDATES = 40  # pairs that are drawn for one that is monotone, at most
_STRAIGHT = 0.2  # of the mean slope of G along a: its least slope in a pair that is used
_SURPLUS = 1.4  # pairs over unknowns
_MODERATE = (0.2, 5.0)  # e^score of pairs that tell ρ


@dataclass(frozen=True)
class Pairs:
    """a, b: (n, d), with G monotone between b and b + a."""

    folds: CanonicalNetwork
    a: Array
    b: Array

    @classmethod
    def drawn(cls, folds: CanonicalNetwork, count: int, size: float, rng: np.random.Generator) -> Pairs:
        """Gaussian rows with entries of this size; those along which G is straightest."""
        kept_a, kept_b, left = [], [], count
        for _ in range(_CANDIDATES):
            a, b = size * rng.standard_normal((2, 2 * left + 8, folds.width))
            good = _straightness(folds, a, b) > _STRAIGHT
            kept_a.append(a[good][:left])
            kept_b.append(b[good][:left])
            left -= min(left, int(good.sum()))
            if not left:
                return cls(folds, np.concatenate(kept_a), np.concatenate(kept_b))
        raise Unresolved(
            f"of {_CANDIDATES * count} pairs of rows, the network is monotone between fewer than {count}, so "
            "attention before it is not told"
        )

    def shares(self, asks: AsksSequences, held: FloatFormat, copies: int = 1) -> Array:
        """τ of every pair, with so many copies of the first row."""
        last = held.store(self.b)
        first = held.store(self.a + self.b)
        rows = np.concatenate([np.repeat(first[:, None], copies, axis=1), last[:, None]], axis=1)
        return _crossings(self.folds, first - last, last, asks(rows).ravel())


def find_attention(
    asks: AsksSequences, folds: CanonicalNetwork, held: FloatFormat, rng: np.random.Generator
) -> tuple[Attention, float]:
    """(attention to about a thousandth, size of entries of rows whose scores are moderate)."""
    size, share = _moderate_size(asks, folds, held, rng)
    d = folds.width
    pairs = Pairs.drawn(folds, int(_SURPLUS * d * (d + 1)) + 32, size, rng)
    scores = logit(np.clip(pairs.shares(asks, held) / share, 1e-6, 1.0 - 1e-6))
    told = np.abs(scores) < _HIGHEST
    weights = 1.0 / np.cosh(scores[told] / 2.0) ** 2  # what an error of the answer moves a score by, inverted
    a, b = pairs.a[told], np.column_stack([pairs.b[told], np.ones(int(told.sum()))])
    design = (a[:, :, None] * b[:, None]).reshape(len(a), -1)
    solved = np.linalg.lstsq(design * weights[:, None], scores[told] * weights, rcond=1e-12)[0]
    return Attention(np.asarray(solved.reshape(d, d + 1), dtype=np.float64), share), size


def _moderate_size(
    asks: AsksSequences, folds: CanonicalNetwork, held: FloatFormat, rng: np.random.Generator
) -> tuple[float, float]:
    """(size of entries, ρ)."""
    size = 1.0
    for _ in range(_ROUNDS):
        pairs = Pairs.drawn(folds, _PILOTS, size, rng)
        one, many = pairs.shares(asks, held), pairs.shares(asks, held, _COPIES)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = many / one
            weight = (_COPIES - ratio) / (_COPIES * (ratio - 1.0))  # e^score
            share = one * (1.0 + weight) / weight
        told = (weight > _MODERATE[0]) & (weight < _MODERATE[1])
        spread = float(np.nanstd(np.clip(np.log(np.where(weight > 0.0, weight, np.nan)), -6.0, 6.0)))
        if told.sum() >= _PILOTS // 4 and 1.0 / _CLOSE < spread / _SPREAD < _CLOSE:
            return size, float(np.median(share[told]))
        size *= float(np.clip(np.sqrt(_SPREAD / max(np.nan_to_num(spread, nan=6.0), 1e-3)), 0.25, 4.0))
    raise Unresolved("rows of no size have moderate scores in attention before the network")


def _kinks(folds: CanonicalNetwork, a: Array, b: Array) -> tuple[Array, Array]:
    """(places (n, J + 2) in [0, 1] along b + τ a where G may turn, in order, with both ends; G there)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = -folds.sides(b) / (a @ folds.normals.T)
    crossing = np.where((crossing > 0.0) & (crossing < 1.0), crossing, 1.0)
    places = np.sort(np.column_stack([np.zeros(len(a)), crossing, np.ones(len(a))]), axis=1)
    values = np.stack([folds(b + places[:, i, None] * a) for i in range(places.shape[1])], axis=1)
    return places, values


def _straightness(folds: CanonicalNetwork, a: Array, b: Array) -> Array:
    """The least slope over the mean one; negative where G turns back."""
    places, values = _kinks(folds, a, b)
    steps, rises = np.diff(places, axis=1), np.diff(values, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = np.where(steps > 1e-6, rises / steps, np.inf * np.sign(values[:, -1:] - values[:, :1]))
        relative = slopes / (values[:, -1:] - values[:, :1])
    return np.asarray(np.nan_to_num(relative, nan=-1.0, posinf=np.inf, neginf=-np.inf).min(axis=1))


def _crossings(folds: CanonicalNetwork, a: Array, b: Array, answers: Array) -> Array:
    """τ with G(b + τ a) = answer, by the straight pieces of G; clipped to [0, 1]."""
    places, values = _kinks(folds, a, b)
    found = np.empty(len(a))
    for i, (place, value, answer) in enumerate(zip(places, values, answers, strict=True)):
        rising = value if value[-1] >= value[0] else -value
        found[i] = np.interp(answer if value[-1] >= value[0] else -answer, rising, place)
    return found
