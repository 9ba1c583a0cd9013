"""ReLU neurons of all layers from kinks of the collapsed layer along great circles.

On a circle the argument of a neuron is μ·(cos(θ - φ) - cos δ): two kinks, φ ± δ, with one and the same jump
of the slope, which is how they are paired. Across the circle's plane, along a unit e, the jump of the
derivative over that of the slope is √d·(w·e) over the argument's own slope. Both are exact, because pieces
are linear in n.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array, rms
from unsoftmax.meters.deep.circle_kinks import Circle, Kink, find_kinks
from unsoftmax.meters.deep.collapsed_layer import CollapsedLayer
from unsoftmax.models.parts import RELU
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.deep_stack.neurons import PlainNeurons

__all__ = ["find_kinked"]

_CIRCLES = 40  # a cap: the search ends before where circles bring nothing new
_QUIET = 3  # circles in a row without a new neuron that end the search
_PAIRED = 1e-4  # relative difference of the jumps of one neuron's two kinks; precise ones leave 1e-7
_SAME = 1e-3  # angle of two neurons, as vectors of weights and bias, that are one
_KNOWN = 1e-4  # distance of a kink from one that a known neuron has there
# distance at which a kink counts as that of a neuron; others are met by chance once in fifty times
_MET = 2e-3
_STEP_ASIDE = 0.05  # over the distance from the kink: steps across the plane stay on their side
_STEEP = 0.02  # sin δ below which two kinks are too near each other to tell δ


def find_kinked(layer: CollapsedLayer, noise: float, rng: np.random.Generator) -> PlainNeurons | None:
    """All neurons that have a kink on the sphere, up to reflection and a positive factor each; None where
    there is no kink."""
    d = layer.stream.width
    found = np.empty((0, d + 1))
    quiet, seen = 0, list[tuple[Circle, Array]]()
    for _ in range(_CIRCLES):
        circle = Circle.random(d, rng)
        kinks = find_kinks(layer, circle, noise)
        new = _of_circle(layer, circle, kinks, found)
        quiet = 0 if len(new) else quiet + 1
        found = np.vstack([found, new])
        seen.append((circle, np.array([kink.place for kink in kinks])))
        if quiet >= _QUIET:
            break
    if not len(found):
        return None
    if quiet < _QUIET:
        raise Unresolved(
            f"kinks along {_CIRCLES} great circles are those of {len(found)} neurons, and of more"
        )
    found = found[[_is_met(row, seen) for row in found]]
    return PlainNeurons(found[:, :-1], found[:, -1], RELU)


def _is_met(row: Array, seen: list[tuple[Circle, Array]]) -> bool:
    """Whether the kinks that a neuron has on all circles are there. One that is close to others may be
    measured wrongly; its neuron is then found once more, and right, on another circle."""
    places = [(place, kinks) for circle, kinks in seen for place in _kinks_of(row[None], circle)]
    return 2 * sum(_near(place, kinks, _MET) for place, kinks in places) > len(places)


def _of_circle(layer: CollapsedLayer, circle: Circle, kinks: list[Kink], known: Array) -> Array:
    """(new, d + 1): weights and biases of neurons that the circle shows and that are not known."""
    expected = _kinks_of(known, circle)
    kinks = [kink for kink in kinks if not _near(kink.place, expected, _KNOWN)]
    rows = [_neuron(layer, circle, pair) for pair in _pairs(kinks)]
    new = np.empty((0, known.shape[1]))
    for row in rows:
        if row is None:
            continue
        units = np.vstack([known, new])
        units = units / np.linalg.norm(units, axis=1, keepdims=True)
        if not len(units) or np.abs(units @ row).max() < np.cos(_SAME):
            new = np.vstack([new, row])
    return new


def _pairs(kinks: list[Kink]) -> list[tuple[Kink, Kink]]:
    """Kinks with one and the same jump, two and two."""
    free, pairs = list(kinks), []
    while len(free) > 1:
        one = free.pop(0)
        off = [rms(one.jump - other.jump) / max(rms(one.jump), 1e-300) for other in free]
        if min(off) < _PAIRED:
            pairs.append((one, free.pop(int(np.argmin(off)))))
    return pairs


def _neuron(layer: CollapsedLayer, circle: Circle, pair: tuple[Kink, Kink]) -> Array | None:
    """Weights and bias, (d + 1,), of norm one."""
    at, d = max(pair, key=lambda kink: kink.room), len(circle.frame)
    middle, half = (pair[0].place + pair[1].place) / 2.0, abs(pair[1].place - pair[0].place) / 2.0
    if abs(np.sin(half)) < _STEEP:
        return None
    slope = -np.sin(at.place - middle)
    aside = 0.5 * at.room
    step = _STEP_ASIDE * min(aside, 0.5)
    across = circle.frame[:, 2:].T  # (d - 2, d)
    sides = circle.rows(np.array([at.place - aside, at.place + aside]))
    moved = np.concatenate(
        [
            np.cos(step) * side + sign * np.sin(step) * np.sqrt(d) * across
            for side in sides
            for sign in (1.0, -1.0)
        ]
    )
    seen = circle.outputs(layer(moved)).reshape(2, 2, d - 2, d - 2)
    jumps = (seen[1, 0] - seen[1, 1] - seen[0, 0] + seen[0, 1]) / (2.0 * np.sin(step))  # (e, out)
    hidden = np.diag(jumps)  # outputs along e itself are not seen
    along = jumps @ at.jump - hidden * at.jump
    size = at.jump @ at.jump - at.jump**2
    weights = slope * along / size / np.sqrt(d)
    plane = np.array([np.cos(middle), np.sin(middle)]) / np.sqrt(d)
    row = np.append(circle.frame @ np.concatenate([plane, weights]), -np.cos(half))
    return np.asarray(row / np.linalg.norm(row))


def _kinks_of(neurons: Array, circle: Circle) -> Array:
    """Angles of all kinks that known neurons have on a circle."""
    inside = np.sqrt(len(circle.frame)) * neurons[:, :-1] @ circle.frame[:, :2]
    size = np.hypot(inside[:, 0], inside[:, 1])
    share = -neurons[:, -1] / np.maximum(size, 1e-300)
    middle, half = np.arctan2(inside[:, 1], inside[:, 0]), np.arccos(np.clip(share, -1.0, 1.0))
    met = np.abs(share) < 1.0
    return np.concatenate([(middle - half)[met], (middle + half)[met]])


def _near(place: float, angles: Array, distance: float) -> bool:
    off = np.abs((angles - place + np.pi) % (2.0 * np.pi) - np.pi)
    return bool(len(off)) and float(off.min()) < distance
