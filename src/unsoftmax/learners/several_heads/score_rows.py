"""The rows R_h = W_hᵀa: small moves of the asking row at the step of head h, where all other heads are
saturated."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array, logit
from unsoftmax.learners.several_heads.attempt import Restart
from unsoftmax.learners.several_heads.head_switches import HeadSwitches
from unsoftmax.meters.several_heads.excess_answers import Responses

__all__ = ["measure_rows"]

_TRIES = 14  # changes of a size, before a head is given up
_RANGE = (5e-4, 1 - 5e-4)  # part of a step in which the logit is read


def measure_rows(respond: Responses, stairs: HeadSwitches, rng: np.random.Generator) -> Array:
    """R (H, columns), all heads in common batches; columns + 1 queries per head and a few again."""
    n, H = respond.columns, len(stairs.steps)
    saturated = -np.log(max(1e-12, 64 * respond.rounding))  # score beyond which a head looks saturated
    directions = np.linalg.qr(rng.standard_normal((n, n)))[0].T
    angles, slopes, heights = stairs.angles, stairs.slopes, stairs.heights
    sines = slopes * np.sin(angles[:, None] - angles)  # score of head k per λ at the step of head h
    others = ~np.eye(H, dtype=bool)
    scales = np.empty(H)
    for h in range(H):
        ratio = np.abs(slopes / slopes[h])
        reach = (saturated + 12 + 10 * ratio) / np.abs(np.where(others[h], sines[h], np.inf))
        scales[h] = reach.max() if H > 1 else 1.0 / abs(slopes[h])
    base = scales[:, None] * stairs.circle.points(angles)
    background = np.where(others & (sines > 0), heights, 0.0).sum(axis=1) + stairs.flat / 2
    steps = np.repeat((1.5 * np.sqrt(2.0) / np.abs(slopes))[:, None], n, axis=1)
    scores = np.full((H, n + 1), np.nan)  # the last entry: the base point itself

    def read(todo: NDArray[np.intp]) -> None:
        """Measures the (head, direction) pairs; direction n is the base point."""
        for _ in range(_TRIES):
            h, j = todo.T
            moved = (
                np.where(j < n, steps[h, np.minimum(j, n - 1)], 0.0)[:, None]
                * directions[np.minimum(j, n - 1)]
            )
            part = (respond(stairs.circle.a, base[h] + moved) - background[h]) / heights[h]
            good = (part > _RANGE[0]) & (part < _RANGE[1])
            scores[h[good], j[good]] = logit(part[good])
            todo = todo[~good]
            if len(todo) == 0:
                return
            if np.any(todo[:, 1] == n):
                raise Restart("the foot of a step was lost")
            steps[todo[:, 0], todo[:, 1]] /= 4
        raise Restart("the rows of a head cannot be read")

    read(np.argwhere(np.ones((H, n + 1), dtype=bool)))
    for _ in range(8):
        rows = ((scores[:, :n] - scores[:, n:]) / steps) @ directions
        todo = []
        for h in range(H):
            margins = np.where(
                others[h], ((base[h] + steps[h][:, None] * directions) @ rows.T) * np.sign(sines[h]), np.inf
            )
            todo += [(h, j) for j in np.flatnonzero(margins.min(axis=1) < saturated + 4)]
        if not todo:
            return np.asarray(rows)
        again = np.array(todo)
        steps[again[:, 0], again[:, 1]] /= 4
        read(again)
    raise Restart("another head's weight rises while this head is being measured")
