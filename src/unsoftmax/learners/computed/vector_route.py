"""Several heads with vector answers behind short arithmetic: values from plateaus, scores, then all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.learners.computed.attempts import refuse_unexplained
from unsoftmax.learners.computed.fit_progress import MANY, report_steps
from unsoftmax.learners.computed.fitted_heads import FittedHeads
from unsoftmax.learners.computed.known_values import ROUNDING_OF_FACTORS, KnownValues
from unsoftmax.learners.computed.likely_obstacle import likely_obstacle
from unsoftmax.learners.computed.output_spaces import read_values
from unsoftmax.learners.computed.prices import (
    COARSE_EFFORT,
    FRESH_QUERIES_OF_VECTORS,
    PRICE_OF_VECTORS,
    price_of_vectors,
)
from unsoftmax.learners.computed.ranks_and_weights import explains_as_much
from unsoftmax.learners.computed.reweighting import reweighted
from unsoftmax.learners.computed.two_row_queries import (
    Asks,
    Baseline,
    Counted,
    Expect,
    TwoRowQueries,
    random_sequences,
    read_baseline,
)
from unsoftmax.learners.computed.vector_start import ScoreStart, WrongValues, start_scores
from unsoftmax.learners.computed.wide_fit import WIDE_GAP, fit_wide, settle_wide
from unsoftmax.learners.row_tests import QUERIES_OF_HEAD_TESTS
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.head_fits.head_factors import spectrum
from unsoftmax.solvers.head_fits.sequence_fit import SequenceBlock, SequenceFit
from unsoftmax.solvers.head_fits.vector_heads import VectorHeads
from unsoftmax.solvers.least_squares.joint_refinement import Refined, RefinementOptions, refine

__all__ = ["FittedVectors", "fit_vector_heads", "settled"]

# queries that are not part of the fit, and that its price holds: fresh sequences and the class tests
_BESIDE = FRESH_QUERIES_OF_VECTORS + QUERIES_OF_HEAD_TESTS
# the same of random sequences before ranks are known, and the least of them, however dear the start was
_FIRST_GENERAL, _LEAST_GENERAL = 0.8, 0.4
# the same of all random sequences, however dear the start was: tables show one head's scores at a time, and
# fits to fewer deviate by 2 to 6 times as much as the layer itself where heads are more than a third of the
# columns; in layers narrower than ten, where the search for plateaus takes the whole price, by 3 to 18 times
_LEAST_RANDOM = 3.2
_READINGS = 3  # of the values: one in twenty layers of width 32 shows two heads as one
_MOST_OF_PRICE = 1.04  # that a start from random sequences may take: no others are needed then
_TOO_FEW = 0.1  # of the sequences asked, that are missing when ranks turn out higher: then they are asked
# shares of the random sequences, by what they show: tokens the layer's use, moderate scores W relative to its
# size, pairs of rows single scores
_TOKENS, _MODERATE = 0.4, 0.3
_COARSE_CUTS = (0.1, 0.05, 0.025)  # singular values that may go, of the largest: bfloat16 hides those below
_SETTLED = 30.0  # roundings of a unit row that a fit leaves whose singular values tell ranks
_ARRIVED = 1.0  # the same of a fit that has all directions: 0.4 in random layers, more in trained ones
# unknowns up to which JᵀJ is held: it costs as many products as there are unknowns, and conjugate gradients
# take thirty
_DENSE = 500
# a first fit, which shows the ranks, and with them how many more sequences are wanted
_SHORT = RefinementOptions(
    iterations=25,
    damping=1e-3,
    dense_limit=_DENSE,
    improvement=1e-2,
    inner_iterations=60,
    inner_tolerance=3e-2,
)
_FIRST = RefinementOptions(
    iterations=30,
    damping=1e-4,
    dense_limit=_DENSE,
    improvement=1e-1,
    inner_iterations=40,
    inner_tolerance=1e-1,
)
_LAST = RefinementOptions(
    damping=1e-6, improvement=3e-3, dense_limit=_DENSE, inner_iterations=60, inner_tolerance=1e-2
)
FittedVectors = FittedHeads[VectorHeads, SequenceFit]


def fit_vector_heads(
    asker: Asks, bits: int, rng: np.random.Generator, expect: Expect | None = None
) -> FittedVectors:
    """bits: significant bits of the layer's numbers."""
    counted = Counted(asker, expect)
    queries = TwoRowQueries(counted, bits)
    d, limit = queries.width, asker.input_bound or np.inf
    baseline = read_baseline(queries, rng, min(float(np.sqrt(d)), limit), spare=1 + max(4, d // 8))
    values, start = _values_and_scores(queries, baseline, counted, rng, limit)
    blocks = [SequenceBlock.of(baseline.rows[:, None], baseline.answers, "single rows"), *start.blocks]
    tables = 1 if start.random else len(blocks)  # and single rows: blocks before the random ones
    heads = _first_heads(start, values, baseline)
    if heads.unknowns <= MANY and heads.ranks != heads.value_ranks:
        unit = heads.parameters / heads.outputs
        left = PRICE_OF_VECTORS * _likely_parameters(heads) / heads.outputs - _BESIDE - counted.asked
        first = int(np.clip(left, 0.0 if start.random else _LEAST_GENERAL * unit, _FIRST_GENERAL * unit))
        blocks += _general(queries, start.size, first, values.rows_fitted, rng, limit)
        heads = _with_lower_ranks(SequenceFit.of(blocks), heads, baseline, _SHORT)
    wide = heads.unknowns > MANY and not baseline.coarse
    price = COARSE_EFFORT * PRICE_OF_VECTORS if baseline.coarse else price_of_vectors(heads.unknowns)
    parameters = heads.parameters if baseline.coarse else _likely_parameters(heads)
    for part in (0.0, _TOO_FEW):
        unit, random = parameters / heads.outputs, sum(len(block.rows) for block in blocks[tables:])
        count = int(max(price * unit - _BESIDE - counted.asked, _LEAST_RANDOM * unit - random))
        if part and count < part * counted.asked:
            break
        counted.expect(max(count, 0) + FRESH_QUERIES_OF_VECTORS)
        blocks += _general(queries, start.size, max(count, 0), values.rows_fitted, rng, limit, wide)
        heads = _fitted(SequenceFit.of(blocks), heads, baseline)
        parameters = heads.parameters
    return settled(SequenceFit.of(blocks), heads, baseline, bits)


def settled(fit: SequenceFit, heads: VectorHeads, baseline: Baseline, bits: int) -> FittedVectors:
    """The last fits, in which every block of sequences counts by what it leaves."""
    left = rms(fit.residual(heads)) * float(np.sqrt(heads.outputs))
    left /= baseline.rounding_of(heads.values, bits)
    refuse_unexplained(left, baseline.coarse, likely_obstacle(heads.matrices, heads.values))
    if heads.unknowns > MANY and not baseline.coarse:
        return FittedHeads(*settle_wide(fit, heads), baseline)
    for _ in range(2):
        fit = reweighted(fit, heads)
        heads = refine(fit, heads, _LAST, progress=report_steps("last fit", _LAST)).state
    return FittedHeads(heads, fit, baseline)


def _values_and_scores(
    queries: TwoRowQueries, baseline: Baseline, counted: Counted, rng: np.random.Generator, limit: float
) -> tuple[KnownValues, ScoreStart]:
    """Values are read again, along other lines, where they do not explain answers to a few sequences."""
    for _ in range(_READINGS):
        values = KnownValues.of(read_values(queries, baseline, rng, limit), baseline, counted.max_length)
        unit = values.parameters / values.matrices.shape[2]
        most = _MOST_OF_PRICE * PRICE_OF_VECTORS * unit - _BESIDE - counted.asked
        try:
            return values, start_scores(queries, baseline, values, rng, limit, most)
        except WrongValues:
            continue
    raise Unresolved(
        f"values read on {_READINGS} sets of plateaus do not explain sequences with moderate scores, as when "
        "two heads switch together or the target is not an attention layer"
    )


def _likely_parameters(heads: VectorHeads) -> int:
    """With scores of no higher rank than values, which are well known by now: ranks of scores that a rough
    start has left too high would ask for too many sequences.
    """
    ranks = tuple(min(pair) for pair in zip(heads.ranks, heads.value_ranks, strict=True))
    return replace(heads, ranks=ranks).parameters


def _fitted(fit: SequenceFit, heads: VectorHeads, baseline: Baseline) -> VectorHeads:
    """At the ranks that the fit itself shows; in coarse arithmetic, at the lowest that it accepts."""
    if baseline.coarse:
        return _lowest_ranks(fit, refine(fit, heads, _FIRST))
    if heads.unknowns > MANY:
        return fit_wide(fit, heads, baseline)
    return _with_lower_ranks(fit, heads, baseline, _FIRST)


def _with_lower_ranks(
    fit: SequenceFit, heads: VectorHeads, baseline: Baseline, options: RefinementOptions
) -> VectorHeads:
    """Fitted, and cut where the answers are explained as well without what is cut. Likely ranks are tried
    first: with too many directions a fit takes long, and may not arrive."""
    progress = report_steps("fit of all", options)
    unit = baseline.unit_rounding / float(np.sqrt(heads.outputs))
    likely = [min(pair) for pair in zip(heads.ranks, heads.value_ranks, strict=True)]
    if not baseline.coarse and tuple(likely) != heads.ranks and heads.unknowns <= MANY:
        tried = refine(fit, heads.cut(likely, list(heads.value_ranks)), options, progress=progress)
        if tried.rms[-1] < _ARRIVED * unit:
            return tried.state
    refined = refine(fit, heads, options, progress=progress)
    left = refined.rms[-1] / unit
    cut = _cut(refined.state, baseline.noise)
    same = cut.ranks == heads.ranks and cut.value_ranks == heads.value_ranks
    if baseline.coarse or same or left > _SETTLED:
        return refined.state
    trimmed = refine(fit, cut, options, progress=progress)
    return trimmed.state if explains_as_much(fit.answers, refined, trimmed) else refined.state


def _lowest_ranks(fit: SequenceFit, refined: Refined[VectorHeads]) -> VectorHeads:
    """The lowest ranks that the answers accept."""
    heads = refined.state
    for share in _COARSE_CUTS:
        kept = [
            [
                int((np.linalg.svd(part, compute_uv=False) > share * np.linalg.norm(part, 2)).sum())
                for part in parts
            ]
            for parts in (heads.matrices, heads.values)
        ]
        trimmed = refine(fit, heads.cut(kept[0], kept[1]), _FIRST)
        if explains_as_much(fit.answers, refined, trimmed):
            return trimmed.state
    return heads


def _first_heads(start: ScoreStart, values: KnownValues, baseline: Baseline) -> VectorHeads:
    """At the ranks that were seen; three more in coarse arithmetic, where the residual shows too low ones."""
    d, V = values.matrices.shape[1], list(values.matrices)
    ranks = [min(rank + 3, d) for rank in start.ranks] if baseline.coarse else start.ranks
    return VectorHeads.of(list(start.matrices), V, baseline.c, ranks, values.ranks)


def _general(
    queries: TwoRowQueries,
    size: float,
    count: int,
    rows: int,
    rng: np.random.Generator,
    limit: float,
    wide: bool = False,
) -> list[SequenceBlock]:
    """Random sequences of token size, of moderate scores, and pairs of rows with moderate scores; in wide
    layers long ones with small scores, which make a fit converge in half the time."""
    tokens, moderate = int(_TOKENS * count), int(_MODERATE * count)
    rest = count - tokens - moderate
    kinds = (
        (1.0, (tokens, rows), "tokens"),
        (size, (moderate, rows), "moderate scores"),
        (0.7 * size, (rest, rows), "small scores") if wide else (size, (rest, 1), "pairs of rows"),
    )
    return [
        random_sequences(queries, size, shape, rng, limit, group)
        for size, shape, group in kinds
        if shape[0] > 0
    ]


def _cut(heads: VectorHeads, noise: float) -> VectorHeads:
    """Without singular values that are rounding, or that stand behind a wide gap."""
    return heads.cut(
        [_rank(values[:rank], noise) for values, rank in zip(heads.spectra, heads.ranks, strict=True)],
        [
            _rank(spectrum(U, T)[:rank], noise)
            for U, T, rank in zip(heads.U, heads.T, heads.value_ranks, strict=True)
        ],
    )


def _rank(values: Array, noise: float) -> int:
    kept = max(1, int((values > ROUNDING_OF_FACTORS * noise * values[0]).sum()))
    ratios = values[: kept - 1] / values[1:kept]
    far = (ratios > WIDE_GAP) & (values[1:kept] < 1e-3 * values[0])
    return int(np.argmax(far)) + 1 if far.any() else kept
