"""How far fitted heads may be from the layer's parameters: a 99 % bound from the covariance of the fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.computed.fit_progress import DENSE, MANY
from unsoftmax.solvers.head_fits.head_factors import HeadFactors
from unsoftmax.solvers.head_fits.two_row_fit import TwoRowFit
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, Spread

__all__ = ["CANCELLED", "HeadErrors", "bound_errors", "few_draws"]

_LEVEL = 0.99  # the confidence that bounds of computed answers state
# Roundings of a shared row are not independent, and the plain 99 % bound covers 94 %. The largest error was
# 1.07 times the plain bound over 240 random layers of width 16, and 1.31 times in harder ones (one head,
# query gain 20, readouts a hundredth apart). `python -m benchmarks.float32_layers` prints coverage.
_FACTOR = 1.75
# the same where readouts nearly cancel, and their roundings are even less independent: errors were up to 2.1
# times the plain bound in five layers of width 16 with readouts 1e-2 from opposite
CANCELLED = 2.0
_DRAWS = 400  # four draws lie beyond the 99 % quantile
# where every draw is a system of equations: errors of thousands of parameters have nearly one size, and with
# many every system takes half a minute
_FEW_DRAWS, _FEWEST_DRAWS = 4, 2
_DRAWN = RefinementOptions(dense_limit=DENSE, inner_iterations=60, inner_tolerance=1e-2)


def few_draws(unknowns: int) -> int:
    """How many, where JᵀJ is not held."""
    return _FEWEST_DRAWS if unknowns > MANY else _FEW_DRAWS


@dataclass(frozen=True)
class HeadErrors:
    """Relative 99 % bounds. overall: of the largest error of any W, w0 (against W), v (against v) or c."""

    W: Array
    v: Array
    overall: float
    constant: float

    @classmethod
    def drawn(
        cls, changes: Iterable[tuple[Array, Array, float, float]], bits: int, factor: float
    ) -> HeadErrors:
        """changes: of every draw from the covariance of the fit, those of each W and each v, relative, and of
        the constant, relative and not. factor: on the plain bound. One rounding of the format is added: fixed
        factors inside the layer are rounded alike in every answer."""
        rounding = 2.0**-bits
        in_W, in_v, relative, in_c = (np.array(each) for each in zip(*changes, strict=True))
        largest = np.maximum(np.maximum(in_W.max(axis=1), in_v.max(axis=1)), relative)
        return cls(
            factor * np.quantile(in_W, _LEVEL, axis=0) + rounding,
            factor * np.quantile(in_v, _LEVEL, axis=0) + rounding,
            factor * float(np.quantile(largest, _LEVEL)) + rounding,
            factor * float(np.quantile(in_c, _LEVEL)),
        )


def bound_errors(
    fit: TwoRowFit, heads: HeadFactors, bits: int, rng: np.random.Generator, cancelled: bool = False
) -> HeadErrors:
    """fit: weighted so that residuals have one variance. Changes of W are linear in the step, so the gauge of
    K and Q does not count."""
    spread = Spread.of(fit, heads, gauge=heads.gauge, options=_DRAWN)
    count = _DRAWS if heads.unknowns <= spread.options.dense_limit else few_draws(heads.unknowns)
    readouts = np.linalg.norm(heads.v, axis=1)
    sizes = np.linalg.norm(heads.matrices[:, :, :-1], axis=(1, 2))

    def change(step: Array) -> tuple[Array, Array, float, float]:
        in_W = np.linalg.norm(heads.matrix_changes(step), axis=(1, 2)) / sizes
        _, _, dv, dc = heads.split(step)
        in_v = np.linalg.norm(dv, axis=1) / readouts
        return in_W, in_v, abs(dc) / max(abs(heads.c), float(readouts.max())), abs(dc)

    return HeadErrors.drawn(
        map(change, spread.draw(count, rng)), bits, _FACTOR * (CANCELLED if cancelled else 1.0)
    )
