"""Neurons whose kinks a chord crosses: slopes along it give what each adds to the answers, jumps of the
Jacobian their normals.

From one cell of the chord to another the Jacobian changes by Σ_i a_i u_iᵀ over the kinks between them. What a
kink adds to the slope along the chord is u_i but for its length, so that all a_i of a group follow from two
Jacobians, as long as the group has fewer kinks than an answer has numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["Chord", "Crossed"]

# what a group's kinks may leave of the jump of the Jacobian: clean ones leave 1e-7, and one with another kink
# inside a cell is off by about as much
_EXPLAINED = 1e-4
_STEP = 0.01  # of a cell's width, from its middle: differences for Jacobians
_ALONG = 0.25  # the same for slopes along the chord, which cross no other kink
# cosine of normal and chord up to which such differences may cross the cell's own hyperplane: steps then
# reach _STEP/√k of the width across it, and it is half the width times the cosine away
_SLANTED = 0.04
# kinks of a group, over the numbers of an answer: the rest of them shows whether it is explained
_GROUP = 0.5
_INDEPENDENT = 0.05  # least singular value of the directions u of a group


@dataclass(frozen=True)
class Chord:
    """Points middle + t·along, |t| <= reach, and the places t of kinks."""

    middle: Array
    along: Array
    reach: float
    kinks: Array

    def points(self, places: Array) -> Array:
        return np.asarray(self.middle + places[:, None] * self.along)

    @cached_property
    def ends(self) -> Array:
        """Where cells begin and end."""
        return np.concatenate([[-self.reach], self.kinks, [self.reach]])

    @cached_property
    def centres(self) -> Array:
        return np.asarray(0.5 * (self.ends[1:] + self.ends[:-1]))

    @cached_property
    def widths(self) -> Array:
        return np.diff(self.ends)


class Crossed:
    """What a chord crosses. rest: the answers of points. turned: (k, k), an orthogonal basis whose first row
    is along the chord."""

    def __init__(self, rest: Callable[[Array], Array], chord: Chord, turned: Array, radius: float) -> None:
        self._rest = rest
        self._chord = chord
        self._turned = turned
        self._steps = np.minimum(_STEP * chord.widths, 0.02 * radius)
        self._jacobians: dict[int, Array] = {}

    def neurons(self, noise: float, least: float) -> list[tuple[Array, Array]]:
        """Rows [a, b] of unit normals, and the jump across each. noise: of the answers. least: of slopes."""
        jumps = np.diff(self._slopes(), axis=0)
        directions = jumps / np.linalg.norm(jumps, axis=1, keepdims=True)
        found, start = [], 0
        while start < len(jumps):
            end = self._group(directions, start)
            tolerance = 4.0 * np.sqrt(len(self._turned)) * np.array([noise, least])
            normals = self._normals(jumps, start, end, tolerance)
            if normals is None:  # one by one
                end = start + 1
                normals = self._normals(jumps, start, end, tolerance)
            for i, normal in zip(range(start, end), normals if normals is not None else (), strict=False):
                found += self._neuron(i, normal, jumps[i])
            start = end
        return found

    @staticmethod
    def _group(directions: Array, start: int) -> int:
        """The end of the group that begins here: as many kinks as answers tell apart."""
        end, most = start + 1, max(1, int(_GROUP * directions.shape[1]))
        while end < min(len(directions), start + most):
            if np.linalg.svd(directions[start : end + 1], compute_uv=False)[-1] < _INDEPENDENT:
                break
            end += 1
        return end

    def _slopes(self) -> Array:
        """(cells, m) along the chord."""
        at, far = self._chord.centres, _ALONG * self._chord.widths
        answers = self._rest(self._chord.points(np.concatenate([at - far, at + far])))
        n = len(at)
        return np.asarray((answers[n:] - answers[:n]) / (2.0 * far)[:, None])

    def _normals(self, jumps: Array, start: int, end: int, tolerance: Array) -> Array | None:
        """(kinks, k) normals a of a group, of such length that a·along = 1; None where they do not explain
        what the Jacobian does."""
        change = self._jacobian(end) - self._jacobian(start)  # (k, m)
        normals = np.linalg.lstsq(jumps[start:end].T, change.T, rcond=None)[0]
        left = float(np.linalg.norm(change - normals.T @ jumps[start:end], 2))
        error = tolerance[0] * (1.0 / self._steps[start] + 1.0 / self._steps[end]) + 2.0 * tolerance[1]
        if left > max(_EXPLAINED * float(np.linalg.norm(jumps[start:end], axis=1).min()), error):
            return None
        return np.asarray(normals @ self._turned)

    def _neuron(self, i: int, normal: Array, jump: Array) -> list[tuple[Array, Array]]:
        length = float(np.linalg.norm(normal))
        if float(normal @ self._chord.along) < _SLANTED * length:
            return []
        place = self._chord.points(self._chord.kinks[i : i + 1])[0]
        unit = normal / length
        return [(np.append(unit, -float(unit @ place)), length * jump)]

    def _jacobian(self, cell: int) -> Array:
        """(k, m) derivatives along the turned basis, with steps that stay inside the cell."""
        if cell not in self._jacobians:
            centre = self._chord.points(self._chord.centres[cell : cell + 1])
            answers = self._rest(np.concatenate([centre, centre + self._steps[cell] * self._turned]))
            self._jacobians[cell] = np.asarray((answers[1:] - answers[:1]) / self._steps[cell])
        return self._jacobians[cell]
