"""How far fitted heads may be from the layer's parameters: a 99 % bound from the covariance of the fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.solvers.head_factors import HeadFactors
from unsoftmax.solvers.joint_refinement import RefinementOptions, Spread
from unsoftmax.solvers.two_row_fit import TwoRowFit

__all__ = ["FACTOR", "LEVEL", "HeadErrors", "bound_errors"]

LEVEL = 0.99
# Roundings of a shared row are not independent, and the plain 99 % bound covers 94 %. The largest error was
# 1.07 times the plain bound over 240 random layers of width 16, and 1.31 times in harder ones (one head,
# query gain 20, readouts a hundredth apart). `python -m benchmarks.float32_layers` prints coverage.
FACTOR = 1.75
_DRAWS = 400
# where every draw is a system of equations: errors of thousands of parameters have nearly one size
_FEW_DRAWS = 4
_DRAWN = RefinementOptions(inner_iterations=60, inner_tolerance=1e-2)


@dataclass(frozen=True)
class HeadErrors:
    """Relative 99 % bounds. overall: of the largest error of any W, w0 (against W), v (against v) or c."""

    W: Array
    v: Array
    overall: float
    constant: float


def bound_errors(fit: TwoRowFit, heads: HeadFactors, bits: int, rng: np.random.Generator) -> HeadErrors:
    """fit: weighted so that residuals have one variance. Changes of W are linear in the step, so the gauge of
    K and Q does not count. One rounding of the format is added: fixed factors inside the layer are rounded
    alike in every answer.
    """
    rounding = 2.0**-bits
    spread = Spread.of(fit, heads, gauge=heads.gauge, options=_DRAWN)
    count = _DRAWS if heads.unknowns <= spread.options.dense_limit else _FEW_DRAWS
    matrices, readouts = heads.matrices, np.linalg.norm(heads.v, axis=1)
    sizes = np.linalg.norm(matrices[:, :, :-1], axis=(1, 2))
    in_W, in_v, in_c, largest = [], [], [], []
    for step in spread.draw(count, rng):
        changes = heads.matrix_changes(step)
        _, _, dv, dc = heads.split(step)
        in_W.append(np.linalg.norm(changes, axis=(1, 2)) / sizes)
        in_v.append(np.linalg.norm(dv, axis=1) / readouts)
        in_c.append(abs(dc))
        constant = abs(dc) / max(abs(heads.c), float(readouts.max()))
        largest.append(max(float(in_W[-1].max()), float(in_v[-1].max()), constant))
    return HeadErrors(
        FACTOR * np.quantile(in_W, LEVEL, axis=0) + rounding,
        FACTOR * np.quantile(in_v, LEVEL, axis=0) + rounding,
        FACTOR * float(np.quantile(largest, LEVEL)) + rounding,
        FACTOR * float(np.quantile(in_c, LEVEL)),
    )
