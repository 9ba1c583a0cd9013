"""ReLU neurons of a network on a sphere: kinks of many circles by output, and hyperplanes from slopes.

The jump of the derivative at a kink is a multiple of its neuron's output (plus one of the value, where only
directions are seen), so that kinks of one neuron are known by it. Second differences along other directions
at one kink give the neuron's input weights there; other kinks of the group, its offset.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.learners.computed_block.circles import Kinks, Sphere, kinks_on_circle
from unsoftmax.outcomes import Unresolved

__all__ = ["find_kinked_neurons"]

_FIRST_CIRCLES = 8  # a neuron needs two kinks: one that half of the circles meet has fewer once in 28
_MORE_CIRCLES = 4  # what has to bring no new neuron before the search ends
_MOST_CIRCLES = 48  # a cap: six times the first
_LEAST_KINKS = 3  # of a neuron: two share a direction by chance once in thousands of pairs, three never did
# sine of the angle between an output and what a kink allows: kinks of one neuron are off by 0.002 to 0.02,
# those of others by 0.3 and more, pairs of planes in 15 dimensions by 0.016 at least
_SAME_OUTPUT = 0.03
_PARTNERS = 6  # a cap: the kinks nearest in direction are tried as kinks of the same neuron
_ANGLES = (0.012, 0.004, 0.0012)  # steps of second differences; shorter ones where another kink is near
_AGREES = 0.06  # how well both sides of a direction must agree on one slope
_PLACES = 10.0  # weight of a place against a slope: places are known to 1e-5, slopes to 1e-3
_OFF = 0.03  # of the radius: how far a kink may be from its neuron's hyperplane
_TOUCHES = 0.97  # of the radius: a hyperplane further out hardly meets the sphere, and holds no kinks
_SAME_PLANE = 0.05  # of a unit normal: two groups whose hyperplanes are nearer are one neuron, seen twice


@dataclass(frozen=True)
class _Group:
    output: Array
    members: NDArray[np.int64]


def find_kinked_neurons(sphere: Sphere, rng: np.random.Generator) -> Array:
    """(J, k + 1) rows [w, b], |w| = 1, either sign: all neurons that circles cross. Circles are added until
    four bring no new one."""
    kinks = kinks_on_circle(sphere, rng)
    groups: list[_Group] = []
    count, wanted = 1, _FIRST_CIRCLES
    while count < _MOST_CIRCLES:
        for _ in range(wanted - count):
            kinks = kinks.joined(kinks_on_circle(sphere, rng))
        count = wanted
        before, groups = len(groups), _grouped(sphere, kinks)
        if len(groups) == before and groups:
            break
        wanted = count + _MORE_CIRCLES
    if not groups:
        raise Unresolved("no two kinks along circles belong to one neuron")
    return _hyperplanes(sphere, kinks, groups)


def _grouped(sphere: Sphere, kinks: Kinks) -> list[_Group]:
    """The strongest kinks first; each group is the largest that one of its partners gives."""
    if len(kinks) < _LEAST_KINKS:
        return []
    planes = _planes(sphere, kinks)  # (n, s, m), orthonormal rows: where the output must lie
    projectors = np.einsum("nsm,nsl->nml", planes, planes)
    jumps = np.linalg.norm(kinks.jumps, axis=1)
    free = np.ones(len(kinks), dtype=bool)
    groups = []
    for i in np.argsort(-jumps):
        if not free[i]:
            continue
        near = np.linalg.svd(planes[i] @ planes.transpose(0, 2, 1), compute_uv=False)[:, 0]
        near[~free] = 0.0
        best: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        output = np.zeros(planes.shape[2])
        for partner in np.argsort(-near)[1 : 1 + _PARTNERS]:
            members = np.array([i, partner])
            for _ in range(3):
                trial = np.linalg.eigh(projectors[members].sum(axis=0))[1][:, -1]
                within = np.einsum("m,nml,l->n", trial, projectors, trial)
                members = np.flatnonzero(free & (within > 1.0 - _SAME_OUTPUT**2))
                if len(members) < 2:
                    break
            if len(members) > len(best) and i in members:
                best, output = members, trial
        if len(best) >= _LEAST_KINKS:
            free[best] = False
            groups.append(_Group(output, best))
    return groups


def _planes(sphere: Sphere, kinks: Kinks) -> Array:
    if not sphere.directions:
        return np.asarray((kinks.jumps / np.linalg.norm(kinks.jumps, axis=1, keepdims=True))[:, None])
    along = kinks.values / np.linalg.norm(kinks.values, axis=1, keepdims=True)
    across = kinks.jumps - (kinks.jumps * along).sum(axis=1, keepdims=True) * along
    return np.stack([along, across / np.linalg.norm(across, axis=1, keepdims=True)], axis=1)


def _hyperplanes(sphere: Sphere, kinks: Kinks, groups: list[_Group]) -> Array:
    jumps = np.linalg.norm(kinks.jumps, axis=1)
    strongest = np.array([group.members[jumps[group.members].argmax()] for group in groups])
    directions, slopes = _slopes(sphere, kinks, strongest)
    found: list[Array] = []
    for g, group in sorted(enumerate(groups), key=lambda each: -len(each[1].members)):
        told = np.isfinite(slopes[g])
        rho = slopes[g, told][:, None]
        rows = (directions[g, told] - rho * kinks.tangents[strongest[g]]) / np.sqrt(1.0 + rho**2)
        places = kinks.places[group.members] / sphere.radius
        design = np.vstack(
            [
                np.column_stack([rows, np.zeros(len(rows))]),
                _PLACES * np.column_stack([places, np.ones(len(places))]),
            ]
        )
        if len(design) < sphere.width:
            continue
        plane = np.linalg.svd(design)[2][-1]
        plane = plane / np.linalg.norm(plane[:-1])
        off = np.abs(places @ plane[:-1] + plane[-1])
        known = any(min(np.linalg.norm(plane - p), np.linalg.norm(plane + p)) < _SAME_PLANE for p in found)
        if float(np.median(off)) < _OFF and abs(float(plane[-1])) < _TOUCHES and not known:
            found.append(plane)
    planes = np.array(found).reshape(-1, sphere.width + 1)
    return np.column_stack([planes[:, :-1], sphere.radius * planes[:, -1]])


def _slopes(sphere: Sphere, kinks: Kinks, chosen: NDArray[np.int64]) -> tuple[Array, Array]:
    """(J, k - 2, k) directions e across the circle at each kink, and w·e over w·t of its tangent t; NaN where
    other kinks are too near.

    Along a direction through the kink the second difference is |w·e| times the jump. That of t + e and of t -
    e, over that of t, are |1 + ρ| and |1 - ρ|.
    """
    places, tangents, jumps = kinks.places[chosen], kinks.tangents[chosen], kinks.jumps[chosen]
    k, radius = sphere.width, sphere.radius
    across = np.stack(
        [np.linalg.svd(np.stack([p / radius, t]))[2][2:] for p, t in zip(places, tangents, strict=True)]
    )
    slopes = np.full((len(chosen), k - 2), np.nan)
    middle = sphere.ask(places)
    for angle in _ANGLES:
        j, i = np.nonzero(np.isnan(slopes))
        if not len(j):
            break
        sides = []
        for sign in (1.0, -1.0):
            along = (tangents[j] + sign * across[j, i]) / np.sqrt(2.0)
            bends = []
            for turn in (angle, 2.0 * angle):
                ends = [np.cos(turn) * places[j] + s * radius * np.sin(turn) * along for s in (1.0, -1.0)]
                ahead, back = sphere.ask(np.concatenate(ends)).reshape(2, len(j), -1)
                bends.append(ahead + back - 2.0 * middle[j])
            kink = (4.0 * bends[0] - bends[1]) / (2.0 * angle)  # without what smooth curvature adds
            sides.append(np.sqrt(2.0) * (kink * jumps[j]).sum(axis=1) / (jumps[j] ** 2).sum(axis=1))
        both, differ = sides[0] + sides[1], sides[0] - sides[1]
        rho = np.sign(differ) * ((both + np.abs(differ)) / 2.0 - 1.0)
        agrees = np.minimum(np.abs(both - 2.0), np.abs(np.abs(differ) - 2.0)) < _AGREES * (1.0 + np.abs(rho))
        slopes[j[agrees], i[agrees]] = rho[agrees]
    return across, slopes
