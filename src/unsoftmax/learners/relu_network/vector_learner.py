"""A two-layer ReLU network with vector answers: kinks through one readout, then what every neuron adds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import EPS, Array, rms
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Claim, Size
from unsoftmax.learners.relu_network.learner import ReluNetworkLearner
from unsoftmax.learners.relu_network.row_tests import one_row_function, refuse_rounded
from unsoftmax.learners.smooth_network.network_fit import NetworkFit
from unsoftmax.ledger import Asker
from unsoftmax.models import CanonicalNetwork, Network
from unsoftmax.models.parts import RELU
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions, refine

__all__ = ["VectorReluLearner"]

_FIRST = 16  # rows that show how large every output is
_MORE = 8  # further rows of a fit
_SAFETY = 20.0  # of the difference of two fits to different rows, as a bound on the error of either
_VAGUE = 1e-4  # an error from which on faint neurons, in ten of 260 networks, were worse known than it said
_BESIDE = 3  # rows on each side of every fold
_ENOUGH = 1.2  # answers beside a fold over the numbers of it, for all to be moved together
_STEPS = RefinementOptions(iterations=4, damping=1e-9, least_damping=1e-12, improvement=0.0, dense_limit=5200)
_NEAREST = 1e-3  # of a usual distance, how near to its fold a row may be: folds may lie as close


@dataclass(frozen=True)
class VectorReluLearner:
    """Recovers g(x) = Uᵀrelu(A x + b) + L x + c, with vector answers, from its values.

    Claim: exact in float64. Queries: those of one output; 12J + 4d more rows tell what neurons add to each.
    Assumes: see `claim`. Recovers: neurons up to order, reflection and scale. Fails when:
    `ReluNetworkLearner` does.
    """

    family: ClassVar[Family] = Family.NETWORK
    kinked: ReluNetworkLearner = field(default_factory=ReluNetworkLearner)

    @property
    def claim(self) -> Claim:
        one = self.kinked.claim

        def more(size: Size) -> int:
            return _FIRST + 2 * _rows_of_a_fit(size)

        usual = one.queries.usual
        return replace(
            one,
            title="A two-layer ReLU network with vector answers, at little more than one output",
            queries=replace(
                one.queries,
                formula=f"{one.queries.formula}; 12m + 4d + 32 rows beside",
                count=lambda size: one.queries.count(size) + more(size),
                usual=None if usual is None else lambda size: usual(size) + more(size),
            ),
            recovers="neurons, what each adds to every output, the linear part and the constants",
            symmetry="order, reflection and scale of neurons",
        )

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        d = asker.width
        unit = 1.0 if asker.input_bound is None else min(1.0, asker.input_bound / (8.0 * np.sqrt(d)))
        with asker.phase("shape"):
            first = one_row_function(asker)(unit * rng.standard_normal((_FIRST, d)))
        refuse_rounded(first.ravel())
        weights = rng.standard_normal(first.shape[1]) / _sizes(first)
        found = self.kinked.find(asker.read(weights), rng)
        folds = found.folds.tidy()
        halves = [self._rows(asker, folds, rng) for _ in range(2)]
        inner = _polished(np.column_stack([folds.directions, folds.distances]), *halves)
        both = tuple(np.concatenate(parts) for parts in zip(*halves, strict=True))
        network, one, other = (_network(inner, *data) for data in (both, *halves))
        places = _error_of_places(one, *halves[1])
        bound = _SAFETY * max(places, one.distance(other), EPS)
        if bound > _VAGUE:
            raise Unresolved(
                f"some neurons are so faint beside the others that they are only known to {bound:.1g}; a "
                "readout that shows them would help"
            )
        plain = network.without_linear()
        if plain is not None and network.distance(plain) <= bound:
            network = plain
        return Learned(network, self.claim, error_bound=bound, caveat=found.caveat)

    def _rows(self, asker: Asker, folds: CanonicalNetwork, rng: np.random.Generator) -> tuple[Array, Array]:
        """Rows on both sides of every fold, near and far, others anywhere, and their answers."""
        d, size = asker.width, folds.reach
        if asker.input_bound is not None:
            size = min(size, asker.input_bound / (8.0 * np.sqrt(d)))
        sides = np.tile(np.repeat([-1.0, 1.0], folds.count), _BESIDE)
        normals = np.tile(folds.directions, (2 * _BESIDE, 1))
        places = np.tile(folds.distances, 2 * _BESIDE)
        steps = size * sides * _NEAREST ** rng.uniform(size=len(sides))
        beside = size * rng.standard_normal((len(sides), d))
        beside -= (np.einsum("jd,jd->j", beside, normals) + places - steps)[:, None] * normals
        rows = np.concatenate([beside, size * rng.standard_normal((2 * d + _MORE, d))])
        with asker.phase("outputs"):
            return rows, one_row_function(asker)(rows)


def _error_of_places(network: Network, rows: Array, answers: Array) -> float:
    """The largest relative error of a fold's direction and distance: what it leaves beside the fold, in rows
    that were not fitted, over what the fold adds there. An error in one direction shows in 1/√d of a row."""
    J = network.neurons
    if not J:
        return 0.0
    beside = rows[: 2 * _BESIDE * J]
    left = np.linalg.norm(network(beside) - answers[: len(beside)], axis=1) / np.linalg.norm(beside, axis=1)
    usual = np.sqrt(np.mean(left.reshape(-1, J) ** 2, axis=0) * network.width)
    return float((usual / np.linalg.norm(network.U, axis=1)).max())


def _rows_of_a_fit(size: Size) -> int:
    return 2 * _BESIDE * size.neurons + 2 * size.width + _MORE


def _sizes(answers: Array) -> Array:
    """How far every output moves; 1 for one that does not."""
    spread = np.ptp(answers, axis=0)
    return np.where(spread > 0.0, spread, 1.0)


def _polished(inner: Array, fitted: tuple[Array, Array], held_out: tuple[Array, Array]) -> Array:
    """Directions and distances moved together, where answers are enough and fresh ones are met better."""
    width, outputs = inner.shape[1] - 1, fitted[1].shape[1]
    if not len(inner) or 2 * _BESIDE * outputs < _ENOUGH * (width + outputs):
        return inner
    moved = refine(NetworkFit(RELU, *fitted, skip=True), inner, _STEPS).state
    moved = moved / np.linalg.norm(moved[:, :-1], axis=1, keepdims=True)
    before, after = (rms(_network(each, *fitted)(held_out[0]) - held_out[1]) for each in (inner, moved))
    return moved if after < before else inner


def _network(inner: Array, rows: Array, answers: Array) -> Network:
    """What folds, entries of rows and the constant add, by least squares: s|z| = 2s relu(z) − s z."""
    A, b = inner[:, :-1], inner[:, -1]
    size = float(np.abs(rows).max(initial=1.0))
    design = np.column_stack([np.abs(rows @ A.T + b), rows, np.full(len(rows), size)])
    found = np.linalg.lstsq(design, answers, rcond=None)[0]
    folded, linear, constant = found[: len(A)], found[len(A) : -1], size * found[-1]
    return Network(A, 2.0 * folded, b, constant - b @ folded, linear - A.T @ folded)
