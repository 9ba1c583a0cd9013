"""Plateaus along a line of asking rows: where all heads saturate, answers are linear in the other row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.computed.attempts import FLOAT16_BITS
from unsoftmax.learners.computed.two_row_queries import Baseline, TwoRowQueries, sizes_of, unit
from unsoftmax.outcomes import Unresolved

__all__ = ["PlateauLine", "find_switches", "saturating_scale"]

# length of the first row over that of the asking rows: its readout then outweighs theirs in every answer
_LONGEST = 1e15  # rows whose products of two stay within the range of float32
# first row over last, which is added to it: directions are turned by an eighth at most where tan θ < 1
_RATIO = 8.0
# radians; beyond, the asking rows are 30 times as long as in the middle, and nothing new switches
_FARTHEST = 1.54
# radians: two heads that switch within it count as one step, and the line is dropped for another
_FINEST = 2e-3
_MOST_POINTS = 1000  # along one line; a line whose levels never settle is not one of plateaus
# noises by which a level may move when everything is made four times as long, and still count as saturated
_AGREEING = 60.0
# the lengths at which levels first agree leave single heads in transition; this much more leaves none
_BEYOND_SATURATION = 1024.0
# float16 holds scores up to 65504 only: there rows may not be much longer than saturation takes, nor end as
# close to a right angle
_BEYOND_IN_FLOAT16, _FARTHEST_IN_FLOAT16 = 1.5, 1.4


@dataclass(frozen=True)
class PlateauLine:
    """Asking rows b = scale·(p + tan θ·q), first rows 8·scale·a + b. On this line every head switches exactly
    once.
    """

    queries: TwoRowQueries
    baseline: Baseline
    p: Array
    q: Array
    a: Array
    scale: float

    @classmethod
    def random(
        cls, queries: TwoRowQueries, baseline: Baseline, scale: float, rng: np.random.Generator
    ) -> Self:
        p, q, a = unit(rng.standard_normal((3, queries.width)))
        return cls(queries, baseline, p, q, a, scale)

    def ask(self, angles: Array, directions: Array) -> tuple[Array, Array]:
        """(directions as they were sent, levels): level = excess answer over the length of the first row."""
        length = _RATIO * self.scale
        last = self.queries.rounded(self.scale * (self.p + np.tan(angles)[:, None] * self.q))
        first = self.queries.rounded(length * directions + last)
        answers = self.queries.ask(first, last)
        levels = (answers - self.baseline.c - last @ self.baseline.v_sum) / length
        return (first - last) / length, np.asarray(levels)

    def levels(self, angles: Array) -> Array:
        return self.ask(angles, np.broadcast_to(self.a, (len(angles), len(self.a))))[1]

    def noise(self, rng: np.random.Generator, count: int = 12) -> float:
        """The rounding of a level. Near-equal rows share theirs, so differences alone would tell too little:
        the baseline's is a floor.
        """
        angles = rng.uniform(-1.3, 1.3, count)
        moved = sizes_of(self.levels(angles) - self.levels(angles + 1e-4))
        return max(float(np.median(moved)), 0.5 * self.baseline.unit_rounding)


def saturating_scale(
    queries: TwoRowQueries, baseline: Baseline, rng: np.random.Generator, limit: float, count: int = 16
) -> float:
    """A scale at which all heads are saturated almost everywhere on a line. limit: longest row allowed.
    count: points compared at every scale.
    """
    scale = float(np.sqrt(queries.width))
    highest = min(limit, _LONGEST) / (_RATIO + 31.0)  # 31: what tan θ adds at the ends of the line
    line, angles = PlateauLine.random(queries, baseline, scale, rng), rng.uniform(-1.4, 1.4, count)
    far = line.levels(angles)
    while scale * 4.0 <= highest:
        near, far = far, replace(line, scale=4.0 * scale).levels(angles)
        # where every head attends to the asking row all levels are zero, up to the rounding of a unit row
        rounding = max(baseline.noise * float(sizes_of(near).max()), baseline.unit_rounding)
        close = sizes_of(near - far) < _AGREEING * rounding
        if np.count_nonzero(~close) <= max(1, 0.15 * count):  # one may lie where a head switches
            short = queries.bits == FLOAT16_BITS
            return min(scale * (_BEYOND_IN_FLOAT16 if short else _BEYOND_SATURATION), highest)
        scale *= 4.0
    raise Unresolved(
        f"no head saturates with rows up to length {limit:.3g}: the readouts of a layer that rounds are read "
        "on saturated scores; longer rows, or a layer with stronger scores, would help"
    )


def find_switches(line: PlateauLine, tolerance: float, points: int = 24) -> list[tuple[float, float]]:
    """Intervals of θ in which a level changes, each narrower than the finest step that is told apart."""
    farthest = _FARTHEST_IN_FLOAT16 if line.queries.bits == FLOAT16_BITS else _FARTHEST
    angles = np.linspace(-farthest, farthest, points)
    levels = line.levels(angles)
    while True:
        wide = (sizes_of(np.diff(levels, axis=0)) > tolerance) & (np.diff(angles) > _FINEST)
        if not wide.any() or len(angles) > _MOST_POINTS:
            break
        middle = ((angles[1:] + angles[:-1]) / 2)[wide]
        angles = np.append(angles, middle)
        levels = np.concatenate([levels, line.levels(middle)])
        order = np.argsort(angles)
        angles, levels = angles[order], levels[order]
    found: list[tuple[float, float]] = []
    for i in np.flatnonzero(sizes_of(np.diff(levels, axis=0)) > tolerance):
        if found and angles[i] - found[-1][1] < 1.5 * _FINEST:
            found[-1] = (found[-1][0], float(angles[i + 1]))
        else:
            found.append((float(angles[i]), float(angles[i + 1])))
    return found
