"""What learned positions add to rows, from prompts alone.

A norm sees the direction of row + position, so answers do not change when that sum is scaled: with x the row
of one place before the last and p what is added there, (x + p)·∇answer = 0, which is linear in p.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.language_model.differences import jacobian
from unsoftmax.meters.language_model.seen_rows import SeenRows
from unsoftmax.outcomes import OutsideClass, Test

__all__ = ["measure_position"]

# size of the rows: eps of the norm moves p by eps/size, rounding by 1e-10 of the size
_SIZE = 1000.0
_STEP = 2e-3  # of the size
_POINTS = 2  # a gradient does not see the direction of its own row, so one is not enough
_BEFORE = 1e6  # size of earlier rows, whose own positions are lost beside them
_LAST = 4.0  # size of the last row, beside which what attention adds shows
# misfit of the relation: one layer leaves 1e-7; behind further layers a row is seen beside what they added to
# it, a hundredth of its size
_MISFIT = 1e-4
_TRIES = 3  # of four places of a layer with ReLU, one met a kink


def measure_position(state: SeenRows, place: int, rng: np.random.Generator, test: Test) -> Array:
    """p (k,) of a place (0 is the first), to 1e-6; 8·k queries. test: fails where rows of this place are not
    seen as directions, whatever rows are around them: a difference may cross the kink of a ReLU."""
    misfits = []
    for _ in range(_TRIES):
        found, misfit = _solved(state, place, rng)
        if misfit < _MISFIT:
            return found
        misfits.append(misfit)
    raise OutsideClass(
        test,
        f"answers change by {min(misfits):.1g} of what they should where a row grows in its own direction; "
        "is the model deeper, or are its positions no rows that are added?",
    )


def _solved(state: SeenRows, place: int, rng: np.random.Generator) -> tuple[Array, float]:
    """p, and the misfit of the relation."""
    k = state.width
    before, last = _BEFORE * rng.standard_normal((place, k)), _LAST * rng.standard_normal((1, k))

    def answers(rows: Array) -> Array:
        count = len(rows)
        around = [np.broadcast_to(part, (count, *part.shape)) for part in (before, last)]
        return state(np.concatenate([around[0], rows[:, None], around[1]], axis=1))

    points = _SIZE * rng.standard_normal((_POINTS, k))
    slopes = [jacobian(answers, point, _STEP * _SIZE) for point in points]
    design = np.concatenate(slopes)
    right = np.concatenate([-slope @ point for slope, point in zip(slopes, points, strict=True)])
    found = np.linalg.lstsq(design, right, rcond=None)[0]
    misfit = float(np.linalg.norm(design @ found - right) / (np.linalg.norm(design) * _SIZE))
    return np.asarray(found), misfit
