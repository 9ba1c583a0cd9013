"""The values V_h of all heads as plateaus showed them, and how many rows of a query can then be weighed at
once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.computed.two_row_queries import Baseline

__all__ = ["ROUNDING_OF_FACTORS", "KnownValues", "TooFewOutputs", "refuse_few_outputs"]

# beside the asking row, of a sequence that shows its scores: with more, weights are small, their logarithms
# rough
_MOST_ROWS = 16
# the same of a sequence that serves the fit alone: fits to shorter ones deviate by 1.5 times as much in
# layers of width 10 and five heads
_LEAST_FITTED_ROWS = 5
# weights over the numbers that tell them: the rest keeps their system well conditioned
_NUMBERS_A_WEIGHT = 0.6
ROUNDING_OF_FACTORS = 10.0  # noises: singular values below are the rounding of the matrix itself


class TooFewOutputs(Exception):
    """The heads show through fewer outputs than it takes to read the weight of every one."""


def refuse_few_outputs(heads: int, outputs: int) -> None:
    """Raises TooFewOutputs where not even one row shows its weight in every head."""
    if _rows_shown(heads, outputs) < 1:
        raise TooFewOutputs


def _rows_shown(heads: int, numbers: int) -> int:
    """Rows whose weights in every head so many numbers tell."""
    return int(_NUMBERS_A_WEIGHT * numbers / heads)


@dataclass(frozen=True)
class KnownValues:
    """matrices V (H, d, m) of every head, and their ranks. most_rows: beside the asking one, that the target
    takes, and that are worth asking."""

    matrices: Array
    ranks: tuple[int, ...]
    most_rows: int

    @classmethod
    def of(cls, matrices: Array, baseline: Baseline, longest: int | None) -> Self:
        """longest: the most rows of a sequence that the target takes. Ranks count singular values above a
        thousandth of the largest, which plateaus tell; those of one head are told by single rows, and to
        their rounding. Coarse arithmetic keeps all."""
        most = min(_MOST_ROWS, (longest or np.inf) - 1)
        if baseline.coarse:
            return cls(matrices, (min(matrices.shape[1:]),) * len(matrices), int(most))
        least = ROUNDING_OF_FACTORS * baseline.noise if len(matrices) == 1 else 1e-3
        spectra = [np.linalg.svd(value, compute_uv=False) for value in matrices]
        ranks = tuple(int((spectrum > least * spectrum[0]).sum()) for spectrum in spectra)
        return cls(matrices, ranks, int(most))

    @property
    def heads(self) -> int:
        return len(self.matrices)

    @property
    def rows_shown(self) -> int:
        """Rows beside the asking one whose weights all show at once. What more rows than a
        head's rank show is a sum of what the others do."""
        seen = _rows_shown(self.heads, self.matrices.shape[2])
        return min(seen, max(1, _rows_shown(1, min(self.ranks))), self.most_rows)

    @property
    def rows_fitted(self) -> int:
        """Rows beside the asking one of a random sequence, whose weights a fit need not read one by one."""
        return min(max(self.rows_shown, _LEAST_FITTED_ROWS), self.most_rows)

    @property
    def parameters(self) -> int:
        """How many parameters a layer has whose scores have the ranks of its values."""
        _, d, m = self.matrices.shape
        return int(m + sum(r * (2 * d + 1 - r) + r * (d + m - r) for r in self.ranks))
