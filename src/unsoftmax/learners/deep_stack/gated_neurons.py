"""Gated neurons of all layers from second derivatives of the collapsed layer.

Inside V a neuron is g = κ(G + γ), u = U + tG + β, with unit G and U across it, γ and β in B. Hessians on V
are s·GGᵀ + m·(GUᵀ + UGᵀ)/2 with m = 2κ·φ'(g·n)·w and s = κ²φ''(g·n)(u·n)·w + t·m, w what the neuron writes.
Between v in V and e in B they are (γ·e)(s·(G·v) + m·(U·v)/2) + (m/2)(G·v)(δ·e) with δ = β - tγ: linear.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.deep_stack.neuron_space import NeuronSpace
from unsoftmax.learners.deep_stack.plain_neurons import common_output, rest_of_directions
from unsoftmax.learners.smooth_network.profiles import choose_activation
from unsoftmax.meters.deep.collapsed_layer import CollapsedLayer
from unsoftmax.models.parts import GELU, GELU_TANH, SILU
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.deep_stack.neurons import GatedNeurons
from unsoftmax.solvers.gated_network.symmetric import as_vectors, product_vectors

__all__ = ["assemble_gated"]

_CANDIDATES = (SILU, GELU, GELU_TANH)  # SwiGLU, GEGLU
# a gate's bias beyond which it is one; noise leaves 1e-3, and 1e-2 in float32. Fits refuse what is smaller
_BIASED = 0.1


def assemble_gated(layer: CollapsedLayer, space: NeuronSpace, rng: np.random.Generator) -> GatedNeurons:
    """Neurons up to the factor between up and what is written."""
    curvature, G, U = space.curvature, space.directions, space.ups
    assert U is not None
    forms, J = as_vectors(curvature.forms), len(G)
    basis = np.vstack([product_vectors(G, G), product_vectors(G, U), as_vectors(np.eye(curvature.q))[None]])
    parts = np.linalg.lstsq(basis.T, forms.reshape(-1, forms.shape[-1]).T, rcond=None)[0][:-1]
    squares, mixed = parts.reshape(2, J, *forms.shape[:2])  # (J, P, out) each
    gamma, delta = _in_base(layer, space, squares, mixed, rng)
    points = curvature.points
    units = points / np.linalg.norm(points, axis=1, keepdims=True)
    outer = np.array([common_output(each, points) for each in mixed])
    seen = outer[:, None] - (outer @ units.T)[..., None] * units  # (J, P, out): what of w is seen at a point
    weight = (seen**2).sum(axis=2)
    profile, square = ((each * seen).sum(axis=2) / weight for each in (mixed, squares))
    t = points @ gamma.T
    profiles = choose_activation(t, profile.T, _CANDIDATES, derivative=1)
    if np.median(np.abs(profiles.bias)) > _BIASED:
        raise Unresolved(
            f"gates have biases of about {np.median(np.abs(profiles.bias)):.2g}; none are learned"
        )
    kappa, factor, phi = profiles.steepness, profiles.weight, profiles.activation
    active = t * kappa  # g·n
    # s = factor·κ/2·φ''·(δ·n + t·γ·n) + t·m: one unknown t a neuron
    bend = 0.5 * factor * kappa * phi.second(active)
    known, slope = bend * (points @ delta.T), bend * t + factor * phi.first(active)
    rest = square.T - known
    shift = (weight.T * slope * rest).sum(axis=0) / (weight.T * slope**2).sum(axis=0)
    gate = kappa[:, None] * (G @ curvature.along.T + gamma @ curvature.base.T)
    inside = U + shift[:, None] * G
    up = inside @ curvature.along.T + (delta + shift[:, None] * gamma) @ curvature.base.T
    return GatedNeurons(gate, up, phi)


def _in_base(
    layer: CollapsedLayer, space: NeuronSpace, squares: Array, mixed: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """γ and δ, (J, d - q) each."""
    G, U = space.directions, space.ups
    assert U is not None
    places, v, toward, seen = rest_of_directions(layer, space, rng, unknowns=2 * G.size)
    J, r = len(G), toward.shape[1]
    half = 0.5 * mixed[:, places]
    by_gate = squares[:, places] * (G @ v.T)[..., None] + half * (U @ v.T)[..., None]
    by_up = half * (G @ v.T)[..., None]
    columns = []
    for part in (by_gate, by_up):
        across = part - np.einsum("jno,no->jn", part, toward)[..., None] * toward
        columns.append(np.einsum("jno,ni->noji", across, toward).reshape(seen.size, J * r))
    solved = np.linalg.lstsq(np.concatenate(columns, axis=1), seen.ravel(), rcond=None)[0]
    return np.asarray(solved[: J * r].reshape(J, r)), np.asarray(solved[J * r :].reshape(J, r))
