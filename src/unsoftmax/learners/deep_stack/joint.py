"""The whole stack on rows of all sizes: Gauss-Newton, and how far its parameters may be off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import EPS, Array, rms
from unsoftmax.learners.computed_block.asking import local_rounding
from unsoftmax.learners.deep_stack.stack_fit import StackFit, least_streams
from unsoftmax.learners.deep_stack.stack_state import StackState
from unsoftmax.meters.deep.collapsed_layer import StreamReading
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.models.language_model.parts import FeedForward, GatedNetwork
from unsoftmax.models.parts import GELU, GELU_TANH
from unsoftmax.models.residual_stack import ResidualStack
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, Spread, refine

__all__ = ["FoundStack", "refine_stack", "rough_eps"]

_SURPLUS = 1.6  # equations over unknowns
_SURPLUS_ROUNDED = 5.0  # the same behind short arithmetic, where errors of answers average out
_FEWEST = 384  # rows behind short arithmetic: of fewer, those of some sizes stand for a few unknowns alone
_USUAL_EPS = 1e-6  # where no row is small enough to show it
_EPS_SIZES = 2.0 ** -np.arange(6.0, 50.0, 2.0)  # rows from 0.016 to 4e-15: eps from 1e-4 to 1e-28
_EPS_FACTORS = [10.0 ** (step * np.arange(-12.0, 12.5)) for step in (0.25, 0.02, 0.002)]
_CHANGED = 0.25  # of an answer: what a row as small as √eps changes by
# rows from 0.06 to 8e-31: without biases the streams of L layers begin at size t·eps^(-L), so that the last
# norm sees its eps where t is eps^(L + 1/2)
_FAINT_SIZES = 2.0 ** -np.arange(4.0, 101.0, 4.0)
_ROW_SIZES = (0.3, 8.0)  # per entry: norms flatten rows beyond 8, and rows below 0.3 are those that show eps
# how much smaller rows show the eps of one norm more: a sublayer writes a row over √eps, of usually 1e-6
_ONE_NORM = 1e-3
# of a usual answer: smaller ones count as if they were as large, because behind log-probabilities their
# errors are no smaller
_FAINT_ANSWER = 0.3
_NEAR = 1e-6  # misfit of all rows from which a start needs no rows of usual size first
_AT_ROUNDING = 3e-15  # misfit of all rows that no further step lowers
_SMALL_ROWS = 6  # every sixth row of a fit is small enough to show eps
# small rows behind short arithmetic, over columns and norms: where a norm sees its eps first, all before it
# are linear, and a matrix of its own is seen to more digits than rows of usual size show
_FAINT_ROWS = 2
_PRECISE = 1e-9  # rms misfit of fresh rows, relative, up to which a stack is taken as found
_EXPLAINED = 1.6  # the same over the measured rounding: right stacks leave 0.9 to 1.2
_LOOKED = 48  # rows at which rounding is measured
_DRAWS = 60  # the 99 % quantile of 60 lies between the two largest; a safety factor stands above it
_FAINT = 5.0  # standard errors, rms, of biases that are none; correlated rounding leaves up to 2.3
_LEVEL = 0.99  # of draws from the covariance of the fit
_SAFETY = 20.0  # of one step on fresh rows: its own error, and that of the fresh answers
# of the 99 % quantile under the covariance of a fit: roundings of one row are not independent, and few draws
# stand for the quantile
_SAFETY_ROUNDED = 3.0
_FIRST = RefinementOptions(
    iterations=30,
    damping=1e-9,
    least_damping=1e-12,
    improvement=1e-2,
    enough=1e-9,
    dense_limit=9000,
    repeat=0.1,
)
_LAST = RefinementOptions(
    iterations=12, damping=1e-11, least_damping=1e-13, improvement=0.3, dense_limit=9000, repeat=0.1
)
_ROUNDED = RefinementOptions(iterations=20, damping=1e-9, improvement=1e-2, dense_limit=9000)
_ONE_STEP = RefinementOptions(
    iterations=1, damping=1e-13, least_damping=1e-13, improvement=0.0, dense_limit=9000
)
_TWINS = {GELU.name: GELU_TANH, GELU_TANH.name: GELU}  # activations that differ by less than a thousandth


@dataclass(frozen=True, eq=False)
class FoundStack:
    """state: the stack. others: states that are as far from it as its own error may be. safety: what that
    distance is multiplied by. residual, fresh: rms misfit of the fit and of fresh rows, relative. allowed:
    what is believed of the latter."""

    state: StackState
    others: tuple[StackState, ...]
    safety: float
    residual: float
    fresh: float
    allowed: float

    @property
    def believed(self) -> bool:
        """Whether fresh rows are answered as the stack says."""
        return self.fresh <= self.allowed

    def error(self, whole: Callable[[StackState], ResidualStack] = StackState.stack) -> float:
        """A bound on the relative error of all parameters. whole: the model of a state."""
        model = whole(self.state)
        far = [model.distance(whole(other)) for other in self.others]
        return self.safety * max(float(np.quantile(far, _LEVEL)), self.fresh, EPS)


def rough_eps(stream: StreamReading, rng: np.random.Generator) -> float:
    """eps of the first norm up to a factor of a few. 22 queries.

    Rows of size t reach the first layer as n·t/√(t² + eps): answers begin to change at √eps.
    """
    n = unit_rows(rng, 1, stream.width)
    seen = stream(_EPS_SIZES[:, None] * n)
    off = np.linalg.norm(seen - seen[0], axis=1)
    changed = np.flatnonzero(off > _CHANGED * np.linalg.norm(seen[0]))
    return float(_EPS_SIZES[changed[0]] ** 2) if len(changed) else _USUAL_EPS


def _faintest(stream: StreamReading, rng: np.random.Generator) -> float:
    """A size below which rows are hardly told from none. 26 queries.

    Between √eps and there one norm after the other begins to see streams below its eps: rows of usual size
    tell only that of the first.
    """
    n = unit_rows(rng, 1, stream.width)
    seen = stream(np.append(_FAINT_SIZES, 0.0)[:, None] * n)
    off = np.linalg.norm(seen[:-1] - seen[-1], axis=1)
    told = np.flatnonzero(off > _CHANGED * np.linalg.norm(seen[0]))
    last = told[-1] + 1 if len(told) else 0
    return float(_FAINT_SIZES[min(last, len(_FAINT_SIZES) - 1)])


def refine_stack(
    stream: StreamReading,
    start: StackState,
    rng: np.random.Generator,
    *,
    rounding: float = 0.0,
    rows: int = 0,
) -> FoundStack:
    """The whole stack by Gauss-Newton: on rows of usual size first, then on small ones as well. rounding: of
    answers, relative, where it was seen before. rows: the least number of them."""
    least = min(_first_shown(start), _faintest(stream, rng))
    if stream.held is not None:
        return _rounded(stream, start, rng, rows, least)
    count = max(int(_SURPLUS * start.unknowns / stream.width) + 8, rows)
    fits = [_fit(stream, least, count, count // _SMALL_ROWS, rng) for _ in range(2)]
    start = _with_one_eps(fits[0], start)
    begun = start if rms(fits[0].residual(start)) <= _NEAR else refine(_usual(fits[0]), start, _FIRST).state
    state = refine(fits[0], _with_own_eps(fits[0], begun, _NEAR, _FIRST), _FIRST)
    if state.rms[-1] > _AT_ROUNDING:
        state = refine(fits[0], state.state, _LAST)
    again = refine(fits[1], state.state, _ONE_STEP).state
    fresh = rms(fits[1].residual(state.state))
    return FoundStack(state.state, (again,), _SAFETY, state.rms[-1], fresh, max(_PRECISE, 30.0 * rounding))


def _rounded(
    stream: StreamReading, start: StackState, rng: np.random.Generator, rows: int, least: float
) -> FoundStack:
    """The same behind short arithmetic: more rows, and the error from the covariance of the fit."""
    count = max(int(_SURPLUS_ROUNDED * start.unknowns / stream.width) + 8, rows, _FEWEST)
    small = count // _SMALL_ROWS
    if least < _first_shown(start):
        small = max(small, _FAINT_ROWS * stream.width * len(start.eps))
    fit = _fit(stream, least, count, small, rng)
    fresh = _fit(stream, least, max(count // 8, _LOOKED), max(small // 8, _LOOKED // _SMALL_ROWS), rng)
    noise = _rounding(stream, fit, rng)
    state, left = start, np.inf
    for begin in _with_twins(_with_one_eps(fit, start)):
        usual = refine(_usual(fit), begin, _ROUNDED).state
        found = refine(fit, _with_own_eps(fit, usual, _EXPLAINED * noise, _ROUNDED), _ROUNDED)
        if found.rms[-1] < left:
            state, left = found.state, found.rms[-1]
        if left <= _EXPLAINED * noise:
            break
    others = _as_good(fit, state, rng)
    simpler = _without_faint_biases(state, others)
    if simpler is not None:
        state = refine(fit, simpler, _ROUNDED).state
        left, others = rms(fit.residual(state)), _as_good(fit, state, rng)
    off = rms(fresh.residual(state))
    return FoundStack(state, others, _SAFETY_ROUNDED, left, off, _EXPLAINED * noise)


def _as_good(fit: StackFit, state: StackState, rng: np.random.Generator) -> tuple[StackState, ...]:
    """States with the errors that those of the answers leave. Gated neurons, and ones with a kink, have a
    factor that no answer shows."""
    parts = [layer.network for layer in state.layers]
    gauge = sum(
        part.neurons for part in parts if isinstance(part, GatedNetwork) or not part.activation.smooth
    )
    steps = Spread.of(fit, state, gauge=gauge, options=_ROUNDED).draw(_DRAWS, rng)
    return tuple(state.moved(step) for step in steps)


def _without_faint_biases(state: StackState, others: tuple[StackState, ...]) -> StackState | None:
    """The state with biases at zero that are zero in all layers, as far as is seen; None where none are."""
    faint = []
    for name in ("inner_bias", "outer_bias"):
        if not all(isinstance(layer.network, FeedForward) for layer in state.layers):
            return None
        own = _biases(state, name)
        spread = np.sqrt(np.mean([(_biases(other, name) - own) ** 2 for other in others], axis=0))
        if rms(own / spread) <= _FAINT:
            faint.append(name)
    if not faint:
        return None
    return replace(state, layers=tuple(layer.without(frozenset(faint)) for layer in state.layers))


def _biases(state: StackState, name: str) -> Array:
    return np.concatenate([getattr(layer.network, name) for layer in state.layers])


def _with_one_eps(fit: StackFit, start: StackState) -> StackState:
    """The start with one eps for all norms, as most models have it, that explains small rows best."""
    rows = _down_to(_first_shown(start), fit.part(_sizes(fit.rows) < _ROW_SIZES[0]))
    for factors in _EPS_FACTORS:
        states = [replace(start, eps=factor * start.eps) for factor in factors]
        start = min(states, key=lambda state: rms(rows.residual(state)))
    return replace(start, least=least_streams(start, rows.rows))


def _with_own_eps(fit: StackFit, start: StackState, near: float, options: RefinementOptions) -> StackState:
    """The start with an eps for every norm: smaller and smaller rows, each of which shows that of one norm
    more. near: misfit of rows that need no step."""
    state, size = start, _first_shown(start)
    smallest = float(_sizes(fit.rows).min())
    while True:
        rows = _down_to(size, fit)
        state = replace(state, least=least_streams(state, rows.rows))
        if rms(rows.residual(state)) > near:
            state = refine(rows, state, options).state
        if size <= smallest:
            return state
        size *= _ONE_NORM


def _first_shown(state: StackState) -> float:
    """Size of rows that show the eps of the first norm."""
    return 0.1 * float(np.sqrt(state.eps[0]))


def _sizes(rows: Array) -> Array:
    return np.asarray(np.sqrt((rows * rows).mean(axis=1)))


def _down_to(size: float, fit: StackFit) -> StackFit:
    """The rows of this size and above."""
    return fit.part(_sizes(fit.rows) >= size)


def _with_twins(state: StackState) -> list[StackState]:
    """The state, and the same with an activation that a profile hardly tells from its own."""
    twin = _TWINS.get(state.layers[0].network.activation.name)
    if twin is None:
        return [state]
    layers = [replace(layer, network=replace(layer.network, activation=twin)) for layer in state.layers]
    return [state, replace(state, layers=tuple(layers))]


def _rounding(stream: StreamReading, fit: StackFit, rng: np.random.Generator) -> float:
    """Root mean square of the relative rounding of answers, on some rows of the fit."""
    assert stream.held is not None
    some = rng.permutation(len(fit.rows))[:_LOOKED]
    weights = 1.0 / fit.sizes[some, 0]
    rows = fit.rows[some][:, None]
    return local_rounding(lambda batch: stream(batch[:, 0]), rows, weights, stream.held, rng)


def _usual(fit: StackFit) -> StackFit:
    """The rows of usual size alone."""
    return replace(fit.part(_sizes(fit.rows) >= _ROW_SIZES[0]), free_eps=False)


def _fit(stream: StreamReading, least: float, count: int, small: int, rng: np.random.Generator) -> StackFit:
    """Rows of the sizes that the sublayers see, and some small enough to show eps; relative errors. least:
    the smallest size. count: rows in all, had they one small one in six."""
    low, high = np.log(_ROW_SIZES)
    count += small - count // _SMALL_ROWS
    sizes = np.exp(rng.uniform(low, high, count))
    sizes[:small] = np.exp(rng.uniform(min(np.log(least), low), low, small))
    rows: Array = sizes[:, None] * unit_rows(rng, count, stream.width)
    if stream.held is not None:
        rows = stream.held.store(rows)
    seen = stream(rows)
    own = np.sqrt((seen * seen).mean(axis=1, keepdims=True))
    return StackFit(rows, seen, np.maximum(own, _FAINT_ANSWER * np.median(own)) + EPS)
