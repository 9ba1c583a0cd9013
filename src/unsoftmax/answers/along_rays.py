"""Answers to single rows along rays: limits where they stop, lines, and how far off lines they lie."""

from __future__ import annotations

import numpy as np

from unsoftmax.answers.kinds import NO_LIMITS
from unsoftmax.arrays import EPS, Array
from unsoftmax.ledger import Asker

__all__ = [
    "Segments",
    "ask_rows",
    "deviations_from_lines",
    "far_deviation",
    "find_limits",
    "random_rows",
    "rounding_of",
]


def ask_rows(asker: Asker, rows: Array) -> Array:
    """Answers to single rows."""
    return asker.ask(rows[:, None])


def random_rows(rng: np.random.Generator, n: int, width: int) -> Array:
    """Random directions; lengths from 0.7 to 1, because rows of length one make round answers at d = 1."""
    rows = rng.standard_normal((n, width))
    lengths = rng.uniform(0.7, 1.0, (n, 1))
    return np.asarray(rows * lengths / np.linalg.norm(rows, axis=1)[:, None])


def rounding_of(level: float, width: int) -> float:
    """How far answers of this size lie off lines by rounding: they are sums over the width, added twice."""
    return float(32.0 * EPS * np.sqrt(width) * level)


def find_limits(
    asker: Asker, rows: Array, row: Array, size: float, farthest: float, noisy: Array | None, on_grid: bool
) -> tuple[tuple[float, float] | None, float]:
    """The answers' lowest and highest value if growing rows end there, and the largest size at which they had
    not.

    A ray of a network may come to rest as well: then other rows go beyond.
    """
    sizes = np.unique(np.minimum(np.append(size * 10.0 ** np.arange(4), farthest), farthest))
    close = (
        len(sizes) < 2 or sizes[-1] < 5 * sizes[-2] * 0.99
        # too close to each other to show that answers do not grow; three equal ones do, unless they are
        # rounded
    )
    if close:
        sizes = np.unique(np.append(sizes, [0.7 * farthest, 0.85 * farthest]))
    up, down = (ask_rows(asker, sign * sizes[:, None] * row / np.linalg.norm(row)) for sign in (1.0, -1.0))
    lowest, highest = float(min(up.min(), down.min())), float(max(up.max(), down.max()))
    spread = 0.0 if noisy is None else float(np.std(noisy - noisy.mean(axis=0)))
    margin = 30.0 * spread
    low, high = NO_LIMITS
    for path in (up, down):
        if (
            np.ptp(path[-3:] if close else path[-2:]) > 12.0 * spread
            or abs(path[-1]) <= margin
            or (close and (on_grid or noisy is not None))
        ):
            continue
        if path[-1] >= highest - margin:
            high = highest
        elif path[-1] <= lowest + margin:
            low = lowest
    if (low, high) != NO_LIMITS:
        elsewhere = ask_rows(asker, farthest * rows / np.linalg.norm(rows, axis=1)[:, None])
        low = low if elsewhere.min() >= low - margin else NO_LIMITS[0]
        high = high if elsewhere.max() <= high + margin else NO_LIMITS[1]
    if (low, high) == NO_LIMITS:
        return None, float(sizes[-1])
    free = (np.minimum(up, down) > low + margin) & (np.maximum(up, down) < high - margin)
    return (low, high), float(sizes[free].max(initial=0.0))


def deviations_from_lines(
    asker: Asker, rng: np.random.Generator, size: float, far: float, clip: tuple[float, float] | None
) -> tuple[Array, float]:
    """Answers to short rows against lines through the origin's answer and a far one, and the largest answer
    among the short ones."""
    low, high = clip if clip is not None else (-np.inf, np.inf)
    far = max(far, 1e-3 * size)
    for _ in range(8):
        rows = random_rows(rng, 4, asker.width)
        ends, origin = ask_rows(asker, far * rows), float(ask_rows(asker, np.zeros((1, asker.width)))[0])
        inside = (ends > low) & (ends < high)
        if inside.sum() >= 2:
            break
        far *= 0.3
    rows, slopes = rows[inside], (ends[inside] - origin) / far
    parts = rng.uniform(0.1, 1.0, (len(rows), 7)) * min(size, 0.9 * far)
    answers = ask_rows(asker, (parts[:, :, None] * rows[:, None]).reshape(-1, asker.width)).reshape(
        parts.shape
    )
    deviations = (answers - origin - parts * slopes[:, None]).ravel()
    kept = ((answers > low) & (answers < high)).ravel()
    return deviations[kept], float(np.abs(answers).max(initial=0.0))


def far_deviation(asker: Asker, rng: np.random.Generator, rows: Array) -> float:
    """How far answers along long rows lie off lines: coarse steps are not seen on rows whose whole answer is
    smaller."""
    ends, starts = ask_rows(asker, rows), ask_rows(asker, -rows)
    parts = rng.uniform(-0.6, 0.6, (3, 6))
    answers = ask_rows(asker, (parts[:, :, None] * rows[:, None]).reshape(-1, asker.width)).reshape(
        parts.shape
    )
    off = np.abs(answers - (ends + starts)[:, None] / 2 - parts * (ends - starts)[:, None] / 2)
    return float(off.max()) / 1.6 if float(off.max()) > 1e-12 * float(np.abs(ends).max()) else 0.0


class Segments:
    """Answers along three short segments, where a function that is not a line is still nearly one, and errors
    of answers still jump about.

    largest: how far they lie off lines. rounded: whether that is rounding of numbers of their size. moves:
    whether they change all along the segments.
    """

    def __init__(self, asker: Asker, places: Array) -> None:
        steps = 1.0 + 1e-4 * np.arange(5.0)
        self._answers = ask_rows(asker, (steps[:, None, None] * places).reshape(-1, asker.width)).reshape(
            5, 3
        )
        line = np.column_stack([np.ones(5), np.arange(5.0)])
        off = self._answers - line @ np.linalg.lstsq(line, self._answers, rcond=None)[0]
        self.largest = float(np.abs(off).max())
        self.rounded = self.largest <= rounding_of(float(np.abs(self._answers).max()), asker.width)
        self.moves = bool((np.abs(np.diff(self._answers, axis=0)).min(axis=0) > 0.0).all())

    def straight(self, worst: float) -> bool:
        """Whether at least two of them are lines, against deviations of that size elsewhere."""
        bends, moves = (
            np.abs(np.diff(self._answers, 2, axis=0)).max(axis=0),
            np.abs(np.diff(self._answers, axis=0)).min(axis=0),
        )
        return int(((moves > 0.0) & (bends < 1e-3 * worst) & (bends < 0.05 * moves)).sum()) >= 2
