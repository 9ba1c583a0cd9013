"""Several heads behind arithmetic that rounds at every step, vector answers, with honest bounds."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.computed.attempts import first_believed
from unsoftmax.learners.computed.error_bound import CANCELLED, HeadErrors, few_draws
from unsoftmax.learners.computed.few_outputs import fit_few_outputs
from unsoftmax.learners.computed.fitted_heads import as_model
from unsoftmax.learners.computed.fresh_check import check_fresh
from unsoftmax.learners.computed.known_values import TooFewOutputs
from unsoftmax.learners.computed.likely_obstacle import likely_obstacle
from unsoftmax.learners.computed.several_heads import RecoveredHeads
from unsoftmax.learners.computed.two_row_queries import Asks, Expect
from unsoftmax.learners.computed.vector_route import FittedVectors, fit_vector_heads
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, Spread

__all__ = ["recover_vector_heads"]

# Outputs of one sequence share the rounding of its weights, so the plain 99 % bound is too small: the largest
# error was 1.6 times it over 40 layers of width 8, 1.4 times over 50 of width 16.
_FACTOR = 2.0
_DRAWS = 200  # two draws lie beyond the 99 % quantile
_DRAWN = RefinementOptions(inner_iterations=40, inner_tolerance=2e-2)


def recover_vector_heads(
    asker: Asks, bits: int, rng: np.random.Generator, expect: Expect | None = None
) -> RecoveredHeads:
    """All heads up to their order. Queries: about 7.6 times the parameters over the outputs. Raises
    Unresolved, naming the obstacle, where that cannot be done.
    """
    return first_believed(lambda: _judged(asker, _fitted(asker, bits, rng, expect), bits, rng), bits)


def _fitted(asker: Asks, bits: int, rng: np.random.Generator, expect: Expect | None) -> FittedVectors:
    try:
        return fit_vector_heads(asker, bits, rng, expect)
    except TooFewOutputs:
        return fit_few_outputs(asker, bits, rng, expect)


def _judged(asker: Asks, fitted: FittedVectors, bits: int, rng: np.random.Generator) -> RecoveredHeads:
    model, baseline = as_model(fitted.heads, fitted.heads.values), fitted.baseline
    check = check_fresh(asker, model, bits, baseline.noise, rng)
    obstacle = likely_obstacle(fitted.heads.matrices, fitted.heads.values)
    return RecoveredHeads(model, _errors(fitted, bits, rng), check, baseline.noise).believed(obstacle)


def _errors(fitted: FittedVectors, bits: int, rng: np.random.Generator) -> HeadErrors:
    """99 % bounds from the covariance of the fit, relative to W, V and the constants."""
    heads = fitted.heads
    spread = Spread.of(fitted.fit, heads, gauge=heads.gauge, options=_DRAWN)
    count = _DRAWS if heads.unknowns <= spread.options.dense_limit else few_draws(heads.unknowns)
    sizes = np.linalg.norm(heads.matrices[:, :, :-1], axis=(1, 2))
    values = np.linalg.norm(heads.values, axis=(1, 2))
    largest = max(float(np.linalg.norm(heads.c)), float(values.max()))

    def change(step: Array) -> tuple[Array, Array, float, float]:
        dW, dV, dc = heads.changes(step)
        in_W = np.linalg.norm(dW, axis=(1, 2)) / sizes
        in_v = np.linalg.norm(dV, axis=(1, 2)) / values
        return in_W, in_v, float(np.linalg.norm(dc)) / largest, float(np.abs(dc).max())

    factor = _FACTOR * (CANCELLED if fitted.baseline.cancelled(heads.values, bits) else 1.0)
    return HeadErrors.drawn(map(change, spread.draw(count, rng)), bits, factor)
