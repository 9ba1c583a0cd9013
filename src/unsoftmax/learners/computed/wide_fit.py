"""Fits of all parameters of a layer with many unknowns, by conjugate gradients: even weights until the rest
is near its rounding, then full ones until nothing is left to gain.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.learners.computed.fit_progress import report_steps
from unsoftmax.learners.computed.reweighting import reweighted
from unsoftmax.learners.computed.two_row_queries import Baseline
from unsoftmax.solvers.head_fits.head_factors import spectrum
from unsoftmax.solvers.head_fits.sequence_fit import SequenceFit
from unsoftmax.solvers.head_fits.vector_heads import VectorHeads
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine

__all__ = ["WIDE_GAP", "fit_wide", "settle_wide"]

WIDE_GAP = 20.0  # between neighbouring singular values; random and trained factors have none above 5
# median residuals by which a sequence counts at most: in a head with large scores one may be off by so much
# that its weights go elsewhere, and one sequence in a hundred left 0.84 of all squares
_OUTLIER = 3.0
# roundings of a unit row that a fit with even weights leaves when full weights take over. Four heads of a
# trained layer leave 1.3, and one step with full weights gains most of the rest; twelve that leave 5.6 still
# deviate by 144 times their own rounding, and full weights fit them slowly
_NEAR = 2.0
_SETTLED = 30.0  # the same of a fit that has the right ranks
# with even weights. Sixty products bring four heads of a trained layer from 500 roundings to 1.3, and twelve
# heads, one of which begins far off, from 14,000 to 1,300: such a layer takes several steps, and all products
_EVEN = RefinementOptions(
    iterations=12, damping=1e-5, improvement=0.5, inner_iterations=100, inner_tolerance=2e-3, halvings=2
)
# with full ones, one step at a time, until it lowers the squares by less than this share. A step leaves about
# a thirtieth of what it gains, and unknowns are a twelfth of the answers: after a step that gains less, what
# is left to gain is below a tenth of what rounding does to the parameters. Four heads take about a hundred
# products a step; twelve take all, and conjugate gradients that begin again lose what they had
_LAST_GAIN = 0.15
_LAST = RefinementOptions(iterations=6, damping=1e-8, inner_iterations=250, inner_tolerance=3e-3, halvings=2)


def fit_wide(fit: SequenceFit, heads: VectorHeads, baseline: Baseline) -> VectorHeads:
    """At the ranks of the values, and at those that were seen where they do not do. A direction too many is
    a product of two small numbers, through which no step of a fit holds what it promises."""
    unit = baseline.unit_rounding / float(np.sqrt(heads.outputs))
    likely = tuple(_before_gap(*pair) for pair in zip(heads.U, heads.T, strict=True))
    for ranks, value_ranks in ((likely, likely), (heads.ranks, heads.value_ranks)):
        found = _evenly(fit, heads.cut(list(ranks), list(value_ranks)), unit)
        if rms(fit.residual(found)) < _SETTLED * unit:
            break
    return found


def _evenly(fit: SequenceFit, heads: VectorHeads, unit: float) -> VectorHeads:
    """unit: rounding of a unit row."""
    even, report = fit.evened(heads), report_steps("fit of all", _EVEN)
    for step in range(1, _EVEN.iterations + 1):
        refined = refine(even.capped(heads, _OUTLIER), heads, replace(_EVEN, iterations=1))
        heads = refined.state
        report(step, refined.rms[-1])
        settled = refined.rms[-1] ** 2 >= (1.0 - _EVEN.improvement) * refined.rms[0] ** 2
        if settled or rms(fit.residual(heads)) < _NEAR * unit:
            break
    return heads


def _before_gap(U: Array, T: Array) -> int:
    """The rank of one head's values up to a wide gap, behind which are errors of the plateaus."""
    values = spectrum(U, T)
    far = values[:-1] > WIDE_GAP * values[1:]
    return int(np.argmax(far)) + 1 if far.any() else len(values)


def settle_wide(fit: SequenceFit, heads: VectorHeads) -> tuple[VectorHeads, SequenceFit]:
    """The heads, and the weighted problem that they minimise."""
    report = report_steps("last fit", _LAST)
    for step in range(1, _LAST.iterations + 1):
        fit = reweighted(fit, heads)
        refined = refine(fit, heads, replace(_LAST, iterations=1))
        heads = refined.state
        report(step, refined.rms[-1])
        if refined.rms[-1] ** 2 >= (1.0 - _LAST_GAIN) * refined.rms[0] ** 2:
            break
    return heads, fit
