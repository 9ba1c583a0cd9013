"""A two-layer ReLU network with vector answers inside a ball: kinks along chords, and rank-one jumps of the
Jacobian."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.relu_ball.chords import find_kinks
from unsoftmax.learners.relu_ball.courses import EDGE, Course
from unsoftmax.learners.relu_ball.crossed_neurons import Chord, Crossed
from unsoftmax.learners.relu_ball.outliers import Sample, beside_affine, missing_hyperplane
from unsoftmax.learners.smooth_network.asks import Asks, CountedAsks
from unsoftmax.learners.smooth_network.network_fit import FoundNetwork, NetworkFit, fit_network
from unsoftmax.models.networks.network import Network
from unsoftmax.models.parts import RELU
from unsoftmax.outcomes import OutsideClass, Test, Unresolved
from unsoftmax.solvers.least_squares.joint_refinement import RefinementOptions

__all__ = ["KINK_TEST", "find_relu_network"]

KINK_TEST = Test("every kink is a hyperplane with one jump of the gradient")

_CHORDS = 240  # drawn at most
_RESTARTS = 5  # from other random chords, where a fit does not arrive
_MOST_NEURONS = 16  # over width; layers have four, and hyperplanes that are none are found without end
# queries over (neurons + width)(width + 1) that end the search: layers cost 1 to 3, a bend that is not a kink
# thousands, because chords halve it without end
_MOST_QUERIES = 30
# of the answers: points asked are off by as much where eps is known to a thousandth; a missing neuron
# leaves more, unless no point of the sample shows it
_FITS = 2e-5
_QUIET = 3  # chords in a row without a new kink that end the search at random
_OUTLIER = 1e-4  # of the answers: what known neurons leave at points that no further neuron reaches is 1e-6
_TRIES = 2  # chords to one such point
_MOST_TRIED = 12  # points beyond, each of which is an error of the known neurons
_BEYOND = 4.0  # points of the sample beyond a hyperplane: none are there with a chance of 2 %
_FURTHER = 1.1  # of the furthest hyperplane found: rows are sent a little beyond it
_MOST_POINTS = 60  # a neuron and number of its parameters over those of an answer
_SAME = 1e-3  # angle of two hyperplanes, in units of the ball, that count as one
# angle of two hyperplanes whose kinks chords tell apart. A third kink inside a cell has put one 3e-4 off;
# right ones are 1e-7 off
_APART = 1e-5
_SPECK = 3e-3  # weight of a neuron, over the median's, that counts as what another one's error leaves
_AS_GOOD = 3.0  # residual of a fit without specks, over that with them
_OPTIONS = RefinementOptions(
    iterations=30, damping=1e-8, least_damping=1e-15, improvement=1e-3, dense_limit=5200
)


def find_relu_network(
    asks: Asks, noise: float, rng: np.random.Generator, *, faint: float = 0.0
) -> FoundNetwork[Network]:
    """All neurons with a kink inside the ball; the others are part of an affine function.

    noise: of the answers. faint: changes of slope that do not count, where the points asked are not quite
    those wanted.
    """
    best: FoundNetwork[Network] | None = None
    counted = CountedAsks(asks)
    sample = Sample.on_shell(counted, 12 * asks.width, rng)
    for _ in range(_RESTARTS):
        try:
            neurons, sample = _all_neurons(counted, noise, faint, sample, rng)
        except Unresolved:
            if best is None:
                raise
            break
        found = _fitted(neurons, noise, sample)
        if best is None or found.residual < best.residual:
            best = found
        if best.residual < _FITS * sample.scale:
            return best
    assert best is not None
    if best.residual > 1e-3 * sample.scale:
        raise OutsideClass(
            KINK_TEST,
            f"{best.network.neurons} neurons leave {best.residual:.2g} of answers of size {sample.scale:.2g}",
        )
    return best


def _all_neurons(
    asks: CountedAsks, noise: float, faint: float, sample: Sample, rng: np.random.Generator
) -> tuple[_Neurons, Sample]:
    """Those that random chords meet, then those that points of the sample show, which grows meanwhile."""
    neurons = _Neurons(asks.width, asks.outputs, asks.radius, faint)
    _search(asks, neurons, noise, rng)
    while True:
        neurons.tidy()
        wanted = max(_needed(asks, len(neurons.inner)), neurons.points_that_see_all())
        if not _search_outliers(asks, neurons, noise, sample, rng) and len(sample.points) >= wanted:
            return neurons, sample
        sample = sample.grown_to(asks, wanted, rng)


def _needed(asks: Asks, neurons: int) -> int:
    """Points that a fit of so many neurons needs."""
    if neurons == 0:
        raise OutsideClass(KINK_TEST, "no kink was found along any chord")
    J, m, k = neurons, asks.outputs, asks.width
    return max(int(1.5 * (J * (k + 1 + m) / m + k + 1)), int(1.6 * (J + k + 1))) + 10 + 12 * k


def _check_work(asks: CountedAsks, neurons: _Neurons) -> None:
    """Raises where kinks are more, or take more queries, than those of any layer."""
    J = len(neurons.inner)
    if len(neurons.inner) > _MOST_NEURONS * asks.width:
        raise OutsideClass(KINK_TEST, f"kinks lie on more than {J} hyperplanes, or on curved ones")
    if asks.count > _MOST_QUERIES * (J + asks.width) * (asks.width + 1):
        raise Unresolved(
            f"the search for kinks ended after {asks.count} queries with {J} hyperplanes: answers bend where "
            "no kink is, as with another activation in some neurons"
        )


def _search(asks: CountedAsks, neurons: _Neurons, noise: float, rng: np.random.Generator) -> None:
    """Random chords, until some in a row find nothing."""
    quiet = 0
    for _ in range(_CHORDS):
        _check_work(asks, neurons)
        course = Course.at_random(asks, rng)
        quiet = 0 if neurons.add(_along_chord(asks, neurons, noise, course, rng)) else quiet + 1
        if quiet >= _QUIET:
            break


def _search_outliers(
    asks: CountedAsks, neurons: _Neurons, noise: float, sample: Sample, rng: np.random.Generator
) -> int:
    """How many neurons were new on chords to what is not affine, once known neurons are taken off: short ones
    across the hyperplanes that explain it, then long ones to the points themselves."""
    new, tried = 0, np.zeros(len(sample.points), dtype=int)
    while True:
        left = beside_affine(sample.points, sample.answers - neurons(sample.points))
        off = np.where(tried < _TRIES, np.linalg.norm(left, axis=1), 0.0)
        worst = int(off.argmax())
        if off[worst] < _OUTLIER * sample.scale or (tried > 0).sum() > _MOST_TRIED + 2 * new:
            return new
        _check_work(asks, neurons)
        row = None if tried[worst] else missing_hyperplane(sample.points, left, worst)
        point = sample.points[worst]
        course = Course.to_point(asks, point, rng) if row is None else Course.across(asks, row, rng)
        found = neurons.add(_along_chord(asks, neurons, noise, course, rng))
        tried[worst] += 1
        new += found


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
        """How many rows [a, b], with their jumps, were new. Those on a hyperplane that is known correct its
        weights, or the hyperplane itself: what is left then has two kinks, the neuron's own and, with the
        opposite sign, that of the known one."""
        new, faint = 0, self.faint
        known = _placed(self.inner, self.radius)
        wrong = np.zeros(len(known), dtype=bool)
        for row, jump in found:
            if np.linalg.norm(jump) <= faint:
                continue
            near, angle = self._nearest(row, known)
            if angle >= _SAME:
                new += 1
                self._append(row, jump)
            elif self._misplaced(near, jump, angle):
                wrong[near] = True
                if jump @ self.outer[near] > 0.0:
                    self._append(row, jump)
            else:
                self.outer[near] += jump
        kept = np.append(~wrong, np.ones(len(self.inner) - len(wrong), dtype=bool))
        self.inner, self.outer = self.inner[kept], self.outer[kept]
        return new

    def _nearest(self, row: Array, known: Array) -> tuple[int, float]:
        """The known hyperplane nearest to this one, and the angle between both."""
        if not len(known):
            return 0, np.pi / 2.0
        along = np.abs(known @ _placed(row[None], self.radius)[0])
        near = int(along.argmax())
        return near, float(np.arccos(min(1.0, along[near])))

    def _misplaced(self, near: int, jump: Array, angle: float) -> bool:
        """Whether a kink that is left near a known neuron is this one's whole weight: its own, taken off
        where it is not, or the one it stands for."""
        half = 0.5 * float(np.linalg.norm(self.outer[near]))
        own = float(np.linalg.norm(self.outer[near] + jump)) < half
        return own or (angle > _APART and float(np.linalg.norm(self.outer[near] - jump)) < half)

    def _append(self, row: Array, jump: Array) -> None:
        self.inner = np.vstack([self.inner, row])
        self.outer = np.vstack([self.outer, jump])

    def points_that_see_all(self) -> int:
        """Points on the shell of which a few lie beyond every hyperplane as far out as those known, and a
        little further; at most some for each parameter."""
        width = self.inner.shape[1] - 1
        furthest = float((np.abs(self.inner[:, -1]) / self.radius).max(initial=0.0)) * _FURTHER / EDGE
        most = int(_MOST_POINTS * self.inner.shape[0] * (1.0 + width / self.outer.shape[1]))
        return min(most, int(_BEYOND / max(_cap(furthest, width), 1e-12)))

    def tidy(self) -> None:
        """Leaves out specks."""
        kept = np.linalg.norm(self.outer, axis=1) > self.faint
        self.inner, self.outer = self.inner[kept], self.outer[kept]


def _cap(cosine: float, width: int) -> float:
    """Part of a sphere in `width` dimensions beyond a hyperplane at this distance from its middle.

    >>> round(_cap(0.0, 5), 2), round(_cap(0.5, 3), 3)
    (0.5, 0.25)
    """
    angles = np.linspace(0.0, np.pi, 4001)
    density = np.sin(angles) ** (width - 2)
    return float(density[np.cos(angles) > min(cosine, 1.0)].sum() / density.sum())


def _placed(rows: Array, radius: float) -> Array:
    """Hyperplanes as unit vectors, places counted in units of the ball."""
    return _unit(np.column_stack([rows[:, :-1], rows[:, -1] / radius]))


def _unit(rows: Array) -> Array:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def _along_chord(
    asks: Asks, neurons: _Neurons, noise: float, course: Course, rng: np.random.Generator
) -> list[tuple[Array, Array]]:
    """New neurons that a chord crosses: the kinks along it, then the jump of the Jacobian at each."""
    middle, along, reach, k = course.middle, course.along, course.reach, asks.width

    def rest(points: Array) -> Array:
        return np.asarray(asks(points) - neurons(points))

    faint = max(0.1 * neurons.faint / np.sqrt(k), neurons.least)  # a jump's part along a random chord
    kinks = find_kinks(lambda t: rest(middle + t[:, None] * along), -reach, reach, noise, faint)
    if not len(kinks):
        return []
    turned = np.linalg.qr(np.column_stack([along, rng.standard_normal((k, k - 1))]))[0].T
    crossed = Crossed(rest, Chord(middle, along, reach, kinks), turned, asks.radius)
    return crossed.neurons(noise, neurons.least)


def _fitted(neurons: _Neurons, noise: float, sample: Sample) -> FoundNetwork[Network]:
    """Orientation by the affine part, then a joint fit of all neurons; without those that add next to nothing
    in it, unless the fit needs them: hyperplanes that are none, which an error of a known neuron left."""
    fit = NetworkFit(RELU, sample.points, sample.answers, skip=True)
    found = fit_network(fit, neurons.inner, noise, _OPTIONS)
    network = found.network
    sizes = np.linalg.norm(network.A, axis=1) * np.linalg.norm(network.U, axis=1)
    kept = sizes > _SPECK * float(np.median(sizes))
    if kept.all():
        return found
    fewer = fit_network(fit, fit.state(network)[kept], noise, _OPTIONS)
    return fewer if fewer.precise or fewer.residual <= _AS_GOOD * found.residual else found
