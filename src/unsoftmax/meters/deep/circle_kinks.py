"""Kinks of a piecewise linear function of the sphere along a great circle.

n(θ) = √d·(cos θ·a + sin θ·b). Outputs across a and b are not touched by what hides the part along n, so
between kinks they are α + β·cos θ + γ·sin θ. Arcs that are not of this form are halved until the two beside
them are, and these then meet in one kink.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, complement

__all__ = ["Circle", "Kink", "find_kinks", "is_piecewise_linear"]

Function = Callable[[Array], Array]

_ARCS = 48  # to begin with
_HALVINGS = 14  # of an arc: 1e-4 of it, from where neighbouring slopes tell the place
_SAMPLES = 5  # of an arc, its ends included: two more than a piece has unknowns
_NOISES = 30.0  # of the noise: what an arc without a kink may leave; 3 samples of ten thousand leave 5
_ALONE = 1e-3  # second over first singular value of a change that is one kink's
# arcs, their length, and how many of one piece tell a function from a smooth one, which has none: at this
# length its third derivatives leave a thousand times the noise of float64
_TRIED, _SHORT_ARC, _STRAIGHT = 8, 0.02, 3


@dataclass(frozen=True, eq=False)
class Circle:
    """frame: (d, d), orthonormal; a and b its first columns."""

    frame: Array

    @classmethod
    def random(cls, d: int, rng: np.random.Generator) -> Circle:
        """A random great circle."""
        plane = np.linalg.qr(rng.standard_normal((d, 2)))[0]
        return cls(np.column_stack([plane, complement(plane)]))

    def rows(self, angles: Array) -> Array:
        """n(θ), (B, d)."""
        turned = np.column_stack([np.cos(angles), np.sin(angles)])
        return np.asarray(np.sqrt(len(self.frame)) * turned @ self.frame[:, :2].T)

    def outputs(self, values: Array) -> Array:
        """Coordinates of values (..., d) across the plane."""
        return np.asarray(values @ self.frame[:, 2:])


@dataclass(frozen=True, eq=False)
class Kink:
    """place: its angle. jump: (d - 2,), how the slope changes. room: the distance to the nearest other kink,
    or less."""

    place: float
    jump: Array
    room: float


def find_kinks(function: Function, circle: Circle, noise: float) -> list[Kink]:
    """All kinks of the circle that stand alone, in order. noise: error of the function's values."""

    def ask(angles: Array) -> Array:
        return circle.outputs(function(circle.rows(angles)))

    ends = np.linspace(0.0, 2.0 * np.pi, _ARCS + 1)
    inside = np.linspace(0.0, 1.0, _SAMPLES)
    angles = ends[:-1, None] + np.diff(ends)[:, None] * inside
    seen = ask(angles[:, :-1].ravel()).reshape(_ARCS, _SAMPLES - 1, -1)
    seen = np.concatenate([seen, np.roll(seen[:, :1], -1, axis=0)], axis=1)
    arcs = [_Arc(a, s) for a, s in zip(angles, seen, strict=True)]
    found: dict[int, tuple[float, Array]] = {}
    for _ in range(_HALVINGS):
        bent = [i for i, arc in enumerate(arcs) if not arc.straight(noise)]
        found = {i: kink for i in bent if (kink := _kink(arcs, i, noise)) is not None}
        open_arcs = [i for i in bent if i not in found]
        if not open_arcs:
            break
        arcs = _halved(arcs, set(open_arcs), ask)
    places = [place for place, _ in found.values()]
    known = np.sort(np.array([*places, *(arc.angles[0] for arc in arcs if not arc.straight(noise))]))
    return [Kink(place, jump, _room(place, known)) for place, jump in found.values()]


def is_piecewise_linear(function: Function, d: int, noise: float, rng: np.random.Generator) -> bool:
    """Whether some of a few short arcs have the form that only piecewise linear functions have. 40 values."""
    straight = 0
    for begin in rng.uniform(0.0, 2.0 * np.pi, _TRIED):
        circle = Circle.random(d, rng)
        angles = begin + _SHORT_ARC * np.linspace(0.0, 1.0, _SAMPLES)
        straight += _Arc(angles, circle.outputs(function(circle.rows(angles)))).straight(noise)
    return straight >= _STRAIGHT


@dataclass(frozen=True, eq=False)
class _Arc:
    """angles: (samples,), ascending. seen: (samples, out)."""

    angles: Array
    seen: Array

    def straight(self, noise: float) -> bool:
        """Whether it may be one piece."""
        basis = np.linalg.qr(_columns(self.angles, float(self.angles[2])))[0]
        rest = self.seen - basis @ (basis.T @ self.seen)
        return bool(np.abs(rest).max() <= _NOISES * noise)

    def piece(self, around: float) -> Array:
        """(3, out): coefficients of 1, sin and 1 - cos of the angle from `around`."""
        return np.asarray(np.linalg.lstsq(_columns(self.angles, around), self.seen, rcond=None)[0])


def _columns(angles: Array, around: float) -> Array:
    off = angles - around
    return np.column_stack([np.ones(len(off)), np.sin(off), 2.0 * np.sin(off / 2.0) ** 2])


def _shifted(arc: _Arc, turns: float) -> _Arc:
    return _Arc(arc.angles + turns, arc.seen)


def _kink(arcs: list[_Arc], index: int, noise: float) -> tuple[float, Array] | None:
    """The kink of a bent arc between two straight ones, if it has just one: (place, jump of the slope)."""
    arc, full = arcs[index], 2.0 * np.pi
    before = arcs[index - 1] if index else _shifted(arcs[-1], -full)
    after = arcs[index + 1] if index + 1 < len(arcs) else _shifted(arcs[0], full)
    if not (before.straight(noise) and after.straight(noise)):
        return None
    around = float(arc.angles[2])
    left, right = before.piece(around), after.piece(around)
    values = _columns(arc.angles, around) @ (right - left)
    _, sizes, vectors = np.linalg.svd(values, full_matrices=False)
    if len(sizes) > 1 and sizes[1] > max(_ALONE * sizes[0], 10.0 * _NOISES * noise):
        return None
    change = (right - left) @ vectors[0]
    place = _root(change, arc.angles[0] - around, arc.angles[-1] - around)
    if place is None:
        return None
    columns = _columns(arc.angles, around)
    expected = np.where((arc.angles < around + place)[:, None], columns @ left, columns @ right)
    if np.abs(expected - arc.seen).max() > 10.0 * _NOISES * noise:
        return None
    slope = np.array([0.0, np.cos(place), np.sin(place)])
    return around + place, slope @ (right - left)


def _root(change: Array, low: float, high: float) -> float | None:
    """The one zero of change·(1, sin, 1 - cos) between low and high."""
    places = np.linspace(low, high, 9)
    values = _columns(places, 0.0) @ change
    crossed = np.flatnonzero(np.sign(values[1:]) != np.sign(values[:-1]))
    if len(crossed) != 1:
        return None
    low, high = float(places[crossed[0]]), float(places[crossed[0] + 1])
    rising = values[crossed[0] + 1] > values[crossed[0]]
    for _ in range(60):
        middle = 0.5 * (low + high)
        above = float(_columns(np.array([middle]), 0.0)[0] @ change) > 0.0
        low, high = (low, middle) if above == rising else (middle, high)
    return 0.5 * (low + high)


def _halved(arcs: list[_Arc], split: set[int], ask: Function) -> list[_Arc]:
    """Arcs at the places of `split` replaced by their halves, with two more samples each."""
    new = {i: 0.5 * (arcs[i].angles[1:] + arcs[i].angles[:-1]) for i in split}
    order = sorted(split)
    seen = ask(np.concatenate([new[i] for i in order])).reshape(len(order), _SAMPLES - 1, -1)
    answers = dict(zip(order, seen, strict=True))
    out = []
    for i, arc in enumerate(arcs):
        if i not in split:
            out.append(arc)
            continue
        angles = np.insert(arc.angles, range(1, _SAMPLES), new[i])
        values = np.insert(arc.seen, range(1, _SAMPLES), answers[i], axis=0)
        out += [
            _Arc(angles[:_SAMPLES], values[:_SAMPLES]),
            _Arc(angles[_SAMPLES - 1 :], values[_SAMPLES - 1 :]),
        ]
    return out


def _room(place: float, known: Array) -> float:
    off = np.abs((known - place + np.pi) % (2.0 * np.pi) - np.pi)
    others = off[off > 0.0]
    return float(others.min()) if len(others) else np.pi
