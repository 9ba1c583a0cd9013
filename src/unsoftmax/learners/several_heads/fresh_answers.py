"""How far heads that were found are off on fresh sequences: of two rows, which all learners of heads ask, and
of five, or as many as the target takes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.models import MultiHead

__all__ = ["FreshDeviation", "fresh_deviation"]

# Where scores s are small, heads that were taken for others change answers to two rows by s/6 of what they
# change those to five: s³/48 beside s²/8. A ratio of 1e5 means s < 6e-5, and s²/8 < 5e-10 is not a deviation.
_LONGER_ALONE = 1e5
_LONGER = 5  # rows; from three on, answers have a term in s², which those to two rows have not


class FreshDeviation(NamedTuple):
    """The largest deviations on fresh sequences of two rows and of five, beside what an error of the
    parameters changes."""

    pairs: float
    longer: float

    @property
    def largest(self) -> float:
        """The larger of the two."""
        return max(self)

    def only_longer(self, limit: float) -> bool:
        """Whether two rows are answered as the model says and five are not. Other heads with these answers to
        two rows are the same and some that mirror each other, W and -W with one v: copies of rows show those,
        and no other attempt is worth its queries."""
        return self.pairs <= limit and self.longer > _LONGER_ALONE * limit


def fresh_deviation(asker: Asker, model: MultiHead, rng: np.random.Generator) -> FreshDeviation:
    """At the sizes where the weakest, the usual and the strongest head have moderate scores, and at the
    largest where rows are limited."""
    strengths = np.array(
        [head.score_strength() for head in model.heads if head.score_strength() > 0] or [1.0]
    )
    sizes = np.sqrt(2.0 / (np.quantile(strengths, [0.0, 0.5, 1.0]) * model.width))
    if asker.input_bound is not None:
        # and at the largest that may be sent: a wrong model may have moderate scores where answers show none
        largest = asker.input_bound / (2 * np.sqrt(model.width))
        sizes = np.append(np.minimum(sizes, largest), largest)
    longer = min(_LONGER, asker.max_length or _LONGER)
    worst = {2: 0.0, longer: 0.0}
    with asker.phase(VERIFICATION):
        for size in sizes:
            for length in worst:
                batch = size * np.clip(rng.standard_normal((4, length, model.width)), -2, 2)
                answers = asker.ask(batch)
                gap = np.abs(answers - model(batch)).reshape(len(batch), -1).max(axis=1)
                unexplained = np.maximum(gap - model.rounding(batch), 0.0)
                worst[length] = max(worst[length], float((unexplained / model.sensitivity(batch)).max()))
    return FreshDeviation(worst[2], worst[longer])
