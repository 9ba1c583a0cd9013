"""Kinks of a function on a sphere, along great circles.

On a great circle a ReLU network is smooth but for one kink at each hyperplane that it crosses. Answers on a
dense grid show kinks in their third differences, a thousand times above float32 rounding. Where four points
on either side are free of other kinks, cubics through them meet at the kink.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.outcomes import Unresolved

__all__ = ["Kinks", "Sphere", "has_kinks", "kinks_on_circle"]

_LEAST_POINTS = 512  # of a circle: a step of a hundredth, whose cube is beside float32 rounding
_MOST_POINTS = 8192  # a cap on doubling, where kinks lie too close for arcs without one
# times the third differences that a third of the circle is below: smooth parts vary by less, rounding of
# single numbers reaches it once in 50,000 times, and a kink of a usual neuron is hundreds of times larger
_STANDS_OUT = 10.0
_MEETS = 0.02  # of a step times the jump: how far cubics may be apart where they meet; two kinks leave 0.25
_FAINT = 0.02  # of the strongest jump on a circle: below, its place is not known well
_THIRD = np.array([-1.0, 3.0, -3.0, 1.0])
_SMOOTH = 4.0  # a step twice as long makes third differences of a kink twice as large, of a curve eight times


@dataclass(frozen=True)
class Sphere:
    """A function of points (n, k) of one norm. directions: only the direction of what the network adds up to
    is seen, so that a kink shows a neuron's output up to a multiple of the value itself. clean: share of
    third differences along a circle without a kink, else points are too few to tell kinks apart. faint: of
    the largest third difference, below which none counts as a kink."""

    ask: Callable[[Array], Array]
    width: int
    radius: float
    directions: bool
    clean: float = 0.5
    faint: float = 0.0

    def random_points(self, count: int, rng: np.random.Generator) -> Array:
        """(count, k)."""
        points = rng.standard_normal((count, self.width))
        return np.asarray(self.radius * points / np.linalg.norm(points, axis=1, keepdims=True))


@dataclass(frozen=True)
class Kinks:
    """places (n, k); tangents (n, k), unit vectors along the circle; values (n, m) there; jumps (n, m) of the
    derivative by the angle."""

    places: Array
    tangents: Array
    values: Array
    jumps: Array

    def __len__(self) -> int:
        return len(self.places)

    def joined(self, other: Kinks) -> Kinks:
        """Those of both."""
        return Kinks(
            np.vstack([self.places, other.places]),
            np.vstack([self.tangents, other.tangents]),
            np.vstack([self.values, other.values]),
            np.vstack([self.jumps, other.jumps]),
        )


def has_kinks(sphere: Sphere, rng: np.random.Generator) -> bool:
    """Whether a few third differences along a circle stand out, and grow with the step as kinks make them."""
    angles = 2.0 * np.pi * np.arange(_LEAST_POINTS) / _LEAST_POINTS
    answers = sphere.ask(_on_circle(sphere, *_plane(sphere, rng), angles))
    fine, coarse = _thirds(answers), _thirds(answers[::2])
    stands_out = float(fine.max()) > 2.5 * _STANDS_OUT * float(np.median(fine))
    return stands_out and float(coarse.max()) < _SMOOTH * float(fine.max())


def kinks_on_circle(sphere: Sphere, rng: np.random.Generator) -> Kinks:
    """The isolated kinks of a random great circle."""
    plane = _plane(sphere, rng)
    n = _LEAST_POINTS
    answers = sphere.ask(_on_circle(sphere, *plane, 2.0 * np.pi * np.arange(n) / n))
    while n < _MOST_POINTS and float(_clean(answers, sphere.faint).mean()) < sphere.clean:
        between = sphere.ask(_on_circle(sphere, *plane, 2.0 * np.pi * (np.arange(n) + 0.5) / n))
        answers = np.stack([answers, between], axis=1).reshape(2 * n, -1)
        n *= 2
    steps, values, jumps = _isolated(answers, sphere.faint)
    angles = 2.0 * np.pi * steps / n
    first, second = plane
    tangents = np.cos(angles)[:, None] * second - np.sin(angles)[:, None] * first
    return Kinks(_on_circle(sphere, first, second, angles), tangents, values, jumps * n / (2.0 * np.pi))


def _plane(sphere: Sphere, rng: np.random.Generator) -> tuple[Array, Array]:
    if sphere.width < 2:
        raise Unresolved("kinks are looked for along circles of rows, and rows of one entry have none")
    first, second = np.linalg.qr(rng.standard_normal((sphere.width, 2)))[0].T
    return first, second


def _on_circle(sphere: Sphere, first: Array, second: Array, angles: Array) -> Array:
    return np.asarray(sphere.radius * (np.cos(angles)[:, None] * first + np.sin(angles)[:, None] * second))


def _thirds(answers: Array) -> Array:
    """(n,) largest third difference of the four points from each one on, around the circle."""
    windows = np.stack([np.roll(answers, -i, axis=0) for i in range(4)])
    return np.asarray(np.abs(np.tensordot(_THIRD, windows, 1)).max(axis=1))


def _clean(answers: Array, faint: float) -> NDArray[np.bool_]:
    """(n,) whether the four points from each one on lie on one smooth piece."""
    sizes = _thirds(answers)
    least = max(_STANDS_OUT * float(np.quantile(sizes, 1.0 / 3.0)), faint * float(sizes.max()))
    return np.asarray(sizes <= least)


def _isolated(answers: Array, faint: float) -> tuple[Array, Array, Array]:
    """Places in steps of the grid, values, and jumps of the derivative by a step."""
    n = len(answers)
    at, clean = np.arange(n), _clean(answers, faint)
    before, after = clean[(at - 3) % n], clean[(at + 1) % n]
    inside = ~(clean[(at - 2) % n] & clean[(at - 1) % n] & clean[at])
    chosen = at[before & after & inside]
    left = _cubics(answers[(chosen[:, None] + np.arange(-3, 1)) % n], np.arange(-3.0, 1.0))
    right = _cubics(answers[(chosen[:, None] + np.arange(1, 5)) % n], np.arange(1.0, 5.0))
    apart = right - left  # (c, 4, m), highest power first
    s = np.full(len(chosen), 0.5)
    for _ in range(12):  # the place where both cubics are nearest, by Gauss-Newton
        gap, slope = _value(apart, s), _slope(apart, s)
        s = np.clip(s - (gap * slope).sum(axis=1) / np.maximum((slope**2).sum(axis=1), 1e-300), -1.0, 2.0)
    gap, slope = _value(apart, s), _slope(apart, s)
    jumps = np.linalg.norm(slope, axis=1)
    good = (s > -0.1) & (s < 1.1) & (np.linalg.norm(gap, axis=1) < _MEETS * jumps)
    good &= jumps > _FAINT * float(jumps.max(initial=0.0))
    return (chosen + s)[good], ((_value(left, s) + _value(right, s)) / 2.0)[good], slope[good]


def _cubics(values: Array, places: Array) -> Array:
    return np.asarray(np.linalg.solve(np.vander(places, 4)[None], values))


def _value(cubics: Array, s: Array) -> Array:
    return np.asarray(np.einsum("cp,cpm->cm", np.stack([s**3, s**2, s, np.ones_like(s)], axis=1), cubics))


def _slope(cubics: Array, s: Array) -> Array:
    powers = np.stack([3.0 * s**2, 2.0 * s, np.ones_like(s), np.zeros_like(s)], axis=1)
    return np.asarray(np.einsum("cp,cpm->cm", powers, cubics))
