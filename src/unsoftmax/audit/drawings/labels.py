"""Labels beside points of a picture that cover neither one another nor a point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import cos, hypot, pi, sin

__all__ = ["Box", "is_far", "place_labels"]

_DIRECTIONS = 12  # around a point in which a label is tried
_RADIUS = 5.0  # of a point, in the unit of the points
_STEPS = (1.0, 1.8, 2.8, 4.0, 5.5)  # how far out a label is tried, in units of the closest place
_NEAR = 12.0  # from a label to its point, up to which nobody needs a line
_PIECE = 3.0  # of a line that leads to a label

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


def is_far(place: tuple[float, float], point: tuple[float, float], size: tuple[float, float]) -> bool:
    """Whether a label there needs a line that leads to its point."""
    return any(abs(place[i] - point[i]) > size[i] / 2 + _NEAR for i in range(2))


def place_labels(
    points: Sequence[tuple[float, float]], sizes: Sequence[tuple[float, float]], inside: tuple[float, float]
) -> list[tuple[float, float]]:
    """The centre of each label, in the unit of the points: the nearest place around its point that is free,
    and where none is, the one that covers least. A label that is nearer to another point than to its own is
    taken for that one's, so other free places are preferred. Lines that lead to labels cover as labels do.
    sizes: width and height of each label. inside: width and height of the picture, which labels do not leave.

    >>> place_labels([(50.0, 50.0), (50.0, 50.0)], [(10.0, 8.0)] * 2, (100.0, 100.0))[0][0] > 50.0
    True
    """
    places = range(len(points))
    orders = (
        list(places),
        list(reversed(places)),
        sorted(places, key=lambda i: sizes[i]),
        sorted(places, key=lambda i: sizes[i], reverse=True),
        sorted(places, key=lambda i: points[i]),
    )
    tried = [_placed(order, points, sizes, inside) for order in orders]
    return min(tried, key=lambda found: found[1])[0]


def _placed(
    order: Sequence[int],
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    inside: tuple[float, float],
) -> tuple[list[tuple[float, float]], tuple[float, float]]:
    """The places when labels are placed in this order; what they cover, and how far they are."""
    marks = [Box(x, y, _RADIUS, _RADIUS) for x, y in points]
    drawn: list[Box] = []
    placed = list(points)
    covered, away = 0.0, 0.0
    for i in order:
        (x, y), (wide, high) = points[i], sizes[i]
        others = [mark for j, mark in enumerate(marks) if j != i] + drawn
        best, least = Box(x, y, wide / 2, high / 2), float("inf")
        for box in _places(x, y, wide / 2, high / 2):
            beyond = max(box.half_width - box.x, box.x + box.half_width - inside[0], 0.0)
            beyond += max(box.half_height - box.y, box.y + box.half_height - inside[1], 0.0)
            mistaken = any(box.distance(other) < box.distance((x, y)) for other in points)
            parts = [box, *_leader(box, (x, y))]
            cost = sum(part.overlap(other) for other in others for part in parts)
            cost += box.overlap(marks[i]) + _MISTAKEN * mistaken + 1e3 * beyond
            if cost < least:
                best, least = box, cost
            if cost == 0.0:
                break
        drawn += [best, *_leader(best, (x, y))]
        placed[i] = (best.x, best.y)
        covered, away = covered + least, away + best.distance((x, y))
    return placed, (covered, away)


def _leader(label: Box, point: tuple[float, float]) -> list[Box]:
    """Pieces of the line from a point to its label, where one is drawn."""
    if not is_far((label.x, label.y), point, (2 * label.half_width, 2 * label.half_height)):
        return []
    n = int(label.distance(point) / _PIECE)
    steps = [k / (n + 1) for k in range(1, n + 1)]
    pieces = [(point[0] + t * (label.x - point[0]), point[1] + t * (label.y - point[1])) for t in steps]
    return [Box(x, y, 1.0, 1.0) for x, y in pieces if label.distance((x, y)) > 1.0]


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
