"""Many small nonlinear least-squares fits at once: Levenberg-Marquardt in batches of equal shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unsoftmax.arrays import Array, Ids

__all__ = ["ManyFits", "SmallProblems", "fit_many"]

# times ten or a tenth a step; at the most a step is rounding
_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-3, 1e-20, 1e12
_LONGEST_STEP = 2.0  # of one unknown: scores move by e^2 at once, which a linearisation just survives
_TINY = 1e-15  # relative: a step below changes nothing in float64


class SmallProblems(Protocol):
    """P problems of p unknowns and m residuals each."""

    def linearised(self, unknowns: Array, which: Ids, /) -> tuple[Array, Array]:
        """Residuals (n, m) and Jacobians (n, m, p) of the problems `which` (n,) at unknowns (n, p)."""


@dataclass(frozen=True, eq=False)
class ManyFits:
    """unknowns: (P, p). rms: root mean square of the residuals, (P,). jacobians: (P, m, p), at the end."""

    unknowns: Array
    rms: Array
    jacobians: Array

    def deviations(self, noise: Array | float) -> Array:
        """Standard deviations of the unknowns (P, p); residuals are off by `noise`, one number or (P,)."""
        _, sizes, right = np.linalg.svd(self.jacobians, full_matrices=False)
        with np.errstate(divide="ignore", over="ignore"):
            spread = right / np.maximum(sizes, 1e-300)[:, :, None]
            return np.asarray(np.reshape(noise, (-1, 1)) * np.sqrt(np.sum(spread**2, axis=1)))

    def better_of(self, other: ManyFits, places: Ids) -> ManyFits:
        """These fits, or those of `other` at `places` where they are closer."""
        better = other.rms < self.rms[places]
        unknowns, rms, jacobians = self.unknowns.copy(), self.rms.copy(), self.jacobians.copy()
        chosen = places[better]
        unknowns[chosen], rms[chosen] = other.unknowns[better], other.rms[better]
        jacobians[chosen] = other.jacobians[better]
        return ManyFits(unknowns, rms, jacobians)


def fit_many(
    problems: SmallProblems, starts: Array, which: Ids, *, good: Array | float = 0.0, iterations: int = 60
) -> ManyFits:
    """Minimises the squared residuals of the problems `which`, each from its start.

    good: rms at which a fit may stop once a step gains less than a tenth; one number, or one a problem (n,).

    >>> class Roots:
    ...     def linearised(self, x, which): return x**2 - (2.0 + which[:, None]), 2.0 * x[:, :, None]
    >>> fit_many(Roots(), np.ones((2, 1)), np.arange(2)).unknowns.round(6).ravel()
    array([1.414214, 1.732051])
    """
    unknowns = starts.astype(np.float64).copy()
    residuals, jacobians = problems.linearised(unknowns, which)
    squares = _squares(residuals)
    damping, enough = np.full(len(which), _DAMPING), np.broadcast_to(np.asarray(good) ** 2, len(which))
    active = np.flatnonzero(np.isfinite(squares))
    for _ in range(iterations):
        if not len(active):
            break
        steps = _steps(jacobians[active], residuals[active], damping[active])
        moved = unknowns[active] + steps
        after, slopes = problems.linearised(moved, which[active])
        size = _squares(after)
        better = size < squares[active]
        gained = size < 0.9 * squares[active]
        small = np.abs(steps).max(axis=1) <= _TINY * (1.0 + np.abs(unknowns[active]).max(axis=1))
        chosen = active[better]
        unknowns[chosen], residuals[chosen] = moved[better], after[better]
        jacobians[chosen], squares[chosen] = slopes[better], size[better]
        damping[active] = np.where(
            better, np.maximum(damping[active] / 10.0, _LEAST_DAMPING), damping[active] * 10.0
        )
        m = residuals.shape[1]
        done = small | (damping[active] > _MOST_DAMPING)
        done |= ~gained & (squares[active] <= m * enough[active]) & (damping[active] > 1e-3)
        active = active[~done]
    rms = np.sqrt(squares / max(1, residuals.shape[1]))
    return ManyFits(unknowns, np.where(np.isfinite(rms), rms, np.inf), jacobians)


def _squares(residuals: Array) -> Array:
    squares = np.einsum("nm,nm->n", residuals, residuals)
    return np.where(np.isfinite(squares), squares, np.inf)


def _steps(jacobians: Array, residuals: Array, damping: Array) -> Array:
    """Damped Gauss-Newton steps, by QR of the scaled Jacobians."""
    p = jacobians.shape[2]
    scale = np.linalg.norm(jacobians, axis=1)
    scale = np.maximum(scale, 1e-12 * scale.max(axis=1, initial=1e-300, keepdims=True))
    damped = np.sqrt(damping)[:, None, None] * np.eye(p)
    q, r = np.linalg.qr(np.concatenate([jacobians / scale[:, None, :], damped], axis=1))
    right = np.einsum("nmp,nm->np", q[:, : residuals.shape[1]], residuals)
    steps = -np.linalg.solve(r, right[:, :, None])[:, :, 0] / scale
    steps = np.where(np.isfinite(steps), steps, 0.0)
    return np.asarray(np.clip(steps, -_LONGEST_STEP, _LONGEST_STEP))
