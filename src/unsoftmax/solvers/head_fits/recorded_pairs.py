"""One head from recorded answers to one- and two-row sequences: W of a given rank and v together, by damped
Gauss-Newton on the answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import EPS, Array
from unsoftmax.solvers.fixed_rank import balanced

__all__ = ["Indices", "Pairs", "State", "annealed", "descend", "uncertainty"]

Indices = NDArray[np.intp]

_SPARE_RANKS = 2  # beyond the rank that is wanted: room to pass by local minima
_PRICES = (10.0, 1e-3, 12)  # from, to, how many; against the mean square of the answers


@dataclass(frozen=True)
class Pairs:
    """Answers y to [a+b; b]; a one-row sequence [x] is the pair a = 0, b = x."""

    A: Array
    B: Array
    y: Array

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, which: Indices) -> Pairs:
        return Pairs(self.A[which], self.B[which], self.y[which])

    def rounding(self, v: Array) -> Array:
        """Size of the rounding errors of the answers."""
        return np.asarray(
            4.0 * EPS * (np.abs(self.y) + np.abs(self.A) @ np.abs(v) + np.abs(self.B) @ np.abs(v))
        )


@dataclass(frozen=True)
class State:
    """W = left·rightᵀ and v."""

    left: Array
    right: Array
    v: Array

    def scores(self, pairs: Pairs) -> Array:
        """aᵀ W b of every pair."""
        return np.asarray(np.einsum("kr,kr->k", pairs.A @ self.left, pairs.B @ self.right))

    def answers(self, pairs: Pairs) -> Array:
        """What the head answers."""
        return np.asarray(pairs.B @ self.v + _sigmoid(self.scores(pairs)) * (pairs.A @ self.v))

    def moved(self, step: Array) -> State:
        """The state after a step of all factors."""
        d, r = self.left.shape
        left, right = (
            self.left - step[: d * r].reshape(d, r),
            self.right - step[d * r : 2 * d * r].reshape(d, r),
        )
        return State(*(balanced(left, right) if r else (left, right)), self.v - step[2 * d * r :])

    def jacobian(self, pairs: Pairs) -> Array:
        """Derivatives of the answers by the entries of left, right and v."""
        weights = _sigmoid(self.scores(pairs))
        slope = (weights * (1.0 - weights) * (pairs.A @ self.v))[:, None]
        return np.concatenate(
            [
                _products(slope * pairs.A, pairs.B @ self.right),
                _products(slope * pairs.B, pairs.A @ self.left),
                pairs.B + weights[:, None] * pairs.A,
            ],
            axis=1,
        )


def descend(pairs: Pairs, state: State, *, steps: int = 80, price: float = 0.0) -> tuple[State, float]:
    """Damped Gauss-Newton from `state`; the end, and its residual relative to the answers.

    price: what a unit of |left|² + |right|² costs, which is twice the nuclear norm of W where the factors are
    balanced.
    """
    scale = float(np.linalg.norm(pairs.y)) or 1.0
    n_factors = 2 * state.left.size
    error = state.answers(pairs) - pairs.y
    size, damping, slow = _loss(state, error, price), 1e-2, 0
    for _ in range(steps):
        if size <= 1e-16 * scale or slow >= 6:
            break
        J = state.jacobian(pairs)
        gram, right = J.T @ J, J.T @ error
        right[:n_factors] += price * np.concatenate([state.left.ravel(), state.right.ravel()])
        gram[np.arange(n_factors), np.arange(n_factors)] += price
        # W and v have different units: each is damped in its own
        spread = gram.diagonal() + 1e-3 * gram.diagonal().mean()
        for _ in range(10):
            trial = state.moved(
                np.asarray(np.linalg.solve(gram + np.diag(damping * spread), right), dtype=np.float64)
            )
            error_new = trial.answers(pairs) - pairs.y
            size_new = _loss(trial, error_new, price)
            if size_new < size:
                break
            damping *= 4.0
        else:
            break
        slow = slow + 1 if size_new > (0.97 if size > 1e-12 * scale else 0.5) * size else 0
        damping = max(damping / (10.0 if size_new < 0.5 * size else 3.0), 1e-14)
        state, error, size = trial, error_new, size_new
    return state, float(np.linalg.norm(error)) / scale


def annealed(pairs: Pairs, v: Array, rank: int, rng: np.random.Generator) -> State:
    """A start of the given rank near the truth: two ranks too many, small and random, under a price on the
    nuclear norm that falls.

    A descent at the very rank seldom arrives from anywhere else when records are few; with room to spare and
    a price on using it, it mostly does.
    """
    d = pairs.A.shape[1]
    size = 0.1 / np.sqrt(d * max(_mean_square(pairs.A) * _mean_square(pairs.B), 1e-300))
    left, right = (
        np.sqrt(size * rng.uniform(0.1, 1.0)) * rng.standard_normal((d, min(rank + _SPARE_RANKS, d)))
        for _ in range(2)
    )
    state = State(left, right, v)
    # so that it does not matter in which units rows come
    unit = _mean_square(pairs.y) * np.sqrt(_mean_square(pairs.A) * _mean_square(pairs.B))
    for price in unit * np.geomspace(*_PRICES):
        state, _ = descend(pairs, state, steps=4, price=float(price))
    left, values, right = np.linalg.svd(state.left @ state.right.T)
    root = np.sqrt(values[:rank])
    return State(left[:, :rank] * root, right[:rank].T * root, state.v)


def _loss(state: State, error: Array, price: float) -> float:
    return float(np.sqrt(error @ error + price * (np.sum(state.left**2) + np.sum(state.right**2))))


def _mean_square(values: Array) -> float:
    return float(np.mean(np.square(values)))


def uncertainty(pairs: Pairs, state: State) -> tuple[float, float]:
    """Typical errors of W and of v (norms) that the answers' rounding causes, or what the residual shows if
    that is more; infinite when unseen."""
    from scipy.linalg import solve_triangular

    d, r = state.left.shape
    noise = pairs.rounding(state.v)
    weights = _sigmoid(state.scores(pairs))
    slope = (weights * (1.0 - weights) * (pairs.A @ state.v))[:, None]
    U, V = np.linalg.qr(state.left)[0], np.linalg.qr(state.right)[0]
    U_rest, V_rest = (
        np.linalg.qr(part, mode="complete")[0][:, r:] if r else np.empty((d, 0)) for part in (U, V)
    )
    AU, BV = slope * (pairs.A @ U), pairs.B @ V
    moves = [_products(slope * (pairs.A @ U_rest), BV), _products(AU, BV), _products(AU, pairs.B @ V_rest)]
    J = np.concatenate([*moves, pairs.B + weights[:, None] * pairs.A], axis=1) / noise[:, None]
    n_free = len(J) - J.shape[1]
    if n_free < 1:
        return float("inf"), float("inf")
    triangle = np.asarray(np.linalg.qr(J, mode="r"))
    diagonal = np.abs(triangle.diagonal())
    if diagonal.min() <= 1e-13 * diagonal.max():
        return float("inf"), float("inf")
    inverse = solve_triangular(triangle, np.eye(len(triangle)), check_finite=False)
    excess = float(np.linalg.norm((state.answers(pairs) - pairs.y) / noise)) / np.sqrt(n_free)
    n_w = r * (2 * d - r)
    return max(1.0, excess) * float(np.linalg.norm(inverse[:n_w])), max(1.0, excess) * float(
        np.linalg.norm(inverse[n_w:])
    )


def _products(left: Array, right: Array) -> Array:
    return np.asarray((left[:, :, None] * right[:, None, :]).reshape(len(left), -1))


def _sigmoid(scores: Array) -> Array:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * scores)))
