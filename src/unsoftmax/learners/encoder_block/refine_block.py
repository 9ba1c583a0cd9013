"""Everything together: a block's parameters refined on fresh sequences, until their residual is rounding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import EPS, Array, rms, shortened
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.far_neurons import beyond_rare_hyperplanes
from unsoftmax.learners.encoder_block.fit import BlockFit, Sequences
from unsoftmax.learners.encoder_block.forward_pass import forward_pass
from unsoftmax.learners.encoder_block.post_norm_eps import single_rows, with_hidden_eps
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.learners.encoder_block.vanishing_stream import vanishing_stream
from unsoftmax.solvers.least_squares.held_parameters import Held
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, likely_errors, refine

__all__ = ["parameter_error", "refine_block", "rows_that_tell"]

_SURPLUS = 1.7  # answers over unknowns
_LENGTHS = (1, 2, 4, 8)  # one row shows norms and network, two the scores, four and eight how heads share
_POOL = 8  # sequences drawn for each that is asked
_ALIKE = 1e-6  # one less the cosine of what they add: differences that give it are good to this
# the step's own error, and that of the fresh answers; the largest of four steps is below a twentieth of an
# error in about one of 1e5 blocks, one step alone was in one of 30
_SAFETY = 20.0
_OPEN = 0.05  # of a neuron: a step as large, times the safety, is the whole of it
_DRAWS = 3  # steps beside the one of the residual, which is small where its errors happen to cancel
_NEAR = 1e-4  # of the answers: a start this good needs no first round
# unknowns up to which the normal matrix is solved whole; at width 32 (8,300 unknowns) that takes 8 s a step,
# products 1 s
_DENSE = 4000
_HIDDEN_EPS = 1e-7  # rows of size one show an eps to its part of rounding, 1e-9 of 1e-7
_HIDDEN_ROUNDS = 2  # the second with rows that the constant of the first leads to
_HIDES = 1e-6  # of the answers: residual from which on a block is none of the family, whatever its eps
_FITS = 1e-9  # the same with eps known: another round brings nothing
_ROUNDED = 0.5 * EPS  # rms of a residual, over the size of answers, that is their rounding
_FAINT = 1e-28  # the column of an eps of 1e-12, squared: it is to be found, and its error to be bounded
# damping of the last fit, where a first one or the start is good to 1e-4: with 1e-6 steps along what answers
# hardly show were so short that a fit seemed to have settled at 2e-12
_NEARLY_THERE = 1e-10
_FROM_AFAR, _SLOWLY = 100, 1e-3  # iterations, and least progress of one, from a start that is 90 % off
_FIRST = RefinementOptions(
    iterations=25,
    damping=1e-6,
    least_damping=1e-13,
    improvement=0.01,
    dense_limit=_DENSE,
    inner_iterations=1000,
    inner_tolerance=1e-4,
)


def refine_block(
    asks: AsksSequences,
    shape: BlockShape,
    state: BlockState,
    rng: np.random.Generator,
    lengths: tuple[int, ...] = _LENGTHS,
    bound: float | None = None,
) -> tuple[BlockState, float]:
    """The refined state, and the largest residual over the size of answers. lengths: of the sequences. bound:
    largest norm of a row."""
    data = _sequences(asks, shape, state, rng, lengths, bound)
    scale = max(float(np.abs(group.answers * group.weights[:, None]).max()) for group in data)
    options = replace(_FIRST, enough=_ROUNDED * scale)
    if 0 < len(state.readout) < shape.width:  # a part of every V starts from a guess
        options = replace(options, iterations=_FROM_AFAR, improvement=_SLOWLY)
    held = BlockFit(shape, data, free_eps=False)
    hidden = _hardly_shows(state)
    if hidden or rms(held.residual(state)) > _NEAR * scale:  # eps would run away
        state = refine(held, state, options).state
    off = float(np.abs(held.residual(state)).max()) / scale
    if hidden and not shape.norm_first:
        if off > _HIDES:
            return state, off
        nearly = replace(options, damping=_NEARLY_THERE, improvement=_SLOWLY)
        state = refine(BlockFit(shape, data), state, nearly).state
        state = with_hidden_eps(asks, shape, state, rng)
    last = replace(options, damping=_NEARLY_THERE)
    for _ in range(_HIDDEN_ROUNDS if hidden else 1):
        state = state.with_seen_constant(shape)
        fit = BlockFit(shape, (*data, *vanishing_stream(asks, shape, state, rng, bound)))
        state = refine(fit, state, last).state
        last = replace(last, weakest=_FAINT)
        off = float(np.abs(fit.residual(state)).max()) / scale
        if off > _FITS:
            break
    return state.with_seen_constant(shape), off


def _hardly_shows(state: BlockState) -> bool:
    """Whether an eps is so small that usual rows do not tell it."""
    return bool(state.log_eps.min() < np.log(_HIDDEN_EPS))


def _sequences(
    asks: AsksSequences,
    shape: BlockShape,
    state: BlockState,
    rng: np.random.Generator,
    lengths: tuple[int, ...],
    bound: float | None,
) -> tuple[Sequences, ...]:
    """Rows of many sizes, from where eps rules the norms to where it does not matter."""
    d, outputs = shape.width, len(state.readout) or shape.width
    count = int(np.ceil(_SURPLUS * state.unknowns / outputs / len(lengths))) + 8
    groups = []
    for length in lengths:
        rows = rng.standard_normal((_POOL * count, length, d))
        rows = shortened(rows * _row_sizes(shape, state, len(rows), length, rng), bound)
        rows = rows_that_tell(shape, state, rows, count)
        answers = asks(rows)
        asking = rows if shape.pooled else rows[:, -1:]
        weights = 1.0 / np.sqrt(1.0 + np.mean(asking**2, axis=(1, 2)))
        groups.append(Sequences(rows, answers, weights))
    return (*groups, *_beyond_rare(asks, shape, state, groups, rng, bound))


def _beyond_rare(
    asks: AsksSequences,
    shape: BlockShape,
    state: BlockState,
    groups: list[Sequences],
    rng: np.random.Generator,
    bound: float | None,
) -> tuple[Sequences, ...]:
    """Single rows for neurons of a post-norm block that are on, or off, in too few sequences."""
    if shape.norm_first or shape.activation.smooth:
        return ()
    radius = float(np.sqrt(shape.width))
    seen = np.concatenate([forward_pass(shape, state, group.rows).middle for group in groups])
    u = beyond_rare_hyperplanes(state.inner, seen, radius, rng)
    if not len(u):
        return ()
    x = single_rows(shape, state).rows_of(rng.uniform(0.5, 3.0, (len(u), 1)) * u)[:, None]
    x = x[np.linalg.norm(x[:, 0], axis=1) <= (np.inf if bound is None else bound)]
    return (Sequences(x, asks(x), np.ones(len(x))),) if len(x) else ()


def rows_that_tell(shape: BlockShape, state: BlockState, rows: Array, count: int) -> Array:
    """Those of sequences (n, N, d) to ask: the first half of `count` as they come, then those whose neurons
    are on the side of their hyperplanes that was seen least."""
    on = forward_pass(shape, state, rows).hidden > 0.0
    rare = np.where(2 * on.sum(axis=0) <= len(on), on, ~on).astype(np.float64)
    chosen = np.zeros(len(rows), dtype=bool)
    chosen[: (count + 1) // 2] = True
    seen = rare[chosen].sum(axis=0)
    for _ in range(min(count, len(rows)) - int(chosen.sum())):
        gain = rare @ (1.0 / (1.0 + seen) ** 2)
        best = int(np.where(chosen, -1.0, gain).argmax())
        chosen[best] = True
        seen += rare[best]
    return np.asarray(rows[chosen])


def _row_sizes(
    shape: BlockShape, state: BlockState, count: int, length: int, rng: np.random.Generator
) -> Array:
    if not shape.norm_first or not shape.normed:
        return np.exp(rng.uniform(np.log(0.2), np.log(3.0), (count, 1, 1)))
    smallest = 0.5 * float(np.exp(0.5 * state.log_eps[0]))
    sizes = np.exp(rng.uniform(np.log(0.2), np.log(5.0), (count, length, 1)))
    tiny = np.exp(rng.uniform(np.log(smallest), np.log(30.0 * smallest), (count, length, 1)))
    return np.where(rng.uniform(size=(count, length, 1)) < 0.3, tiny, sizes)


def parameter_error(
    asks: AsksSequences,
    shape: BlockShape,
    state: BlockState,
    rng: np.random.Generator,
    lengths: tuple[int, ...] = _LENGTHS,
    bound: float | None = None,
) -> tuple[float, float]:
    """Bounds on the relative error of the parameters, with and without both eps: how far one step on fresh
    sequences alone would move them.

    What these sequences leave, times the inverse of the Jacobian, is the error of the parameters to first
    order, beside that of the new answers themselves; the factor covers both, and the step's own error.
    """
    usual = _sequences(asks, shape, state, rng, lengths, bound)
    data = (*usual, *vanishing_stream(asks, shape, state, rng, bound))
    step = RefinementOptions(
        iterations=1,
        damping=1e-12,
        improvement=0.0,
        dense_limit=_DENSE,
        inner_iterations=1000,
        inner_tolerance=1e-3,
        weakest=_FAINT,
    )
    fit = BlockFit(shape, data)
    steps = [fit.moved(state, each) for each in likely_errors(fit, state, rng, step, _DRAWS)]
    if _only_product_of_eps(fit, state):
        second = Held(BlockFit(shape, usual), _entry_of_eps(state, 1, others=True))
        ratios = [second.moved(state, each) for each in likely_errors(second, state, rng, step, _DRAWS)]
        turns = [(ratio.log_eps[1] - state.log_eps[1]) * np.array([-1.0, 1.0]) for ratio in ratios]
        steps = [replace(m, log_eps=m.log_eps + turn) for m, turn in zip(steps, turns, strict=True)]
    if _unseen_neuron(shape, state, steps):
        return np.inf, np.inf
    model = state.model(shape)
    whole = max(model.distance(moved.model(shape)) for moved in steps)
    weights = max(model.distance(replace(moved, log_eps=state.log_eps).model(shape)) for moved in steps)
    return float(_SAFETY * max(whole, EPS)), float(_SAFETY * max(weights, EPS))


def _unseen_neuron(shape: BlockShape, state: BlockState, steps: list[BlockState]) -> bool:
    """Whether a neuron that bends adds no more than the error of what it adds: the target may lack it, and no
    distance of two blocks of as many neurons tells."""
    bends, added = ~state.always_on(shape), state.added()
    return any(bool((np.abs(moved.added() - added) > _OPEN * added)[bends].any()) for moved in steps)


def _only_product_of_eps(fit: BlockFit, state: BlockState) -> bool:
    """Whether both eps move the answers alike, as behind a first norm without biases: rows where they show
    tell their product, and the step loses their ratio, which usual rows tell."""
    linear = fit.linearise(state)
    first, second = (linear.forward(_entry_of_eps(state, i).astype(np.float64)) for i in range(2))
    sizes = float(np.linalg.norm(first) * np.linalg.norm(second))
    return sizes > 0.0 and abs(float(first @ second)) > (1.0 - _ALIKE) * sizes


def _entry_of_eps(state: BlockState, which: int, *, others: bool = False) -> NDArray[np.bool_]:
    """Where an eps stands in the parameter vector; or all other parameters too, but for the other eps."""
    mask = state.unpacked(np.full(state.unknowns, float(others)))
    mask.log_eps[:] = 0.0
    mask.log_eps[which] = 1.0
    return np.asarray(mask.packed() > 0.0)
