"""A SwiGLU network from its values on the sphere mean n² = 1: number of neurons, gates, ups and downs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.families import Family
from unsoftmax.meters.language_model.circle_derivatives import CircleDerivatives, measure_circle
from unsoftmax.meters.language_model.precision import FLOAT64, Precision
from unsoftmax.models.language_model import GatedNetwork
from unsoftmax.outcomes import OutsideClass, Test, Unresolved
from unsoftmax.solvers.gated_network.assemble import assemble_neurons
from unsoftmax.solvers.gated_network.find_gates import find_gates
from unsoftmax.solvers.gated_network.symmetric import as_vectors

__all__ = ["NeuronSpace", "learn_gated_network", "neuron_space"]

_NEURON_TEST = Test("neurons silu(gate·n)·(up·n)", frozenset({Family.LANGUAGE_MODEL}))
_FIRST_DIRECTIONS = 8
_GROWTH = 1.15
_POINTS = 5
# most measured Hessians over the dimension of symmetric matrices, where rounding hides the rank
_MATRICES = 3.0
# dimensions of symmetric matrices over those of the neurons: 1 is the limit of uniqueness, and where answers
# are rounded more of them tell neurons apart
_ROOM, _SHORT_ROOM = 1.5, 3.0
# ratio of neighbouring singular values that marks the rank; without a rank the largest one is below 10.
# Where answers
# are rounded the ratio must stand out from the second largest: at a rank by 1.8 and more, without one by 1.4
# at most
_GAP, _SHORT_GAP, _STANDS_OUT = 25.0, 1.8, 1.5
_CLIMBED, _SHORT_CLIMBED = 2e-3, 2e-2  # how far from one a climb to a gate may end
_PROFILE = 0.05  # relative misfit of silu' over the circle beyond which a neuron is none of a SwiGLU network

Function = Callable[[Array], Array]


@dataclass(frozen=True, eq=False)
class NeuronSpace:
    """basis: orthonormal columns that span all measured Hessians. neurons: m, from the rank 2m + 1. gap: how
    clear the rank is."""

    basis: Array
    neurons: int
    gap: float


def learn_gated_network(
    function: Function, d: int, rng: np.random.Generator, precision: Precision = FLOAT64
) -> tuple[GatedNetwork, float]:
    """The network of values M(n), and the largest misfit of a neuron: about 10·q² values, q² about 6.4·m,
    however large d is; where answers are rounded, q is twice as large."""
    frame = np.linalg.qr(rng.standard_normal((d, d)))[0]
    measured, space = _grow(function, frame, precision, None)
    climbed = _SHORT_CLIMBED if precision.short else _CLIMBED
    while True:
        q = measured.hessians.shape[2]
        gates = find_gates(space.basis, q, space.neurons, rng, climbed)
        if len(gates.gates) == space.neurons:
            break
        if not precision.short or not _may_grow(measured):
            raise Unresolved(
                f"only {len(gates.gates)} of {space.neurons} neurons were found from {gates.tried} starts; "
                "another seed may find all"
            )
        measured, space = _grow(function, frame, precision, measured)
    further = measured.further_gradients(function)
    neurons = assemble_neurons(
        gates, frame, measured.on_circle, measured.hessians, measured.gradients, further
    )
    if neurons.misfit > _PROFILE:
        raise OutsideClass(
            _NEURON_TEST, f"a profile over the circle is {neurons.misfit:.2g} off the derivative of silu"
        )
    return GatedNetwork(neurons.gate, neurons.up, neurons.down), neurons.misfit


def neuron_space(hessians: Array, gap: float = _GAP) -> NeuronSpace | None:
    """The span of the Hessians and the identity, when its rank, an odd number, shows; None when it is
    full."""
    q = hessians.shape[-1]
    stacked = hessians.reshape(-1, q, q)
    identity = np.sqrt((stacked**2).mean()) * np.eye(q)
    values, vectors = np.linalg.svd(
        as_vectors(np.concatenate([stacked, identity[None]])), full_matrices=False
    )[1:]
    ratios = values[2:-1] / np.maximum(values[3:], 1e-15 * values[0])
    every = 2 if gap >= _GAP else 1  # rounding may hide the weakest direction, and the rank shows as even
    shown = [
        i
        for i in range(0, len(ratios), every)
        if ratios[i] >= max(gap, _STANDS_OUT * _in_noise(ratios[i + 1 :]))
    ]
    if not shown:
        return None
    best = max(shown, key=lambda i: float(ratios[i]))
    neurons = (best + 3) // 2  # of ranks 2m and 2m + 1
    return NeuronSpace(vectors[: 2 * neurons + 1].T, neurons, float(ratios[best]))


def _in_noise(ratios: Array) -> float:
    """The largest ratio behind a rank, but for the last quarter: the least values of noise fall apart."""
    return float(ratios[: max(1, 3 * len(ratios) // 4)].max(initial=1.0))


def _grow(
    function: Function, frame: Array, precision: Precision, measured: CircleDerivatives | None
) -> tuple[CircleDerivatives, NeuronSpace]:
    """Directions and points are added until the rank shows, with room to spare; to `measured` at least two
    points."""
    d = len(frame)
    q, n_points = min(_FIRST_DIRECTIONS, d - 2), _POINTS
    if measured is not None:
        q, n_points = measured.hessians.shape[2], len(measured.angles) + 2
    gap = _SHORT_GAP if precision.short else _GAP
    room = _SHORT_ROOM if precision.short else _ROOM
    while True:
        measured = measure_circle(function, frame, n_points, q, measured, precision.differences)
        space = neuron_space(measured.across, gap)
        wanted = d - 2 if space is None else _directions_for(space.neurons, room)
        if space is not None and (q >= wanted or q == d - 2):
            return measured, space
        few = n_points * (d - 2) < q * (q + 1) // 2
        hidden = precision.short and q == d - 2 and _may_grow(measured)
        if space is None and (few or hidden):
            n_points += 2  # there are too few matrices to show a rank
        elif q == d - 2:
            raise Unresolved(
                f"the network has more neurons than second derivatives of width {d} can tell apart (about "
                f"{d * d // 4})"
            )
        else:
            q = min(d - 2, wanted, max(q + 1, int(_GROWTH * q))) if space is None else min(d - 2, wanted)


def _may_grow(measured: CircleDerivatives) -> bool:
    n_points, d, q, _ = measured.hessians.shape
    return bool(n_points * (d - 2) < _MATRICES * q * (q + 1) / 2.0)


def _directions_for(neurons: int, room: float) -> int:
    """The least q with q(q - 1)/2 >= room·(2m + 1)."""
    return int(np.ceil(0.5 + np.sqrt(0.25 + 2.0 * room * (2 * neurons + 1))))
