"""Where chords go: at random, to a point, or across a hyperplane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.smooth_network.asks import Asks

__all__ = ["EDGE", "Course"]

EDGE = 0.985  # of the radius: how far out chords reach
# of the radius, either way: where missing neurons are looked for, constants are off by 4e-3 and
# a cosine of 0.99 moves a hyperplane by 0.04
_SHORT = 0.1
_DEEPEST = 0.9  # of the radius: from there 0.3 of it aside is inside; no point lies beyond those further out


@dataclass(frozen=True)
class Course:
    """Points middle + t·along, |t| <= reach."""

    middle: Array
    along: Array
    reach: float

    @classmethod
    def at_random(cls, asks: Asks, rng: np.random.Generator) -> Self:
        along = _unit(rng.standard_normal(asks.width))
        middle = _beside(along, rng.standard_normal(asks.width))
        middle *= 0.8 * asks.radius * rng.uniform() / np.linalg.norm(middle)
        return cls(middle, along, _room(asks, middle))

    @classmethod
    def to_point(cls, asks: Asks, point: Array, rng: np.random.Generator) -> Self:
        inner = 0.3 * asks.radius * _unit(rng.standard_normal(asks.width))
        along = _unit(point - inner)
        middle = _beside(along, inner)
        return cls(middle, along, _room(asks, middle))

    @classmethod
    def across(cls, asks: Asks, row: Array, rng: np.random.Generator) -> Self:
        """A short one, square to the hyperplane row·[x, 1] = 0; its normal has length one."""
        normal, deepest = row[:-1], _DEEPEST * asks.radius
        beside = 0.3 * asks.radius * _unit(_beside(normal, rng.standard_normal(asks.width)))
        middle = beside - np.clip(row[-1], -deepest, deepest) * normal
        return cls(middle, normal, min(_SHORT * asks.radius, _room(asks, middle)))


def _beside(along: Array, vector: Array) -> Array:
    return np.asarray(vector - along * (vector @ along))


def _room(asks: Asks, middle: Array) -> float:
    return float(np.sqrt((EDGE * asks.radius) ** 2 - middle @ middle))


def _unit(vector: Array) -> Array:
    return np.asarray(vector / np.linalg.norm(vector))
