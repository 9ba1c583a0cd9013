"""What the second place adds to values: at the right number, scores of a block of pairs have low rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import EPS, Array, Ids
from unsoftmax.learners.tokens.checks import ORDER_TEST
from unsoftmax.meters.tokens import TokenSequences
from unsoftmax.outcomes import OutsideClass, Unresolved

__all__ = ["SecondPlace", "find_second_place", "pair_scores", "refuse_other_places"]

_BLOCKS = (12, 24, 48)  # tokens of either end; scores may have half as high a rank
_GRID, _ZOOMS, _FINE = 601, 14, 41  # each zoom is 20 times finer: 600·20^14 is beyond float64
_STILL = 2e-5  # of the answers: float32 arithmetic moves equal ones by less
_LOW_RANK = 1e-6  # of the largest singular value: what is left at the right number is rounding


@dataclass(frozen=True, eq=False)
class SecondPlace:
    """value: of the second place less that of the first. rank: of the scores. low: tokens of small values."""

    value: float
    rank: int
    low: Ids


def pair_scores(
    answers: Array, u_first: Array, u_last: Array, place: float, noise: float
) -> tuple[Array, Array]:
    """Scores of the first token against the last of two, and their error bars, infinite where none shows."""
    with np.errstate(divide="ignore", invalid="ignore"):
        own = u_last + place
        scores = np.log((answers - own) / (u_first - answers))
        bars = noise * np.abs(u_first - own) / (np.abs(answers - own) * np.abs(u_first - answers))
    readable = np.isfinite(scores) & (bars < 0.5)
    return np.where(readable, scores, 0.0), np.where(readable, bars, np.inf)


def find_second_place(sequences: TokenSequences, values: Array) -> SecondPlace:
    """2k² queries for a block of k tokens of large and k of small values."""
    order = np.argsort(values, kind="stable")
    evidence = ""
    for size in _BLOCKS:
        k = min(size, len(values) // 2)
        low, high = order[:k], order[-k:]
        blocks = [_Block.asked(sequences, values, *sides) for sides in ((high, low), (low, high))]
        found = _search(blocks)
        if found is not None:
            rank = max(block.rank(found) for block in blocks)
            if rank is not None and rank <= k // 2 and rank + 2 <= k:
                return SecondPlace(found, rank, low)
        evidence = (
            f"order matters, and no value of the second place gives the scores of {k} by {k} pairs a low rank"
        )
        if k < size:
            break
    raise OutsideClass(ORDER_TEST, evidence)


def refuse_other_places(sequences: TokenSequences, values: Array) -> None:
    """Raises where [t, t] is above [t] for some tokens and below for others, or where no value of the second
    place puts every pair's answer between its tokens: one head does neither. V + V²/2 queries."""
    twice = sequences.ask(np.repeat(np.arange(len(values))[:, None], 2, axis=1)) - values
    if float(twice.min()) * float(twice.max()) < -(_STILL**2) * float(np.abs(values).max()) ** 2:
        up = int((twice > 0.0).sum())
        raise Unresolved(
            f"order matters, and [t, t] is answered above [t] for {up} and below for {len(twice) - up} of "
            f"{len(twice)} tokens; one head with learned places moves all in one direction, and several "
            "heads with places are not learnt"
        )
    order = np.argsort(values, kind="stable")
    sides = order[: len(order) // 2], order[len(order) // 2 :]
    blocks = [_Block.asked(sequences, values, *each) for each in (sides, sides[::-1])]
    if _range(blocks) is None:
        raise Unresolved(
            "order matters, and no value of the second place puts the answers to pairs of tokens between "
            "those of their tokens; several heads with positions would be answered like this, and they are "
            "not learnt"
        )


@dataclass(frozen=True, eq=False)
class _Block:
    """Answers (k, k) to [a, b]; values of a and of b."""

    answers: Array
    first: Array
    last: Array

    @classmethod
    def asked(cls, sequences: TokenSequences, values: Array, tokens: Ids, asking: Ids) -> _Block:
        a, b = np.meshgrid(tokens, asking, indexing="ij")
        answers = sequences.ask(np.stack([a.ravel(), b.ravel()], axis=1)).reshape(a.shape)
        return cls(answers, values[a], values[b])

    def limits(self) -> tuple[float, float]:
        """Answers lie between u_a and u_b + place: above or below u_a tells on which side the place ends."""
        upper = self.first > self.answers
        above = (self.answers - self.last)[upper]
        below = (self.answers - self.last)[~upper]
        return float(below.max(initial=-np.inf)), float(above.min(initial=np.inf))

    def sizes(self, place: float) -> Array | None:
        """Singular values of the scores, less their mean over tokens; None where a score is impossible."""
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = np.log((self.answers - self.last - place) / (self.first - self.answers))
        if not np.isfinite(scores).all():
            return None
        return np.asarray(np.linalg.svd(scores - scores.mean(axis=0), compute_uv=False))

    def rank(self, place: float) -> int:
        """Number of singular values above rounding."""
        sizes = self.sizes(place)
        if sizes is None:
            return len(self.answers)
        return int((sizes > _LOW_RANK * sizes[0]).sum())


def _range(blocks: list[_Block]) -> tuple[float, float] | None:
    """Between which numbers the second place must lie; None where there are none."""
    limits = np.array([block.limits() for block in blocks])
    low, high = float(limits[:, 0].max()), float(limits[:, 1].min())
    return (low, high) if np.isfinite(low) and np.isfinite(high) and low < high else None


def _search(blocks: list[_Block]) -> float | None:
    """The number at which what exceeds half the rank is smallest."""
    if (ends := _range(blocks)) is None:
        return None
    low, high = ends
    grid = np.linspace(low, high, _GRID)[1:-1]
    for count in [_FINE] * _ZOOMS:
        costs = np.array([_cost(blocks, place) for place in grid])
        at = int(costs.argmin())
        if not np.isfinite(costs[at]):
            return None
        step = grid[1] - grid[0]
        best = float(grid[at])
        if step <= 2.0 * EPS * max(abs(best), step):
            break
        grid = np.linspace(max(best - step, low), min(best + step, high), count)
    return best


def _cost(blocks: list[_Block], place: float) -> float:
    total = 0.0
    for block in blocks:
        sizes = block.sizes(place)
        if sizes is None:
            return np.inf
        total += float(np.log(sizes[len(sizes) // 2 + 1 :].sum() + 1e-14 * sizes[0]))
    return total
