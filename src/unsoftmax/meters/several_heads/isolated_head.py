"""One head of several: asking rows that saturate all others leave y = b·v̄ + background + σ(t)·(a·v),
inverted for the score t."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array, logit
from unsoftmax.meters.base import Meter
from unsoftmax.meters.several_heads.excess_answers import Responses
from unsoftmax.meters.several_heads.other_heads import Background, SaturatedBackground
from unsoftmax.outcomes import Unresolved

__all__ = ["Block", "IsolatedHeadMeter", "ask_together"]

_TARGET = 0.8  # typical change of a score by one step of a
_TRIES = 16  # each with a quarter of the step: down to 2e-10 of the first
_LARGEST_WEIGHT = 0.99  # beyond, 1 - weight has lost two digits


@dataclass
class Block:
    """Answers at a + step·direction for some directions and points, kept so that they can be read again with
    a better background."""

    directions: Array  # (d, k)
    points: slice
    steps: Array  # (k, n)
    answers: Array  # (k, n), NaN until asked


class IsolatedHeadMeter(Meter):
    """Measures one head of several. `points` are asking rows at which all others are saturated when `a` is
    the base row.

    v: the head's own readout. background: what all other heads add to the response. As a `Meter` (`forms`,
    `project`) it serves any solver; `open`, `ask_together` and `values` let many heads share their batches.
    """

    def __init__(
        self,
        respond: Responses,
        a: Array,
        v: Array,
        points: Array,
        reach: float,
        background: Background,
        *,
        row: Array,
    ) -> None:
        self.respond = respond
        self.a = a
        self.v = v
        self.points = points
        self.background = background
        self.base = np.full(len(points), np.nan)
        self.step = (
            _TARGET
            * np.sqrt(len(a))
            * float(np.linalg.norm(a))
            / (float(np.linalg.norm(row)) * float(np.mean(np.linalg.norm(points, axis=1))))
        )
        self.repeated = 0
        self._reach = reach
        self._row = row
        self._smallest = max(1e-9, 1e-3 * np.sqrt(respond.rounding))

    def aim_at(self, step: float) -> None:
        """Steps at which scores are moderate, as the first ones have shown; at most four times as long."""
        self.step = min(step, 4 * self.step)

    def replace_background(self, background: Background) -> None:
        """What the other heads add, as it is known by now."""
        self.background = background

    @property
    def width(self) -> int:
        return len(self.a)

    def resolution(self) -> float:
        """From the rounding of the answer against a·v of this head, at the sizes used."""
        blur = float(np.max(self.respond.blur(self.a, self.points)))
        return float(64.0 * blur / abs(float(self.a @ self.v)) / (self.step * self._reach))

    def open(self, directions: Array, points: slice, sizes: Array | None = None) -> Block:
        """A block of measurements still to be asked; with `sizes`, the directions with larger scores get
        shorter steps."""
        n = len(self.points[points])
        k = directions.shape[1]
        steps = np.full(k, self.step)
        if sizes is not None:
            steps = np.minimum(steps, _TARGET / np.maximum(sizes, 1e-300))
        return Block(directions, points, np.tile(steps[:, None], n), np.full((k, n), np.nan))

    def pending(self, block: Block) -> NDArray[np.intp]:
        """Pairs (i, j) that the block still needs, with i = -1 for the base row itself."""
        bare = np.flatnonzero(np.isnan(self.base[block.points]))
        missing = np.argwhere(np.isnan(block.answers))
        return np.concatenate([np.column_stack([np.full(len(bare), -1), bare]), missing]).astype(np.intp)

    def fill(self, block: Block, pairs: NDArray[np.intp], A: Array, B: Array) -> None:
        """Writes the rows of some pairs into A and B."""
        i, j = pairs.T
        np.take(self.points, block.points.start + j, axis=0, out=B, mode="clip")
        if block.steps.size == 0:
            A[:] = self.a
            return
        np.take(np.ascontiguousarray(block.directions.T), i, axis=0, out=A, mode="wrap")
        A *= np.where(i >= 0, block.steps[i, j], 0.0)[:, None]
        A += self.a

    def receive(self, block: Block, pairs: NDArray[np.intp], answers: Array) -> None:
        """Takes the answers; those out of range are forgotten and will be asked again with a quarter of the
        step."""
        i, j = pairs.T
        base = i < 0
        self.base[block.points.start + j[base]] = answers[base]
        block.answers[i[~base], j[~base]] = answers[~base]
        self.drop(block, ~self._readable(block))

    def drop(self, block: Block, where: NDArray[np.bool_]) -> None:
        """Forgets measurements: they will be asked again, nearer to the base row."""
        block.steps[where] /= 4
        block.answers[where] = np.nan
        self.repeated += int(where.sum())

    def weights(self, block: Block) -> tuple[Array, Array]:
        """Weights of the first row (k, n), and those at the base row (n,)."""
        bare, stepped = self.background(block.directions, block.steps, block.points)
        a_v = float(self.a @ self.v)
        stepped_v = a_v + block.steps * (block.directions.T @ self.v)[:, None]
        return (block.answers - stepped) / stepped_v, (self.base[block.points] - bare) / a_v

    def values(self, block: Block) -> Array:
        """(k + 1, n): the unit base row's form first, then directionᵀ W b."""
        weights, bare = self.weights(block)
        foot = logit(bare)
        return np.vstack([foot / np.linalg.norm(self.a), (logit(weights) - foot) / block.steps])

    def _readable(self, block: Block) -> NDArray[np.bool_]:
        weights, bare = self.weights(block)
        if not np.all((bare > self._smallest) & (bare < _LARGEST_WEIGHT)):
            raise Unresolved(
                "the isolated head cannot be read at its own asking rows; another base row would help"
            )
        return np.asarray((weights > self._smallest) & (weights < _LARGEST_WEIGHT))

    def project(self, basis: Array | None, B: Array, *, rest_is_zero: bool = False) -> Array:
        """basisᵀ W B from differences against a point where all other heads are saturated: 1 + k answers a
        column, and 1 + k for the point."""
        directions = np.eye(self.width) if basis is None else basis
        scale = 0.5 * self._reach
        moves = np.zeros((B.shape[1] + 1, self.points.shape[1]))
        moves[1:, : self.width] = scale * B.T
        all_off = SaturatedBackground(self.a, np.empty((0, self.width)), np.empty((0, len(moves))))
        near = IsolatedHeadMeter(
            self.respond, self.a, self.v, self.points[0] + moves, self._reach, all_off, row=self._row
        )
        block = near.open(directions, slice(0, len(moves)))
        ask_together(self.respond, [(near, block)])
        values = near.values(block)[1:]
        return (values[:, 1:] - values[:, :1]) / scale


def ask_together(respond: Responses, jobs: Iterable[tuple[IsolatedHeadMeter, Block]]) -> None:
    """Fills the blocks of several heads from common batches, the ones out of range again until none is
    left."""
    waiting = list(jobs)
    for _ in range(_TRIES):
        needs = [(meter, block, meter.pending(block)) for meter, block in waiting]
        needs = [need for need in needs if len(need[2])]
        if not needs:
            return
        answers = _ask_all(respond, needs)
        start = 0
        for meter, block, pairs in needs:
            meter.receive(block, pairs, answers[start : start + len(pairs)])
            start += len(pairs)
        waiting = [(meter, block) for meter, block, _ in needs]
    raise Unresolved("a head stays out of range however near the base row it is asked")


def _ask_all(respond: Responses, needs: list[tuple[IsolatedHeadMeter, Block, NDArray[np.intp]]]) -> Array:
    """The responses to all pairs, one batch after the other: their rows together would not fit into the
    processor's cache."""
    total = sum(len(pairs) for _, _, pairs in needs)
    answers = np.empty(total)
    size = min(respond.ledger.batch_size(2), total)
    A, B = np.empty((size, respond.width)), np.empty((size, respond.columns))
    for low in range(0, total, size):
        high, start = min(low + size, total), 0
        for meter, block, pairs in needs:
            first, last = max(low, start), min(high, start + len(pairs))
            if first < last:
                meter.fill(
                    block,
                    pairs[first - start : last - start],
                    A[first - low : last - low],
                    B[first - low : last - low],
                )
            start += len(pairs)
        answers[low:high] = respond(A[: high - low], B[: high - low])
    return answers
