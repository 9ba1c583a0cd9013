"""Heads taken apart behind a mean over rows, for one difference of tokens.

A sequence holds a key k once and a row b N - 1 times; p = 1/N, a = k - b, z_h = exp(aᵀ(W_h b + w0_h)) and
g_h = exp(aᵀW_h a). Every row asks: b gives k the weight ω(z_h), k gives itself ω(g_h z_h), where ω(z) =
pz/(1 - p + pz). So the mean of what the heads add, less that of single rows, is

    Σ_h V_h a·((1 - p)ω(z_h) + pω(g_h z_h) - p) = Σ_h V_h a·(p(z_h - 1) + p²(g_h z_h - z_h²) + ...).

Every row α of the unmixing matrix satisfies α·y2 = -(α·y1)² + (g - 2)(α·y1) + g - 1 for the two
coefficients, which is linear in (ααᵀ, (g - 2)α, g - 1, α): many rows b leave a null space of dimension H, as
with copies of a key. The whole expression is then fitted for all z, g and V a, which mends what the series
leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.vector_answers.unmix_by_copies import common_vectors
from unsoftmax.solvers.least_squares.joint_refinement import DenseJacobian, RefinementOptions, refine

__all__ = ["coefficients", "lift_means"]

_LEAST_ODDS = 1e-3  # of z and g, where the series leaves them below
_FIT = RefinementOptions(
    iterations=40, damping=1e-3, least_damping=1e-12, improvement=1e-4, dense_limit=10**4
)


def coefficients(means: Array, lengths: Array) -> Array:
    """(q, ...) coefficients of p, p², ... of means (q, ...) at q lengths."""
    series = np.vander(1.0 / lengths, len(lengths), increasing=True) / lengths[:, None]
    return np.asarray(np.linalg.solve(series, means.reshape(len(lengths), -1)).reshape(means.shape))


def lift_means(means: Array, lengths: Array, heads: int, rng: np.random.Generator) -> tuple[Array, float]:
    """(U (H, m) with V_h a as rows, what a fit leaves of the means) from means (q, J, m) at q lengths of
    sequences and J rows b.

    >>> rng = np.random.default_rng(0)
    >>> U, z, g = rng.standard_normal((1, 3)), rng.uniform(0.5, 2.0, (9, 1)), 1.5
    >>> p = np.array([0.1, 0.05, 0.02])
    >>> weight = lambda z, p: p * z / (1.0 - p + p * z)
    >>> means = np.stack([((1 - s) * weight(z, s) + s * weight(g * z, s) - s) @ U for s in p])
    >>> found, left = lift_means(means, 1.0 / p, 1, rng)
    >>> bool(np.abs(found - U).max() < 1e-9)
    True
    """
    flat = means.reshape(-1, means.shape[2])
    right = np.linalg.svd(flat, full_matrices=False)[2][:heads]
    size = np.sqrt(np.mean((flat @ right.T) ** 2, axis=0))
    seen = means @ right.T / size  # (q, J, H)
    y1, y2 = coefficients(seen, lengths)[:2]
    i, j = np.triu_indices(heads)
    system = np.hstack([np.where(i == j, 1.0, 2.0) * y1[:, i] * y1[:, j], y1, np.ones((len(y1), 1)), y2])
    scale = np.linalg.norm(system, axis=0)
    null = np.linalg.svd(system / scale, full_matrices=True)[2][-heads:] / scale
    forms = np.zeros((heads, heads, heads))
    forms[:, i, j] = forms[:, j, i] = null[:, : len(i)]
    unmix, odds = [], []
    for x in common_vectors(forms, rng):
        design = np.column_stack([-((y1 @ x) ** 2), y1 @ x, np.ones(len(y1))])
        square, linear, _ = np.linalg.lstsq(design, y2 @ x, rcond=None)[0]
        unmix.append(square * x)
        odds.append(linear + 2.0)
    z = np.maximum(1.0 + y1 @ np.array(unmix).T, _LEAST_ODDS)
    start = _Odds(np.log(z), np.log(np.maximum(odds, _LEAST_ODDS)), np.linalg.inv(np.array(unmix)).T)
    fit = refine(_MeansFit(seen, lengths), start, _FIT)
    return np.asarray(fit.state.outputs * size @ right), fit.rms[-1]


@dataclass(frozen=True)
class _Odds:
    """log z (J, H), log g (H,), outputs (H, H)."""

    log_z: Array
    log_g: Array
    outputs: Array

    def moved(self, step: Array) -> _Odds:
        z, g = self.log_z.size, self.log_g.size
        return _Odds(
            self.log_z + step[:z].reshape(self.log_z.shape),
            self.log_g + step[z : z + g],
            self.outputs + step[z + g :].reshape(self.outputs.shape),
        )


@dataclass(frozen=True)
class _MeansFit:
    """Least squares of all means over what they usually are."""

    means: Array
    lengths: Array

    def _weights(self, state: _Odds) -> tuple[Array, Array, Array]:
        """(q, J, H): what multiplies the outputs, and its derivatives by log z and log g."""
        p = (1.0 / self.lengths)[:, None, None]
        with np.errstate(over="ignore"):
            z = np.exp(state.log_z)
            by_b, by_k = (p * odds / (1.0 - p + p * odds) for odds in (z, z * np.exp(state.log_g)))
        slope_k = p * by_k * (1.0 - by_k)
        return (1.0 - p) * by_b + p * by_k - p, (1.0 - p) * by_b * (1.0 - by_b) + slope_k, slope_k

    def residual(self, state: _Odds, /) -> Array:
        return np.asarray((self._weights(state)[0] @ state.outputs - self.means).ravel())

    def moved(self, state: _Odds, step: Array, /) -> _Odds:
        return state.moved(step)

    def linearise(self, state: _Odds, /) -> DenseJacobian:
        weights, by_z, by_g = self._weights(state)
        q, J, H = weights.shape
        of_z = np.zeros((q, J, H, J, H))  # (length, b, output, b, head)
        of_z[:, np.arange(J), :, np.arange(J)] = (by_z[:, :, None] * state.outputs.T).transpose(1, 0, 2, 3)
        of_g = by_g[:, :, None] * state.outputs.T
        of_outputs = np.einsum("qjh,ok->qjohk", weights, np.eye(H))
        columns = [of_z.reshape(q * J * H, -1), of_g.reshape(q * J * H, H), of_outputs.reshape(q * J * H, -1)]
        return DenseJacobian(np.hstack(columns))
