"""Several heads with scalar answers, from nothing but two-row queries: readouts, heads one by one, then all
together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.learners.computed.attempts import refuse_unexplained
from unsoftmax.learners.computed.cross_rows import fit_cross_rows
from unsoftmax.learners.computed.fit_progress import DENSE, MANY, report_steps
from unsoftmax.learners.computed.fitted_heads import FittedHeads
from unsoftmax.learners.computed.isolated_heads import isolate_head
from unsoftmax.learners.computed.likely_obstacle import likely_obstacle
from unsoftmax.learners.computed.more_pairs import aimed_pairs, grid_of_spread, grid_of_tokens
from unsoftmax.learners.computed.plateau_readouts import read_readouts
from unsoftmax.learners.computed.prices import COARSE_PAIRS, FRESH_QUERIES, first_pairs, pairs_for_all
from unsoftmax.learners.computed.ranks_and_weights import cut_ranks, reweighted, with_one_more_row
from unsoftmax.learners.computed.two_row_queries import (
    Asks,
    Baseline,
    Counted,
    Expect,
    TwoRowQueries,
    read_baseline,
)
from unsoftmax.solvers.head_fits.head_factors import HeadFactors
from unsoftmax.solvers.head_fits.two_row_fit import AnswerBlock, TwoRowFit
from unsoftmax.solvers.least_squares.joint_refinement import Refined, RefinementOptions, refine

__all__ = ["FittedNumbers", "fit_heads"]

_GOOD = 8.0  # roundings of a unit row: a fit that leaves less needs no more rows
_FIRST = RefinementOptions(
    iterations=25,
    damping=1e-5,
    improvement=2e-2,
    dense_limit=DENSE,
    inner_iterations=60,
    inner_tolerance=1e-2,
)
_LAST = RefinementOptions(
    damping=1e-7, improvement=3e-3, dense_limit=DENSE, inner_iterations=60, inner_tolerance=1e-2
)
# the same with many unknowns, where a step takes half a minute: d = 384 with twelve heads is at its rounding
# after three steps of the first fit and two of the last; further ones change W by a hundredth of its error
_FIRST_OF_MANY = replace(_FIRST, iterations=6, improvement=0.3)
_LAST_OF_MANY = replace(_LAST, iterations=4, improvement=3e-2)


FittedNumbers = FittedHeads[HeadFactors, TwoRowFit]


@dataclass(frozen=True)
class _Start:
    """heads without cross rows; others: for every head a basis of the other readouts' span."""

    heads: HeadFactors
    others: list[Array]
    blocks: list[AnswerBlock]


def fit_heads(
    asker: Asks, bits: int, rng: np.random.Generator, expect: Expect | None = None
) -> FittedNumbers:
    """bits: significant bits of the layer's numbers. Where the start was dear, fewer general pairs of rows
    are asked, and at least one a parameter.
    """
    counted = Counted(asker, expect)
    queries = TwoRowQueries(counted, bits)
    limit = queries.asker.input_bound or np.inf
    baseline = read_baseline(queries, rng, min(float(np.sqrt(queries.width)), limit))
    start = _one_by_one(queries, baseline, rng, limit)
    size = start.heads.parameters
    pairs = pairs_for_all(start.heads.heads, counted.asked / size)
    pairs = COARSE_PAIRS if baseline.coarse else pairs
    first = first_pairs(start.heads.heads, max(start.heads.ranks), size)
    counted.expect(pairs * size + first + FRESH_QUERIES)
    heads, general = _with_general_pairs(queries, start, rng, pairs, limit)
    fit = TwoRowFit.of([baseline.block, *start.blocks, *general])
    refined = _fitted_with_rows_to_spare(fit, heads, baseline, rng)
    heads = cut_ranks(fit, refined, baseline)
    left = rms(fit.residual(heads)) / baseline.rounding_of(heads.v, bits)
    refuse_unexplained(left, baseline.coarse, likely_obstacle(heads.matrices, heads.v))
    many = heads.unknowns > MANY
    options = _LAST_OF_MANY if many else _LAST
    for _ in range(1 if many else 2):
        fit = reweighted(fit, heads)
        heads = refine(fit, heads, options, progress=report_steps("last fit", options)).state
    return FittedHeads(heads, fit, baseline)


def _one_by_one(queries: TwoRowQueries, baseline: Baseline, rng: np.random.Generator, limit: float) -> _Start:
    readouts = read_readouts(queries, baseline, rng, limit)
    found = [isolate_head(queries, baseline, readouts, h, rng) for h in range(len(readouts.v))]
    heads = HeadFactors.of(
        [one.matrix for one in found], readouts.v, float(baseline.c), [one.rank for one in found]
    )
    return _Start(
        heads, [one.around.others for one in found], [block for one in found for block in one.blocks]
    )


def _with_general_pairs(
    queries: TwoRowQueries, start: _Start, rng: np.random.Generator, pairs: float, limit: float
) -> tuple[HeadFactors, list[AnswerBlock]]:
    """Pairs that show all heads at once. The first of them give the rows that isolation left out."""
    heads, size = start.heads, start.heads.parameters
    blocks = []
    if heads.heads > 1:
        first = first_pairs(heads.heads, max(heads.ranks), size)
        blocks.append(grid_of_spread(queries, heads, first, 1.0, rng))
        heads = fit_cross_rows(heads, start.others, blocks)
    blocks.append(grid_of_spread(queries, heads, 0.25 * pairs * size, 1.3, rng))
    heads = fit_cross_rows(heads, start.others, blocks)
    blocks += aimed_pairs(queries, heads, 0.5 * pairs * size, rng, limit)
    blocks.append(grid_of_tokens(queries, heads, 0.25 * pairs * size, rng, limit))
    return heads, blocks


def _fitted_with_rows_to_spare(
    fit: TwoRowFit, heads: HeadFactors, baseline: Baseline, rng: np.random.Generator
) -> Refined[HeadFactors]:
    """Fits at the ranks found, and with one row more a head for as long as the answers are not explained."""
    options = _FIRST_OF_MANY if heads.unknowns > MANY else _FIRST
    if baseline.coarse:
        options = replace(_FIRST, iterations=60, damping=1e-3, improvement=1e-3)
        heads = with_one_more_row(with_one_more_row(heads, rng), rng)
    progress = report_steps("fit of all", options)
    refined = refine(fit, heads, options, progress=progress)
    for _ in range(2):
        if baseline.coarse or refined.rms[-1] < _GOOD * 0.5 * baseline.unit_rounding:
            break
        refined = refine(fit, with_one_more_row(refined.state, rng), options, progress=progress)
    return refined
