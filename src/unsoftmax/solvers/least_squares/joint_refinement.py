"""Joint refinement: Levenberg-Marquardt over all parameters at once, for any model that can linearise its
residual.

A start a few ten per cent off is enough. Residuals are computed in float64, so the fit reaches the noise of
the answers.

A model supplies a `LeastSquares[State]` (see `linearisation`):

    refined = refine(problem, start, RefinementOptions(), held_out=lambda state:
    rms_of_queries_that_are_not_in_the_fit)
    refined.state, refined.rms, refined.stopped
    spread = Spread.of(problem, refined.state, gauge=number_of_directions_that_change_nothing)
    steps = spread.draw(400, rng)          # (400, p): errors that the parameters may have, from s²(JᵀJ)⁻¹

Up to `dense_limit` unknowns J is used as a dense normal matrix; above, by preconditioned conjugate gradients
on products alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Self, TypeVar

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.late_scipy import cho_factor, cho_solve
from unsoftmax.solvers.least_squares.linearisation import (
    DenseJacobian,
    Inverse,
    LeastSquares,
    Linearisation,
    Products,
)

__all__ = [
    "DenseJacobian",
    "Inverse",
    "LeastSquares",
    "Linearisation",
    "Products",
    "Refined",
    "RefinementOptions",
    "Spread",
    "StopReason",
    "likely_errors",
    "refine",
]

State = TypeVar("State")

_log = logging.getLogger("unsoftmax.progress")
_TOLD = 10  # products between two reports: steps of wide layers make 100 to 250 products

# of the strongest: columns of J below are damped as if they were this strong, or they would run away
_WEAKEST_COLUMN = 1e-12
# relative eigenvalue of the scaled normal matrix below which float64 has lost the direction
_ROUNDED_AWAY = 1e-13


@dataclass(frozen=True)
class RefinementOptions:
    """damping: relative to the diagonal of JᵀJ, at the first step. improvement: relative decrease of the
    squared residual below which a step counts as the last. enough: rms below which nothing is left to gain.
    patience: further steps after the held-out residual was lowest. inner_*: conjugate gradients. repeat: a
    step with the factors of the last normal matrix is kept where it lowers the rms to this share; near the
    solution most steps do, and a normal matrix takes longer than anything else. 0: never tried. weakest: of
    the strongest column of J, squared: weaker ones are damped as if they were this strong. halvings: of a
    step that does not lower the residual, before it is damped more; a residual costs as much as one inner
    step, and more damping all of them again. dense_limit:
    unknowns up to which JᵀJ is an array, of 8n² bytes: 82 MB at 3,200, 216 MB at 5,200."""

    iterations: int = 40
    damping: float = 1e-4
    least_damping: float = 1e-10
    most_damping: float = 1e8  # a step this short that still does not help: rounding allows no better
    improvement: float = 1e-3
    enough: float = 0.0
    patience: int = 2
    dense_limit: int = 3200
    inner_iterations: int = 100
    inner_tolerance: float = 1e-3
    repeat: float = 0.0
    weakest: float = _WEAKEST_COLUMN
    halvings: int = 0


class StopReason(StrEnum):
    """Why a refinement ended."""

    SETTLED = "the residual no longer falls"
    HELD_OUT = "the residual of held-out answers no longer falls"
    NO_STEP = "no step lowers the residual"
    ITERATIONS = "the number of iterations is spent"


@dataclass(frozen=True)
class Refined(Generic[State]):
    """rms: of the weighted residual, before the first step and after every one. held_out: the same of
    held-out answers ([] without any)."""

    state: State
    rms: tuple[float, ...]
    held_out: tuple[float, ...]
    stopped: StopReason


def refine(
    problem: LeastSquares[State],
    start: State,
    options: RefinementOptions | None = None,
    *,
    held_out: Callable[[State], float] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Refined[State]:
    """Minimises the squared residual from `start`. With `held_out`, the state with the lowest held-out
    residual is returned.

    >>> class Power:
    ...     def residual(self, state): return np.array([state[0] ** 2 - 2.0])
    ...     def linearise(self, state): return DenseJacobian(np.array([[2.0 * state[0]]]))
    ...     def moved(self, state, step): return state + step
    >>> round(float(refine(Power(), np.array([1.0]), RefinementOptions(improvement=0.0)).state[0]), 12)
    1.414213562373
    """
    options = options or RefinementOptions()
    state, residual = start, problem.residual(start)
    history = [_rms(residual)]
    judged = [] if held_out is None else [held_out(state)]
    best, damping, stopped = state, options.damping, StopReason.ITERATIONS
    for iteration in range(options.iterations):
        if history[-1] < options.enough:
            stopped = StopReason.SETTLED
            break
        found = _improve(problem, state, residual, damping, options)
        if found is None:
            stopped = StopReason.NO_STEP
            break
        state, residual, damping, factored = found
        history.append(_rms(residual))
        settled = False
        if options.repeat:
            state, residual, rounds, settled = _repeated(problem, state, residual, factored, options)
            settled = settled and min(rounds, default=history[-1]) <= options.repeat * history[-2]
            history += rounds
        if progress is not None:
            progress(iteration + 1, history[-1])
        if held_out is not None:
            judged.append(held_out(state))
            if judged[-1] <= min(judged):
                best = state
            elif len(judged) - 1 - int(np.argmin(judged)) >= options.patience:
                stopped = StopReason.HELD_OUT
                break
        if settled or history[-1] ** 2 >= (1.0 - options.improvement) * history[-2] ** 2:
            stopped = StopReason.SETTLED
            break
    return Refined(state if held_out is None else best, tuple(history), tuple(judged), stopped)


@dataclass(frozen=True)
class _Factored:
    """A Jacobian J, and (JᵀJ + λD)⁻¹."""

    linear: Linearisation
    inverse: Inverse

    def step(self, residual: Array) -> Array:
        """What lowers the residual."""
        return -self.inverse(self.linear.backward(residual))


def _improve(
    problem: LeastSquares[State], state: State, residual: Array, damping: float, options: RefinementOptions
) -> tuple[State, Array, float, _Factored] | None:
    """(state, residual, next damping, what made the step) after one step that lowers the residual; None if
    none does."""
    linear = problem.linearise(state)
    inverse_at = _inverses(linear, options)
    before = float(residual @ residual)
    while damping <= options.most_damping:
        factored = _Factored(linear, inverse_at(damping))
        whole = factored.step(residual)
        for halved in range(options.halvings + 1):
            step = whole / 2.0**halved
            moved = problem.moved(state, step)
            after = problem.residual(moved)
            size = float(after @ after)
            if np.isfinite(size) and size < before:
                expected = before - float(np.sum((residual + linear.forward(step)) ** 2))
                gained = (before - size) / expected if expected > 0 else 1.0
                # a whole step that kept its promise is damped less the next time, one that kept a quarter
                # of it more
                change = 0.1 if gained > 0.75 and not halved else (1.0 if gained > 0.25 else 4.0)
                return moved, after, max(damping * change, options.least_damping), factored
        damping = max(10.0 * damping, 1e-8)
    return None


def _repeated(
    problem: LeastSquares[State],
    state: State,
    residual: Array,
    factored: _Factored,
    options: RefinementOptions,
) -> tuple[State, Array, list[float], bool]:
    """(state, residual, rms after every step, whether a next one promises nothing) after steps from one
    Jacobian.

    Where nothing is promised after a step that gained as much as `repeat` asks, rounding is met.
    """
    rounds: list[float] = []
    while True:
        step = factored.step(residual)
        moved = problem.moved(state, step)
        after = problem.residual(moved)
        before, size = _rms(residual), _rms(after)
        if not size < options.repeat * before:
            promised = _rms(residual + factored.linear.forward(step))
            return state, residual, rounds, promised**2 >= (1.0 - options.improvement) * before**2
        state, residual = moved, after
        rounds.append(size)


def _inverses(linear: Linearisation, options: RefinementOptions) -> Callable[[float], Inverse]:
    """(JᵀJ + λD)⁻¹ as a function of λ; D is the diagonal of JᵀJ."""
    if linear.unknowns <= options.dense_limit:
        normal = linear.normal()
        scale = 1.0 / np.sqrt(_strengths(np.diag(normal), options.weakest))
        scaled = normal * scale[:, None]
        scaled *= scale
        del normal

        def dense(damping: float) -> Inverse:
            inverse = _positive_inverse(scaled, damping)
            return lambda right: np.asarray(scale * inverse(scale * right))

        return dense
    strengths = _strengths(linear.diagonal(), options.weakest)

    def by_products(damping: float) -> Inverse:
        damped = damping * strengths
        near = _approximate_inverse(linear, damped, strengths)
        return lambda right: _conjugate_gradients(linear, right, damped, near, options)

    return by_products


def _strengths(diagonal: Array, weakest: float = _WEAKEST_COLUMN) -> Array:
    top = float(np.max(diagonal, initial=0.0))
    return np.maximum(diagonal, weakest * top if top > 0 else 1.0)


def _positive_inverse(scaled: Array, damping: float) -> Inverse:
    """(scaled + λ)⁻¹. Where Cholesky fails, because gauge directions have eigenvalues of rounding size, they
    are left out."""
    damped = scaled.copy()
    damped[np.diag_indices_from(damped)] += damping
    try:
        factor = cho_factor(damped, lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(damped)
        kept = values > _ROUNDED_AWAY * values[-1]
        values, vectors = values[kept], vectors[:, kept]
        return lambda right: np.asarray(vectors @ ((vectors.T @ right) / values))
    return lambda right: np.asarray(cho_solve(factor, right, check_finite=False))


def _approximate_inverse(linear: Linearisation, damping: Array, strengths: Array) -> Inverse:
    given = linear.preconditioner(damping)
    return given if given is not None else lambda vector: vector / (strengths + damping)


def _conjugate_gradients(
    linear: Linearisation, right: Array, damping: Array, inverse: Inverse, options: RefinementOptions
) -> Array:
    """(JᵀJ + diag(damping))⁻¹ right. `inverse` may be an iteration of its own, and not the same matrix at
    every step: a direction is made conjugate to the last one by what the residual has changed."""
    solution, left = np.zeros_like(right), right.copy()
    direction = inverse(left)
    size = first = float(left @ direction)
    for product in range(options.inner_iterations):
        if product and product % _TOLD == 0:
            _log.debug("fit, product %d of at most %d", product, options.inner_iterations)
        if size <= options.inner_tolerance**2 * first:
            break
        image = linear.backward(linear.forward(direction)) + damping * direction
        curvature = float(direction @ image)
        if curvature <= 0:
            break
        length = float(left @ direction) / curvature
        solution = solution + length * direction
        change, left = length * image, left - length * image
        conditioned = inverse(left)
        before, size = size, float(left @ conditioned)
        direction = conditioned - float(change @ conditioned) / before * direction
    return solution


def likely_errors(
    problem: LeastSquares[State],
    state: State,
    rng: np.random.Generator,
    options: RefinementOptions,
    draws: int,
) -> list[Array]:
    """Errors that the parameters may have, by answers to which they were not fitted: the step that the
    residual asks for, whether or not rounding lets it lower the residual, and those that it would ask for
    with signs drawn anew (the wild bootstrap): answers whose rounding is small keep it small. One of the
    steps may be small by chance, but hardly all."""
    residual, linear = problem.residual(state), problem.linearise(state)
    factored = _Factored(linear, _inverses(linear, options)(options.damping))
    redrawn = [residual * rng.choice((-1.0, 1.0), len(residual)) for _ in range(draws)]
    return [factored.step(each) for each in (residual, *redrawn)]


@dataclass(frozen=True)
class Spread:
    """The covariance s²(JᵀJ)⁻¹ of fitted parameters, without the directions that change no answer.

    variance: s², the squared residual over the degrees of freedom that are left.
    """

    linear: Linearisation
    variance: float
    gauge: int
    answers: int
    options: RefinementOptions = field(default_factory=RefinementOptions)

    @classmethod
    def of(
        cls,
        problem: LeastSquares[State],
        state: State,
        gauge: int = 0,
        options: RefinementOptions | None = None,
    ) -> Self:
        """gauge: how many independent directions of the parameters change no answer."""
        residual, linear = problem.residual(state), problem.linearise(state)
        free = max(len(residual) - (linear.unknowns - gauge), 1)
        variance = float(residual @ residual) / free
        return cls(linear, variance, gauge, len(residual), options or RefinementOptions())

    @property
    def freedom(self) -> int:
        """Answers beyond the unknowns: below about a fifth of the unknowns, s² is itself uncertain."""
        return self.answers - (self.linear.unknowns - self.gauge)

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """(count, p) steps with this covariance, for a bound on anything that depends on the parameters.

        >>> spread = Spread(DenseJacobian(np.diag([2.0, 4.0])), 1.0, 0, 2)
        >>> np.round(spread.draw(20000, np.random.default_rng(0)).std(axis=0), 2)
        array([0.5 , 0.25])
        """
        if self.linear.unknowns > self.options.dense_limit:
            return self._solved(count, rng)
        normal = self.linear.normal()
        scale = 1.0 / np.sqrt(_strengths(np.diag(normal)))
        values, vectors = np.linalg.eigh(normal * scale[:, None] * scale)
        kept = np.arange(len(values)) >= self.gauge
        kept &= values > _ROUNDED_AWAY * values[-1]
        root = vectors[:, kept] / np.sqrt(values[kept]) * scale[:, None]
        return np.asarray(np.sqrt(self.variance) * rng.standard_normal((count, int(kept.sum()))) @ root.T)

    def _solved(self, count: int, rng: np.random.Generator) -> Array:
        """(JᵀJ)⁻¹Jᵀ of noise with variance s², which has the wanted covariance."""
        strengths = _strengths(self.linear.diagonal())
        damping = self.options.least_damping * strengths
        inverse = _approximate_inverse(self.linear, damping, strengths)
        draws = []
        for _ in range(count):
            noise = np.sqrt(self.variance) * rng.standard_normal(self.answers)
            draws.append(
                _conjugate_gradients(self.linear, self.linear.backward(noise), damping, inverse, self.options)
            )
        return np.array(draws)


def _rms(residual: Array) -> float:
    return float(np.sqrt(np.mean(residual**2))) if residual.size else 0.0
