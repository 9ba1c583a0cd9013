"""All kinks of a piecewise sinusoidal function on an interval, with about five queries per kink."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import EPS, Array
from unsoftmax.learners.relu_network.circle import HalfCircle, rounding_at
from unsoftmax.outcomes import OutsideClass, Test

__all__ = ["PIECES_TEST", "Flags", "Indices", "Kinks", "find_kinks"]

PIECES_TEST = Test("one-row answers are piecewise linear")
SLACK = 8.0  # an answer agrees with a line when it is off by no more than this many rounding levels
_SHORT, _LONG = (
    2e-3,
    2e-2,
    # base of a slope, as a part of the interval: short where kinks may be dense, long where they are known to
    # be
    # sparse
)
_REPAIR = 8.0  # a slope whose base is longer than this part of its interval is measured anew
_ROUNDS = 70  # an interval that is halved so often is below the last digit
_SMALLEST = 1e-12  # intervals below this are not split any more
# so many intervals this short at a time: is the rounding level right?
_SUSPICIOUS, _CROWD, _DOUBTS = 1e-7, 3, 4
_TINY = 1e-300  # instead of zero, to divide by
_FAR_OUT = 0.1  # cosine of an angle

Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]


@dataclass
class Kinks:
    """What a search found: angles of the kinks, how well each is known, and every answer it has seen."""

    angles: Array
    radii: Array
    asked: Array
    answers: Array
    noise: float

    def stretched(self, factor: float, noise: float) -> Kinks:
        """What it found on a line with biases, in units that many times longer: p + tanφ·q = p + (tanφ /
        factor)·(factor·q).

        Answers from far out are left out: an angle close to π/2, rounded anew, does not tell well enough
        where they were asked.
        """
        angles, asked = (np.arctan(np.tan(part) / factor) for part in (self.angles, self.asked))
        closer = np.square(np.cos(angles) / np.cos(self.angles)) / factor
        near = np.cos(asked) > _FAR_OUT
        answers = self.answers * np.cos(asked) / np.cos(self.asked)
        return Kinks(angles, self.radii * closer, asked[near], answers[near], noise)

    def joined(self, other: Kinks) -> Kinks:
        """Both searches together, in order."""
        angles = np.concatenate([self.angles, other.angles])
        order = np.argsort(angles)
        return Kinks(
            angles[order],
            np.concatenate([self.radii, other.radii])[order],
            np.concatenate([self.asked, other.asked]),
            np.concatenate([self.answers, other.answers]),
            max(self.noise, other.noise),
        )


@dataclass
class _Ends:
    """One end of each open interval: value and slope there, the base over which the slope was measured, and
    whether it was confirmed."""

    angle: Array
    value: Array
    slope: Array
    base: Array
    sure: Flags

    def at(self, angle: Array) -> Array:
        """The sinusoid through this end, elsewhere."""
        step = angle - self.angle
        return np.asarray(self.value * np.cos(step) + self.slope * np.sin(step))

    def slope_at(self, angle: Array) -> Array:
        step = angle - self.angle
        return np.asarray(self.slope * np.cos(step) - self.value * np.sin(step))

    def slack(self, angle: Array, unit: float) -> Array:
        """How far an answer on the same sinusoid may be off, rounding of value and slope included."""
        return np.asarray(unit * (2.0 + np.abs(np.sin(angle - self.angle)) / self.base))

    def __getitem__(self, which: Flags | Indices) -> _Ends:
        return _Ends(
            self.angle[which], self.value[which], self.slope[which], self.base[which], self.sure[which]
        )

    def moved(self, angle: Array, value: Array) -> _Ends:
        """The same sinusoids, seen from a further point on them: a longer base gives a better slope."""
        step = angle - self.angle
        secant = (value * np.cos(step) - self.value) / np.sin(step)
        longer = np.abs(step) > self.base
        return _Ends(
            angle,
            value,
            np.where(longer, secant, self.slope_at(angle)),
            np.where(longer, np.abs(step), self.base),
            np.ones(len(angle), dtype=bool),
        )


def _joined(parts: list[_Ends]) -> _Ends:
    return _Ends(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("angle", "value", "slope", "base", "sure")
        )
    )


class _Search:
    """Intervals between known ends are resolved together, one batch a step: straight, one kink, or split."""

    def __init__(self, circle: HalfCircle, noise: float, rng: np.random.Generator, limit: int) -> None:
        self.circle, self.noise, self.rng, self.limit = circle, noise, rng, limit
        self.asked: list[Array] = []
        self.answers: list[Array] = []
        self.count = 0
        self.kinks: list[float] = []
        self.radii: list[float] = []
        self._slope_base = _SHORT
        self._doubts = 0

    def ask(self, angles: Array) -> Array:
        if len(angles) == 0:
            return np.zeros(0)
        self.count += len(angles)
        if self.count > self.limit:
            raise OutsideClass(
                PIECES_TEST,
                f"{self.limit} queries along one line did not resolve its kinks ({len(self.kinks)} found); "
                "the function bends everywhere, or has more neurons than max_neurons allows",
            )
        answers = self.circle(angles)
        self.asked.append(angles)
        self.answers.append(answers)
        self.noise = max(self.noise, 2.0 * EPS * float(np.abs(answers).max()))
        return answers

    def start(self, low: float, high: float, pieces: int, through: float | None) -> tuple[_Ends, _Ends]:
        """Evenly spread first points (jittered), each with a slope."""
        length = (high - low) / pieces
        angle = np.linspace(low, high, pieces + 1)
        angle[1:-1] += self.rng.uniform(-0.2, 0.2, pieces - 1) * length
        if through is not None:
            angle[1 + int(np.abs(angle[1:-1] - through).argmin())] = through
        partner = angle + _SHORT * length * np.where(np.arange(pieces + 1) == pieces, -1.0, 1.0)
        values = self.ask(np.concatenate([angle, partner])).reshape(2, -1)
        ends = self._with_slopes(angle, values[0], partner, values[1])
        inner = np.arange(pieces)
        return ends[inner], ends[inner + 1]

    def _with_slopes(self, angle: Array, value: Array, partner: Array, partner_value: Array) -> _Ends:
        step = partner - angle
        slope = (partner_value - value * np.cos(step)) / np.sin(step)
        return _Ends(angle, value, slope, np.abs(step), np.zeros(len(angle), dtype=bool))

    def step(self, left: _Ends, right: _Ends) -> tuple[_Ends, _Ends] | None:
        """One round over all open intervals; what is still open comes back."""
        length = right.angle - left.angle
        self._doubt_noise(left.angle[length < _SUSPICIOUS])
        self._confirm_slopes(left, length, 1.0)
        self._confirm_slopes(right, length, -1.0)
        unit = SLACK * self.noise
        allow_left, allow_right = left.slack(right.angle, unit), right.slack(left.angle, unit)
        allowed = np.maximum(allow_left, allow_right)
        straight = (np.abs(left.at(right.angle) - right.value) <= allow_left) & (
            np.abs(right.at(left.angle) - left.value) <= allow_right
        )
        kink, radius = _crossing(left, right, allowed)
        inside = ~straight & (radius < 0.9 * (kink - left.angle)) & (radius < 0.9 * (right.angle - kink))
        at_straight, at_inside = np.flatnonzero(straight), np.flatnonzero(inside)
        at_doubt = np.flatnonzero(~straight & ~inside)

        between = left.angle[at_straight] + length[at_straight] * self.rng.uniform(0.1, 0.9, len(at_straight))
        seen = self.ask(between)
        agrees = np.abs(seen - left[at_straight].at(between)) <= allowed[at_straight]

        hit, where, what = self._both_sides(
            left[at_inside], right[at_inside], kink[at_inside], radius[at_inside], allowed[at_inside]
        )
        self.kinks += kink[at_inside[hit]].tolist()
        self.radii += radius[at_inside[hit]].tolist()

        halves = left.angle[at_doubt] + length[at_doubt] * self.rng.uniform(0.42, 0.58, len(at_doubt))
        open_ = np.concatenate([at_straight[~agrees], at_inside[~hit], at_doubt])
        point = np.concatenate([between[~agrees], where[~hit], halves])
        value = np.concatenate([seen[~agrees], what[~hit], self.ask(halves)])
        resolved = (int(hit.sum()) + int(agrees.sum())) / len(length)
        self._slope_base = _SHORT if resolved < 0.25 else (_LONG if resolved > 0.4 else 3 * _SHORT)

        small = length[open_] < _SMALLEST
        self.kinks += point[small].tolist()
        self.radii += length[open_[small]].tolist()
        open_, point, value = open_[~small], point[~small], value[~small]
        return self._split(left[open_], right[open_], point, value) if len(open_) else None

    def _doubt_noise(self, places: Array) -> None:
        """Kinks that crowd together are more likely rounding, larger here than where it was measured: neurons
        that cancel leave theirs behind."""
        if len(places) < _CROWD or self._doubts == _DOUBTS:
            return
        self._doubts += 1
        worst, _ = rounding_at(self.circle, self.rng.choice(places, 2, replace=False), self.rng)
        self.noise = max(self.noise, 2.0 * worst)

    def _confirm_slopes(self, ends: _Ends, length: Array, side: float) -> None:
        """A slope measured over a base comparable to its interval may have a kink in it: look again,
        closer."""
        which = np.flatnonzero(~ends.sure & (length < _REPAIR * ends.base))
        if len(which) == 0:
            return
        chosen = ends[which]
        partner = chosen.angle + side * _LONG * length[which]
        value = self.ask(partner)
        good = np.abs(value - chosen.at(partner)) <= chosen.slack(partner, SLACK * self.noise)
        fresh = self._with_slopes(chosen.angle, chosen.value, partner, value)
        bad = which[~good]
        ends.slope[bad], ends.base[bad] = fresh.slope[~good], fresh.base[~good]
        ends.sure[which[good]] = True

    def _both_sides(
        self, left: _Ends, right: _Ends, kink: Array, radius: Array, allowed: Array
    ) -> tuple[Flags, Array, Array]:
        """Asks just before and just after each predicted kink, at the limit of what rounding lets one tell;
        the second side only if the first agrees.

        Returns which are kinks, and for the others the point that disagreed, with its value.
        """
        left_first = self.rng.random(len(kink)) < 0.5
        before, after = kink - radius, kink + radius

        def check(on_left: Flags, which: Indices) -> tuple[Array, Array, Flags]:
            point = np.where(on_left, before, after)[which]
            value = self.ask(point)
            expected = np.where(on_left, left.at(before), right.at(after))[which]
            return point, value, np.abs(value - expected) <= allowed[which]

        everything = np.arange(len(kink))
        point, value, good = check(left_first, everything)
        second = np.flatnonzero(good)
        other_point, other_value, other_good = check(~left_first, second)
        hit = np.zeros(len(kink), dtype=bool)
        hit[second] = other_good
        where, what = point.copy(), value.copy()  # the originals are kept as answers
        where[second], what[second] = other_point, other_value
        return hit, where, what

    def _split(self, left: _Ends, right: _Ends, point: Array, value: Array) -> tuple[_Ends, _Ends]:
        """A point on the left sinusoid becomes the left end, on the right one the right end; any other is a
        new end between them."""
        unit = SLACK * self.noise
        from_left = np.abs(value - left.at(point)) / left.slack(point, unit)
        from_right = np.abs(value - right.at(point)) / right.slack(point, unit)
        on_left = (from_left <= 1.0) & ~((from_right <= 1.0) & (from_right < from_left))
        on_right = (from_right <= 1.0) & ~on_left
        alone = ~(on_left | on_right)
        lefts = [left[on_left].moved(point[on_left], value[on_left]), left[on_right]]
        rights = [right[on_left], right[on_right].moved(point[on_right], value[on_right])]
        if alone.any():
            centre = point[alone]
            room = np.minimum(centre - left.angle[alone], right.angle[alone] - centre)
            step = 2.0 * self._slope_base * room * self.rng.choice([-1.0, 1.0], len(centre))
            partner = centre + np.where(np.abs(step) < 1e-14, 1e-14, step)
            middle = self._with_slopes(centre, value[alone], partner, self.ask(partner))
            lefts += [left[alone], middle]
            rights += [middle, right[alone]]
        return _joined(lefts), _joined(rights)


def _crossing(left: _Ends, right: _Ends, allowed: Array) -> tuple[Array, Array]:
    """Where the two sinusoids meet, and how far rounding may move that."""
    gap = right.at(left.angle) - left.value
    bend = right.slope_at(left.angle) - left.slope
    step = np.arctan2(-gap * np.sign(bend + _TINY), np.abs(bend)) % np.pi
    radius = np.maximum(4.0 * allowed / np.maximum(np.abs(bend), _TINY), 4e-15)
    return left.angle + step, radius


def find_kinks(
    circle: HalfCircle,
    noise: float,
    rng: np.random.Generator,
    *,
    pieces: int = 8,
    span: tuple[float, float] | None = None,
    limit: int = 60_000,
    rounds: int = _ROUNDS,
) -> Kinks:
    """Every kink between the ends of the circle (or of `span`), as far as the answers show it."""
    search = _Search(circle, max(noise, _TINY), rng, limit)
    low, high = span if span is not None else (circle.low, circle.high)
    open_: tuple[_Ends, _Ends] | None = search.start(
        low, high, pieces, circle.through if span is None else None
    )
    for _ in range(rounds):
        if open_ is None:
            break
        open_ = search.step(*open_)
    order = np.argsort(search.kinks)
    return Kinks(
        np.array(search.kinks)[order],
        np.array(search.radii)[order],
        np.concatenate(search.asked),
        np.concatenate(search.answers),
        search.noise,
    )
