"""Kinks of a piecewise linear function along a chord, by slopes at points that halve what is not yet
straight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from unsoftmax.arrays import Array

__all__ = ["find_kinks"]

_PIECES = 8  # to begin with
_DEPTH = 40  # halvings of a chord: to the last digits of a place
_MOST = 400  # pieces at once: more mean that the tolerance is below the noise
_NARROW = 4e-5  # of the chord: kinks closer than this are left to other chords


@dataclass(frozen=True)
class _Node:
    place: float
    value: Array
    slope: Array


def find_kinks(
    function: Callable[[Array], Array], low: float, high: float, noise: float, faint: float = 0.0
) -> Array:
    """Places of all kinks between low and high that are apart by more than a few 1e-5 of the chord.

    noise: error of the function's values. faint: changes of slope up to this do not count. A kink is believed
    when both sides' lines meet the value asked there.

    >>> find_kinks(lambda t: np.abs(t - 0.3)[:, None], -1.0, 1.0, 1e-14).round(12)
    array([0.3])
    """
    length = high - low
    gap = max(1e-5, (noise / 1e-14) ** 0.5 * 1e-5) * length  # slopes to noise/gap

    def nodes(places: Array) -> list[_Node]:
        answers = function(np.concatenate([places - gap, places + gap]))
        n = len(places)
        return [
            _Node(float(t), (answers[i] + answers[n + i]) / 2.0, (answers[n + i] - answers[i]) / (2.0 * gap))
            for i, t in enumerate(places)
        ]

    start = np.linspace(low + 2 * gap, high - 2 * gap, _PIECES + 1)
    first = nodes(start)
    pieces = list(pairwise(first))
    steep = max(20.0 * noise / gap, faint)
    kinks: list[float] = []
    for _ in range(_DEPTH):
        bent = [piece for piece in pieces if not _straight(*piece, noise, steep)]
        bent = [(a, b) for a, b in bent if b.place - a.place > max(_NARROW * length, 3.0 * gap)]
        if not bent or len(bent) > _MOST:
            break
        meets = np.array([_meeting(a, b) for a, b in bent])
        inside = np.array([a.place < t < b.place for (a, b), t in zip(bent, meets, strict=True)])
        split: list[tuple[_Node, _Node, float]] = []
        asked = function(meets[inside]) if inside.any() else np.empty((0, 1))
        answers = iter(asked)
        for (a, b), t, there in zip(bent, meets, inside, strict=True):
            if there:
                y = next(answers)
                left, right = a.value + a.slope * (t - a.place), b.value + b.slope * (t - b.place)
                off = max(float(np.abs(left - y).max()), float(np.abs(right - y).max()))
                if off < 30.0 * noise + steep * (b.place - a.place):
                    kinks.append(float(t))
                    continue
                margin = 0.15 * (b.place - a.place)
                split.append((a, b, float(np.clip(t, a.place + margin, b.place - margin))))
            else:
                split.append((a, b, 0.5 * (a.place + b.place)))
        if not split:
            break
        middle = nodes(np.array([t for _, _, t in split]))
        pieces = [piece for (a, b, _), m in zip(split, middle, strict=True) for piece in ((a, m), (m, b))]
    return _merged(np.array(sorted(kinks)), nodes, function, gap, noise + steep * gap)


def _merged(
    kinks: Array,
    nodes: Callable[[Array], list[_Node]],
    function: Callable[[Array], Array],
    gap: float,
    tolerance: float,
) -> Array:
    """Two kinks closer than a slope's own points are the two sides of one that a slope straddled: it is where
    the lines outside of both meet, or is left to other chords."""
    close = np.flatnonzero(np.diff(kinks) < 3.0 * gap)
    if not len(close):
        return kinks
    before, after = nodes(kinks[close] - 4.0 * gap), nodes(kinks[close + 1] + 4.0 * gap)
    meets = np.array([_meeting(a, b) for a, b in zip(before, after, strict=True)])
    inside = (meets >= kinks[close] - gap) & (meets <= kinks[close + 1] + gap)
    kept = np.delete(kinks, np.concatenate([close, close + 1]))
    if not inside.any():
        return kept
    asked = iter(function(meets[inside]))
    good = []
    for a, b, t, there in zip(before, after, meets, inside, strict=True):
        if there:
            y = next(asked)
            left, right = a.value + a.slope * (t - a.place), b.value + b.slope * (t - b.place)
            if max(float(np.abs(left - y).max()), float(np.abs(right - y).max())) < 30.0 * tolerance:
                good.append(float(t))
    return np.array(sorted([*kept, *good]))


def _straight(a: _Node, b: _Node, noise: float, steep: float) -> bool:
    length = b.place - a.place
    ahead = float(np.abs(a.value + a.slope * length - b.value).max())
    return ahead < 10.0 * noise + steep * length and float(np.abs(b.slope - a.slope).max()) < steep


def _meeting(a: _Node, b: _Node) -> float:
    """Where the lines through both nodes meet."""
    change = b.slope - a.slope
    power = float(change @ change)
    if power == 0.0:
        return -np.inf
    return -float(((b.value - b.slope * b.place) - (a.value - a.slope * a.place)) @ change) / power
