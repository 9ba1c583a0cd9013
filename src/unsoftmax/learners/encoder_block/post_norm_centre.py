"""Where the residual stream of a post-norm block vanishes: there the last norm's eps shows lengths."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.last_norm import LastNorm, straightened
from unsoftmax.outcomes import Unresolved

__all__ = ["Centre", "find_centre", "sharpen_centre"]

_NEAR = 0.02  # of 1 - |n|²/d: from there on Newton's method sees lengths
_DESCENT = 400  # a cap
_STARTS = 12  # a cap: starts from the middle outwards, eight of them at 0.6 of the radius
_SHRINKING = 60  # a cap
_SIDE = 1e-4  # differences for derivatives of directions: good to 1e-4 of them
_TURNED = 0.3  # cosine of two directions below which a step was too long
_REACH = 0.95  # of the radius of the ball
_LONGEST = 0.05  # step of Newton's method
_SETTLED = 1e-7  # of rows of entries about 1: the square root of rounding; the joint fit finds the rest
_PLACES = np.geomspace(0.03, 1.0, 6)
_LINES = 4  # half lines over width, of which at least an eighth should be without a kink
# of the length at which eps halves an answer: where kinks leave too few straight lines, shorter ones
_SHORT_REACHES = (1.6, 0.5, 0.15)
# then the first of these that leaves enough lines; measured: 1e-11, then 1e-12 and 3e-12 of the centre
_LONG_REACHES = (10.0, 4.0, 1.6)
_SMOOTH_REACH, _SMOOTH_DEGREE = _LONG_REACHES[0], 5  # no kinks: the longest; a quintic follows the bend
# what straight lines of the longest reach may leave of a network with kinks, in proportion for shorter ones;
# a smooth one leaves 2e-5 of the longest and 2e-6 of the shortest, kinks 1e-11, but 8e-4 where every line has
# one: 256 neurons at width 64
_AFFINE = 1e-6


@dataclass(frozen=True)
class Centre:
    """place: (k,), where r vanishes. slopes: (k, k), derivatives of r there. norm: the last norm, better
    known."""

    norm: LastNorm
    place: Array
    slopes: Array

    @property
    def unit(self) -> float:
        """How far from the place |r|² = d, in units of √eps."""
        return float(np.sqrt(len(self.norm.gain)) / np.sqrt(np.mean((self.slopes**2).sum(axis=0))))


def find_centre(
    answer: Callable[[Array], Array], norm: LastNorm, radius: float, rng: np.random.Generator
) -> Centre:
    """answer: of points u inside the ball. Tries both signs of the last gain, then lines on which r only
    shrinks."""
    for sign in (1.0, -1.0):
        place = _descend(answer, norm, sign, radius)
        if place is not None:
            return _newton(answer, norm, place, radius)
    k = norm.basis.shape[1]
    for attempt in range(_STARTS):
        away = rng.standard_normal(k)
        start = np.asarray(away * (0.6 * radius * min(1.0, attempt / 4.0) / np.linalg.norm(away)))
        place = _shrink(answer, norm, start, radius)
        if place is not None:
            return _newton(answer, norm, place, radius)
    raise Unresolved("no input of the network was found at which the residual stream vanishes")


def _shrink(answer: Callable[[Array], Array], norm: LastNorm, start: Array, radius: float) -> Array | None:
    """Newton's method without lengths: the direction of r stands still along J⁻¹r, so that this is what its
    derivatives do not see. The length of r grows towards one side and vanishes on the other."""
    place, step, k = start, 0.1 * radius, len(start)
    for _ in range(_SHRINKING):
        found, inside = norm.normed(answer(np.vstack([place, place + _SIDE * np.eye(k)])))
        if inside[0] > _NEAR:
            return np.asarray(place)
        n = found / np.linalg.norm(found, axis=1, keepdims=True)
        along = np.linalg.svd((n[1:] - n[0]).T)[2][-1]
        ahead, back = norm.normed(answer(place + 1e-3 * radius * np.stack([along, -along])))[1]
        along = along if ahead > back else -along
        while step > 1e-7 * radius:
            there = place + step * along
            if np.linalg.norm(there) < _REACH * radius:
                after = norm.normed(answer(there[None]))[0][0]
                if after @ n[0] > _TURNED * np.linalg.norm(after):
                    place, step = there, 1.5 * step
                    break
            step *= 0.4
        else:
            return None
    return None


def _descend(answer: Callable[[Array], Array], norm: LastNorm, sign: float, radius: float) -> Array | None:
    """Against the direction of r, which near an identity leads to its zero."""
    place, step = np.zeros(norm.basis.shape[1]), 0.15 * radius
    last: Array | None = None
    for _ in range(_DESCENT):
        n, inside = norm.normed(answer(place[None]))
        if inside[0] > _NEAR:
            return place
        along = sign * n[0] / np.linalg.norm(n[0])
        if last is not None and along @ last < _TURNED:
            step *= 0.6
        last = along
        place = place - step * along
        place *= min(1.0, _REACH * radius / float(np.linalg.norm(place)))
        if step < 1e-7 * radius:
            break
    return None


def _newton(answer: Callable[[Array], Array], norm: LastNorm, place: Array, radius: float) -> Centre:
    k = len(place)
    for _ in range(12):
        h = 1e-4
        found = norm.stream(answer(np.vstack([place, place + h * np.eye(k)])))
        slopes = ((found[1:] - found[0]) / h).T
        step = -np.linalg.solve(slopes, found[0])
        length = float(np.linalg.norm(step))
        place = place + step * min(1.0, _LONGEST / length)
        if length < _SETTLED:
            break
    if np.linalg.norm(place) > _REACH * radius:
        raise Unresolved(
            "the residual stream vanishes too close to the edge of what the first norm passes on"
        )
    return Centre(norm, place, slopes)


def sharpen_centre(
    answer: Callable[[Array], Array], centre: Centre, radius: float, rng: np.random.Generator
) -> tuple[Centre, bool]:
    """Centre and size of the last norm's sphere from lines, and whether r is affine there (kinks aside)."""
    k, norm = len(centre.place), centre.norm
    room = 0.98 * radius - float(np.linalg.norm(centre.place))

    def along(lines: int, reach: float, sides: Array) -> tuple[Array, Array]:
        directions = rng.standard_normal((lines * k, k))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        places = np.outer(sides, min(reach * centre.unit, room) * _PLACES).ravel()
        points = centre.place + places[:, None] * directions[:, None]
        return places, answer(points.reshape(-1, k)).reshape(len(directions), len(places), -1)

    def straight(reach: float) -> tuple[LastNorm, float]:
        places, answers = along(_LINES, reach, np.ones(1))
        return straightened(norm, answers, places, 1)

    for reach in _SHORT_REACHES:
        better, left = straight(reach)
        kinked = left <= _AFFINE * reach / _SHORT_REACHES[0]
        if kinked:
            break
    if kinked:
        norm = better
        for longer in (each for each in _LONG_REACHES if each > reach):
            better, left = straight(longer)
            if left <= _AFFINE:
                return Centre(better, centre.place, centre.slopes), True
        return Centre(norm, centre.place, centre.slopes), True
    places, answers = along(2, _SMOOTH_REACH, np.array([-1.0, 1.0]))
    norm, _ = straightened(norm, answers, places, _SMOOTH_DEGREE)
    return Centre(norm, centre.place, centre.slopes), False
