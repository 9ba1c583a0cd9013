"""Plain neurons of all layers from second derivatives of the collapsed layer."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.deep_stack.neuron_space import NeuronSpace
from unsoftmax.learners.smooth_network.profiles import choose_activation
from unsoftmax.learners.smooth_network.rank_one import as_vectors, products
from unsoftmax.meters.deep.collapsed_layer import CollapsedLayer
from unsoftmax.solvers.deep_stack.neurons import PlainNeurons

__all__ = ["assemble_plain", "common_output", "rest_of_directions"]

_PROFILE_POINTS = 30  # places along each neuron's direction; 24 fix activation, steepness and bias
_SURPLUS = 1.6  # equations over unknowns


def assemble_plain(layer: CollapsedLayer, space: NeuronSpace, rng: np.random.Generator) -> PlainNeurons:
    """Neurons up to reflection."""
    curvature, directions = space.curvature, space.directions
    basis = np.vstack([products(directions, directions), as_vectors(np.eye(curvature.q))[None]])
    forms = as_vectors(curvature.forms)
    parts = np.linalg.lstsq(basis.T, forms.reshape(-1, forms.shape[-1]).T, rcond=None)[0][:-1]
    parts = parts.reshape(len(directions), *forms.shape[:2])  # (J, P, out): second derivatives times outputs
    outer = np.array([common_output(each, curvature.points) for each in parts])
    places, v, toward, seen = rest_of_directions(layer, space, rng, unknowns=directions.size)
    J, r = len(directions), curvature.points.shape[1]
    weights = parts[:, places] * (directions @ v.T)[..., None]  # (J, n, out)
    weights = weights - np.einsum("jno,no->jn", weights, toward)[..., None] * toward
    design = np.einsum("jno,ni->noji", weights, toward).reshape(seen.size, J * r)
    rest = np.linalg.lstsq(design, seen.ravel(), rcond=None)[0].reshape(J, r)
    points, bends = _profiles(layer, space, outer, rng)
    profiles = choose_activation(points @ rest.T, bends)
    inner = directions @ curvature.along.T + rest @ curvature.base.T
    return PlainNeurons(profiles.steepness[:, None] * inner, profiles.bias, profiles.activation)


def common_output(parts: Array, points: Array) -> Array:
    """The unit vector x (out,) of which all parts (P, out) are multiples, once what is along the points is
    removed from both."""
    units = points / np.linalg.norm(points, axis=1, keepdims=True)
    sizes = (parts**2).sum(axis=1)
    total = np.eye(points.shape[1]) * sizes.sum() - parts.T @ parts
    total -= np.einsum("p,pi,pj->ij", sizes, units, units)
    return np.asarray(np.linalg.eigh(total)[1][:, 0])


def rest_of_directions(
    layer: CollapsedLayer, space: NeuronSpace, rng: np.random.Generator, *, unknowns: int
) -> tuple[Array, Array, Array, Array]:
    """Second derivatives between V and B, as often as the unknowns need: see `Curvature.toward_base`."""
    count, r = space.curvature.points.shape
    each = count * (r - 1) * max(r - 2, 1)
    times = int(np.ceil(_SURPLUS * unknowns / space.curvature.q * r / each))
    found = [space.curvature.toward_base(layer, space.stencil, rng) for _ in range(times)]
    places, v, toward, seen = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return places, v, toward, seen


def _profiles(
    layer: CollapsedLayer, space: NeuronSpace, outer: Array, rng: np.random.Generator
) -> tuple[Array, Array]:
    """(points (n, d - q), second derivatives (n, J) of every neuron there) at fresh points of B."""
    curvature, J = space.curvature, len(outer)
    d, q = curvature.frame.shape[0], curvature.q
    r = d - q
    count = int(np.ceil(_SURPLUS * (J + r) / (r - 1))) + 1
    points = rng.standard_normal((_PROFILE_POINTS, r))
    points *= np.sqrt(d) / np.linalg.norm(points, axis=1, keepdims=True)
    rows = points @ curvature.base.T
    values = layer(rows)
    bends = np.empty((len(points), J))
    for p, point in enumerate(points):
        lines = rng.standard_normal((count, q))
        lines /= np.linalg.norm(lines, axis=1, keepdims=True)
        seen = space.stencil.along(layer, rows[p], values[p], lines @ curvature.along.T) @ curvature.base
        across = np.eye(r) - np.outer(point, point) / d
        design = np.einsum("vj,jo->voj", (lines @ space.directions.T) ** 2, outer @ across)
        shift = np.broadcast_to(across, (count, r, r))  # what the sphere adds, the same for all lines
        columns = np.concatenate([design, shift], axis=2).reshape(count * r, -1)
        bends[p] = np.linalg.lstsq(columns, (seen @ across).ravel(), rcond=1e-10)[0][:J]
    return points, bends
