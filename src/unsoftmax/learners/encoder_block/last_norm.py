"""The last LayerNorm of a post-norm block, from the geometry of the answers.

An answer is o = g∘n + β with 1ᵀn = 0 and |n|² = d·v/(v + eps), v the variance of what is normed. So answers
fill a hyperplane with normal 1/g, and lie just inside an ellipsoid there. How far inside shows the size of
what is normed, r, where it is not much larger than √eps. Lengths are counted in units of √eps: that factor is
free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.outcomes import Unresolved

__all__ = ["LastNorm", "last_norm_of", "straightened"]

_FLAT = 1e-9  # smallest singular value of answers that fill a hyperplane, over the largest; measured 1e-15
_STEEPEST = 1e4  # ratio of gains from which a hyperplane does not show them any more
_LEAST_INSIDE = 1e-13  # of 1 - |n|²/d: below, it is rounding
_DIFFERENCE = 1e-8  # of the scale: the square root of float64 rounding, best for one-sided differences
_KINKED = 8.0  # residual of a line over that of the straightest eighth, from which it has a kink
_ENOUGH = 1.2  # lines without a kink over unknowns
_STEPS = 12  # a cap: Gauss-Newton


@dataclass(frozen=True)
class LastNorm:
    """gain: (d,), up to one factor; offset: mean of answers over gains; centre (k,) and square: of the sphere
    in the basis's coordinates."""

    basis: Array
    gain: Array
    offset: float
    centre: Array
    square: float

    def normed(self, answers: Array) -> tuple[Array, Array]:
        """n (..., k), and 1 - |n|²/d = eps/(variance + eps)."""
        z = (answers / self.gain - self.offset) @ self.basis - self.centre
        return z * np.sqrt(len(self.gain) / self.square), 1.0 - (z**2).sum(axis=-1) / self.square

    def stream(self, answers: Array) -> Array:
        """r (..., k) in units of √eps."""
        n, inside = self.normed(answers)
        return np.asarray(n / np.sqrt(np.maximum(inside, _LEAST_INSIDE))[..., None])

    @property
    def theta(self) -> Array:
        return np.append(self.centre, self.square)

    def at(self, theta: Array) -> LastNorm:
        """With another centre and square."""
        return replace(self, centre=theta[:-1], square=float(theta[-1]))

    def parameters(self) -> tuple[Array, Array]:
        """Gain and bias (d,) of the norm."""
        scale = np.sqrt(self.square / len(self.gain))
        return self.gain * scale, self.gain * (self.basis @ self.centre + self.offset)

    def with_parameters(self, gain: Array, bias: Array) -> LastNorm:
        """The norm of this gain and bias."""
        offset = float((bias / gain).mean())
        return replace(
            self,
            gain=gain,
            offset=offset,
            centre=(bias / gain - offset) @ self.basis,
            square=float(len(gain)),
        )


def last_norm_of(answers: Array, basis: Array, *, flat: float = _FLAT) -> LastNorm:
    """From answers (n, d) to rows far out: the gain exactly, centre and square as far as eps can be left out.
    flat: smallest singular value of answers in a hyperplane, over the largest, as rounding leaves it."""
    middle = answers.mean(axis=0)
    _, sizes, right = np.linalg.svd(answers - middle)
    if sizes[-1] > flat * sizes[0]:
        raise Unresolved(
            "answers do not stay in a hyperplane, so that no LayerNorm comes last; another norm there is not "
            "recovered"
        )
    normal = right[-1]
    if float(np.abs(normal).min()) * _STEEPEST < float(np.abs(normal).max()):
        raise Unresolved("gains of the last norm differ by more than four orders of magnitude")
    gain = 1.0 / normal
    gain *= np.sign(np.median(gain)) / np.abs(gain).mean()
    offset = float((answers / gain).mean())
    z = (answers / gain - offset) @ basis
    solved = np.linalg.lstsq(np.column_stack([2.0 * z, np.ones(len(z))]), (z**2).sum(axis=1), rcond=None)[0]
    centre = solved[:-1]
    return LastNorm(basis, gain, offset, centre, float(solved[-1] + centre @ centre))


def straightened(norm: LastNorm, answers: Array, places: Array, degree: int) -> tuple[LastNorm, float]:
    """Centre and square such that r is a polynomial along lines through the place where it vanishes.

    answers: (lines, places, d). Degree one, on half lines, for networks with kinks: lines that cross one are
    left out, and centre and square follow. A higher degree, on whole lines, for smooth ones: the centre
    follows, while a change of the square looks like a cubic. Also returns what is left of the polynomials,
    over their size.
    """
    weight = 1.0 / (np.abs(places) + 0.2 * np.abs(places).max())
    columns = np.linalg.qr(np.vander(places, degree + 1) * weight[:, None])[0]
    beside = np.eye(len(places)) - columns @ columns.T
    free = len(norm.theta) - (degree > 2)

    def bends(theta: Array) -> Array:
        lines = norm.at(theta).stream(answers) * weight[:, None]
        return np.asarray(np.einsum("ij,ljm->lim", beside, lines))

    theta = norm.theta
    steps = _DIFFERENCE * np.append(np.full(len(theta) - 1, np.sqrt(norm.square)), norm.square)
    left, size = np.inf, 1.0
    for _ in range(_STEPS):
        now = bends(theta)
        each = np.sqrt((now**2).mean(axis=(1, 2)))
        chosen = each <= _KINKED * np.quantile(each, 0.125) + 1e-300
        moves = steps[:free, None] * np.eye(len(theta))[:free]
        jacobian = np.stack(
            [
                ((bends(theta + move) - now) / h)[chosen].ravel()
                for move, h in zip(moves, steps, strict=False)
            ],
            axis=1,
        )
        scale = np.linalg.norm(jacobian, axis=0) + 1e-300
        step = np.linalg.lstsq(jacobian / scale, -now[chosen].ravel(), rcond=1e-13)[0] / scale
        theta = theta + np.append(step, np.zeros(len(theta) - free))
        if not theta[-1] > 0.0:  # lines with kinks lead to no sphere
            return norm, np.inf
        size = float(np.abs(norm.at(theta).stream(answers) * weight[:, None]).max())
        left = float(np.sqrt((bends(theta)[chosen] ** 2).mean()))
        if chosen.sum() < _ENOUGH * len(theta):  # each line tells one number of the centre
            left = np.inf
        if float(np.abs(step).max()) < 1e-15 * norm.square:
            break
    return norm.at(theta), left / size
