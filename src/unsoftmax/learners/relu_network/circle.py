"""A network along a line, as a function on a half circle, where every hyperplane is crossed exactly once."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import numpy as np

from unsoftmax.arrays import EPS, Array

__all__ = ["HalfCircle", "RowFunction", "rounding_at", "rounding_level"]

RowFunction = Callable[[Array], Array]

_EDGE = 1e-6  # the line is followed out to a million times its unit


class HalfCircle:
    """Homogenised: G(x, z) = z·g(x/z) is linear on cones, so it is a sinusoid on every arc between two kinks.

    Biased: the half circle cosφ·(p, 1) + sinφ·(q, 0) is the line p + tanφ·q. Far kinks are as near as close
    ones, and rounding is even.
    Unbiased: g is homogeneous by itself; the half circle is cosφ·p + sinφ·q in R^d. `others` are the
    directions off the plane, as long as q; together they span everything.
    """

    def __init__(
        self,
        function: RowFunction,
        width: int,
        biased: bool,
        rng: np.random.Generator,
        unit: float = 1.0,
        through: Array | None = None,
    ) -> None:
        self.function, self.width, self.biased, self.unit = function, width, biased, unit
        self._length = unit * np.sqrt(width)
        turned = rng.standard_normal((width, width))
        self.through: float | None = None  # the angle of the point that the circle was asked to pass
        if biased:
            basis = np.linalg.qr(turned)[0].T * self._length
            self.p = unit * rng.standard_normal(width) if through is None else through
            self.q, self.others = basis[0], basis[1:]
            self.low, self.high = -np.pi / 2 + _EDGE, np.pi / 2 - _EDGE
            self.through = None if through is None else 0.0
        else:
            if through is not None:
                turned[:, 0] = through
            basis = np.linalg.qr(turned)[0].T * self._length
            if (
                through is not None
            ):  # the point must not be an end of the half circle: put it a third of the way in
                along = float(np.sign(basis[0] @ through))
                self.through = np.pi / 3
                c, s = np.cos(self.through), np.sin(self.through)
                basis[:2] = np.array([[c * along, -s], [s * along, c]]) @ basis[:2]
            self.p, self.q, self.others = basis[0], basis[1], basis[2:]
            self.low, self.high = 0.0, np.pi

    @property
    def dimensions(self) -> int:
        """Directions off the plane of the circle."""
        return len(self.others)

    @property
    def leverage(self) -> float:
        """How much larger than the errors of gradients, on the circle's scale, those of offsets are: the
        origin may be far from the line's middle."""
        return float(np.hypot(1.0, np.linalg.norm(self.p) / self._length)) if self.biased else 1.0

    def stretched(self, factor: float) -> HalfCircle:
        """The same line in units that many times longer."""
        other = copy(self)
        other._stretch(factor)
        return other

    def _stretch(self, factor: float) -> None:
        self.unit, self._length, self.q, self.others = (
            factor * part for part in (self.unit, self._length, self.q, self.others)
        )

    def __call__(self, angles: Array, aside: Array | None = None) -> Array:
        """G on the circle, or `aside` of it (rows of R^d, in homogeneous coordinates)."""
        answers = self.function(self.rows(angles, aside))
        return np.asarray(np.cos(angles) * answers) if self.biased else answers

    def rows(self, angles: Array, aside: Array | None = None) -> Array:
        """The rows that stand for points on the circle, or aside of it."""
        cosine, sine = np.cos(angles)[:, None], np.sin(angles)[:, None]
        if self.biased:
            rows = self.p + (sine / cosine) * self.q
            return np.asarray(rows if aside is None else rows + aside / cosine)
        rows = cosine * self.p + sine * self.q
        return np.asarray(rows if aside is None else rows + aside)

    def vectors(self, along_p: Array, along_q: Array, along_others: Array) -> tuple[Array, Array]:
        """Covectors from their values on p (homogeneous), q and the others: parts in R^d, and on z."""
        square = self._length**2
        rows = along_others @ self.others / square + np.outer(along_q, self.q) / square
        if self.biased:
            return rows, along_p - rows @ self.p
        return rows + np.outer(along_p, self.p) / square, np.zeros(len(rows))


def rounding_level(circle: HalfCircle, rng: np.random.Generator) -> tuple[float, float]:
    """(rounding of an answer, size of the answers): from collinear points 1e-10 apart, where the answers are
    largest.

    Where the function happens to be small its rounding is too, and a level taken there would let every answer
    look like a kink. So when four places show nothing but rounding, many are tried.
    """
    noise, size = _level(circle, 4, rng)
    return _level(circle, 48, rng) if noise > 0.01 * size > 0.0 else (noise, size)


def _level(circle: HalfCircle, count: int, rng: np.random.Generator) -> tuple[float, float]:
    places = (
        circle.low + (circle.high - circle.low) * (np.arange(count) + rng.uniform(0.1, 0.9, count)) / count
    )
    first = circle(places)
    worst, largest = rounding_at(circle, places[np.argsort(-np.abs(first))[:2]], rng)
    size = max(largest, float(np.abs(first).max()))
    return 2.0 * max(worst, EPS * size), size


def rounding_at(circle: HalfCircle, places: Array, rng: np.random.Generator) -> tuple[float, float]:
    """(largest deviation from a straight line, largest answer) among four points 1e-10 apart, at each of
    these places."""
    steps = np.arange(4) + rng.uniform(0.0, 0.5, (len(places), 4))
    answers = circle((places[:, None] + 1e-10 * steps).ravel()).reshape(steps.shape)
    worst = 0.0
    for step, values in zip(steps, answers, strict=True):
        line = np.column_stack([np.ones(4), step - step[0]])
        moved = values - values[0]
        worst = max(worst, float(np.abs(moved - line @ np.linalg.lstsq(line, moved, rcond=None)[0]).max()))
    return worst, float(np.abs(answers).max())
