"""Fixed tokens before every sequence, the last free token asking: answers as they would be without them.

The prefix adds the weight a and the value z, seen from the asking token. The whole sequence n times over is
answered (a z + n S)/(a + n W), and S/W is what is wanted: two numbers of repeats tell it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np

from unsoftmax.arrays import EPS, Array, Ids
from unsoftmax.learners.tokens.books import TokenBooks, View
from unsoftmax.oracles import TokenFrame
from unsoftmax.outcomes import NotIdentifiable

__all__ = ["WithoutPrefix", "last_token_asks"]

_SEQUENCES = 6  # what moves every other sequence escapes six once in 64 times
_FEWEST = 4  # free tokens: a pair, twice
_ALIKE = 2e-5  # of the answers: float32 arithmetic moves equal ones by less
_ROUNDING = 16.0  # units of the last place, within which two answers count as equal


def last_token_asks(asker: TokenBooks, longest: int, rng: np.random.Generator) -> bool:
    """Whether the order of all free tokens matters: if not, a token of the prefix asks. 12 queries."""
    length = min(3, longest)
    ids = rng.integers(0, asker.width, (_SEQUENCES, length))
    with asker.phase("class tests"):
        straight, turned = (_answers(asker, each) for each in (ids, ids[:, ::-1]))
    return bool(np.abs(straight - turned).max() > _ALIKE * np.abs(straight).max())


@dataclass(frozen=True, eq=False)
class WithoutPrefix(View):
    """Two queries for every sequence. room: the most free tokens that the target takes.

    empty: what the prefix alone is answered, seen from each asking token, (V,) or (V, m).
    """

    room: int
    empty: Array

    @classmethod
    def of(cls, asker: TokenBooks, frame: TokenFrame, room: int) -> WithoutPrefix:
        """Asks what the prefix is worth: one query where it is one token, three for each token else."""
        if room < _FEWEST:
            raise NotIdentifiable(f"the prefix leaves room for {room} tokens, and {_FEWEST} are needed")
        fixed = np.unique(frame.fixed_ids)
        with asker.phase("values"):
            if len(fixed) == 1:
                alone = _answers(asker, fixed[:, None])  # only copies of one token: its value
                return cls(asker, room, np.repeat(alone, asker.width, axis=0))
            counts = (1, 2, room)
            answers = [_all_tokens(asker, count) for count in counts]
        return cls(asker, room, _at_none(answers, counts))

    @property
    def longest(self) -> int:
        """The most tokens of a sequence that fits twice."""
        return self.room // 2

    def ask(self, batch: Array) -> Array:
        ids = np.asarray(batch, dtype=np.int64)
        times = max(2, self.room // ids.shape[1])
        once, often = (_answers(self.asker, np.tile(ids, (1, n))) for n in (1, times))
        return _without(once, often, self.empty[ids[:, -1]], times)


def _all_tokens(asker: TokenBooks, copies: int) -> Array:
    """Answers to so many copies of every token."""
    ids = np.repeat(np.arange(asker.width)[:, None], copies, axis=1)
    step = asker.batch_size(copies)
    return np.concatenate([_answers(asker, ids[at : at + step]) for at in range(0, len(ids), step)])


def _answers(asker: TokenBooks, ids: Ids) -> Array:
    return np.asarray(asker.ask(cast(Array, ids)))


def _without(once: Array, often: Array, empty: Array, times: int) -> Array:
    """S/W from answers to a sequence once and `times` over."""
    below = times * (once - empty) - (often - empty)
    above = times * (often - once)
    if below.ndim > 1:  # one share a for all numbers of a vector: where it shows best
        best = np.abs(below).argmax(axis=1)[:, None]
        below, above = np.take_along_axis(below, best, axis=1), np.take_along_axis(above, best, axis=1)
    size = np.abs(once).max() + np.abs(empty).max()
    equal = np.abs(below) <= _ROUNDING * EPS * times * size
    share = np.where(equal, 0.0, above / np.where(equal, 1.0, below))
    return np.asarray(often + share * (often - empty) / times)


def _at_none(answers: list[Array], counts: tuple[int, int, int]) -> Array:
    """The answer to no copy at all, from three numbers of copies n: y_n (α + n) = α z + n u."""
    n = np.array(counts, dtype=np.float64)
    y = np.stack(answers, axis=-1)
    # unknowns α, α z and u: α y_n − α z − n u = −n y_n
    system = np.stack([y, np.broadcast_to(-1.0, y.shape), np.broadcast_to(-n, y.shape)], axis=-1)
    solved = np.linalg.solve(system, (-n * y)[..., None])[..., 0]
    return np.asarray(solved[..., 1] / solved[..., 0])
