"""Whether every step inside a target rounds, from single rows, rows near each other, and pairs of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.answers.arithmetic import (
    Arithmetic,
    arithmetic_rows,
    judge_arithmetic,
    judge_nearby,
    nearby_rows,
)
from unsoftmax.arrays import rms
from unsoftmax.errors import NonFiniteAnswers
from unsoftmax.float_formats import FloatFormat, smallest_format
from unsoftmax.ledger import Asker

__all__ = ["BesideOthers", "look_at_arithmetic", "look_beside_others", "look_closer"]

_LINES_BESIDE = 6  # single rows on so many lines are compared with pairs of rows
# of what another row changes: opposite readouts in float32 leave 1e-6, functions that bend more than 1e-2
_CANCELLED = 1e-4


def look_at_arithmetic(asker: Asker, rng: np.random.Generator, longest: float) -> Arithmetic:
    """Whether every step inside the target rounds, from 60 single rows; shorter ones where those overflow
    inside it.
    """
    try:
        return judge_arithmetic(asker.ask(arithmetic_rows(asker.width, rng, longest)))
    except NonFiniteAnswers:
        shorter = 4.0 * float(np.sqrt(asker.width))
        if longest <= shorter:
            raise
    return judge_arithmetic(asker.ask(arithmetic_rows(asker.width, rng, shorter)))


def look_closer(
    asker: Asker, rng: np.random.Generator, longest: float
) -> tuple[Arithmetic, BesideOthers | None]:
    """Whether every step inside a target rounds whose single rows are off lines by more than one rounding of
    their answers, from 60 rows near each other and 30 pairs. A function that bends is straight between near
    rows. Where what single rows show cancels, near rows are off as others are, by rounding of what is
    summed."""
    near, far = rng.spawn(2)
    answers = asker.ask(nearby_rows(asker.width, near, longest))
    beside = look_beside_others(asker, far, longest)
    return judge_nearby(answers, beside.cancelled if beside is not None and beside.straight else 0.0), beside


@dataclass(frozen=True)
class BesideOthers:
    """Single rows beside pairs: by how much they are off lines, by how much they differ, and by how much a
    further row changes answers (root mean squares). stored: the format of the pairs' answers."""

    off: float
    differ: float
    change: float
    stored: FloatFormat | None

    @property
    def cancelled(self) -> float:
        """How far single rows may be off where what they show cancels, as behind heads with opposite
        readouts."""
        return _CANCELLED * self.change

    @property
    def straight(self) -> bool:
        """Single rows are off lines only because what they show cancels."""
        return self.off < self.cancelled

    @property
    def alike(self) -> bool:
        """All single rows get one answer, up to a small part of what a further row changes."""
        return self.differ < self.cancelled


def look_beside_others(asker: Asker, rng: np.random.Generator, longest: float) -> BesideOthers | None:
    """30 queries; None where rows are asked alone."""
    if asker.max_length == 1:
        return None
    rows = arithmetic_rows(asker.width, rng, longest)[: 3 * _LINES_BESIDE]  # the short ones
    singles = asker.ask(rows).reshape(_LINES_BESIDE, 3, -1)
    beside = np.pi / 4.0 * rows[1::3]  # with all digits: sums of short numbers are short in any arithmetic
    pairs = asker.ask(np.concatenate([beside, rows[::3]], axis=1)).reshape(_LINES_BESIDE, -1)
    return BesideOthers(
        rms(np.diff(singles, 2, axis=1)),
        rms(singles - singles.mean(axis=(0, 1))),
        rms(pairs - singles[:, 0]),
        smallest_format(pairs),
    )
