"""Positions that a target adds to its rows, from rows that change places.

Attention does not mind the order of the rows beside the one that asks. So two of them are answered alike in
either order once each takes along what the other place adds: x at place 1 and z at place i as z + q and
x - q, q what place i adds beyond place 1. Least squares over several sequences give q; the position of the
first place stays with the block.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.language_model.parts import PartCertificate, RecoveredPart
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.least_squares.joint_refinement import (
    DenseJacobian,
    Linearisation,
    RefinementOptions,
    likely_errors,
    refine,
)

__all__ = ["BEHIND_POSITIONS", "PLACES", "Positions", "find_positions", "norm_comes_last", "positions_part"]

PLACES = 16  # of which positions are found: a certificate asks sequences as long
_SEQUENCES = 3  # a place: three answers hold three times its unknowns
_STEP = 1e-6  # one-sided differences; an error of the slopes costs a step more, and no digit
# of entries, in turn: with positions of size one 37 of 40 places were found by rows of size 4, 18 by rows of
# size one, which positions outweigh; rows that are too large make scores too strong
_SIZES = (4.0, 2.0, 8.0, 1.0, 4.0)
_PATIENCE = 4  # times as many draws for further places, once one has shown that there are positions
_FITS = 1e-10  # of the answers: what right positions leave is 1e-15, a window or a second layer 1e-2
_ALIKE = 1e-8  # of the answers: errors of positions are 1e-13 of their size, a wrong mean counts whole
_SAFETY = 60.0  # as for the parameters of the block
_FRESH = 64  # pairs of sequences of the certificate
_LENGTHS = (3, 5, 9, 16)  # of them, up to all places
_LARGE, _GROWS = 1e6, 1e3  # size of a row, and of its answer where no norm comes last
BEHIND_POSITIONS = "the first position, which constants and scores of the block take in"
_GAUGE = "the first position: each is told as what it adds beyond that one"
_OPTIONS = RefinementOptions(
    iterations=30, damping=1e-4, least_damping=1e-14, improvement=0.05, weakest=1e-20
)


@dataclass(frozen=True)
class Positions:
    """added: (PLACES, d), beyond what the first place adds. bound: on its error, over the largest entry."""

    added: Array
    bound: float

    def taken_off(self, asks: AsksSequences) -> AsksSequences:
        """The same target without positions, but for that of the first place, which it adds to all rows."""
        return lambda batch: asks(batch - self.added[: batch.shape[1]])


def find_positions(asks: AsksSequences, width: int, rng: np.random.Generator) -> Positions:
    """Raises Unresolved where no positions explain how the order of rows matters. The last row asks."""
    found, errors = Positions(np.zeros((PLACES, width)), 0.0), np.zeros((PLACES, width))
    for place in range(1, PLACES):
        _settle(asks, found, place, rng)
        fresh = _Swaps.drawn(asks, width, place, 1.0, rng)
        errors[place] = likely_errors(fresh, found.added[place], rng, _OPTIONS, 0)[0]
    largest = float(np.abs(found.added).max())
    if largest == 0.0:
        raise Unresolved("all places are alike, and yet the order of rows matters")
    return replace(found, bound=_SAFETY * max(float(np.abs(errors).max()) / largest, EPS))


def positions_part(
    plain: AsksSequences, positions: Positions, rng: np.random.Generator
) -> Mapping[str, RecoveredPart[Array]]:
    """The positions, held against fresh sequences: once they are taken off, the order of the rows beside the
    asking one does not matter; empty where it does."""
    error, scale = 0.0, 0.0
    for length in _LENGTHS:
        rows = rng.standard_normal((_FRESH // len(_LENGTHS), length, positions.added.shape[1]))
        order = np.append(rng.permutation(length - 1), length - 1)
        answers = plain(rows)
        error = max(error, float(np.abs(plain(rows[:, order]) - answers).max()))
        scale = max(scale, float(np.abs(answers).max()))
    if error > _ALIKE * scale:
        return {}
    certificate = PartCertificate(error, _FRESH, scale)
    part = RecoveredPart("positions", positions.added, positions.bound, _GAUGE, certificate)
    return {"positions": part}


def norm_comes_last(asks: AsksSequences, width: int, rng: np.random.Generator) -> bool:
    """Whether a large row is answered as any other. There the block takes the first position in: its
    constants and the scores of its heads are as free as without it."""
    near, far = asks(np.array([1.0, _LARGE])[:, None, None] * rng.standard_normal(width))
    return float(np.abs(far).max()) < _GROWS * float(np.abs(near).max())


def _settle(asks: AsksSequences, found: Positions, place: int, rng: np.random.Generator) -> None:
    """Writes what a place adds. Rows of size one, whose scores are mild, tell it best once it is nearly
    known."""
    width = found.added.shape[1]
    for size in _SIZES * (1 if place == 1 else _PATIENCE):
        state, fits = np.zeros(width), False
        for each in (size, 1.0):
            swaps = _Swaps.drawn(asks, width, place, each, rng)
            refined = refine(swaps, state, _OPTIONS)
            state = refined.state
            fits = refined.rms[-1] <= _FITS * float(np.abs(swaps.plain).max())
            if not fits:
                break
        found.added[place] = state
        if fits and _asks_alike(asks, found, place, rng):
            return
    raise Unresolved(f"no position of place {place + 1} explains how the order of rows matters")


def _asks_alike(asks: AsksSequences, found: Positions, place: int, rng: np.random.Generator) -> bool:
    """Whether copies of a row are answered as the row alone once positions are taken off. Behind a LayerNorm
    the mean of a position shows in no other row, and passes straight through in the one that asks: there it
    is corrected."""
    row = rng.standard_normal((1, 1, found.added.shape[1]))
    alone = asks(row)[0]
    limit = _ALIKE * float(np.abs(alone).max())

    def off() -> Array:
        return np.asarray(found.taken_off(asks)(np.repeat(row, place + 1, axis=1))[0] - alone)

    if float(np.abs(off()).max()) <= limit:
        return True
    found.added[place] -= found.added[place].mean()
    found.added[place] += off().mean()
    return float(np.abs(off()).max()) <= limit


@dataclass(frozen=True)
class _Swaps:
    """Sequences (T, N, d) whose last row asks, and their answers (T, m): the rows at the first and at another
    place change places."""

    asks: AsksSequences
    rows: Array
    plain: Array
    place: int

    @classmethod
    def drawn(
        cls, asks: AsksSequences, width: int, place: int, size: float, rng: np.random.Generator
    ) -> _Swaps:
        rows = size * rng.standard_normal((_SEQUENCES, place + 2, width))
        return cls(asks, rows, asks(rows), place)

    def _off(self, added: Array) -> Array:
        """(n, T·m) for n guesses of what the place adds."""
        rows = np.repeat(self.rows[None], len(added), axis=0)
        rows[:, :, 0] = self.rows[:, self.place] + added[:, None]
        rows[:, :, self.place] = self.rows[:, 0] - added[:, None]
        answers = self.asks(rows.reshape(-1, *self.rows.shape[1:]))
        return np.asarray(
            (answers.reshape(len(added), *self.plain.shape) - self.plain).reshape(len(added), -1)
        )

    def residual(self, added: Array, /) -> Array:
        return np.asarray(self._off(added[None])[0])

    def moved(self, added: Array, step: Array, /) -> Array:
        return np.asarray(added + step)

    def linearise(self, added: Array, /) -> Linearisation:
        off = self._off(np.vstack([added, added + _STEP * np.eye(len(added))]))
        return DenseJacobian(((off[1:] - off[0]) / _STEP).T)
