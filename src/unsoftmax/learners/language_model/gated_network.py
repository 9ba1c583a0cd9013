"""A gated network (SwiGLU, GEGLU) from its values on the sphere mean n² = 1: number of neurons, gates, ups
and downs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.families import Family
from unsoftmax.meters.language_model.circle_derivatives import CircleDerivatives, measure_circle
from unsoftmax.meters.language_model.precision import FLOAT64, Precision
from unsoftmax.models.language_model import GatedNetwork
from unsoftmax.models.parts import GELU, GELU_TANH, SILU
from unsoftmax.outcomes import OutsideClass, Stop, Test, Unresolved
from unsoftmax.solvers.gated_network.assemble import CircleReadings, Neurons, assemble_neurons
from unsoftmax.solvers.gated_network.find_gates import find_gates
from unsoftmax.solvers.gated_network.symmetric import as_vectors

__all__ = ["NeuronSpace", "learn_gated_network", "neuron_space"]

_NEURON_TEST = Test("neurons φ(gate·n)·(up·n), φ SiLU or GELU", frozenset({Family.LANGUAGE_MODEL}))
_FIRST_DIRECTIONS = 8  # 36 forms: a look that tells a few neurons from many
_GROWTH = 1.15  # forms grow by 1.32: a last step too far wastes a quarter of them at most
_POINTS = 5  # to begin with; more are added until the rank shows
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
_CIRCLES = 3  # of ten networks of width 16 in float32, three hid a neuron from one circle
_SAME = 0.9  # cosine of two gates above which they are one; an assembled gate is a few per cent off
_PROFILE = 0.05  # relative misfit of φ' over the circle beyond which a neuron is none of a gated network

_ACTIVATIONS = (SILU, GELU, GELU_TANH)

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
) -> list[tuple[GatedNetwork, float]]:
    """The network of values M(n) with every activation of gates, and the largest misfit of a neuron of each,
    the least first; rounding may hide which of them is right. About 10·q² values, q² about 6.4·m,
    however large d is; where answers are rounded, q is twice as large. What one circle hides, because a gate
    hardly changes along it, another one shows."""
    seen: list[_OneCircle] = []
    reason: Stop | None = None
    for _ in range(_CIRCLES):
        try:
            circle = _on_one_circle(function, d, rng, precision)
        except Unresolved as stop:
            if not precision.short:
                raise
            reason = stop  # rounding hid the rank along this circle
            continue
        joined = _all_joined([*seen, circle])
        best = joined[0]
        if len(best.gate) == max(each.counted for each in (*seen, circle)):
            if seen or best.misfit <= _PROFILE:
                return [(GatedNetwork(n.gate, n.up, n.down, n.activation), n.misfit) for n in joined]
            reason = OutsideClass(
                _NEURON_TEST,
                f"a profile over the circle is {best.misfit:.2g} off the derivative of "
                f"{best.activation.name}",
            )
            if not precision.short:
                raise reason
            continue  # rounding may have bent it
        seen.append(circle)
    if not seen and reason is not None:
        raise reason
    counted, found = max(each.counted for each in seen), len(_all_joined(seen)[0].gate)
    hint = "another seed may find all"
    if precision.short:
        hint += ", and rounding hides those that write little, as those of a model that was never trained do"
    raise Unresolved(
        f"{found} neurons were found on {len(seen)} circles, where ranks count {counted}; {hint}"
    )


def _all_joined(seen: list[_OneCircle]) -> list[Neurons]:
    """With every activation of gates, the one that misfits least first."""
    joined = [_joined([each.neurons[i] for each in seen]) for i in range(len(_ACTIVATIONS))]
    return sorted(joined, key=lambda each: each.misfit)


@dataclass(frozen=True, eq=False)
class _OneCircle:
    """The neurons that one circle shows, with every activation, and how many there are by the rank."""

    neurons: list[Neurons]
    counted: int


def _on_one_circle(function: Function, d: int, rng: np.random.Generator, precision: Precision) -> _OneCircle:
    frame = np.linalg.qr(rng.standard_normal((d, d)))[0]
    measured, space = _grow(function, frame, precision)
    climbed = _SHORT_CLIMBED if precision.short else _CLIMBED
    gates = find_gates(space.basis, measured.hessians.shape[2], space.neurons, rng, climbed)
    if not len(gates.gates):
        raise Unresolved(f"none of {space.neurons} neurons was found from {gates.tried} starts")
    further = measured.further_gradients(function)
    read = CircleReadings(measured.on_circle, measured.hessians, measured.gradients, further)
    return _OneCircle([assemble_neurons(gates, frame, read, phi) for phi in _ACTIVATIONS], space.neurons)


def _joined(seen: list[Neurons]) -> Neurons:
    """The neurons of the circle that shows most, and those of the others that are none of them."""
    best, *others = sorted(seen, key=lambda each: -len(each.gate))
    gate, up, down = best.gate, best.up, best.down
    for other in others:
        cosines = _unit(other.gate) @ _unit(gate).T
        new = cosines.max(axis=1) < _SAME
        gate, up = np.vstack([gate, other.gate[new]]), np.vstack([up, other.up[new]])
        down = np.column_stack([down, other.down[:, new]])
    return Neurons(gate, up, down, best.activation, best.misfit)


def _unit(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


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


def _grow(function: Function, frame: Array, precision: Precision) -> tuple[CircleDerivatives, NeuronSpace]:
    """Directions and points are added until the rank shows, with room to spare."""
    d, measured = len(frame), None
    q, n_points = min(_FIRST_DIRECTIONS, d - 2), _POINTS
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
