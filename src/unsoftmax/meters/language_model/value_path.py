"""The value path A = Σ_h output_h·value_h of a one-layer decoder, and eps of its norms, from prompts that end
in a zero row.

A zero row has the query zero, so it attends to all rows evenly, and its own value is zero.

Direction. Rows far below √eps make every norm linear: the state of [x; 0] is A·x/(2·√(e1·e3)), that of [x] is
that twice plus x/√e3, e1 and e3 the eps of the first and the last norm. The even part, which the network
adds, cancels between x and -x, and two sizes remove the cubic part. Size. The prompt of j copies of z and k
zero rows has the stream h = c·a + μ - (e/c²)·μ' at the end, c = j/(j+k), a = A·norm(z), μ and μ' what the
network does in the direction of a. Of h only the direction is seen; four c fix the lengths up to one factor.
A single row T·n along a has the stream T·n + A·n + M(n), whose part across n is seen in absolute units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.language_model.hidden_state import HiddenState
from unsoftmax.meters.language_model.precision import FLOAT64, Precision
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.outcomes import Unresolved

__all__ = ["COPIED_ROWS", "ValuePath", "measure_value_path"]

_LADDER = 10.0 ** -np.arange(1.0, 25.0, 2.0)  # sizes of rows below which eps rules the norm
_COPIES = (1, 2, 3, 4)  # of one row beside others, which share attention evenly
COPIED_ROWS = 5  # c = 1/5 .. 4/5
_LARGE = 1e6  # size of rows whose norm is to be free of eps
_FIRST_FAR = 1000.0  # T at which the size of what a layer adds is read roughly
_FAR = np.array([1.0, 2.0, 4.0, 8.0])  # T over the least one: a polynomial in 1/T goes through four of them
# size of the states at which the cubic part of tiny rows is read: there it is a hundredth or more of the
# linear one
_BENT = 5e-3
_ALIKE = 5.0  # standard errors within which 1/√e3 is that of one eps for all norms
_FACTOR_ROWS = 6  # that tell one factor: the others check it


@dataclass(frozen=True, eq=False)
class ValuePath:
    """matrix: A (d, d). eps: of the first norm and of the last one, from the same prompts. misfit: of the
    size, relative."""

    matrix: Array
    first_eps: float
    last_eps: float
    misfit: float


def measure_value_path(
    state: HiddenState, rng: np.random.Generator, precision: Precision = FLOAT64
) -> ValuePath:
    """A to about 1e-9 in float64 and 2e-4 in float32, from 4·d + 66 queries (8·d + 66 where answers are
    rounded) and at most 30 to find how small a tiny row is."""
    d = state.prompts.width
    size = _tiny_size(state, unit_rows(rng, 1, d)[0], precision)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0] * np.sqrt(d)
    slope = _slope(state, size * basis)  # A/√(e1·e3)
    if precision.short:  # rows of which A makes more than usual bend more, and are read at smaller sizes
        made = np.sqrt(((basis @ slope.T) ** 2).mean(axis=1, keepdims=True))
        slope = _slope(state, size * np.minimum(1.0, np.median(made) / made) * basis)
    rows = unit_rows(rng, _FACTOR_ROWS, d)
    alone = _slopes(state, size * rows, zeros=0) / size - rows @ slope.T  # x/√e3
    factor, misfit = _factor(state, slope, rows, precision)
    root_last = _root_of_last_eps((rows * alone).mean(axis=1), factor)
    return ValuePath(factor * slope, (factor / root_last) ** 2, root_last**2, misfit)


def _root_of_last_eps(inverse: Array, both: float) -> float:
    """√e3 from 1/√e3 of every row, and √(e1·e3): that of one eps for all norms, where the rows agree with
    it. They are what is left of A/√(e1·e3), a thousand times as large, of which rounding leaves 2e-4."""
    mean, error = float(inverse.mean()), float(inverse.std()) / np.sqrt(len(inverse) - 1)
    alike = 1.0 / np.sqrt(abs(both))
    return float(1.0 / alike) if abs(mean - alike) < _ALIKE * error or mean <= 0.0 else 1.0 / mean


def _tiny_size(state: HiddenState, row: Array, precision: Precision) -> float:
    """The size of a row, before a zero row, whose state is tiny."""
    for size in _LADDER:
        strength = _odd_part(state, size * row)[0]
        if strength == 0.0:
            break
        if strength < 2.0 * _BENT:
            break
    if strength == 0.0 or strength >= 2.0 * _BENT:
        raise Unresolved(
            "rows near zero give no answers in proportion to their size; is eps of the norms zero?"
        )
    bent = size * _BENT / strength
    strength, whole = _odd_part(state, bent * row)
    half = _odd_part(state, bent / 2.0 * row)[1]
    bend = float(np.linalg.norm(whole - 2.0 * half) / np.linalg.norm(whole)) / strength**2
    return float(bent * precision.tiny(bend) / strength)


def _odd_part(state: HiddenState, row: Array) -> tuple[float, Array]:
    """Half the difference of the states of a row and its opposite before a zero row, and its size."""
    batch = np.zeros((2, 2, len(row)))
    batch[0, 0], batch[1, 0] = row, -row
    seen = state(batch)
    odd = (seen[0] - seen[1]) / 2.0
    return float(np.sqrt((odd**2).mean())), odd


def _slope(state: HiddenState, rows: Array) -> Array:
    """The matrix (d, d) by which tiny rows (d, d) become twice the states of a zero row behind them."""
    return np.asarray(2.0 * np.linalg.solve(rows, _slopes(state, rows, zeros=1)).T)


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


def _factor(state: HiddenState, slope: Array, rows: Array, precision: Precision) -> tuple[float, float]:
    """A over `slope`, and the misfit of what determines it."""
    d = state.prompts.width
    directions, offsets = _lines(state, rows, slope)
    n = directions / np.sqrt((directions * directions).mean(axis=1, keepdims=True))
    added = float(np.sqrt((_across(state, _FIRST_FAR, n) ** 2).mean()))
    sizes = _FAR * max(precision.far(added), 2.0 * added)
    far = np.array([_across(state, size, n) for size in sizes])
    powers = np.vander(sizes[0] / sizes, len(sizes), increasing=True)
    across = np.linalg.solve(powers, far.reshape(len(sizes), -1))[0].reshape(n.shape)
    expected = n @ slope.T + offsets
    expected = expected - (expected * n).sum(axis=1, keepdims=True) / d * n
    factor = float((expected * across).sum() / (expected * expected).sum())
    misfit = float(np.linalg.norm(factor * expected - across) / np.linalg.norm(across))
    return factor, misfit


def _lines(state: HiddenState, rows: Array, slope: Array) -> tuple[Array, Array]:
    """For every row z: `slope`·z, and μ in the same unit."""
    n, d = rows.shape
    c = np.array(_COPIES) / COPIED_ROWS
    seen = []
    for copies in _COPIES:
        batch = np.zeros((n, COPIED_ROWS, d))
        batch[:, :copies] = _LARGE * rows[:, None]
        seen.append(state(batch))
    points = np.stack(seen, axis=2)  # (n, d, 4)
    steps = rows @ slope.T
    # λ_c·point_c = c·step + μ + μ'/c² for all c: unknown are the four lengths λ, and the vectors μ and μ'
    # (4, 2), blind to μ and μ'
    kept = np.linalg.qr(np.column_stack([np.ones(4), c**-2.0]), mode="complete")[0][:, 2:]
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
