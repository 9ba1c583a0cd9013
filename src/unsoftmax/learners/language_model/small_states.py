"""Single rows behind which a whole decoder leaves little, so that the eps of its final norm shows.

They are searched from many random starts at once, by Newton's method with a damping of its own for each.
Many starts end elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.state import BlockShape
from unsoftmax.learners.language_model.plain_fit import Answered, PlainFit, PlainState

__all__ = ["rows_before_small_states"]

_STARTS = 48  # solved at once; those that arrive are kept
_SIZE = 0.5  # of the states that are searched: large ones are one
_SMALLEST_START = 1e-6  # without biases only rows this small do: two norms enlarge them by 1/√eps each
_ROUNDS = 60  # a cap: damped Gauss-Newton
_FIRST_DAMPING, _LEAST_DAMPING = 1e-6, 1e-14  # relative to the strongest direction of a row


def rows_before_small_states(shape: BlockShape, at: PlainState, most: int, rng: np.random.Generator) -> Array:
    """Rows (n, k), positions included; n is at most `most` and may be zero."""
    k = shape.width
    wanted = _SIZE * rng.standard_normal((_STARTS, k))
    sizes = np.exp(rng.uniform(np.log(_SMALLEST_START), 0.0, (_STARTS, 1)))
    rows = sizes * rng.standard_normal((_STARTS, k))
    alone = replace(at, positions=np.zeros((1, k)))

    def off(x: Array) -> tuple[PlainFit, Array]:
        """The fit whose Jacobian by its only position is that by the rows, and the misfits (S, k)."""
        fit = PlainFit(shape, [Answered(x[:, None], wanted, float(np.exp(at.log_last_eps)))])
        return fit, fit.residual(alone).reshape(x.shape)

    damping = np.full(_STARTS, _FIRST_DAMPING)
    fit, left = off(rows)
    for _ in range(_ROUNDS):
        slopes = fit.factors(alone, fit.data[0])[-2].M  # by the position; behind it is the final eps
        normal = slopes.transpose(0, 2, 1) @ slopes
        scale = np.einsum("saa->s", normal) + np.finfo(float).tiny
        damped = normal + (damping * scale)[:, None, None] * np.eye(k)
        steps = np.linalg.solve(damped, slopes.transpose(0, 2, 1) @ left[:, :, None])[:, :, 0]
        _, after = off(rows - steps)
        better = (after**2).sum(axis=1) < (left**2).sum(axis=1)
        rows = np.where(better[:, None], rows - steps, rows)
        damping = np.where(better, np.maximum(0.1 * damping, _LEAST_DAMPING), 10.0 * damping)
        fit, left = off(rows)
    good = np.abs(left / fit.data[0].weights).max(axis=1) < _SIZE
    return np.asarray(rows[good][:most])
