"""Left probes that all see the readout v well, and the way back from what they measure to coordinates."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.ledger import BatchMemory
from unsoftmax.meters.probes.balanced_basis import EvenRows

__all__ = ["AxisProbes", "BalancedProbes", "Indices", "Probes", "direction_that_sees"]

Indices = NDArray[np.intp]


class Probes(Protocol):
    """Rows a_i, asked at a size each: gamma_i·a_i, where a part of a_i may come at a common size, its share.

    A score divided by gamma is a form of the probe; `ratios` are share/gamma, of the same shape (n, count).
    """

    v: Array
    count: int
    longest: float  # norm of a probe asked at size and share one, at most

    def begin(self, first: int, gamma: Array) -> None:
        """The next batches ask the probes from `first` on, at these sizes."""

    def batch(self, asking: Array, share: float) -> Array:
        """[probe + x; x] for every asking row x and every probe begun with, (n·k, 2, d). Let go of it before
        the next: its memory serves again.

        Asking rows are recognised by being the same array: it must not be changed between calls.
        """

    def rows(self, which: Indices, gamma: Array, shares: Array) -> Array:
        """Single probes at single sizes."""

    def readouts(self, which: Indices, gamma: Array, shares: Array) -> Array:
        """Their products with v: how much of the answer each probe moves."""

    def forms_of(self, vector: Array, ratios: Array) -> Array:
        """The forms of a known vector."""

    def coordinates(self, forms: Array, ratios: Array) -> Array:
        """The vector's coordinates from its forms, row by row."""


class _Written:
    """Memory of the last batch. The same asking rows with other probes need only what is different to be
    written."""

    def __init__(self) -> None:
        self._memory = BatchMemory()
        self._asking = np.empty((0, 0))
        self._share = 0.0
        self._count = 0

    def grid(self, asking: Array, count: int, share: float = 0.0) -> tuple[Array, bool]:
        """Room for sequences (n, count, 2, d), and whether those of the last call, for these very rows and
        this share, still stand in it."""
        n, d = asking.shape
        same = (
            asking is self._asking
            and share == self._share
            and (count == self._count or (n == 1 and count < self._count))
        )
        grid = self._memory.left((n, count, 2, d)) if same else None
        self._asking, self._share, self._count = asking, share, count
        return (grid, True) if grid is not None else (self._memory.blank((n, count, 2, d)), False)


class AxisProbes:
    """The whole space: gamma_i·(±e_i) + share·u, with u along v and 1/sqrt(d) long, and the sign that of v_i.

    Every probe then has at least the product of u with v, whatever the entries of v. Neighbouring probes
    differ in two entries, so a batch is mere copies, and the next one hardly different. The way back is a
    diagonal and a rank-one term with one sign: nothing cancels.

    >>> probes = AxisProbes(np.array([0.0, -3.0, 4.0]))
    >>> ones = np.ones(3)
    >>> np.round(probes.readouts(np.arange(3), ones, ones) / 5, 3)
    array([0.577, 1.177, 1.377])
    >>> forms = probes.rows(np.arange(3), ones, ones) @ np.array([5.0, 6.0, 7.0])
    >>> np.round(probes.coordinates(forms[None], np.ones((1, 3))), 9)
    array([[5., 6., 7.]])
    """

    def __init__(self, v: Array) -> None:
        self.v = v
        self.longest = 1.0 + 1.0 / np.sqrt(len(v))
        self.count = len(v)
        self._signs = np.where(v < 0.0, -1.0, 1.0)
        self._sizes = np.abs(v)
        self._carrier = v / (np.linalg.norm(v) * np.sqrt(len(v)))
        self._weights = np.abs(self._carrier)
        self._carried = float(self._carrier @ v)
        self._begun = (0, np.empty(0))
        self._written = _Written()
        self._stepped: Indices = np.arange(0)

    def begin(self, first: int, gamma: Array) -> None:
        self._begun = (first, gamma * self._signs[first : first + len(gamma)])

    def batch(self, asking: Array, share: float) -> Array:
        first, steps = self._begun
        here = np.arange(len(steps))
        grid, standing = self._written.grid(asking, len(steps), share)
        moved = asking + share * self._carrier
        if standing:
            stepped = self._stepped[: len(steps)]
            grid[:, here, 0, stepped] = moved[:, stepped]
        else:
            grid[:, :, 0] = moved[:, None]
            grid[:, :, 1] = asking[:, None]
        self._stepped = first + here
        grid[:, here, 0, self._stepped] = moved[:, first : first + len(steps)] + steps
        return grid.reshape(-1, 2, len(self.v))

    def rows(self, which: Indices, gamma: Array, shares: Array) -> Array:
        rows = shares[:, None] * self._carrier
        rows[np.arange(len(which)), which] += gamma * self._signs[which]
        return np.asarray(rows)

    def readouts(self, which: Indices, gamma: Array, shares: Array) -> Array:
        return np.asarray(gamma * self._sizes[which] + shares * self._carried)

    def forms_of(self, vector: Array, ratios: Array) -> Array:
        return np.asarray(self._signs * vector + ratios * float(self._carrier @ vector))

    def coordinates(self, forms: Array, ratios: Array) -> Array:
        common = (forms @ self._weights) / (1.0 + ratios @ self._weights)
        return np.asarray(self._signs * (forms - ratios * common[:, None]))


class BalancedProbes:
    """A subspace: the even rows of a basis, with a carrier added to each where one is given. All of it has
    size gamma.

    >>> probes = BalancedProbes(np.array([0.0, 3.0, 4.0]), np.eye(3))
    >>> ones = np.ones(3)
    >>> np.round(probes.rows(np.arange(3), ones, ones) @ probes.v / 5, 3)
    array([0.577, 0.577, 0.577])
    """

    def __init__(self, v: Array, basis: Array, carrier: Array | None = None) -> None:
        self.v = v
        self.carrier = carrier
        self.longest = 1.0 if carrier is None else 2.0
        self._even = EvenRows(v, basis, carrier)
        self.count = self._even.count
        self._dense = self._even.rows(0, self.count)
        self._scaled = np.empty((0, 0))
        self._written = _Written()
        self._own = BatchMemory(16)

    def begin(self, first: int, gamma: Array) -> None:
        self._scaled = np.empty((0, 0))
        self._scaled = self._own.blank((len(gamma), len(self.v)))
        np.multiply(gamma[:, None], self._dense[first : first + len(gamma)], out=self._scaled)

    def batch(self, asking: Array, share: float) -> Array:
        grid, standing = self._written.grid(asking, len(self._scaled))
        np.add(self._scaled[None], asking[:, None], out=grid[:, :, 0])
        if not standing:
            grid[:, :, 1] = asking[:, None]
        return grid.reshape(-1, 2, len(self.v))

    def rows(self, which: Indices, gamma: Array, shares: Array) -> Array:
        return np.asarray(gamma[:, None] * self._dense[which])

    def readouts(self, which: Indices, gamma: Array, shares: Array) -> Array:
        return np.asarray(gamma * self._even.readout)

    def forms_of(self, vector: Array, ratios: Array) -> Array:
        return np.asarray((self._dense @ vector)[None])

    def coordinates(self, forms: Array, ratios: Array) -> Array:
        return self._even.coordinates(forms)


def direction_that_sees(v: Array, rng: np.random.Generator) -> Array:
    """A random unit vector, half of it along v, so that its product with v is never small.

    >>> abs(round(float(direction_that_sees(np.array([0.0, 2.0, 0.0]), np.random.default_rng(0))[1]), 3))
    0.707
    """
    direction = v / np.linalg.norm(v)
    if len(v) == 1:
        return np.asarray(direction)
    other = rng.standard_normal(len(v))
    other -= direction * (direction @ other)
    if float(np.linalg.norm(other)) < 1e-6:  # drawn along v itself
        other = np.eye(len(v))[int(np.abs(direction).argmin())]
        other -= direction * (direction @ other)
    return np.asarray((direction + other / np.linalg.norm(other)) / np.sqrt(2.0))
