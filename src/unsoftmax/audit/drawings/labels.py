"""Labels beside points of a picture that cover neither one another nor a point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, hypot, pi, sin

__all__ = ["Box", "place_labels"]

_DIRECTIONS = 12  # around a point in which a label is tried
_RADIUS = 5.0  # of a point, in the unit of the points
_STEPS = (1.0, 1.8, 2.8, 4.0, 5.5)  # how far out a label is tried, in units of the closest place

_MISTAKEN = 1e-3  # square units: less than any overlap that shows


@dataclass(frozen=True)
class Box:
    """A rectangle by its centre and half its sides."""

    x: float
    y: float
    half_width: float
    half_height: float

    def overlap(self, other: Box) -> float:
        """The area that both cover."""
        wide = self.half_width + other.half_width - abs(self.x - other.x)
        high = self.half_height + other.half_height - abs(self.y - other.y)
        return max(wide, 0.0) * max(high, 0.0)

    def distance(self, point: tuple[float, float]) -> float:
        """From a point to the nearest place of the box."""
        wide = max(abs(self.x - point[0]) - self.half_width, 0.0)
        high = max(abs(self.y - point[1]) - self.half_height, 0.0)
        return hypot(wide, high)


def place_labels(
    points: Sequence[tuple[float, float]], sizes: Sequence[tuple[float, float]], inside: tuple[float, float]
) -> list[tuple[float, float]]:
    """The centre of each label, in the unit of the points: the nearest place around its point that is free,
    and where none is, the one that covers least. A label that is nearer to another point than to its own is
    taken for that one's, so other free places are preferred. sizes: width and height of each label.
    inside: width and height of the picture, which labels do not leave.

    >>> place_labels([(50.0, 50.0), (50.0, 50.0)], [(10.0, 8.0)] * 2, (100.0, 100.0))[0][0] > 50.0
    True
    """
    taken = [Box(x, y, _RADIUS, _RADIUS) for x, y in points]
    placed: list[tuple[float, float]] = []
    for (x, y), (wide, high) in zip(points, sizes, strict=True):
        best, least = (x, y), float("inf")
        for box in _places(x, y, wide / 2, high / 2):
            beyond = max(box.half_width - box.x, box.x + box.half_width - inside[0], 0.0)
            beyond += max(box.half_height - box.y, box.y + box.half_height - inside[1], 0.0)
            mistaken = any(box.distance(other) < box.distance((x, y)) for other in points)
            covered = sum(box.overlap(other) for other in taken) + _MISTAKEN * mistaken + 1e3 * beyond
            if covered < least:
                best, least = (box.x, box.y), covered
            if covered == 0.0:
                break
        taken.append(Box(*best, wide / 2, high / 2))
        placed.append(best)
    return placed


def _places(x: float, y: float, half_width: float, half_height: float) -> list[Box]:
    """Around a point: to the right first, then the other directions, then further out."""
    angles = [2 * pi * turn / _DIRECTIONS for turn in range(_DIRECTIONS)]
    return [
        Box(
            x + cos(angle) * (half_width + _RADIUS * step + 1.0),
            y + sin(angle) * (half_height + _RADIUS * step + 1.0),
            half_width,
            half_height,
        )
        for step in _STEPS
        for angle in angles
    ]
