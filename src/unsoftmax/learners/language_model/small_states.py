"""Single rows behind which a whole decoder leaves little, so that the eps of its final norm shows.

They are searched from many random starts at once, by Newton's method with a damping of its own for each, on
the stream before the final norm: behind it all large streams look alike. Many starts end elsewhere; these
begin again where others found a row.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.state import BlockShape
from unsoftmax.learners.language_model.plain_fit import Answered, PlainFit, PlainState

__all__ = ["rows_before_small_states"]

_STARTS = 48  # three times as many as are wanted
_BATCHES = 6  # of starts: one of twenty found a row at d=16 with 32 neurons, nine of ten at d=12 with 16
_SIZE = 0.5  # of the states that are searched: large ones are one
# sizes of starts: without biases only rows as small as the least do, because two norms enlarge them by 1/√eps
# each; with biases rows as large as what the layer adds
_SMALLEST_START, _LARGEST_START = 1e-6, 10.0
_ROUNDS = 50  # of 100, no start came near after the 50th where one did before
_FIRST_DAMPING, _LEAST_DAMPING = 1e-6, 1e-14  # relative to the strongest direction of a row
_LINEAR = 1e8  # an eps beside which streams are small, so that the final norm only divides by its root


def rows_before_small_states(shape: BlockShape, at: PlainState, most: int, rng: np.random.Generator) -> Array:
    """Rows (n, k), positions included; n is at most `most` and may be zero."""
    k = shape.width
    wanted = _SIZE * np.exp(0.5 * at.log_last_eps) * rng.standard_normal((_STARTS, k))
    found = np.zeros(_STARTS, dtype=bool)
    rows = np.empty((_STARTS, k))
    for _ in range(_BATCHES):
        rows[~found] = _starts(rows[found], int((~found).sum()), k, rng)
        rows, found = _followed(shape, at, rows, wanted)
        if found.sum() >= most:
            break
    return np.asarray(rows[found][:most])


def _starts(found: Array, count: int, k: int, rng: np.random.Generator) -> Array:
    """Near rows that others found, where there are any."""
    if len(found):
        return np.asarray(found[rng.integers(len(found), size=count)])
    low, high = np.log(_SMALLEST_START), np.log(_LARGEST_START)
    return np.asarray(np.exp(rng.uniform(low, high, (count, 1))) * rng.standard_normal((count, k)))


def _followed(
    shape: BlockShape, at: PlainState, rows: Array, wanted: Array
) -> tuple[Array, NDArray[np.bool_]]:
    """Rows (S, k) behind which the stream is nearer to the wanted one (S, k), and which are near enough."""
    linear = replace(at, positions=np.zeros((1, rows.shape[1])), log_last_eps=float(np.log(_LINEAR)))
    states = wanted / np.sqrt(_LINEAR)

    def off(x: Array) -> tuple[PlainFit, Array]:
        """The fit whose Jacobian by its only position is that by the rows, and the misfits (S, k)."""
        fit = PlainFit(shape, [Answered(x[:, None], states, _LINEAR)])
        return fit, fit.residual(linear).reshape(x.shape)

    damping = np.full(len(rows), _FIRST_DAMPING)
    fit, left = off(rows)
    for _ in range(_ROUNDS):
        slopes = fit.factors(linear, fit.data[0])[-2].M  # by the position; behind it is the final eps
        normal = slopes.transpose(0, 2, 1) @ slopes
        scale = np.einsum("saa->s", normal) + np.finfo(float).tiny
        damped = normal + (damping * scale)[:, None, None] * np.eye(rows.shape[1])
        steps = np.linalg.solve(damped, slopes.transpose(0, 2, 1) @ left[:, :, None])[:, :, 0]
        _, after = off(rows - steps)
        better = (after**2).sum(axis=1) < (left**2).sum(axis=1)
        rows = np.where(better[:, None], rows - steps, rows)
        damping = np.where(better, np.maximum(0.1 * damping, _LEAST_DAMPING), 10.0 * damping)
        fit, left = off(rows)
    near = _SIZE * np.exp(0.5 * at.log_last_eps) / np.sqrt(_LINEAR)
    return rows, np.asarray(np.abs(left).max(axis=1) < near)
