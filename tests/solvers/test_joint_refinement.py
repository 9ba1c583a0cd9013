"""Joint refinement on a model with a symmetry: a low-rank matrix seen through a sigmoid."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy.special import expit

from unsoftmax.arrays import Array
from unsoftmax.solvers.least_squares.joint_refinement import (
    DenseJacobian,
    Linearisation,
    Products,
    RefinementOptions,
    Spread,
    StopReason,
    refine,
)

_RANK = 2


@dataclass(frozen=True)
class _Sigmoid:
    """Answers σ(aᵀ L R b), L (d, r) and R (r, d); the gauge is GL(r)."""

    A: Array
    B: Array
    answers: Array
    dense: bool = True

    def _split(self, state: Array) -> tuple[Array, Array]:
        left, right = state.reshape(2, self.A.shape[1], _RANK)
        return left, right

    def residual(self, state: Array) -> Array:
        left, right = self._split(state)
        return np.asarray(expit(np.einsum("qr,qr->q", self.A @ left, self.B @ right)) - self.answers)

    def linearise(self, state: Array) -> Linearisation:
        left, right = self._split(state)
        keys, queries = self.A @ left, self.B @ right
        weight = expit(np.einsum("qr,qr->q", keys, queries))
        slope = weight * (1 - weight)
        by_left = np.einsum("q,qd,qr->qdr", slope, self.A, queries).reshape(len(self.A), -1)
        by_right = np.einsum("q,qd,qr->qdr", slope, self.B, keys).reshape(len(self.A), -1)
        jacobian = np.hstack([by_left, by_right])
        if self.dense:
            return DenseJacobian(jacobian)
        return Products(
            jacobian.shape[1],
            lambda x: jacobian @ x,
            lambda y: jacobian.T @ y,
            np.einsum("np,np->p", jacobian, jacobian),
        )

    def moved(self, state: Array, step: Array) -> Array:
        return state + step


def _problem(
    seed: int, d: int = 6, noise: float = 0.0, dense: bool = True
) -> tuple[_Sigmoid, Array, np.random.Generator]:
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal(2 * d * _RANK) / np.sqrt(d)
    A, B = rng.standard_normal((2, 20 * d, d))
    clean = _Sigmoid(A, B, np.zeros(len(A)), dense)
    answers = clean.residual(truth) + noise * rng.standard_normal(len(A))
    return _Sigmoid(A, B, answers, dense), truth, rng


def _product(state: Array, d: int = 6) -> Array:
    left, right = state.reshape(2, d, _RANK)
    return np.asarray(left @ right.T)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dense_limit", [3200, 0])
def test_a_start_forty_per_cent_off_reaches_the_truth(seed: int, dense_limit: int) -> None:
    problem, truth, rng = _problem(seed, dense=dense_limit > 0)
    start = truth + 0.4 * np.linalg.norm(truth) / np.sqrt(truth.size) * rng.standard_normal(truth.size)
    found = refine(
        problem, start, RefinementOptions(dense_limit=dense_limit, improvement=0.0, inner_tolerance=1e-8)
    )
    assert np.linalg.norm(_product(found.state) - _product(truth)) < 1e-9 * np.linalg.norm(_product(truth))
    assert list(found.rms) == sorted(found.rms, reverse=True)


def test_repeated_steps_of_one_jacobian_reach_the_truth_with_fewer_of_them() -> None:
    counts = []
    for repeat in (0.0, 0.1):
        problem, truth, rng = _problem(2)
        start = truth + 0.03 * rng.standard_normal(truth.size)
        made = list[Array]()

        class Counted(_Sigmoid):
            def linearise(self, state: Array, made: list[Array] = made) -> Linearisation:
                made.append(state)
                return super().linearise(state)

        counted = Counted(problem.A, problem.B, problem.answers)
        found = refine(counted, start, RefinementOptions(damping=1e-9, improvement=0.3, repeat=repeat))
        assert np.linalg.norm(_product(found.state) - _product(truth)) < 1e-12
        assert found.rms[-1] < 1e-15
        counts.append(len(made))
    assert counts[1] < counts[0]


def test_the_best_held_out_state_is_returned() -> None:
    problem, truth, rng = _problem(0, noise=0.05)
    few = _Sigmoid(problem.A[:26], problem.B[:26], problem.answers[:26])
    fresh = _Sigmoid(problem.A[40:], problem.B[40:], problem.answers[40:])

    def held_out(state: Array) -> float:
        return float(np.sqrt(np.mean(fresh.residual(state) ** 2)))

    start = truth + 0.05 * rng.standard_normal(truth.size)
    found = refine(few, start, RefinementOptions(improvement=0.0, patience=3), held_out=held_out)
    assert held_out(found.state) == min(found.held_out)
    assert found.stopped is StopReason.HELD_OUT


def test_no_step_from_the_minimum() -> None:
    problem, truth, _ = _problem(1)
    found = refine(problem, truth, RefinementOptions(improvement=0.0))
    assert found.rms[-1] < 1e-14
    assert found.stopped in (StopReason.NO_STEP, StopReason.SETTLED)


@pytest.mark.parametrize("dense_limit", [3200, 0])
def test_drawn_errors_are_as_large_as_the_real_ones(dense_limit: int) -> None:
    """Over 60 noisy fits the squared error of the product is on average what the draws say, gauge directions
    aside."""
    real, told = [], []
    for seed in range(60 if dense_limit else 15):
        problem, truth, rng = _problem(seed, noise=1e-3)
        options = RefinementOptions(dense_limit=dense_limit, improvement=1e-9, inner_tolerance=1e-6)
        found = refine(problem, truth, options).state
        steps = Spread.of(problem, found, gauge=_RANK * _RANK, options=options).draw(50, rng)
        left, right = found.reshape(2, 6, _RANK)
        changes = [
            dl @ right.T + left @ dr.T for dl, dr in (np.reshape(step, (2, 6, _RANK)) for step in steps)
        ]
        real.append(np.sum((_product(found) - _product(truth)) ** 2))
        told.append(np.mean([np.sum(change**2) for change in changes]))
    assert 0.8 < np.mean(real) / np.mean(told) < 1.25


def test_a_step_that_is_too_long_is_halved_before_it_is_damped() -> None:
    """atan(x) from 1.5: a whole step of Newton overshoots, half of one does not, and takes no new system."""
    systems = []

    class Arctangent:
        def residual(self, state: Array) -> Array:
            return np.asarray(np.arctan(state))

        def linearise(self, state: Array) -> Linearisation:
            slope = float(1.0 / (1.0 + state[0] ** 2))

            def backward(y: Array) -> Array:
                systems.append(y)
                return np.asarray(slope * y)

            return Products(1, lambda x: np.asarray(slope * x), backward, np.array([slope**2]))

        def moved(self, state: Array, step: Array) -> Array:
            return state + step

    options = RefinementOptions(iterations=1, damping=0.0, dense_limit=0, halvings=2)
    halved = refine(Arctangent(), np.array([1.5]), options)
    once = len(systems)
    damped = refine(Arctangent(), np.array([1.5]), replace(options, halvings=0))
    assert halved.rms[-1] < halved.rms[0]
    assert damped.rms[-1] < damped.rms[0]
    assert once < len(systems) - once
