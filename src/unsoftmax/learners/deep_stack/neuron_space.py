"""The space that second derivatives of the collapsed layer span: how many neurons, and of which kind.

Plain neurons add one dimension each, gated ones two, and the sphere adds one for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.deep_stack.too_many_neurons import NeuronLimit
from unsoftmax.learners.smooth_network.rank_one import as_vectors, climb, find_rank_one, products, starts
from unsoftmax.meters.deep.collapsed_layer import CollapsedLayer
from unsoftmax.meters.deep.sphere_curvature import Curvature, SphereStencil, measure_curvature
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.gated_network.find_gates import Gates, find_gates

__all__ = ["NeuronSpace", "neuron_spaces"]

_FIRST = 5  # 15 forms: the cheapest look that tells a few neurons from none
_GROWTH = 1.25  # forms grow by 1.56: a last step too far wastes a third of them at most
_COUNTS = 8  # times that the rank is looked at while points are added
_ENOUGH, _BEYOND = 1.15, 4  # second derivatives over the rank, and beyond it, that make it clear
_BASE = 4  # columns left for points and outputs, at least
_SPARE = 1.25  # second derivatives over dimensions of all forms: one that fills them shows as full
# ratio of neighbouring singular values that marks the rank; without a rank the largest one is below 10
_GAP = 12.0
_PLAIN = 0.64  # of all forms: up to there the power method finds every rank-one form
# of a rank-one form, what may be outside the space: behind short arithmetic its weakest direction
# is off by less than the inverse of the gap, and a form by its square
_DEFECT = 1e-6
_CLIMBED = 2e-3  # the same for gates, whose climb is flat
# dimensions of all forms less those of the space, over q: with fewer, other forms are of rank one too
_GATED_ROOM = 1.0
_CAPACITY = 0.15  # gated neurons over d²
_DEAR = 2.0  # queries of a round over those of a count of neurons from which they are counted first
_ROUNDS = 12  # a cap: 5·1.25^12 is 73 directions
_AGAIN = 2  # further frames of most directions, where a set of neurons was found and refused
_STARTS = 3  # random starts for every dimension of the space; from these most plain neurons are met
_SAME = 0.999  # |cosine| from which two directions are one


@dataclass(frozen=True, eq=False)
class NeuronSpace:
    """directions: (J, q), unit, the neurons' parts along V; ups: the same for the second factor of gated
    ones, or None. gap: how clear the number of neurons is."""

    curvature: Curvature
    stencil: SphereStencil
    directions: Array
    ups: Array | None
    gap: float


def neuron_spaces(
    layer: CollapsedLayer, rng: np.random.Generator, *, order: int = 2, few: bool = True
) -> Iterator[NeuronSpace]:
    """Spaces in which a whole set of neurons was found, with more and more differentiated directions: where
    few dimensions are free, the set may be a wrong one. Raises `Unresolved` beyond what tells 0.15·d² gated
    neurons, or d - 4 directions.

    order: of the stencil; a higher one is for short arithmetic. few: points end where a rank is clear.
    """
    d = layer.stream.width
    stencil = SphereStencil.for_jitter(layer.jitter(rng), order)
    q, most, seen = min(_FIRST, d - _BASE), _most_directions(d), "all forms, or a part without a clear end"
    if most < 2:
        raise Unresolved(
            f"width {d} is too small for second derivatives on the sphere; {_BASE + 2} is the least"
        )
    found_any, again, refused = False, _AGAIN, 0
    limit = NeuronLimit.of(d, _most_rank(d, most)) if few else None
    for _ in range(_ROUNDS):
        if limit is not None and not found_any and _points(d, q, few) * q * (q + 1) > _DEAR * limit.queries:
            limit.refuse_more(layer, stencil, rng)
            limit = None
        curvature = _measured(layer, q, stencil, rng, few=few)
        rank, gap, space = _rank(curvature)
        if rank:
            seen = f"a space of {rank} of {q * (q + 1) // 2} dimensions"
            found = _neurons(space, q, max(_DEFECT, gap**-2), rng)
            if found is not None:
                found_any = True
                yield NeuronSpace(curvature, stencil, *found, gap)
                refused += 1
                if not few and refused > _AGAIN:  # rounds of many terms and points are dear
                    break
        if q == most:
            again -= 1
            if not found_any or again < 0:
                break
        q = min(most, max(q + 1, int(np.ceil(_GROWTH * q))))
    if found_any:  # what refused it is the better reason
        return
    raise Unresolved(
        f"second derivatives along {q} directions span {seen}, and no set of neurons explains them: more "
        f"than about {_CAPACITY}·d² = {_CAPACITY * d * d:.0f} gated neurons in all layers together are "
        "beyond this width, and experts that rows are sent to, norms behind sublayers and other activations "
        "look the same"
    )


def _most_directions(d: int) -> int:
    """How many directions tell 0.15·d² gated neurons. The more of them, the fewer outputs are
    left at a point: at width 64, 60 directions tell 1.4 times as many neurons as 51 and take eight times the
    queries."""
    q = d - _BASE
    while q > 2 and (q - 1) * q / 2.0 - _GATED_ROOM * (q - 1) - 1.0 >= 2.0 * _CAPACITY * d * d:
        q -= 1
    return q


def _most_rank(d: int, q: int) -> int:
    """Dimensions of the largest space along q directions of which neurons are looked for."""
    return int(min(q * (q + 1) / 2.0 - _GATED_ROOM * q, 2.0 * _CAPACITY * d * d + 1.0))


def _points(d: int, q: int, few: bool) -> int:
    """Points at which second derivatives along q directions are taken, at most: as many as all forms need,
    or, with `few`, as the largest rank of which neurons can be told."""
    forms = q * (q + 1) / 2.0
    useful = _ENOUGH * max(_PLAIN * forms, forms - _GATED_ROOM * q) + _BEYOND
    return int(np.ceil((min(useful, _SPARE * forms) if few else _SPARE * forms) / (d - q - 1))) + 1


def _measured(
    layer: CollapsedLayer, q: int, stencil: SphereStencil, rng: np.random.Generator, *, few: bool
) -> Curvature:
    """Second derivatives at random points: see `_points`; with `few`, only until two counts in a row agree on
    a rank that is clearly smaller than their number."""
    d = layer.stream.width
    frame = np.linalg.qr(rng.standard_normal((d, d)))[0]
    count = _points(d, q, few)
    points = rng.standard_normal((count, d - q))
    points *= np.sqrt(d) / np.linalg.norm(points, axis=1, keepdims=True)
    found, before = None, 0
    for part in np.array_split(points, min(count, _COUNTS) if few else 1):
        more = measure_curvature(layer, frame, part, q, stencil)
        found = more if found is None else found.with_points(more)
        rank, _, _ = _rank(found)
        if rank and rank == before and _ENOUGH * rank + _BEYOND <= len(found.points) * (d - q - 1):
            break
        before = rank
    assert found is not None
    return found


def _rank(curvature: Curvature) -> tuple[int, float, Array]:
    """(rank, gap, orthonormal columns); rank 0 where no gap marks one."""
    rows = as_vectors(curvature.forms).reshape(-1, curvature.q * (curvature.q + 1) // 2)
    _, sizes, right = np.linalg.svd(rows, full_matrices=False)
    if not np.isfinite(sizes).all() or sizes[0] == 0.0:
        return 0, 1.0, right[:0].T
    outputs = curvature.points.shape[1] - 1
    most = min(len(sizes) - 1, len(curvature.points) * outputs - 2)
    ratios = sizes[1:most] / np.maximum(sizes[2 : most + 1], 1e-300)
    if not len(ratios):
        return 0, 1.0, right[:0].T
    rank = int(np.argmax(ratios)) + 2
    gap = float(ratios[rank - 2])
    return (rank, gap, right[:rank].T) if gap > _GAP else (0, gap, right[:0].T)


def _neurons(
    space: Array, q: int, defect: float, rng: np.random.Generator
) -> tuple[Array, Array | None] | None:
    """(directions, ups) of rank - 1 plain or (rank - 1)/2 gated neurons, or None. defect: how much of a
    neuron's form may be outside the space."""
    forms, rank = q * (q + 1) // 2, space.shape[1]
    if rank <= _PLAIN * forms and _looks_plain(space, q, defect, rng):
        found = find_rank_one(space, q, rank - 1, rng, defect=defect)
        if len(found) == rank - 1:
            return found, None
    if rank % 2 and forms - rank >= _GATED_ROOM * q:
        gates: Gates = find_gates(space, q, rank // 2, rng, max(_CLIMBED, defect))
        if len(gates.gates) == rank // 2:
            return gates.gates, gates.ups
    return None


def _looks_plain(space: Array, q: int, defect: float, rng: np.random.Generator) -> bool:
    """Whether random starts lead to more rank-one forms than gated neurons would have."""
    rank = space.shape[1]
    ends = climb(space, starts(space, q, None, _STARTS * rank, rng))
    ends = ends[((products(ends, ends) @ space) ** 2).sum(axis=1) > 1.0 - defect]
    different = np.empty((0, q))
    for end in ends:
        if not len(different) or np.abs(different @ end).max() < _SAME:
            different = np.vstack([different, end])
    return len(different) > int(rank) // 2
