"""How far fresh answers are from a model, beside the rounding of the target's own arithmetic."""

from __future__ import annotations

import numpy as np

from unsoftmax.answers import Computed
from unsoftmax.arrays import Array
from unsoftmax.models import Model

__all__ = ["OwnRounding", "in_own_rounding"]

# recovered vectors, networks and Transformers were off by 0.6 to 1.1, and numbers mostly by up to 1.7;
# where what single rows show nearly cancels, or scores are strong, they tell too little: 3.6 to 9
_OF_ITS_ORDER = 3.0


class OwnRounding:
    """What half of the sequences of each class of lengths are off by at most, over the measured rounding."""

    def __init__(self, model: Model, arithmetic: Computed) -> None:
        self.model = model
        self.arithmetic = arithmetic
        self._by_length: dict[str, list[Array]] = {}

    def see(self, batch: Array, answers: Array, length: str) -> None:
        """length: the class of lengths to which this batch belongs. Answers of zero round to nothing."""
        given = answers.reshape(len(batch), -1)
        off = np.linalg.norm(given - self.model(batch).reshape(given.shape), axis=1)
        size = self.arithmetic.noise * np.linalg.norm(given, axis=1)
        told = size > 0.0
        self._by_length.setdefault(length, []).append(off[told] / size[told])

    @property
    def times(self) -> float:
        """The largest of the classes."""
        medians = [
            float(np.median(seen)) for each in self._by_length.values() if (seen := np.concatenate(each)).size
        ]
        return max(medians, default=0.0)


def in_own_rounding(times: float, arithmetic: str, sequences: int) -> str:
    """The comparison in words; what cannot be told from the model is said only where answers deviate as
    rounding does.

    >>> in_own_rounding(5.0, "float32", 72)
    'half of those of each length are off by at most 5 times the float32 rounding that single rows show'
    """
    text = (
        f"half of those of each length are off by at most {times:.2g} times the {arithmetic} rounding that "
        "single rows show"
    )
    if not times <= _OF_ITS_ORDER:
        return text
    return (
        f"{text}: as far as these {sequences} tell, the target is indistinguishable from a {arithmetic} "
        "reimplementation of the recovered model"
    )
