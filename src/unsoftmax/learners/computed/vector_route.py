"""Several heads with vector answers behind short arithmetic: values from plateaus, scores, then all."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.learners.computed.output_spaces import read_values
from unsoftmax.learners.computed.two_row_queries import Asks, Baseline, Counted, TwoRowQueries, read_baseline
from unsoftmax.learners.computed.vector_scores import matrices_from_scores, read_scores
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.joint_refinement import RefinementOptions, refine
from unsoftmax.solvers.sequence_fit import SequenceBlock, SequenceFit, predict_sequences
from unsoftmax.solvers.vector_heads import VectorHeads

__all__ = ["FittedVectorHeads", "fit_vector_heads"]

_SPREAD = 1.2  # standard deviation of the strongest head's scores in the sequences that show them
_PILOTS = 5
_OVERSAMPLING = 1.3  # scores over unknowns of one head's matrix
_PRICE = 7.6  # queries, in units of parameters over outputs, that all of this should cost
_ROUNDING_OF_FACTORS = 10.0  # noises: singular values below are the rounding of the matrix itself
_EIGHT_BITS = 1e-4  # noise above it: matrices do not show their ranks
_FIRST = RefinementOptions(
    iterations=30, damping=1e-3, improvement=1e-2, inner_iterations=80, inner_tolerance=1e-2
)
_LAST = RefinementOptions(damping=1e-6, improvement=3e-3, inner_iterations=200)


@dataclass(frozen=True)
class FittedVectorHeads:
    """heads, the weighted problem that they minimise, and what single rows tell."""

    heads: VectorHeads
    fit: SequenceFit
    baseline: Baseline


def fit_vector_heads(
    asker: Asks, bits: int, rng: np.random.Generator, effort: float = 1.0
) -> FittedVectorHeads:
    """bits: significant bits of the layer's numbers. effort: scales the price."""
    counted = Counted(asker)
    queries = TwoRowQueries(counted, bits)
    d, limit = queries.width, asker.input_bound or np.inf
    baseline = read_baseline(queries, rng, min(float(np.sqrt(d)), limit), spare=1 + max(4, d // 8))
    values = read_values(queries, baseline, rng, limit)
    size, moderate, rows = _moderate_sequences(queries, baseline, values, rng, limit)
    matrices, ranks = matrices_from_scores(read_scores(moderate, baseline, values))
    value_ranks = _value_ranks(values, baseline)
    heads = VectorHeads.of(list(matrices), list(values), baseline.c, ranks, value_ranks)
    if baseline.noise < _EIGHT_BITS:
        heads = _cut(heads, baseline.noise)
    else:  # the residual shows too low ranks
        heads = VectorHeads.of(
            list(matrices), list(values), baseline.c, [min(r + 3, d) for r in ranks], value_ranks
        )
    left = effort * _PRICE * heads.parameters / heads.outputs - counted.asked
    count = int(max(left, 0.3 * len(moderate.rows)))
    single = SequenceBlock.of(baseline.rows[:, None], baseline.answers, "single rows")
    tokens = _sequences(queries, 1.0, count - count // 3, rows, rng, limit, "tokens")
    pairs = _sequences(queries, size, count // 3, 1, rng, limit, "pairs of rows")
    fit = SequenceFit.of([single, moderate, tokens, pairs])
    heads = refine(fit, heads, _FIRST).state
    if baseline.noise < _EIGHT_BITS:
        heads = refine(fit, _cut(heads, baseline.noise), _FIRST).state
    for _ in range(2):
        fit = _reweighted(fit, heads)
        heads = refine(fit, heads, _LAST).state
    return FittedVectorHeads(heads, fit, baseline)


def _sequences(
    queries: TwoRowQueries,
    size: float,
    count: int,
    rows: int,
    rng: np.random.Generator,
    limit: float,
    group: str,
) -> SequenceBlock:
    """Gaussian rows of this size, `rows` of them and the asking one."""
    batch = size * rng.standard_normal((count, rows + 1, queries.width))
    longest = float(np.linalg.norm(batch, axis=2).max(initial=0.0))
    batch = queries.rounded(batch * min(1.0, 0.99 * limit / longest) if longest > 0 else batch)
    step = max(1, queries.asker.batch_size(rows + 1))
    answers = [queries.asker.ask(batch[i : i + step]) for i in range(0, count, step)]
    return SequenceBlock.of(batch, np.concatenate(answers), group)


def _moderate_sequences(
    queries: TwoRowQueries, baseline: Baseline, values: Array, rng: np.random.Generator, limit: float
) -> tuple[float, SequenceBlock, int]:
    """(size of rows at which scores are moderate, enough sequences to read all scores, rows in each)."""
    H, d, m = values.shape
    rows = int(np.clip(0.6 * m / H, 0, 8))
    if rows < 1:
        raise Unresolved(f"{H} heads show through {m} outputs only, too few to read every head's weight")
    size = 1.0
    for _ in range(_PILOTS):
        pilot = _sequences(queries, size, 6, rows, rng, limit, "pilot")
        spread = read_scores(pilot, baseline, values).spread()
        change = float(np.clip(np.sqrt(_SPREAD / max(spread, 1e-3)), 0.3, 4.0))
        if 0.8 < change < 1.3:
            break
        size *= change
    count = int(np.ceil(_OVERSAMPLING * d * (d + 1) / rows))
    return size, _sequences(queries, size, count, rows, rng, limit, "moderate scores"), rows


def _value_ranks(values: Array, baseline: Baseline) -> list[int]:
    """Singular values above a thousandth of the largest, which plateaus tell; those of one head are told by
    single rows, and to their rounding. Coarse arithmetic keeps all."""
    if baseline.noise > 1e-4:
        return [min(value.shape) for value in values]
    spectra = [np.linalg.svd(value, compute_uv=False) for value in values]
    least = _ROUNDING_OF_FACTORS * baseline.noise if len(values) == 1 else 1e-3
    return [int((spectrum > least * spectrum[0]).sum()) for spectrum in spectra]


def _cut(heads: VectorHeads, noise: float) -> VectorHeads:
    """Without singular values that are rounding, or that stand behind a wide gap."""
    return heads.cut(
        [_rank(matrix, rank, noise) for matrix, rank in zip(heads.matrices, heads.ranks, strict=True)],
        [_rank(value, rank, noise) for value, rank in zip(heads.values, heads.value_ranks, strict=True)],
    )


def _rank(matrix: Array, rank: int, noise: float) -> int:
    values = np.linalg.svd(matrix, compute_uv=False)[:rank]
    kept = max(1, int((values > _ROUNDING_OF_FACTORS * noise * values[0]).sum()))
    ratios = values[: kept - 1] / values[1:kept]
    far = (ratios > 20.0) & (values[1:kept] < 1e-3 * values[0])
    return int(np.argmax(far)) + 1 if far.any() else kept


def _reweighted(fit: SequenceFit, heads: VectorHeads) -> SequenceFit:
    """Every group by its residual; single sequences that are off by more than four of it by that."""
    blocks = []
    for block in fit.blocks:
        left = np.linalg.norm(predict_sequences(heads, block) - block.answers, axis=1) * block.weights
        left = left / np.sqrt(heads.outputs)
        unit = max(float(np.median(left)), 0.3 * rms(left), 1e-300)
        weights = block.weights / unit * np.minimum(1.0, 4.0 / np.maximum(left / unit, 1e-30))
        blocks.append(replace(block, weights=weights))
    return SequenceFit.of(blocks)
