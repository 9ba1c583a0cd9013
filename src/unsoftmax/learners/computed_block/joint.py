"""The whole block, fitted to sequences whose rounding was measured; how far parameters may be off; how far
fresh sequences deviate, in units of the block's own rounding."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.computed_block.asking import local_rounding
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.fit import BlockFit, Sequences
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.models import EncoderBlock
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, Spread, refine

__all__ = ["FittedBlock", "fit_block"]

_SURPLUS = 5.0  # answers over unknowns: what the fit adds to the rounding is its root of a fifth
_LENGTHS = (1, 2, 4, 8)  # one row shows norms and network, two the scores, four and eight how heads share
_LOOKED = 16  # sequences of a group at which rounding is measured
_TINY = 0.3  # of the rows of a pre-norm block: as small as its eps, or eps would not show
# (rows, sequences): lengths that the fit did not see, 5 and 17, among them
_FRESH = ((1, 32), (2, 32), (5, 32), (17, 32))
_HELD = RefinementOptions(iterations=20, damping=1e-4, improvement=2e-2, dense_limit=9000)
_FREE = RefinementOptions(iterations=20, damping=1e-6, improvement=1e-3, dense_limit=9000)
LEVEL = 0.99  # the confidence that bounds of computed answers state
_DRAWS = 100  # one draw lies beyond the 99 % quantile, and a factor above it covers what so few leave open
# Roundings of one row are not independent, those of a norm's statistics shift its eps alike in every answer,
# and few draws stand for the quantile: the largest error was 1.7 times the plain bound in 12 layers of width
# 16. `benchmarks.float32_blocks` prints coverage.
_FACTOR = 3.0
# residuals of the fit and of fresh sequences over the measured rounding: right blocks left 0.9 to 1.2
_EXPLAINED = 1.6


@dataclass(frozen=True)
class FittedBlock:
    """model: canonical. bound: relative error of the parameters, 99 %; weights_bound: of all but the eps of
    norms, which hardly move an answer. left: residual of the fit over the rounding of its answers; fresh: the
    same of sequences that were not in it. rounding: of answers to rows of size one, absolute. spare: whether
    it holds neurons that are not needed."""

    model: EncoderBlock
    bound: float
    weights_bound: float
    left: float
    fresh: float
    rounding: float
    spare: bool

    @property
    def why_not(self) -> str | None:
        """Why this is not believed; None where it is."""
        if self.left > _EXPLAINED:
            return f"the joint fit leaves {self.left:.2g} times the block's rounding"
        if self.fresh > _EXPLAINED:
            return f"fresh sequences deviate by {self.fresh:.2g} times the block's rounding"
        if self.spare:
            return "the joint fit holds neurons that are not needed"
        return None


def fit_block(
    asks: AsksSequences, shape: BlockShape, state: BlockState, held: FloatFormat, rng: np.random.Generator
) -> FittedBlock:
    """All parameters from a start that is a few ten per cent off."""
    count = int(np.ceil(_SURPLUS * state.unknowns / shape.width / len(_LENGTHS)))
    data = tuple(
        _measured(asks, shape, held.store(_rows(shape, state, count, length, rng)), held, rng)
        for length in _LENGTHS
    )
    state = refine(BlockFit(shape, data, free_eps=False), state, _HELD).state
    fit = BlockFit(shape, data)
    state = refine(fit, state, _FREE).state
    left = rms(fit.residual(state))
    fresh, rounding = _fresh(asks, shape, state, held, rng)
    bound, weights_bound = _bounds(fit, shape, state, rng)
    spare = shape.activation.smooth and state.spare_neurons(shape)
    return FittedBlock(state.model(shape).canonical(), bound, weights_bound, left, fresh, rounding, spare)


def _rows(shape: BlockShape, state: BlockState, count: int, length: int, rng: np.random.Generator) -> Array:
    """Sequences whose rows have many sizes; one size per sequence where scores grow with it."""
    rows = rng.standard_normal((count, length, shape.width))
    if not shape.norm_first:
        return np.asarray(rows * np.exp(rng.uniform(np.log(0.1), np.log(3.0), (count, 1, 1))))
    sizes = np.exp(rng.uniform(np.log(0.2), np.log(5.0), (count, length, 1)))
    smallest = 0.5 * float(np.exp(0.5 * state.log_eps[0]))
    tiny = np.exp(rng.uniform(np.log(smallest), np.log(30.0 * smallest), (count, length, 1)))
    return np.asarray(rows * np.where(rng.uniform(size=sizes.shape) < _TINY, tiny, sizes))


def _measured(
    asks: AsksSequences, shape: BlockShape, rows: Array, held: FloatFormat, rng: np.random.Generator
) -> Sequences:
    """With weights in which rounding is one. Answers of a pre-norm block hold the last row itself."""
    weights = np.ones(len(rows))
    if shape.norm_first:
        weights = 1.0 / np.sqrt(1.0 + np.mean(rows[:, -1] ** 2, axis=1))
    rounding = local_rounding(asks, rows[:_LOOKED], weights[:_LOOKED], held, rng)
    return Sequences(rows, asks(rows), weights / rounding)


def _fresh(
    asks: AsksSequences, shape: BlockShape, state: BlockState, held: FloatFormat, rng: np.random.Generator
) -> tuple[float, float]:
    """(deviation over rounding, the largest of all lengths; rounding, the mean)."""
    over, roundings = [], []
    for length, count in _FRESH:
        rows = held.store(rng.standard_normal((count, length, shape.width)))
        rounding = local_rounding(asks, rows, np.ones(count), held, rng)
        off = asks(rows) - BlockFit(shape, ()).predict(state, rows)
        over.append(rms(off) / rounding)
        roundings.append(rounding)
    return max(over), float(np.mean(roundings))


def _bounds(
    fit: BlockFit, shape: BlockShape, state: BlockState, rng: np.random.Generator
) -> tuple[float, float]:
    """The 99 % quantile of distances under the covariance of the fit, times a factor; and that without what
    both eps add."""
    r, J = state.keys.shape[1], len(state.inner)
    # factors of every head's scores and values; one scale a neuron with a kink; a mean, or a factor of all
    gauge = 2 * state.heads * r * r + (0 if shape.activation.smooth else J) + 1
    spread = Spread.of(fit, state, gauge=gauge, options=_FREE)
    model = state.model(shape)
    whole, weights = [], []
    for step in spread.draw(_DRAWS, rng):
        moved = state.moved(step)
        whole.append(model.distance(moved.model(shape)))
        weights.append(model.distance(replace(moved, log_eps=state.log_eps).model(shape)))
    return _FACTOR * float(np.quantile(whole, LEVEL)), _FACTOR * float(np.quantile(weights, LEVEL))
