"""A gated two-layer network (SwiGLU, GEGLU) from its values: gates by the Hessians' span, then a joint
fit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.gated_network.fit import GatedFit
from unsoftmax.learners.gated_network.gates import find_gates
from unsoftmax.learners.smooth_network.asks import Asks
from unsoftmax.learners.smooth_network.curvature import Region, Stencil, survey
from unsoftmax.learners.smooth_network.hessians import HessianTable, measure_hessians, spread_points
from unsoftmax.learners.smooth_network.network_fit import FoundNetwork
from unsoftmax.learners.smooth_network.profiles import Profiles, choose_activation
from unsoftmax.learners.smooth_network.rank_one import as_vectors, products
from unsoftmax.models.networks.gated_network import GatedNetwork
from unsoftmax.models.parts import GELU, GELU_TANH, SIGMOID, SILU, TANH, Activation
from unsoftmax.outcomes import OutsideClass, Test, Unresolved
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine

__all__ = ["GATE_TEST", "find_gated_network"]

GATE_TEST = Test("second derivatives span two dimensions a gated unit")
_CANDIDATES = (SILU, GELU, GELU_TANH, SIGMOID, TANH)

# of all quadratic forms: in fuller spans the power method stops between gates
_FILLED = (0.4, 0.25)
_PROFILE_POINTS = 48  # points along a gate, at least: an activation has three unknowns there
_SURPLUS = 1.5  # measurements over unknowns
_OPTIONS = RefinementOptions(
    iterations=40,
    damping=1e-6,
    least_damping=1e-15,
    improvement=1e-4,
    dense_limit=4400,
    inner_iterations=400,
    inner_tolerance=1e-4,
)


@dataclass(frozen=True)
class _Units:
    """g = steepness·gate and u = other + along·gate on the subspace, with biases; down rows (J, m)."""

    profiles: Profiles
    gate: Array
    up: Array
    up_bias: Array
    down: Array


def find_gated_network(asks: Asks, rng: np.random.Generator) -> FoundNetwork[GatedNetwork]:
    """Units up to 0.3·k(k + 1)/2; raises `OutsideClass` or `Unresolved`."""
    region = survey(asks, rng)
    for filled in _FILLED:
        table = measure_hessians(asks, region, rng, filled=filled)
        if table.rank % 2:
            raise OutsideClass(GATE_TEST, f"they span {table.rank} dimensions, an odd number")
        units = table.rank // 2
        defect = max(1e-8, 100.0 * table.floor**2)
        gates, others = find_gates(table.space, len(table.basis), units, rng, defect=defect)
        if len(gates) == units:
            break
    else:
        raise Unresolved(
            f"second derivatives span {table.rank} dimensions, but show {len(gates)} gates instead of {units}"
        )
    found = _units(asks, region, table, gates, others, rng)
    state = _whole(asks, region, table, found, rng)
    return _fitted(asks, region, found.profiles.activation, state, rng)


def _units(
    asks: Asks, region: Region, table: HessianTable, gates: Array, others: Array, rng: np.random.Generator
) -> _Units:
    """Coefficients of g gᵀ and of g wᵀ + w gᵀ at many points: the second is 2·steepness·down·φ'(a), the first
    linear in the rest."""
    J, m, q = len(gates), asks.outputs, len(table.basis)
    design = np.concatenate([products(gates, gates), 2.0 * products(gates, others)])  # (2J, n)
    forms = as_vectors(table.forms)
    parts = np.linalg.lstsq(design.T, forms.reshape(-1, forms.shape[-1]).T, rcond=None)[0]
    parts = parts.reshape(2, J, len(table.points), m)
    left, sizes, right = np.linalg.svd(parts[1], full_matrices=False)
    down = right[:, 0]
    slopes = (left[:, :, 0] * sizes[:, :1]).T
    bends = np.einsum("jpm,jm->pj", parts[0], down)
    points = table.points
    if (missing := _PROFILE_POINTS - len(points)) > 0:
        stencil = Stencil.for_region(region)
        size = (
            region.size
            if np.isinf(asks.radius)
            else min(region.size, 0.97 * asks.radius - 1.5 * stencil.reach)
        )
        fresh = spread_points(rng, missing, q, size) @ table.basis
        n_lines = min(q * (q + 1) // 2, int(np.ceil(_SURPLUS * 2 * J / m)) + 2)
        lines = rng.standard_normal((n_lines, q))
        lines /= np.linalg.norm(lines, axis=1, keepdims=True)
        seconds = stencil.measure(asks, fresh, lines @ table.basis)
        on_gate, on_other = lines @ gates.T, lines @ others.T
        both = np.concatenate([on_gate**2, 2.0 * on_gate * on_other], axis=1)
        system = np.einsum("vj,jm->vmj", both, np.concatenate([down, down])).reshape(-1, 2 * J)
        more = np.linalg.lstsq(system, seconds.reshape(missing, -1).T, rcond=None)[0].T
        bends, slopes = np.concatenate([bends, more[:, :J]]), np.concatenate([slopes, more[:, J:]])
        points = np.concatenate([points, fresh])
    t = points @ table.basis.T @ gates.T
    profiles = choose_activation(t, slopes, _CANDIDATES, derivative=1)
    s, z = profiles.steepness, t * profiles.steepness + profiles.bias
    # down along its direction, with the up row's part beside the gate of unit length
    weight = profiles.weight / s
    second, first = profiles.activation.second(z), profiles.activation.first(z)
    across = points @ table.basis.T @ others.T
    along, bias = np.empty(J), np.empty(J)
    for j in range(J):
        curve = weight[j] * second[:, j] * s[j] ** 2
        system = np.column_stack([curve * t[:, j] + 2.0 * weight[j] * first[:, j] * s[j], curve])
        along[j], bias[j] = np.linalg.lstsq(system, bends[:, j] - curve * across[:, j], rcond=None)[0]
    up = others + along[:, None] * gates
    return _Units(profiles, gates * s[:, None], up, bias, down * weight[:, None])


def _whole(asks: Asks, region: Region, table: HessianTable, found: _Units, rng: np.random.Generator) -> Array:
    """The state (2J, k + 1) on the whole space; what lies beside the subspace comes from gradients, which are
    linear in it."""
    J, m, k = len(found.gate), asks.outputs, asks.width
    gate = np.column_stack([found.gate @ table.basis, found.profiles.bias])
    up = np.column_stack([found.up @ table.basis, found.up_bias])
    rest = np.linalg.svd(table.basis)[2][len(table.basis) :]
    if len(rest):
        count = int(np.ceil(_SURPLUS * (2 * J) / m)) + 2
        step = max(region.noise / region.scale, 1e-16) ** (1.0 / 3.0) * region.size
        size = region.size if np.isinf(asks.radius) else min(region.size, 0.97 * asks.radius - 2.0 * step)
        points = spread_points(rng, count, len(table.basis), size) @ table.basis
        around = np.concatenate(
            [(points[:, None] + sign * step * rest).reshape(-1, k) for sign in (1.0, -1.0)]
        )
        answers = asks(around).reshape(2, count, len(rest), m)
        gradients = (answers[0] - answers[1]) / (2.0 * step)
        z, lift = points @ gate[:, :-1].T + gate[:, -1], points @ up[:, :-1].T + up[:, -1]
        activation = found.profiles.activation
        factors = np.concatenate([activation.first(z) * lift, activation(z)], axis=1)
        design = np.einsum("pj,jm->pmj", factors, np.concatenate([found.down, found.down])).reshape(-1, 2 * J)
        beside = np.linalg.lstsq(design, gradients.transpose(0, 2, 1).reshape(-1, len(rest)), rcond=None)[0]
        gate[:, :-1] += beside[:J] @ rest
        up[:, :-1] += beside[J:] @ rest
    return np.concatenate([gate, up / np.linalg.norm(up, axis=1, keepdims=True)])


def _fitted(
    asks: Asks, region: Region, activation: Activation, state: Array, rng: np.random.Generator
) -> FoundNetwork[GatedNetwork]:
    J, m, k = len(state) // 2, asks.outputs, asks.width
    count = max(int(np.ceil(_SURPLUS * J * (2 * k + 2 + m) / m)), int(1.6 * J)) + 10
    size = region.size if np.isinf(asks.radius) else min(1.3 * region.size, 0.97 * asks.radius)
    points = spread_points(rng, count, k, size)
    fit = GatedFit(activation, points, asks(points))
    refined = refine(fit, state, _OPTIONS)
    if not np.isfinite(refined.rms[-1]) or refined.rms[-1] > 1e-3 * region.scale:
        raise OutsideClass(
            GATE_TEST,
            f"{J} units with {activation.name} leave {refined.rms[-1]:.2g} of answers of size "
            f"{region.scale:.2g}",
        )
    network = fit.network(refined.state)
    return FoundNetwork(network, refined.rms[-1], region.noise, fit.points, fit.answers)
