"""Copies of rows: n times a+b and m times b shift every score by log(n/m), so the answers are a rational
function of n/m.

Its poles are the heads' scores and its residues their readouts, for one pair (a, b) at a time: heads are told
apart that no asking row holds apart, such as W_1 = 2 W_0.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array, expit
from unsoftmax.late_scipy import leastsq
from unsoftmax.meters.several_heads.excess_answers import Responses

__all__ = ["PATTERNS", "SHIFTS", "ask_patterns", "fit_heads", "follow_heads"]

# two an octave, up to 65 rows: shifts of a score from -4.2 to 4.2, about 0.35 apart
_COUNTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PATTERNS: list[tuple[int, int]] = [(1, 1), *((n, 1) for n in _COUNTS), *((1, n) for n in _COUNTS)]
SHIFTS: Array = np.log(np.array([n / m for n, m in PATTERNS]))
_MOST = 6  # heads that the copies of one pair can tell apart in float64
_FITS = 3e-12  # largest residual, relative to the response, of a fit that explains everything
# singular value of the answers' Loewner matrix beyond the m-th, against the first, from which m heads explain
# them nowhere near `_FITS`; their own rounding is below 1e-14
_LEFT_OVER = 1e-9


def ask_patterns(respond: Responses, A: Array, B: Array, which: list[int]) -> Array:
    """Responses (Q, patterns) for rows of A and B under the given patterns."""
    n = max(len(np.atleast_2d(A)), len(np.atleast_2d(B)))
    A, B = np.broadcast_to(A, (n, respond.width)), np.broadcast_to(B, (n, respond.columns))
    return np.column_stack([respond(A, B, first=PATTERNS[k][0], last=PATTERNS[k][1]) for k in which])


def fit_heads(values: Array, size: float) -> tuple[Array, Array] | None:
    """(scores, heights) of the fewest heads that explain the answers under all patterns; None when up to six
    do not.

    >>> t, c = np.array([-1.5, 0.3]), np.array([2.0, 1.0])
    >>> scores, heights = fit_heads(expit(t + SHIFTS[:, None]) @ c, 3.0)
    >>> bool(np.allclose(scores, t) and np.allclose(heights, c))
    True
    """
    order = np.argsort(SHIFTS)
    z, y = np.exp(SHIFTS[order]), values[order] / size
    g = y / z  # strictly proper: Σ c/(z + e^-t)
    one, two = slice(0, None, 2), slice(1, None, 2)
    gap = z[one][:, None] - z[two][None]
    balance = np.sqrt(z[one])[:, None] * np.sqrt(z[two])[None]
    loewner = (g[one][:, None] - g[two][None]) / gap * balance
    shifted = (z[one][:, None] * g[one][:, None] - z[two][None] * g[two][None]) / gap * balance
    left, values_, right = np.linalg.svd(loewner)
    for m in range(1, _MOST + 1):
        if values_[m - 1] < 1e-15 * values_[0]:
            return None
        if values_[m] > _LEFT_OVER * values_[0]:
            continue
        poles = np.linalg.eigvals((left[:, :m].T @ shifted @ right[:m].T) / values_[:m, None])
        start = np.clip(-np.log(np.maximum(np.abs(poles), 1e-8)), -8.0, 8.0)
        found = _polish(np.sort(start), None, y, SHIFTS[order])
        if found is not None and found[2] < _FITS and (m == 1 or np.diff(found[0]).min() > 1e-4):
            return found[0], found[1] * size
    return None


def follow_heads(
    scores: Array, heights: Array, values: Array, which: list[int], size: float, *, fixed: bool = False
) -> tuple[Array, Array] | None:
    """(scores, heights) near the given ones that explain answers under some patterns; with `fixed`, the
    heights are known and kept."""
    found = _polish(scores, heights / size, values / size, SHIFTS[which], fixed=fixed)
    return (
        None if found is None or found[2] > (1e-4 if fixed else 100 * _FITS) else (found[0], found[1] * size)
    )


def _polish(
    t: Array, c: Array | None, y: Array, shifts: Array, *, fixed: bool = False
) -> tuple[Array, Array, float] | None:
    """Least squares from a start; sorted by score when the heights are free to begin with."""
    m = len(t)
    begin = np.linalg.lstsq(expit(t + shifts[:, None]), y, rcond=None)[0] if c is None else c
    sort = c is None

    def residual(x: Array) -> Array:
        return np.asarray(expit(x[:m] + shifts[:, None]) @ (begin if fixed else x[m:]) - y)

    def jacobian(x: Array) -> Array:
        weights = expit(x[:m] + shifts[:, None])
        slopes = weights * expit(-(x[:m] + shifts[:, None])) * (begin if fixed else x[m:])
        return slopes if fixed else np.hstack([slopes, weights])

    start = t if fixed else np.concatenate([t, begin])
    if len(start) > len(y) or not np.isfinite(residual(start)).all():
        return None
    exact = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15}
    x, _, seen, *_ = leastsq(residual, start, Dfun=jacobian, maxfev=200, full_output=True, **exact)
    found, heights = x[:m], np.asarray(begin if fixed else x[m:])
    order = np.argsort(found) if sort else np.arange(m)
    return np.asarray(found[order]), np.asarray(heights[order]), float(np.abs(seen["fvec"]).max())
