"""ReLU neurons of a network that computes in float32: kinks along circles, and the hyperplane through each.

A circle in the space of rows crosses most hyperplanes twice. At a kink, second differences along other
directions are multiples of the neuron's weights there, with any linear part gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.learners.computed_block.circles import Kinks, Sphere, kinks_on_circle
from unsoftmax.learners.computed_network.sharpen import sharpened

__all__ = ["RADII", "Neurons"]

# of circles around the origin, in turn: hyperplanes may be at any distance, large circles see near ones too
RADII = (8.0, 32.0, 2.0)
_CLEAN = 0.65  # of third differences along a circle: numbers do not show that two kinks lie within one step
_FAINT = 0.02  # of the strongest kink of a circle: known neurons that are a little off leave weaker ones
# angles around a kink at which it must look the same, times the kinks of its circle: they are 2π apart then
_ALONE = (0.25, 0.08)
# steps are shares of the arc between two kinks; with fewer they would be longer than a quarter of it
_FEWEST = 4
_SAME_JUMP = 0.2  # of the jump, between the angles
_NEAR_JUMP = 0.5  # of the jump as a few points on the circle show it
_SHARE = 0.2  # chance that another kink lies within a step, which sets the first step
_STEPS = (1.0, 0.3, 0.1)  # of it
# how well both sides of a direction must agree on one slope, and a hyperplane predict second differences, for
# three quarters of the directions: another kink nearby breaks it; rounding beside faint neurons takes as much
_AGREES, _PREDICTED = 0.05, 0.1
_STRONG = 0.25  # of the strongest jumps of a circle: weaker kinks are left to later circles
_TOLD = 0.9  # of the directions: with fewer slopes a hyperplane is not known
_CHECKS = 8  # random directions in which a hyperplane must predict second differences
# of a unit normal, and of the radius: nearer hyperplanes are one neuron, seen twice; normals by differences
# of slopes were up to 8e-3 off
_SAME_PLANE = 0.03


@dataclass(frozen=True)
class Neurons:
    """folds: (J, d + 2) rows [w, b, jump], |w| = 1, either sign; jump of the slope along w, which is the
    outer weight up to a linear part. settled: how many of the first were sharpened beside the others."""

    folds: Array
    settled: int = 0

    def __len__(self) -> int:
        return len(self.folds)

    @property
    def inner(self) -> Array:
        """(J, d + 1)."""
        return self.folds[:, :-1]

    def beside(self, ask: Callable[[Array], Array]) -> Callable[[Array], Array]:
        """What these leave of the answers."""
        return lambda points: np.asarray(
            ask(points)
            - np.maximum(points @ self.folds[:, :-2].T + self.folds[:, -2], 0.0) @ self.folds[:, -1:]
        )

    def more(
        self, ask: Callable[[Array], Array], circles: Sequence[float], rng: np.random.Generator
    ) -> Neurons:
        """With those of the strongest further kinks along circles of these radii. ask: (n, d) -> (n, 1)."""
        known = self
        for radius in circles:
            planes = _new_planes(known.beside(ask), known, radius, rng)
            if len(planes):
                new, met = sharpened(
                    known.beside(ask), np.column_stack([planes, np.zeros(len(planes))]), radius, rng
                )
                known = Neurons(np.vstack([known.folds, new[met]]), known.settled)
        return known

    def sharper(self, ask: Callable[[Array], Array], rng: np.random.Generator) -> Neurons:
        """Those that are not settled, from answers of which the others are taken off."""
        new, _ = sharpened(self.beside(ask), self.folds[self.settled :], RADII[0], rng)
        return Neurons(np.vstack([self.folds[: self.settled], new]), len(self))


def _new_planes(
    ask: Callable[[Array], Array], known: Neurons, radius: float, rng: np.random.Generator
) -> Array:
    """(n, d + 1), to a hundredth or better."""
    width = known.inner.shape[1] - 1
    sphere = Sphere(
        _on_a_plane(ask, width), max(width, 2), radius, directions=False, clean=_CLEAN, faint=_FAINT
    )
    kinks = kinks_on_circle(sphere, rng)
    jumps = np.linalg.norm(kinks.jumps, axis=1)
    found = known.inner
    if not len(kinks):
        return found[:0]
    single = _single(sphere, kinks, np.flatnonzero(jumps > _STRONG * float(np.quantile(jumps, 0.9))))
    if not len(single):
        return found[:0]
    for plane in _hyperplanes(sphere, single, len(kinks), rng)[:, [*range(width), -1]]:
        plane = plane / np.linalg.norm(plane[:-1])
        apart = [np.abs(s * plane - found) / np.append(np.ones(width), radius) for s in (1.0, -1.0)]
        nearest = min(float(np.linalg.norm(part, axis=1).min(initial=np.inf)) for part in apart)
        if nearest > _SAME_PLANE:
            found = np.vstack([found, plane])
    return np.asarray(found[len(known) :])


def _on_a_plane(ask: Callable[[Array], Array], width: int) -> Callable[[Array], Array]:
    """The same, where rows of one number have no circles: beside a column that changes nothing."""
    return ask if width > 1 else lambda points: ask(points[:, :1])


def _single(sphere: Sphere, kinks: Kinks, chosen: NDArray[np.int64]) -> Kinks:
    """Those of the chosen kinks that are one kink: second differences around it grow like the step. The
    longer step measures the jump."""
    places, tangents, jumps = kinks.places[chosen], kinks.tangents[chosen], kinks.jumps[chosen]
    middle, seen = sphere.ask(places), []
    for angle in np.array(_ALONE) / max(len(kinks), _FEWEST):
        move = angle * sphere.radius * tangents
        ahead, back = sphere.ask(np.concatenate([places + move, places - move])).reshape(2, len(chosen), -1)
        seen.append((ahead + back - 2.0 * middle) / angle)
    sizes = [(each * jumps).sum(axis=1) / (jumps**2).sum(axis=1) for each in seen]
    good = (np.abs(sizes[1] - sizes[0]) < _SAME_JUMP * sizes[0]) & (sizes[0] > _NEAR_JUMP)
    return Kinks(places[good], tangents[good], middle[good], seen[0][good])


def _hyperplanes(sphere: Sphere, kinks: Kinks, crowd: int, rng: np.random.Generator) -> Array:
    """(n, width + 1), those of the kinks whose slopes are known. crowd: kinks of their circle."""
    places, tangents, jumps = kinks.places, kinks.tangents, kinks.jumps
    across = np.stack([np.linalg.svd(tangent[None])[2][1:] for tangent in tangents])  # (n, k - 1, k)
    first = 2.5 * _SHARE * sphere.radius / max(crowd, _FEWEST)
    slopes = _slopes(sphere, places, tangents, across, jumps, first)
    told = np.isfinite(slopes).mean(axis=1) >= _TOLD
    if not told.any():
        return np.empty((0, sphere.width + 1))
    normals = tangents[told] + np.einsum("ni,nik->nk", np.nan_to_num(slopes[told]), across[told])
    good = _predicts(sphere, places[told], normals, jumps[told], first, rng)
    normals, places = normals[good], places[told][good]
    normals = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    return np.column_stack([normals, -(normals * places).sum(axis=1)])


def _predicts(
    sphere: Sphere, places: Array, normals: Array, jumps: Array, step: float, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Which normals (n, k), of length one along the tangent, predict second differences along random
    directions."""
    directions = rng.standard_normal((len(places), _CHECKS, sphere.width))
    directions *= _STEPS[1] * step / np.linalg.norm(directions, axis=2, keepdims=True)
    middle, by_length = sphere.ask(places), jumps / sphere.radius
    ends = np.concatenate([places[:, None] + directions, places[:, None] - directions])
    answers = sphere.ask(ends.reshape(-1, sphere.width)).reshape(2, len(places), _CHECKS, -1)
    bends = answers[0] + answers[1] - 2.0 * middle[:, None]
    seen = (bends * by_length[:, None]).sum(axis=2) / (by_length**2).sum(axis=1)[:, None]
    expected = np.abs((directions * normals[:, None]).sum(axis=2))
    off = np.abs(seen - expected) / np.sqrt((expected**2).mean(axis=1, keepdims=True))
    return np.asarray(np.quantile(off, 0.75, axis=1) < _PREDICTED)


def _slopes(
    sphere: Sphere, places: Array, tangents: Array, across: Array, jumps: Array, first: float
) -> Array:
    """(n, k - 1): w·e over w·t for every direction e across the tangent t; NaN where other kinks are near.

    Second differences along t + e and t - e, over that along t, are |1 + ρ| and |1 - ρ|.
    """
    slopes = np.full(across.shape[:2], np.nan)
    middle = sphere.ask(places)
    by_length = jumps / sphere.radius  # jumps are by the angle
    for part in _STEPS:
        j, i = np.nonzero(np.isnan(slopes))
        if not len(j):
            break
        step, sides = part * first, []
        for sign in (1.0, -1.0):
            along = step * (tangents[j] + sign * across[j, i])
            ahead, back = sphere.ask(np.concatenate([places[j] + along, places[j] - along])).reshape(
                2, len(j), -1
            )
            bend = (ahead + back - 2.0 * middle[j]) / step
            sides.append((bend * by_length[j]).sum(axis=1) / (by_length[j] ** 2).sum(axis=1))
        both, differ = sides[0] + sides[1], sides[0] - sides[1]
        rho = np.sign(differ) * ((both + np.abs(differ)) / 2.0 - 1.0)
        agrees = np.minimum(np.abs(both - 2.0), np.abs(np.abs(differ) - 2.0)) < _AGREES * (1.0 + np.abs(rho))
        slopes[j[agrees], i[agrees]] = rho[agrees]
    return slopes
