"""One line through the network, from choosing its unit to the gradients on all its arcs."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.relu_network.arcs import Arcs, settle_arcs
from unsoftmax.learners.relu_network.circle import HalfCircle, RowFunction, rounding_level
from unsoftmax.learners.relu_network.gradients import Sketch, measure_gradients
from unsoftmax.learners.relu_network.kinks import PIECES_TEST, SLACK, Kinks, find_kinks
from unsoftmax.outcomes import OutsideClass, Unresolved

__all__ = ["LineSearch"]

# when the median kink is this many units away, the unit is wrong; so wrong that the line is no good either
_FAR, _FURTHEST = 8.0, 64.0
# times the unit is set right (8 to 64 times each), and times a crowded line is drawn again
_STRETCHES, _REDRAWS = 3, 2
# of all kinks together: those that may be several, this much apart (times their size), are looked at
_SHARP = 1e-10


class LineSearch:
    """Draws lines through one function. `unit` follows the distance of the kinks; `noise` and `size` are
    those of the last line."""

    def __init__(
        self,
        function: RowFunction,
        width: int,
        biased: bool,
        rng: np.random.Generator,
        *,
        unit: float = 1.0,
        limit: int = 60_000,
    ) -> None:
        self.function, self.width, self.biased, self.rng, self.limit = function, width, biased, rng, limit
        self.unit = unit
        self.noise = self.size = 0.0
        self.blurred = 0.0  # how far apart folds taken for one may be, times their size on the circle
        # kinks of the last line that could not be told from others, closer to them than this angle
        self.merged, self.closest = 0, 0.0
        self._stretches = 0

    def expect_biases(self) -> None:
        """Lines that need not pass the origin, from now on: the function has shown that it has biases."""
        self.biased = True

    def keep_unit(self, unit: float) -> None:
        """The unit of all lines to come, wherever their kinks are."""
        self.unit, self._stretches = unit, _STRETCHES

    def gradients(self, circle: HalfCircle, arcs: Arcs) -> Sketch:
        """The gradients on all arcs of a line."""
        return measure_gradients(circle, arcs, self.noise, self.rng)

    def line(self, *, pieces: int = 8, through: Array | None = None) -> tuple[HalfCircle, Arcs]:
        """All kinks of a fresh line (through a given point), and the function between them."""
        redrawn = 0
        while True:
            circle = HalfCircle(self.function, self.width, self.biased, self.rng, self.unit, through)
            self.noise, self.size = rounding_level(circle, self.rng)
            if self.noise > 0.01 * self.size > 0.0:
                if self.unit != 1.0 and through is None:  # the unit was found from rounding alone
                    self.unit = 1.0
                    continue
                raise Unresolved(
                    f"the answers ({self.size:.2g} at most) are hardly larger than their own rounding "
                    f"({self.noise:.2g}); as far as they show the function is constant there"
                )
            found = find_kinks(circle, self.noise, self.rng, pieces=pieces, limit=self.limit)
            factor = self._stretch(found)
            self.unit *= factor
            if factor > _FURTHEST:
                through = None
                continue
            if factor > 1.0:
                circle, found = self._stretched(circle, found, factor)
            self.size = max(self.size, float(np.abs(found.answers).max()))
            self.noise = max(self.noise, found.noise)
            closest = np.sqrt(self.noise / self.size) if self.size > 0 else 0.0
            gap = float(np.diff(found.angles).min(initial=np.inf))
            if redrawn < _REDRAWS and gap < closest:
                # two kinks nearly meet on this line and cost digits; on another they will not, unless they
                # are one
                redrawn += 1
                continue
            self.merged, self.closest, joined = 0, 0.0, np.zeros(0)
            if gap < closest:
                before, self.closest = len(found.angles), closest
                found, joined = _merge(found, closest)
                self.merged = before - len(found.angles)
            found, arcs = settle_arcs(circle, found, self.rng, self.limit)
            if np.isfinite(arcs.values).all():
                self.blurred = self._blurred(circle, arcs, found.radii, joined)
                return circle, arcs
            redrawn += 1
            if redrawn > 2 * _REDRAWS:
                raise OutsideClass(
                    PIECES_TEST,
                    f"{redrawn} lines in a row have stretches that no sinusoid fits, shorter than rounding "
                    "lets one resolve",
                )

    def _blurred(self, circle: HalfCircle, arcs: Arcs, radii: Array, joined: Array) -> float:
        """How far apart folds taken for one may be, times their size. Where radii leave much open, one answer
        right at the kink tells.

        At the kinks `joined` there are several for certain. Two kinks a gap g apart, taken for one where the
        fits beside them meet, leave up to half of g times their size there.
        """
        blur = np.abs(arcs.jumps) * radii
        several = (np.abs(arcs.kinks[:, None] - joined) <= 2.0 * radii[:, None]).any(axis=1)
        wide = np.flatnonzero((blur > _SHARP * float(np.linalg.norm(arcs.jumps)) / self._aside) & ~several)
        if len(wide):
            off = np.abs(circle(arcs.kinks[wide]) - arcs.at(arcs.kinks[wide], wide))
            one = off <= SLACK * self.noise
            blur[wide] = np.where(one, np.minimum(blur[wide], 4.0 * np.maximum(off, self.noise)), blur[wide])
            self.closest = max(self.closest, float(radii[wide[~one]].max(initial=0.0)))
            self.merged += int((~one).sum())
        return float(self._aside * np.linalg.norm(blur))

    @property
    def _aside(self) -> float:
        """How much further apart hyperplanes, and how much larger folds may be than a line shows."""
        return float(4.0 * np.sqrt((self.width + 1) / 2.0))

    def _stretch(self, found: Kinks) -> float:
        """How many times longer the unit should be. When it is too short, kinks crowd at the ends of the half
        circle, and digits are lost."""
        if not self.biased or len(found.angles) == 0 or self._stretches == _STRETCHES:
            return 1.0
        typical = float(np.median(np.abs(np.tan(found.angles))))
        self._stretches += typical > _FAR
        return typical if typical > _FAR else 1.0

    def _stretched(self, circle: HalfCircle, found: Kinks, factor: float) -> tuple[HalfCircle, Kinks]:
        """The same line in the longer unit, its kinks with it; only the ends that lie further out now are
        searched."""
        circle = circle.stretched(factor)
        self.noise, self.size = rounding_level(circle, self.rng)
        seen = np.arctan(np.tan(circle.high) / factor)
        found = found.stretched(factor, self.noise)
        for span in ((circle.low, -seen), (seen, circle.high)):
            found = found.joined(
                find_kinks(circle, self.noise, self.rng, pieces=1, span=span, limit=self.limit)
            )
        return circle, found


def _merge(found: Kinks, closest: float) -> tuple[Kinks, Array]:
    """Kinks that cannot be told apart become one, as wide as they are; and which those are."""
    group = np.concatenate([[0], np.cumsum(np.diff(found.angles) >= closest)])
    angles, radii = [], []
    for i in range(int(group[-1]) + 1):
        members = found.angles[group == i]
        angles.append((members.min() + members.max()) / 2)
        radii.append(np.ptp(members) / 2 + found.radii[group == i].max())
    merged = Kinks(np.array(angles), np.array(radii), found.asked, found.answers, found.noise)
    return merged, merged.angles[np.bincount(group) > 1]
