"""A two-layer network with a smooth activation from its values: neurons by their Hessians, then a joint
fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.smooth_network.asks import Asks
from unsoftmax.learners.smooth_network.curvature import Region, Stencil, survey
from unsoftmax.learners.smooth_network.hessians import (
    CURVATURE_TEST,
    HessianTable,
    measure_hessians,
    spread_points,
)
from unsoftmax.learners.smooth_network.network_fit import FoundNetwork, NetworkFit, fit_network
from unsoftmax.learners.smooth_network.profiles import CANDIDATES, Profiles, rank_activations
from unsoftmax.learners.smooth_network.rank_one import as_vectors, find_rank_one, products
from unsoftmax.models.networks.network import Network
from unsoftmax.models.parts import Activation
from unsoftmax.outcomes import OutsideClass, Unresolved
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions

__all__ = ["find_network"]

# of all quadratic forms: up to 0.6 the power method found every one of 64 and of 256 neurons
_FILLED = (0.6, 0.4)
_PROFILE_POINTS = 48  # places along each neuron's direction; 40 fix (steepness, bias) of all of 256 neurons
_SURPLUS = 1.5  # equations over unknowns, wherever unknowns are solved for
_WRONG = 1e-3  # of the answers: what no fit of the right network leaves
_OPTIONS = RefinementOptions(
    iterations=60, damping=1e-6, least_damping=1e-15, improvement=1e-6, dense_limit=5200
)


def find_network(
    asks: Asks, rng: np.random.Generator, candidates: Sequence[Activation] = CANDIDATES
) -> FoundNetwork[Network]:
    """Any number of neurons up to 0.6·k(k + 1)/2; raises `OutsideClass` or `Unresolved`.

    Steps: a survey of sizes and rounding; Hessians on a subspace, whose span holds a_j a_jᵀ of every neuron
    j; the rank-one elements of that span; activation, steepness and bias from second derivatives along each
    a_j; the rest of a_j from gradients; weights and affine part by least squares; all together by variable
    projection.
    """
    region = survey(asks, rng)
    for filled in _FILLED:
        table = measure_hessians(asks, region, rng, filled=filled)
        directions = _directions(table, rng)
        if len(directions) == table.rank:
            break
    else:
        raise Unresolved(
            f"second derivatives span {table.rank} dimensions, but hold {len(directions)} rank-one forms; "
            "neurons too many for the width, or a function that is not a two-layer network"
        )
    found = _with_directions(asks, region, table, directions, candidates, rng)
    if table.wider is not None and not (isinstance(found, FoundNetwork) and found.precise):
        wider = replace(table, space=table.wider, floor=0.0)
        more = _directions(wider, rng)
        if len(more) == wider.rank:
            found = _with_directions(asks, region, wider, more, candidates, rng)
        if not isinstance(found, FoundNetwork):
            raise Unresolved(
                f"second derivatives span {table.rank} dimensions, or {wider.rank} with weak ones, but no "
                "fit of as many neurons explains the answers; two neurons may be too nearly parallel"
            )
    if isinstance(found, OutsideClass):
        forms = len(table.space)
        if table.rank > _FILLED[0] * forms:  # from forms - width + 1 on the span holds further rank-one forms
            raise Unresolved(
                f"second derivatives span {table.rank} of {forms} dimensions, where neurons cannot be told "
                "apart surely, and no fit explains the answers; a wider input would help"
            )
        raise found
    return found


def _directions(table: HessianTable, rng: np.random.Generator) -> Array:
    """Unit rows (found, q): those of the neurons, on the basis of the table."""
    defect = max(1e-6, 30.0 * table.floor**2)
    return find_rank_one(table.space, len(table.basis), table.rank, rng, defect=defect)


def _with_directions(
    asks: Asks,
    region: Region,
    table: HessianTable,
    directions: Array,
    candidates: Sequence[Activation],
    rng: np.random.Generator,
) -> FoundNetwork[Network] | OutsideClass:
    """The network whose neurons have these directions. Of activations that fit nearly alike, the joint fit
    tells which it is."""
    points, bends, outer = _bends(asks, region, table, directions, rng)
    t = points @ table.basis.T @ directions.T
    try:
        ranked = rank_activations(t, bends, candidates)
    except OutsideClass as stop:
        return stop
    found: FoundNetwork[Network] | None = None
    for profiles in ranked:
        inner = np.column_stack([directions * profiles.steepness[:, None] @ table.basis, profiles.bias])
        if len(table.basis) < asks.width:
            inner = _completed(asks, region, table, profiles, inner, outer, rng)
        other = _fitted(asks, region, profiles.activation, inner, rng)
        found = other if found is None or other.residual < found.residual else found
        if found.precise:
            break
    assert found is not None  # at least one activation is ranked
    if found.residual <= _WRONG * region.scale:
        return found
    return OutsideClass(
        CURVATURE_TEST,
        f"{len(directions)} neurons with {found.network.activation.name} leave {found.residual:.2g} of "
        f"answers of size {region.scale:.2g}",
    )


def _bends(
    asks: Asks, region: Region, table: HessianTable, directions: Array, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """(points, second derivatives (P, J) along each neuron, output directions (J, m))."""
    J, m = len(directions), asks.outputs
    forms = as_vectors(table.forms)  # (P, m, n)
    parts = np.linalg.lstsq(
        products(directions, directions).T, forms.reshape(-1, forms.shape[-1]).T, rcond=None
    )[0]
    parts = parts.reshape(J, len(table.points), m)
    left, sizes, right = np.linalg.svd(parts, full_matrices=False)
    outer = right[:, 0]
    bends = (left[:, :, 0] * sizes[:, :1]).T
    points = table.points
    missing = _PROFILE_POINTS - len(points)
    if missing <= 0:
        return points, bends, outer
    stencil = Stencil.for_region(region)
    size = (
        region.size if np.isinf(asks.radius) else min(region.size, 0.97 * asks.radius - 1.5 * stencil.reach)
    )
    fresh = spread_points(rng, missing, len(table.basis), size) @ table.basis
    n_lines = min(len(table.basis) * (len(table.basis) + 1) // 2, int(np.ceil(_SURPLUS * J / m)) + 2)
    lines = rng.standard_normal((n_lines, len(table.basis)))
    lines /= np.linalg.norm(lines, axis=1, keepdims=True)
    seconds = stencil.measure(asks, fresh, lines @ table.basis)
    design = np.einsum("vj,jm->vmj", (lines @ directions.T) ** 2, outer).reshape(-1, J)
    more = np.linalg.lstsq(design, seconds.reshape(missing, -1).T, rcond=None)[0].T
    return np.concatenate([points, fresh]), np.concatenate([bends, more]), outer


def _completed(
    asks: Asks,
    region: Region,
    table: HessianTable,
    profiles: Profiles,
    inner: Array,
    outer: Array,
    rng: np.random.Generator,
) -> Array:
    """Adds what a_j has beside the subspace: gradients there are linear in it, once all else is known."""
    J, m, k = len(inner), asks.outputs, asks.width
    rest = np.linalg.svd(table.basis)[2][len(table.basis) :]
    count = int(np.ceil(_SURPLUS * (J + m) / m)) + 2
    step = max(region.noise / region.scale, 1e-16) ** (1.0 / 3.0) * region.size
    size = region.size if np.isinf(asks.radius) else min(region.size, 0.97 * asks.radius - 2.0 * step)
    points = spread_points(rng, count, len(table.basis), size) @ table.basis
    around = np.concatenate([(points[:, None] + sign * step * rest).reshape(-1, k) for sign in (1.0, -1.0)])
    answers = asks(around).reshape(2, count, len(rest), m)
    gradients = (answers[0] - answers[1]) / (2.0 * step)
    slopes = profiles.activation.first(points @ inner[:, :-1].T + inner[:, -1])
    weights = outer * (profiles.weight / profiles.steepness**2)[:, None]
    design = np.einsum("pj,jm->pmj", slopes, weights).reshape(-1, J)
    # a linear part, and what reflections leave
    design = np.column_stack([design, np.tile(np.eye(m), (count, 1))])
    found = np.linalg.lstsq(design, gradients.transpose(0, 2, 1).reshape(-1, len(rest)), rcond=None)[0][:J]
    return np.column_stack([inner[:, :-1] + found @ rest, inner[:, -1]])


def _fitted(
    asks: Asks, region: Region, activation: Activation, inner: Array, rng: np.random.Generator
) -> FoundNetwork[Network]:
    J, m, k = len(inner), asks.outputs, asks.width
    count = max(int(np.ceil(_SURPLUS * (J * (k + 1 + m) / m + k + 1))), int(1.6 * (J + k + 1))) + 10
    size = region.size if np.isinf(asks.radius) else min(1.3 * region.size, 0.97 * asks.radius)
    points = spread_points(rng, count, k, size)
    fit = NetworkFit(activation, points, asks(points), skip=True)
    return fit_network(fit, inner, region.noise, _OPTIONS)
