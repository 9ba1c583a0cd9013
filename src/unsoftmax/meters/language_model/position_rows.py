"""What learned positions add to rows, from prompts alone.

A norm sees the direction of row + position, so answers do not change when that sum is scaled: with x the row
of one place before the last and p what is added there, (x + p)·∇answer = 0, which is linear in p. The eps of
the norm leaves w/|x + p|² on the right, w a function of the direction; rows of several sizes tell it, so that
they may be short. Errors of p are shares of their size.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.language_model.differences import jacobian
from unsoftmax.meters.language_model.seen_rows import SeenRows
from unsoftmax.outcomes import OutsideClass, Test

__all__ = ["measure_position"]

# sizes of the rows. Of one size: eps of the norm moves p by eps/size, rounding by 1e-10 of the size. Of two:
# rounding alone is left
ROUGH_SIZES, PRECISE_SIZES = (1000.0,), (100.0, 200.0)
_STEP = 2e-3  # of the size
_POINTS = 2  # a gradient does not see the direction of its own row, so one is not enough
_BEFORE = 1e6  # size of earlier rows, whose own positions are lost beside them
_LAST = 4.0  # size of the last row, beside which what attention adds shows
# misfit of the relation: one layer leaves 1e-7; behind further layers a row is seen beside what they added to
# it, a hundredth of its size
_MISFIT = 1e-4
_TRIES = 3  # of four places of a layer with ReLU, one met a kink


def measure_position(
    state: SeenRows, place: int, rng: np.random.Generator, test: Test, sizes: tuple[float, ...] = ROUGH_SIZES
) -> Array:
    """p (k,) of a place (0 is the first), to 1e-6 or, of two sizes, 1e-8; 8·k queries per size. test: fails
    where rows of this place are not seen as directions, whatever rows are around them: a difference may cross
    the kink of a ReLU."""
    misfits = []
    for _ in range(_TRIES):
        found, misfit = _solved(state, place, rng, sizes)
        if misfit < _MISFIT:
            return found
        misfits.append(misfit)
    raise OutsideClass(
        test,
        f"answers change by {min(misfits):.1g} of what they should where a row grows in its own direction; "
        "is the model deeper, or are its positions no rows that are added?",
    )


def _solved(
    state: SeenRows, place: int, rng: np.random.Generator, sizes: tuple[float, ...]
) -> tuple[Array, float]:
    """p, and the misfit of the relation."""
    k = state.width
    before, last = _BEFORE * rng.standard_normal((place, k)), _LAST * rng.standard_normal((1, k))

    def answers(rows: Array) -> Array:
        count = len(rows)
        around = [np.broadcast_to(part, (count, *part.shape)) for part in (before, last)]
        return state(np.concatenate([around[0], rows[:, None], around[1]], axis=1))

    with_eps = len(sizes) > 1
    designs, rights = [], []
    for number, direction in enumerate(rng.standard_normal((_POINTS, k))):
        for size in sizes:
            slope = size * jacobian(answers, size * direction, _STEP * size)
            design = np.zeros((k, k * (1 + with_eps * _POINTS)))
            design[:, :k] = slope
            if with_eps:  # w, in units of the shortest rows; slopes are taken times the size
                design[:, k * (1 + number) :][:, :k] = -np.eye(k) * sizes[0] / size
            designs.append(design)
            rights.append(-slope @ (size * direction))
    whole, right = np.concatenate(designs), np.concatenate(rights)
    found = np.linalg.lstsq(whole, right, rcond=None)[0]
    off = float(np.linalg.norm(whole @ found - right))
    return np.asarray(found[:k]), off / float(np.linalg.norm(whole[:, :k]) * max(sizes))
