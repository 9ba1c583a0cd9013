"""Token ids in a fixed frame, one token of which asks: a weight and a value of every token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unsoftmax.answers import Exact
from unsoftmax.arrays import EPS, Array, Ids
from unsoftmax.learners.tokens.books import TokenBooks
from unsoftmax.learners.tokens.checks import ROUNDING, agreement
from unsoftmax.learners.tokens.claims import FIXED_ASKER_CLAIM
from unsoftmax.learners.tokens.learned import LearnedTokens, readout_of
from unsoftmax.meters.tokens import TokenSequences
from unsoftmax.models import TokenHead, TokenHeads
from unsoftmax.oracles import TokenFrame
from unsoftmax.outcomes import NotIdentifiable, OutsideClass, Test, Unresolved

__all__ = ["FixedAsker", "FramedHeads"]

FRAME_TEST = Test(
    "copies of one token in the frame, and the fixed tokens themselves, are answered as by one head"
)
_REFERENCES = 24  # tokens by which the answer to an empty frame is found
_EXPLAINED = 1e-6  # of the spread of values
_FEWEST = 3  # free tokens
_SEVERAL = (
    "several heads whose asking token is fixed would be answered like this too, and they are not learnt"
)


class FramedHeads(TokenHeads):
    """Heads as a function of the free tokens in a frame."""

    def __init__(self, heads: Sequence[TokenHead], frame: TokenFrame) -> None:
        super().__init__(heads)
        self.frame = frame

    def __call__(self, batch: Array | Ids, /) -> Array:
        return super().__call__(self.frame.around(self._ids(batch)))


@dataclass(frozen=True)
class FixedAsker:
    """f = (A + Σ w_t u_t)/(1 + Σ w_t) over free tokens t: the frame's tokens add the weight 1 and A.

    Queries: 2V + 48. Assumes: one head, exact answers.
    Recovers: w and u of every token, the fixed ones included.
    Other tokens never ask, so their columns of scores are not seen.
    """

    def learn(
        self, asker: TokenBooks, frame: TokenFrame, longest: int, rng: np.random.Generator
    ) -> LearnedTokens:
        """n copies of every token, for two numbers n; three for some."""
        if longest < _FEWEST:
            raise NotIdentifiable(
                f"the frame leaves room for {longest} tokens, and {_FEWEST} copies are needed"
            )
        V = asker.width
        counts = (1, 2, min(longest, 16)) if longest > 2 else (1, 2, 3)
        plain = TokenSequences(asker, longest)
        with asker.phase("values"):
            few, many = (plain.raw(_copies(np.arange(V), n)) for n in (counts[0], counts[2]))
            readout = readout_of(np.concatenate([few, many]) if few.ndim > 1 else few)
            references = rng.choice(V, min(V, _REFERENCES), replace=False)
            middle = plain.raw(_copies(references, counts[1]))
        y = np.stack([part if readout is None else part @ readout for part in (few, many)], axis=1)
        third = middle if readout is None else middle @ readout
        with asker.phase("class tests"):
            # of three tokens: copies of all count here, because the frame is not doubled with them
            seen = agreement(TokenSequences(asker, _FEWEST, readout), y[:, 0], rng)
        if not isinstance(seen.answers, Exact):
            raise Unresolved(
                f"a fixed token asks, and that is learnt from exact answers; these are {seen.answers.name}: "
                f"{seen.evidence}"
            )
        noise = ROUNDING * EPS * float(np.abs(y).max())
        empty = _empty_frame(y[references], third, counts)
        weights, totals = _solved(y, empty, counts[0], counts[2])
        alone = np.unique(frame.fixed_ids)
        if len(alone) == 1:  # beside itself the fixed token is answered as alone, which shows no weight
            weights[alone], totals[alone] = 1.0 / frame.fixed, y[alone].mean() / frame.fixed
        if not (np.isfinite(weights).all() and (weights > 0.0).all()):
            wrong = int(np.sum(~(weights > 0.0)))
            if np.ptp(y) <= 100.0 * noise:
                raise NotIdentifiable("all tokens are answered alike, so no score shows")
            if wrong < V // 20:
                raise Unresolved(f"{wrong} of {V} tokens are answered as the frame alone, so no score shows")
            raise Unresolved(f"one head would give {wrong} of {V} tokens a negative weight; {_SEVERAL}")
        share = 1.0 + counts[1] * weights[references]
        off = float(np.abs((empty + counts[1] * totals[references]) / share - third).max())
        if off > _EXPLAINED * float(np.ptp(y)):
            raise Unresolved(
                f"{counts[1]} copies of a token are answered {off:.2g} otherwise than {counts[0]} and "
                f"{counts[2]} copies predict of one head; {_SEVERAL}"
            )
        values = totals / weights
        self._check_frame(frame, weights, totals, empty, values)
        if readout is not None:
            values = _vector_values(weights, few, many, counts)
        head = TokenHead(np.log(weights)[:, None], np.ones((V, 1)), values)
        model = FramedHeads([head], frame)
        return LearnedTokens(model, noise, noise, claim=FIXED_ASKER_CLAIM)

    def _check_frame(
        self, frame: TokenFrame, weights: Array, totals: Array, empty: float, values: Array
    ) -> None:
        """The fixed tokens, sent as free ones, must add up to what the frame adds."""
        fixed = frame.fixed_ids
        weight, total = float(weights[fixed].sum()), float(totals[fixed].sum())
        off = max(abs(weight - 1.0), abs(total - empty) / float(np.ptp(values)))
        if off > _EXPLAINED * max(1.0, 1.0 / float(weights[fixed].min())):
            raise OutsideClass(
                FRAME_TEST,
                f"the fixed tokens add up to {weight:.6g} times what the frame adds, or other values",
            )


def _copies(tokens: Ids, count: int) -> Ids:
    return np.repeat(tokens[:, None], count, axis=1)


def _empty_frame(y: Array, middle: Array, counts: tuple[int, int, int]) -> float:
    """A, from y_n + n w y_n = A + n z at three n: the median over tokens, by how well each tells it."""
    n = np.array(counts, dtype=np.float64)
    answers = np.stack([y[:, 0], middle, y[:, 1]], axis=1)
    system = np.stack([n * answers, np.broadcast_to(-n, answers.shape), -np.ones_like(answers)], axis=2)
    conditions = np.linalg.cond(system)
    best = np.argsort(conditions)[: max(3, len(y) // 3)]
    solved = np.linalg.solve(system[best], -answers[best][:, :, None])[:, 2, 0]
    return float(np.median(solved))


def _solved(y: Array, empty: float, first: int, last: int) -> tuple[Array, Array]:
    """w and z = w u of every token, from two numbers of copies: n w y_n − n z = A − y_n."""
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = (empty - y[:, 0]) / first, (empty - y[:, 1]) / last
        weights = (a - b) / (y[:, 0] - y[:, 1])
        return weights, weights * y[:, 0] - a


def _vector_values(weights: Array, few: Array, many: Array, counts: tuple[int, int, int]) -> Array:
    """Values (V, m): n w (y_n − u) = A − y_n for two n, A eliminated between tokens and numbers of copies."""
    n, k = counts[0], counts[2]
    w = weights[:, None]
    # A = y_n + n w (y_n − u), the same for every token and n: least squares in u and A
    left = few + n * w * few
    right = many + k * w * many
    return np.asarray((right - left) / ((k - n) * w))
