"""Milli et al. 2019: an unbiased two-layer ReLU network with independent rows, by bisection on gradients
along a line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.relu_network.circle import HalfCircle, RowFunction
from unsoftmax.learners.relu_network.row_tests import look_along_rays, one_row_function
from unsoftmax.ledger import Asker
from unsoftmax.models import ReluNetwork
from unsoftmax.outcomes import OutsideClass, Test, Unresolved

__all__ = ["Milli2019", "milli_2019"]

_NARROW = 2.0**-20  # a change of gradient over less than this angle is one neuron
_STEP = 1e-8  # of a difference quotient while searching: it only has to tell two pieces apart
_LEVELS = 22  # halvings from an arc of length π to `_NARROW`
_DIFFERENT = 1e-5  # 500 times EPS/_STEP, the rounding of a difference quotient
_INTERVALS = 4096  # at once: more are no network of independent rows


def _queries(size: Size) -> int:
    return (size.width + 1) * (size.neurons * _LEVELS + size.neurons + 3) + 20


_CLAIM = Claim(
    title="Milli et al. 2019: gradients along a line",
    source=(
        "Milli, Schmidt, Dragan, Hardt: Model reconstruction from model explanations (FAT* 2019); named in "
        "section 4.1 of arXiv 2601.16873"
    ),
    assumptions=(
        Assumption("no biases", "answers along two rays"),
        Assumption("the rows of A are linearly independent (so m <= d)", "rank of the gradient's jumps"),
    ),
    queries=QueryCount("(d + 1)(23 m + 3) + 20", "upper", _queries),
    recovers="A up to row norms, u with them",
    symmetry="order and positive scale of neurons",
)


@dataclass(frozen=True)
class Milli2019:
    """The paper's own choice of network learner. Claim: Milli et al. 2019. Queries: about 23 m(d + 1).

    Assumes: no biases, independent rows (both checked). Recovers: the plain network. Departs: gradients from
    value queries.
    Fails when: rows are dependent or parallel (it says so), or kinks nearly meet.
    """

    family: ClassVar[Family] = Family.RELU_NETWORK
    claim: ClassVar[Claim] = _CLAIM

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        function, d = one_row_function(asker), asker.width
        if d == 1:
            raise Unresolved(
                "with one column all rows of A are parallel, and this learner needs independent ones; use "
                "the default learner"
            )
        with asker.phase("shape"):
            shape = look_along_rays(function, d, 1.0, np.inf, rng)
        if not shape.homogeneous:
            raise Unresolved(
                "the network has biases, which this learner does not treat; use the default learner"
            )
        circle = HalfCircle(function, d, False, rng)
        with asker.phase("kinks"):
            kinks = _changes(circle, asker.width)
        edges = np.concatenate([[0.0], kinks, [np.pi]])
        middles = (edges[1:] + edges[:-1]) / 2
        steps = 0.01 * np.diff(edges)
        with asker.phase("gradients"):
            gradients, size = _gradients(circle, middles, steps)
        network = _oriented(np.diff(gradients, axis=0), gradients[0], _point(circle, middles[1:]))
        error = (
            12.0
            * EPS
            * size
            * float(np.sqrt(np.square(1.0 / steps).sum()))
            / max(float(np.linalg.norm(network.folds.normals)), 1e-300)
        )
        return Learned(network, self.claim, error_bound=error)


def milli_2019() -> Milli2019:
    """The learner, for `recover_network(f, width, learner=milli_2019())`.

    >>> import unsoftmax
    >>> hidden = unsoftmax.random_relu_network(6, 3, seed=1)
    >>> result = unsoftmax.recover_network(hidden, learner=unsoftmax.milli_2019())
    >>> str(result.status), hidden.distance(result.model) < 1e-8
    ('EXACT', True)
    """
    return Milli2019()


def _point(circle: HalfCircle, angles: Array) -> Array:
    return np.asarray(np.cos(angles)[:, None] * circle.p + np.sin(angles)[:, None] * circle.q)


def _gradients(circle: HalfCircle, angles: Array, steps: Array) -> tuple[Array, float]:
    """Difference quotients at points of the circle (norm sqrt(d)), d + 1 queries each; and the size of the
    answers."""
    d = circle.width
    points = _point(circle, angles)
    moved = points[:, None] + steps[:, None, None] * np.eye(d)[None]
    function: RowFunction = circle.function
    answers = function(np.concatenate([points[:, None], moved], axis=1).reshape(-1, d)).reshape(
        len(points), d + 1
    )
    return np.asarray((answers[:, 1:] - answers[:, :1]) / steps[:, None]), float(np.abs(answers).max())


def _changes(circle: HalfCircle, width: int) -> Array:
    """Angles at which the gradient changes, by halving every interval whose ends disagree, all of a level
    together."""
    angles = np.array([1e-3 * _NARROW, np.pi * (1.0 - 1e-3 * _NARROW)])
    gradients, _ = _gradients(circle, angles, np.full(2, _STEP))
    low, high = angles[:1], angles[1:]
    at_low, at_high = gradients[:1], gradients[1:]
    found: list[float] = []
    while len(low):
        scale = max(float(np.abs(gradients).max()), np.finfo(float).tiny)
        differ = np.abs(at_low - at_high).max(axis=1) > _DIFFERENT * scale
        low, high, at_low, at_high = low[differ], high[differ], at_low[differ], at_high[differ]
        narrow = high - low < _NARROW
        found += ((low + high) / 2)[narrow].tolist()
        low, high, at_low, at_high = low[~narrow], high[~narrow], at_low[~narrow], at_high[~narrow]
        if len(found) + len(low) > min(_INTERVALS, 4 * width + 64):
            raise OutsideClass(
                Test("gradients change at few points"),
                f"more than {4 * width + 64} changes along one line; {width} independent rows make at most "
                f"{width}",
            )
        if len(low) == 0:
            break
        middle = (low + high) / 2
        gradients, _ = _gradients(circle, middle, np.full(len(middle), _STEP))
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        at_low, at_high = np.concatenate([at_low, gradients]), np.concatenate([gradients, at_high])
    return _apart(np.sort(found))


def _apart(angles: Array) -> Array:
    """A difference quotient that straddles a kink agrees with neither side, so both halves seem to hold one:
    take them as the one they are."""
    if len(angles) == 0:
        return angles
    groups = np.split(angles, np.flatnonzero(np.diff(angles) > 3.0 * _NARROW) + 1)
    return np.array([group.mean() for group in groups])


def _oriented(jumps: Array, first: Array, after: Array) -> ReluNetwork:
    """A jump is the neuron's w_i A_i when it switches on, minus that when it switches off; those that switch
    off made up the first gradient."""
    m, d = jumps.shape
    if m == 0:
        return ReluNetwork(np.zeros((0, d)), np.zeros(0), linear=first if first.any() else None)
    values = np.linalg.svd(jumps, compute_uv=False)
    rank = int((values > 1e-7 * values[0]).sum())
    if rank < m:
        raise Unresolved(
            f"the {m} gradient jumps have rank {rank}: the rows of A are linearly dependent, which this "
            "learner does not treat; use the default learner"
        )
    switched_off = -np.linalg.lstsq(jumps.T, first, rcond=None)[0]
    if np.abs(switched_off - np.round(switched_off)).max() > 1e-3 or not set(np.round(switched_off)) <= {
        0.0,
        1.0,
    }:
        raise Unresolved(
            "the first gradient is not a sum of the jumps: two neurons may share a hyperplane, or kinks "
            "nearly meet; use the default learner"
        )
    rows = np.where(np.round(switched_off)[:, None] == 1.0, -jumps, jumps)
    beyond = np.einsum("md,md->m", jumps, after)  # has the sign of w_i, whether the neuron switches on or off
    weights = np.sign(beyond) * np.linalg.norm(rows, axis=1)
    return ReluNetwork(rows / weights[:, None], weights)
