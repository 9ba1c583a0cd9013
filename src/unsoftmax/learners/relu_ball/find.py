"""A two-layer ReLU network with vector answers inside a ball: kinks along chords, and rank-one jumps of
the Jacobian."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.relu_ball.chords import find_kinks
from unsoftmax.learners.smooth_network.asks import Asks
from unsoftmax.learners.smooth_network.find import FoundNetwork
from unsoftmax.learners.smooth_network.hessians import spread_points
from unsoftmax.learners.smooth_network.network_fit import NetworkFit
from unsoftmax.models.network import Network
from unsoftmax.models.parts import RELU
from unsoftmax.outcomes import OutsideClass, Test
from unsoftmax.solvers.joint_refinement import RefinementOptions, refine

__all__ = ["KINK_TEST", "find_relu_network"]

KINK_TEST = Test("every kink is a hyperplane with one jump of the gradient")

_CHORDS = 240
_RESTARTS = 5
_MOST_NEURONS = 16  # over width; layers have four, and hyperplanes that are none are found without end
_FITS = 1e-6  # of the answers: a neuron that is missing, or counted twice, leaves more
_QUIET = (
    8  # chords in a row without a new kink that end the search, the last half aimed at what is least affine
)
_EDGE = 0.985  # of the radius: how far out chords reach
# second over first singular value of a jump that counts as one neuron; clean ones leave 1e-7, and one with
# another
# kink inside a cell is off by about as much as its second value
_RANK_ONE = 1e-4
_STEP = 0.01  # of a cell's width, from its middle: differences for Jacobians
# cosine of normal and chord up to which such differences may cross the cell's own hyperplane: steps then
# reach
# _STEP/√k of the width across it, and it is half the width times the cosine away
_SLANTED = 0.04
_SAME = 1e-3  # angle of two hyperplanes, in units of the ball, that count as one
_SPECK = 3e-3  # weight of a neuron, over the median's, that counts as what another one's error leaves
_OPTIONS = RefinementOptions(
    iterations=30, damping=1e-8, least_damping=1e-15, improvement=1e-3, dense_limit=5200
)


def find_relu_network(
    asks: Asks, noise: float, rng: np.random.Generator, *, faint: float = 0.0
) -> FoundNetwork:
    """All neurons with a kink inside the ball; the others are part of an affine function.

    noise: of the answers. faint: changes of slope that do not count, where the points asked are not quite
    those wanted.
    """
    best: FoundNetwork | None = None
    shell = _EDGE * asks.radius * _unit(rng.standard_normal((12 * asks.width, asks.width)))
    at_shell = asks(shell)
    scale = float(np.abs(at_shell).max())
    for _ in range(_RESTARTS):
        neurons = _Neurons(asks.width, asks.outputs, asks.radius, faint)
        quiet = 0
        for _ in range(_CHORDS):
            aim = shell[_least_affine(neurons, shell, at_shell)] if quiet >= _QUIET // 2 else None
            quiet = 0 if neurons.add(_along_chord(asks, neurons, noise, aim, rng)) else quiet + 1
            if quiet >= _QUIET:
                break
            if len(neurons.inner) > _MOST_NEURONS * asks.width:
                raise OutsideClass(
                    KINK_TEST, f"kinks lie on more than {len(neurons.inner)} hyperplanes, or on curved ones"
                )
        found = _fitted(asks, neurons, noise, (shell, at_shell), rng)
        if best is None or found.residual < best.residual:
            best = found
        if best.residual < _FITS * scale:
            return best
    assert best is not None
    if best.residual > 1e-3 * scale:
        raise OutsideClass(
            KINK_TEST,
            f"{best.network.neurons} neurons leave {best.residual:.2g} of answers of size {scale:.2g}",
        )
    return best


class _Neurons:
    """Neurons found so far: hyperplanes with unit normals, and the jump across each."""

    def __init__(self, width: int, outputs: int, radius: float, least: float) -> None:
        self.inner = np.empty((0, width + 1))
        self.outer = np.empty((0, outputs))
        self.radius = radius
        self.least = least

    def __call__(self, points: Array) -> Array:
        """What they add to the answers."""
        hidden = points @ self.inner[:, :-1].T + self.inner[:, -1]
        return np.asarray(np.maximum(hidden, 0.0) @ self.outer)

    @property
    def faint(self) -> float:
        """Size of a jump that counts as what the error of a known neuron leaves."""
        typical = float(np.median(np.linalg.norm(self.outer, axis=1))) if len(self.outer) else 0.0
        return max(_SPECK * typical, 30.0 * self.least)

    def add(self, found: list[tuple[Array, Array]]) -> int:
        """How many rows [a, b], with their jumps, were new; one on a hyperplane that is known corrects its
        weights."""
        new, faint = 0, self.faint
        for row, jump in found:
            if np.linalg.norm(jump) <= faint:
                continue
            if len(self.inner):
                mine = _placed(self.inner, self.radius)
                along = mine @ _placed(row[None], self.radius)[0]
                near = int(np.abs(along).argmax())
                if np.arccos(min(1.0, abs(float(along[near])))) < _SAME:
                    self.outer[near] += jump
                    continue
            new += 1
            self.inner = np.vstack([self.inner, row])
            self.outer = np.vstack([self.outer, jump])
        return new

    def tidy(self) -> None:
        """Leaves out specks."""
        kept = np.linalg.norm(self.outer, axis=1) > self.faint
        self.inner, self.outer = self.inner[kept], self.outer[kept]


def _placed(rows: Array, radius: float) -> Array:
    """Hyperplanes as unit vectors, places counted in units of the ball."""
    return _unit(np.column_stack([rows[:, :-1], rows[:, -1] / radius]))


def _unit(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def _least_affine(neurons: _Neurons, points: Array, answers: Array) -> int:
    """The point where what the neurons leave is furthest from an affine function."""
    rest = answers - neurons(points)
    design = np.column_stack([points, np.ones(len(points))])
    off = np.zeros(len(points))
    weight = np.ones(len(points))
    for _ in range(8):  # least absolute deviations, so that the few points beyond a kink stand out
        solved = np.linalg.lstsq(design * weight[:, None], rest * weight[:, None], rcond=None)[0]
        off = np.linalg.norm(rest - design @ solved, axis=1)
        weight = 1.0 / np.sqrt(off + 1e-3 * np.median(off) + 1e-14)
    return int(off.argmax())


def _along_chord(
    asks: Asks, neurons: _Neurons, noise: float, aim: Array | None, rng: np.random.Generator
) -> list[tuple[Array, Array]]:
    """New neurons that a chord crosses: the kinks along it, then the jump of the Jacobian at each."""
    k = asks.width
    if aim is None:
        along = _unit(rng.standard_normal(k))
        middle = rng.standard_normal(k)
        middle -= along * (middle @ along)
        middle *= 0.8 * asks.radius * rng.uniform() / np.linalg.norm(middle)
    else:
        inner = 0.3 * asks.radius * _unit(rng.standard_normal(k))
        along = _unit(aim - inner)
        middle = inner - along * (inner @ along)
    reach = float(np.sqrt((_EDGE * asks.radius) ** 2 - middle @ middle))

    def rest(points: Array) -> Array:
        return np.asarray(asks(points) - neurons(points))

    faint = max(0.1 * neurons.faint / np.sqrt(k), neurons.least)  # a jump's part along a random chord
    kinks = find_kinks(lambda t: rest(middle + t[:, None] * along), -reach, reach, noise, faint)
    if not len(kinks):
        return []
    ends = np.concatenate([[-reach], kinks, [reach]])
    centres, widths = 0.5 * (ends[1:] + ends[:-1]), np.diff(ends)
    turned = np.linalg.qr(np.column_stack([along, rng.standard_normal((k, k - 1))]))[0].T
    jacobians, errors = _jacobians(rest, middle + centres[:, None] * along, widths, turned, asks.radius)
    errors = 4.0 * np.sqrt(k) * (noise * errors + neurons.least)
    found = []
    for i, place in enumerate(kinks):
        jump = jacobians[i + 1] - jacobians[i]  # (k, m) in turned coordinates
        left, sizes, right = np.linalg.svd(jump, full_matrices=False)
        if len(sizes) > 1 and sizes[1] > max(_RANK_ONE * sizes[0], errors[i] + errors[i + 1]):
            continue
        normal = turned.T @ left[:, 0]
        if abs(float(normal @ along)) < _SLANTED:
            continue
        sign = 1.0 if normal @ along > 0 else -1.0
        normal = sign * normal
        row = np.append(normal, -float(normal @ (middle + place * along)))
        found.append((row, sign * sizes[0] * right[0]))
    return found


def _jacobians(
    rest: Callable[[Array], Array], centres: Array, widths: Array, turned: Array, radius: float
) -> tuple[Array, Array]:
    """(cells, k, m) derivatives along the turned basis, with steps that stay inside each cell; and how much
    each
    magnifies errors of the answers."""
    k = turned.shape[1]
    steps = np.minimum(_STEP * widths, 0.02 * radius)
    around = (centres[:, None] + steps[:, None, None] * turned).reshape(-1, k)
    answers = rest(np.concatenate([centres, around]))
    n = len(centres)
    return np.asarray((answers[n:].reshape(n, k, -1) - answers[:n, None]) / steps[:, None, None]), 1.0 / steps


def _fitted(
    asks: Asks, neurons: _Neurons, noise: float, asked: tuple[Array, Array], rng: np.random.Generator
) -> FoundNetwork:
    """Orientation by the affine part, then a joint fit of all neurons."""
    neurons.tidy()
    J, m, k = len(neurons.inner), asks.outputs, asks.width
    if J == 0:
        raise OutsideClass(KINK_TEST, "no kink was found along any chord")
    count = max(int(1.5 * (J * (k + 1 + m) / m + k + 1)), int(1.6 * (J + k + 1))) + 10
    points = spread_points(rng, count, k, _EDGE * asks.radius)
    answers = np.concatenate([asks(points), asked[1]])
    points = np.concatenate([points, asked[0]])  # far out, where neurons far from the middle are on
    fit = NetworkFit(RELU, points, answers, skip=True)
    refined = refine(fit, neurons.inner, _OPTIONS)
    network: Network = fit.network(refined.state, scalar=False)
    plain = network.without_linear()
    if plain is not None:
        fit = NetworkFit(RELU, points, answers, skip=False)
        refined = refine(fit, np.column_stack([plain.A, plain.b]), _OPTIONS)
        network = fit.network(refined.state, scalar=False)
    return FoundNetwork(network, refined.rms[-1], noise, points, answers)
