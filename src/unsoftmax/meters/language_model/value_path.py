"""The value path A = Σ_h output_h·value_h of a one-layer decoder, and eps of its norms, from prompts that end
in a zero row.

A zero row has the query zero, so it attends to all rows evenly, and its own value is zero.

Direction. Rows far below √eps make every norm linear: the state of [x; 0] is A·x/(2·√(e1·e3)), that of [x] is
that twice plus
x/√e3, e1 and e3 the eps of the first and the last norm. The even part, which the network adds, cancels
between x and -x, and
two sizes remove the cubic part.
Size. The prompt of j copies of z and k zero rows has the stream h = c·a + μ - (e/c²)·μ' at the end, c =
j/(j+k), a = A·norm(z), μ and
μ' what the network does in the direction of a. Of h only the direction is seen; four c fix the lengths up to
one factor. A single
row T·n along a has the stream T·n + A·n + M(n), whose part across n is seen in absolute units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.language_model.hidden_state import HiddenState
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.outcomes import Unresolved

__all__ = ["ValuePath", "measure_value_path"]

_TINY = 2e-5  # size of the states of tiny rows: the cubic part is 1e-7 of the linear one, rounding 1e-10
_LADDER = 10.0 ** -np.arange(1.0, 25.0, 2.0)
_COPIES = (1, 2, 3, 4)
_ROWS = 5  # c = 1/5 .. 4/5
_LARGE = 1e6  # size of rows whose norm is to be free of eps
_FAR = (500.0, 1000.0, 2000.0, 4000.0)  # T: a polynomial in 1/T through four of them leaves 1e-11
_FACTOR_ROWS = 6


@dataclass(frozen=True, eq=False)
class ValuePath:
    """matrix: A (d, d). eps: of the first norm and of the last one, from the same prompts. misfit: of the
    size, relative."""

    matrix: Array
    first_eps: float
    last_eps: float
    misfit: float


def measure_value_path(state: HiddenState, rng: np.random.Generator) -> ValuePath:
    """A to about 1e-7 in float64, from 4·d + 60 queries and at most 12 to find how small a tiny row is."""
    d = state.prompts.width
    size = _tiny_size(state, unit_rows(rng, 1, d))
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0] * np.sqrt(d)
    slope = 2.0 * np.linalg.solve(basis, _slopes(state, size * basis, zeros=1) / size).T  # A/√(e1·e3)
    rows = unit_rows(rng, _FACTOR_ROWS, d)
    alone = _slopes(state, size * rows, zeros=0) / size - rows @ slope.T  # x/√e3
    root_last = float((rows * rows).sum() / (rows * alone).sum())
    factor, misfit = _factor(state, slope, rows)
    return ValuePath(factor * slope, (factor / root_last) ** 2, root_last**2, misfit)


def _tiny_size(state: HiddenState, row: Array) -> float:
    """The size of a row whose state, before a zero row, is as small as `_TINY`."""
    for size in _LADDER:
        batch = np.zeros((2, 2, row.shape[1]))
        batch[0, 0], batch[1, 0] = size * row[0], -size * row[0]
        seen = state(batch)
        strength = float(np.sqrt((((seen[0] - seen[1]) / 2.0) ** 2).mean()))
        if strength == 0.0:
            break
        if strength < 1e-2:
            return float(size * _TINY / strength)
    raise Unresolved("rows near zero give no answers in proportion to their size; is eps of the norms zero?")


def _slopes(state: HiddenState, rows: Array, *, zeros: int) -> Array:
    """The linear part of the states of rows, followed by zero rows: odd differences at the size and at half
    of it."""
    found = []
    for share in (1.0, 0.5):
        batch = np.zeros((2 * len(rows), 1 + zeros, rows.shape[1]))
        batch[:, 0] = share * np.concatenate([rows, -rows])
        plus, minus = np.split(state(batch), 2)
        found.append((plus - minus) / (2.0 * share))
    return np.asarray((4.0 * found[1] - found[0]) / 3.0)


def _factor(state: HiddenState, slope: Array, rows: Array) -> tuple[float, float]:
    """A over `slope`, and the misfit of what determines it."""
    d = state.prompts.width
    directions, offsets = _lines(state, rows, slope)
    n = directions / np.sqrt((directions * directions).mean(axis=1, keepdims=True))
    far = np.array([_across(state, size, n) for size in _FAR])
    powers = np.vander(1.0 / np.array(_FAR), len(_FAR), increasing=True)
    across = np.linalg.solve(powers, far.reshape(len(_FAR), -1))[0].reshape(n.shape)
    expected = n @ slope.T + offsets
    expected = expected - (expected * n).sum(axis=1, keepdims=True) / d * n
    factor = float((expected * across).sum() / (expected * expected).sum())
    misfit = float(np.linalg.norm(factor * expected - across) / np.linalg.norm(across))
    return factor, misfit


def _lines(state: HiddenState, rows: Array, slope: Array) -> tuple[Array, Array]:
    """For every row z: `slope`·z, and μ in the same unit."""
    n, d = rows.shape
    c = np.array(_COPIES) / _ROWS
    seen = []
    for copies in _COPIES:
        batch = np.zeros((n, _ROWS, d))
        batch[:, :copies] = _LARGE * rows[:, None]
        seen.append(state(batch))
    points = np.stack(seen, axis=2)  # (n, d, 4)
    steps = rows @ slope.T
    # λ_c·point_c = c·step + μ + μ'/c² for all c: unknown are the four lengths λ, and the vectors μ and μ'
    kept = np.linalg.qr(np.column_stack([np.ones(4), c**-2.0]), mode="complete")[0][
        :, 2:
    ]  # (4, 2), blind to μ and μ'
    lengths = np.empty((n, 4))
    for i in range(n):
        system = np.concatenate([points[i] * kept[:, k] for k in range(2)])
        right = np.concatenate([steps[i] * float(c @ kept[:, k]) for k in range(2)])
        lengths[i] = np.linalg.lstsq(system, right, rcond=None)[0]
    remainders = points * lengths[:, None] - steps[..., None] * c
    design = np.column_stack([np.ones(4), c**-2.0])
    solved = remainders @ np.linalg.pinv(design).T
    return steps, np.asarray(solved[..., 0])


def _across(state: HiddenState, size: float, n: Array) -> Array:
    """T times the part of the state of T·n across n, over the part along it."""
    seen = state(size * n[:, None, :])
    along = (seen * n).mean(axis=1, keepdims=True)
    return np.asarray(size * (seen / along - n))
