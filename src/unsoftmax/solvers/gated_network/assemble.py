"""Whole neurons from gates inside a subspace: sizes, the plane of the circle, and all other directions follow
linearly.

With g = κG + γ, u = U + tG + β/κ (G, U unit rows inside the differentiated directions, γ and β in the plane
of the circle), the coefficient of (GUᵀ + UGᵀ)/2 in a Hessian is c·φ'(γ·n)·w with c·w = 2κ·down: one
profile over the circle for every neuron.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.parts import Activation
from unsoftmax.solvers.gated_network.find_gates import Gates
from unsoftmax.solvers.gated_network.symmetric import as_vectors, product_vectors

__all__ = ["CircleReadings", "Neurons", "assemble_neurons"]

# of γ·n at the start of a fit, and eight directions each: enough to find the best profile
_SIZES = (0.3, 1.0, 2.0, 4.0)
_DIRECTIONS = 8  # starts around the circle of a neuron's two unknowns
_STEPS = 60  # of a fit, at most


@dataclass(frozen=True, eq=False)
class Neurons:
    """gate, up: (m, d). down: (d, m). activation: of gates. misfit: largest relative misfit of a neuron's
    profile."""

    gate: Array
    up: Array
    down: Array
    activation: Activation
    misfit: float


@dataclass(frozen=True, eq=False)
class CircleReadings:
    """on_circle (P, 2), hessians (P, out, q, q), gradients (P, q, out), further (P, d - 2 - q, out)."""

    on_circle: Array
    hessians: Array
    gradients: Array
    further: Array


def assemble_neurons(gates: Gates, frame: Array, read: CircleReadings, phi: Activation) -> Neurons:
    """frame: (d, d)."""
    on_circle, hessians = read.on_circle, read.hessians
    n_points, out, q, _ = hessians.shape
    m = len(gates.gates)
    basis = np.concatenate(
        [
            product_vectors(gates.gates, gates.gates),
            product_vectors(gates.gates, gates.ups),
            as_vectors(np.eye(q))[None],
        ]
    ).T
    found = np.linalg.lstsq(basis, as_vectors(hessians.reshape(-1, q, q)).T, rcond=None)[0]
    squares, mixed = found[:m].reshape(m, n_points, out), found[m : 2 * m].reshape(m, n_points, out)
    left, sizes, right = np.linalg.svd(mixed, full_matrices=False)
    profile, written = left[:, :, 0] * sizes[:, :1], right[:, 0]
    sign = np.where(profile.mean(axis=1) < 0.0, -1.0, 1.0)
    profile, written = profile * sign[:, None], written * sign[:, None]
    factor, gamma, misfit = _fit_profiles(profile, on_circle, phi)
    active = gamma @ on_circle.T  # (m, P)
    square = np.einsum("kpo,ko->kp", squares, written) / factor[:, None]
    design = np.concatenate(
        [0.5 * phi.second(active)[..., None] * on_circle, phi.first(active)[..., None]], axis=2
    )
    solved = np.einsum("kap,kp->ka", np.linalg.pinv(design), square)
    beta, shift = solved[:, :2], solved[:, 2]
    ups = gates.ups + shift[:, None] * gates.gates
    scaled = factor[:, None] * written  # 2κ·down
    across = beta @ on_circle.T  # κ·(up·n)
    slopes = (phi.first(active) * across)[..., None] * gates.gates[:, None] + phi(active)[..., None] * ups[
        :, None
    ]
    columns = np.einsum("kpi,ko->piok", slopes, scaled).reshape(-1, m) / 2.0
    kappa = 1.0 / np.linalg.lstsq(columns, read.gradients.reshape(-1), rcond=None)[0]
    down = (scaled / (2.0 * kappa[:, None])).T
    circle_gate, circle_up = gamma, beta / kappa[:, None]
    rest_gate, rest_up = _rest(active, across / kappa[:, None], down, read.further, phi)
    gate = np.column_stack([circle_gate, kappa[:, None] * gates.gates, rest_gate]) @ frame.T
    up = np.column_stack([circle_up, ups, rest_up]) @ frame.T
    return Neurons(gate, up, down, phi, float(misfit.max()))


def _rest(active: Array, offered: Array, down: Array, further: Array, phi: Activation) -> tuple[Array, Array]:
    """Coordinates of gates and ups along the directions that have gradients only: linear in both."""
    m = len(active)
    count = further.shape[1]
    if not count:
        return np.zeros((m, 0)), np.zeros((m, 0))
    columns = np.concatenate(
        [
            np.einsum("ok,kp->pok", down, phi.first(active) * offered),
            np.einsum("ok,kp->pok", down, phi(active)),
        ],
        axis=2,
    ).reshape(-1, 2 * m)
    right = further.transpose(0, 2, 1).reshape(-1, count)
    solved = np.linalg.lstsq(columns, right, rcond=None)[0]
    return solved[:m], solved[m:]


def _fit_profiles(profile: Array, on_circle: Array, phi: Activation) -> tuple[Array, Array, Array]:
    """c, γ and the relative misfit of c·φ'(γ·n_p) for every profile, by damped Gauss-Newton from many
    starts at once."""
    m = len(profile)
    angles = np.arange(_DIRECTIONS) * 2.0 * np.pi / _DIRECTIONS
    radius = np.linalg.norm(on_circle[0])
    starts = np.array([[size * np.cos(a), size * np.sin(a)] for size in _SIZES for a in angles]) / radius
    state = np.empty((m, len(starts), 3))
    state[..., 0] = 2.0 * profile.mean(axis=1)[:, None]
    state[..., 1:] = starts
    damping = np.full((m, len(starts)), 1e-2)

    def residual(s: Array) -> Array:
        return np.asarray(s[..., :1] * phi.first(s[..., 1:] @ on_circle.T) - profile[:, None])

    left = residual(state)
    cost = (left**2).sum(axis=-1)
    for _ in range(_STEPS):
        active = state[..., 1:] @ on_circle.T
        jacobian = np.concatenate(
            [phi.first(active)[..., None], (state[..., :1] * phi.second(active))[..., None] * on_circle],
            axis=-1,
        )
        normal = np.einsum("kspi,kspj->ksij", jacobian, jacobian)
        diagonal = np.einsum("ksii->ksi", normal)
        normal = normal + (damping[..., None] * (diagonal + 1e-300))[..., None] * np.eye(3)
        step = np.linalg.solve(
            normal + 1e-30 * np.eye(3), np.einsum("kspi,ksp->ksi", jacobian, left)[..., None]
        )[..., 0]
        tried = state - step
        new = residual(tried)
        new_cost = (new**2).sum(axis=-1)
        better = new_cost < cost
        state = np.where(better[..., None], tried, state)
        left = np.where(better[..., None], new, left)
        cost = np.where(better, new_cost, cost)
        damping = np.clip(np.where(better, damping * 0.2, damping * 8.0), 1e-14, 1e8)
    cost = np.where(state[..., 0] > 0.0, cost, np.inf)
    best = cost.argmin(axis=1)
    chosen = state[np.arange(m), best]
    misfit = np.sqrt(cost[np.arange(m), best] / (profile**2).sum(axis=1))
    return chosen[:, 0], chosen[:, 1:], misfit
