"""Between two kinks the function is one sinusoid: least squares over every answer already there, and kinks
from where fits meet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.relu_network.circle import HalfCircle
from unsoftmax.learners.relu_network.kinks import SLACK, Indices, Kinks, find_kinks

__all__ = ["Arcs", "fit_arcs", "settle_arcs"]

_REPEATS = 5  # a fresh pair of points each time
_MANY = 50  # bad arcs at once: not chance, but kinks that were not found


@dataclass
class Arcs:
    """J kinks and J+1 arcs: value and slope at each middle, half the jump of the slope at each kink, and the
    worst misfit of an arc."""

    kinks: Array
    jumps: Array
    middles: Array
    values: Array
    slopes: Array
    misfits: Array

    @property
    def count(self) -> int:
        return len(self.kinks)

    def clearances(self, angles: Array) -> Array:
        """Sine of the angle from points on the circle to their nearest kink, the other way round the circle
        included."""
        if self.count == 0:
            return np.ones(len(angles))
        return np.asarray(np.abs(np.sin(angles[:, None] - self.kinks[None])).min(axis=1))

    def at(self, angles: Array, arc: Indices) -> Array:
        """The function on these arcs at these angles."""
        step = angles - self.middles[arc]
        return np.asarray(self.values[arc] * np.cos(step) + self.slopes[arc] * np.sin(step))


def _assigned(found: Kinks) -> tuple[Array, Array, Indices]:
    """Angles, answers and arc numbers of the points outside the small windows around kinks."""
    arc = np.searchsorted(found.angles, found.asked)
    J = len(found.angles)
    near = np.zeros(len(arc), dtype=bool)
    if J:
        for side in (-1, 0):
            neighbour = np.clip(arc + side, 0, J - 1)
            near |= np.abs(found.asked - found.angles[neighbour]) < 0.99 * found.radii[neighbour]
    return found.asked[~near], found.answers[~near], arc[~near]


def fit_arcs(found: Kinks, low: float, high: float) -> Arcs:
    """One least squares sinusoid an arc, about the mean of its points, so that narrow arcs do not cancel."""
    J = len(found.angles)
    edges = np.concatenate([[low], found.angles, [high]])
    middles = (edges[1:] + edges[:-1]) / 2
    angle, answer, arc = _assigned(found)

    def sums(weights: Array) -> Array:
        return np.asarray(np.bincount(arc, weights, J + 1))

    n = np.maximum(sums(np.ones_like(angle)), 1.0)
    centre = np.where(sums(np.ones_like(angle)) > 0, sums(angle) / n, middles)
    mean = sums(answer) / n
    cosine, sine = np.cos(angle - centre[arc]), np.sin(angle - centre[arc])
    rest = answer - mean[arc] * cosine
    a11, a12, a22 = sums(cosine * cosine), sums(cosine * sine), sums(sine * sine)
    b1, b2 = sums(cosine * rest), sums(sine * rest)
    with np.errstate(divide="ignore", invalid="ignore"):
        determinant = a11 * a22 - a12**2
        even = mean + (b1 * a22 - b2 * a12) / determinant
        odd = (b2 * a11 - b1 * a12) / determinant
    misfits = np.zeros(J + 1)
    with np.errstate(
        invalid="ignore"
    ):  # where points were too few there is no sinusoid, and the misfit is infinite below
        np.maximum.at(misfits, arc, np.abs(answer - even[arc] * cosine - odd[arc] * sine))
    turn = middles - centre
    values = even * np.cos(turn) + odd * np.sin(turn)
    slopes = odd * np.cos(turn) - even * np.sin(turn)
    kinks, jumps = _meetings(found, middles, values, slopes)
    return Arcs(kinks, jumps, middles, values, slopes, np.where(np.isfinite(values), misfits, np.inf))


def _meetings(found: Kinks, middles: Array, values: Array, slopes: Array) -> tuple[Array, Array]:
    """Where neighbouring fits meet, and half the change of slope there."""
    kinks = found.angles
    if len(kinks) == 0:
        return kinks, np.zeros(0)
    sides = []
    for part in (slice(None, -1), slice(1, None)):
        step = kinks - middles[part]
        sides.append(
            (
                values[part] * np.cos(step) + slopes[part] * np.sin(step),
                slopes[part] * np.cos(step) - values[part] * np.sin(step),
            )
        )
    (value_left, slope_left), (value_right, slope_right) = sides
    with np.errstate(divide="ignore", invalid="ignore"):
        shift = -(value_right - value_left) / (slope_right - slope_left)
    shift = np.where(np.abs(shift) <= found.radii, shift, 0.0)
    return kinks + shift, (slope_right - slope_left) / 2


def settle_arcs(circle: HalfCircle, found: Kinks, rng: np.random.Generator, limit: int) -> tuple[Kinks, Arcs]:
    """Every arc gets three well spread points; an arc that is no single sinusoid is searched again."""
    for repeat in range(_REPEATS):
        edges = np.concatenate([[circle.low], found.angles, [circle.high]])
        width = np.diff(edges)
        found = _enough_points(circle, found, edges, rng)
        arcs = fit_arcs(found, circle.low, circle.high)
        bad = ~(arcs.misfits <= 4.0 * SLACK * found.noise) & (width > 1e-9)
        if repeat == _REPEATS - 1 or not bad.any() or bad.sum() > _MANY:
            break
        before = len(found.angles)
        for i in np.flatnonzero(bad):
            span = (edges[i] + 0.01 * width[i], edges[i + 1] - 0.01 * width[i])
            found = found.joined(find_kinks(circle, found.noise, rng, span=span, limit=limit, rounds=30))
        if len(found.angles) == before:
            break
    return found, arcs


def _enough_points(circle: HalfCircle, found: Kinks, edges: Array, rng: np.random.Generator) -> Kinks:
    angle, _, arc = _assigned(found)
    width = np.diff(edges)
    J = len(found.angles)
    highest, lowest = np.full(J + 1, -np.inf), np.full(J + 1, np.inf)
    np.maximum.at(highest, arc, angle)
    np.minimum.at(lowest, arc, angle)
    poor = (np.bincount(arc, minlength=J + 1) < 3) | ~(highest - lowest > 0.3 * width)
    if not poor.any():
        return found
    middle, room = ((edges[1:] + edges[:-1]) / 2)[poor], width[poor]
    fresh = np.concatenate(
        [middle - 0.35 * room, middle + rng.uniform(-0.1, 0.1, len(middle)) * room, middle + 0.35 * room]
    )
    return Kinks(
        found.angles,
        found.radii,
        np.concatenate([found.asked, fresh]),
        np.concatenate([found.answers, circle(fresh)]),
        found.noise,
    )
