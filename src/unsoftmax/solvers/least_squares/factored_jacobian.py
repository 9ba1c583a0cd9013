"""Jacobians whose columns are products of what is before a matrix and what is after it.

An entry (k, i) of a matrix moves answer o of row b by left[b, o, k]·right[b, i]. So a block of JᵀJ is one
product of (B, i·j) and (B, k·l) arrays: as many times fewer operations than from J as a row has answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.solvers.least_squares.linearisation import Inverse

__all__ = ["FactoredJacobian", "Factors"]


@dataclass(frozen=True, eq=False)
class Factors:
    """Columns of one matrix of parameters (K, I), for a piece of the rows. left: (B, O, K). right: (B, I).
    plus: a second product that is added, where a matrix is used in two places."""

    left: Array
    right: Array
    plus: Factors | None = None

    @property
    def size(self) -> int:
        return int(self.left.shape[2] * self.right.shape[1])

    @property
    def terms(self) -> list[tuple[Array, Array]]:
        """All products."""
        return [(self.left, self.right)] + ([] if self.plus is None else self.plus.terms)

    def moved(self, step: Array) -> Array:
        """(B, O): what a step of the parameters changes."""
        matrix = step.reshape(self.left.shape[2], -1).T
        parts = [(left @ (right @ matrix)[..., None])[..., 0] for left, right in self.terms]
        return np.asarray(sum(parts))

    def collected(self, residual: Array) -> Array:
        """Jᵀ of a residual (B, O)."""
        parts = [(residual[:, None] @ left)[:, 0].T @ right for left, right in self.terms]
        return np.ravel(sum(parts))

    def squares(self) -> Array:
        """The diagonal of JᵀJ."""
        pairs = itertools.product(self.terms, repeat=2)
        return np.ravel(sum((a * c).sum(axis=1).T @ (b * d) for (a, b), (c, d) in pairs))

    def beside(self, other: Factors) -> Array:
        """The block of JᵀJ of these columns and others."""
        pairs = itertools.product(self.terms, other.terms)
        block = sum(_block(one, two) for one, two in pairs)
        shape = (self.right.shape[1], other.right.shape[1], self.left.shape[2], other.left.shape[2])
        return np.asarray(block).reshape(shape).transpose(2, 0, 3, 1).reshape(self.size, other.size)


def _block(one: tuple[Array, Array], two: tuple[Array, Array]) -> Array:
    """(I·J, K·L)."""
    B = len(one[1])
    lefts = one[0].transpose(0, 2, 1) @ two[0]  # (B, K, L)
    rights = one[1][:, :, None] * two[1][:, None]  # (B, I, J)
    return np.asarray(rights.reshape(B, -1).T @ lefts.reshape(B, -1))


@dataclass(frozen=True, eq=False)
class FactoredJacobian:
    """pieces: makes the blocks of all matrices again, for one piece of the rows after the other, so that few
    are held at a time.

    >>> block = Factors(np.full((1, 1, 1), 3.0), np.array([[1.0, 2.0]]))
    >>> jacobian = FactoredJacobian(2, lambda: iter([[block]]))
    >>> jacobian.normal().tolist(), jacobian.diagonal().tolist()
    ([[9.0, 18.0], [18.0, 36.0]], [9.0, 36.0])
    """

    unknowns: int
    pieces: Callable[[], Iterator[Sequence[Factors]]]

    def forward(self, step: Array, /) -> Array:
        found = []
        for blocks in self.pieces():
            cuts = np.cumsum([block.size for block in blocks])[:-1]
            parts = zip(blocks, np.split(step, cuts), strict=True)
            found.append(np.ravel(sum(block.moved(part) for block, part in parts)))
        return np.concatenate(found)

    def backward(self, residual: Array, /) -> Array:
        total, at = np.zeros(self.unknowns), 0
        for blocks in self.pieces():
            rows, answers, _ = blocks[0].left.shape
            part = residual[at : at + rows * answers].reshape(rows, answers)
            total += np.concatenate([block.collected(part) for block in blocks])
            at += part.size
        return total

    def normal(self) -> Array:
        total = np.zeros((self.unknowns, self.unknowns))
        for blocks in self.pieces():
            ends = np.cumsum([block.size for block in blocks])
            places = [slice(end - block.size, end) for block, end in zip(blocks, ends, strict=True)]
            for x, one in enumerate(blocks):
                for y in range(x, len(blocks)):
                    block = one.beside(blocks[y])
                    total[places[x], places[y]] += block
                    if x != y:
                        total[places[y], places[x]] += block.T
        return total

    def diagonal(self) -> Array:
        total = np.zeros(self.unknowns)
        for blocks in self.pieces():
            total += np.concatenate([block.squares() for block in blocks])
        return total

    def preconditioner(self, damping: Array, /) -> Inverse | None:
        return None
