"""The residual stream at the end of a decoder, with its length, in float64.

Of h/√(v + eps), v = mean h², the mean square is ρ = v/(v + eps). The final norm hides the length, but not
quite: 1 - ρ is about eps/v, which float64 tells to v·1e-15/eps of itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.meters.language_model.seen_rows import SeenRows
from unsoftmax.outcomes import Unresolved

__all__ = ["LastStream", "measure_last_eps"]

# sizes T of single rows: what a layer adds is a polynomial of 1/T beside them
_SIZES = np.array([6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0])
# of the sizes: with ReLU a row crosses kinks on its way out, the fewer the further out it starts. Four layers
# of OPT's shape left 2e-3 of eps at the first sizes, 3e-5 at the second and, by rounding, 5e-4 at 16
_FURTHER_OUT = (1.0, 4.0)
_POWERS = (1.0, 0.0, -1.0, -2.0)  # of T, beside the square
_ROWS = 4  # each of which tells eps
# relative scatter of eps over the rows: lengths are used to 1e-7 and better, and eps of 1e-5 leaves 1e-7
_SCATTER = 1e-3


@dataclass(frozen=True, eq=False)
class LastStream:
    """eps: of the final norm, in the coordinates of `state`."""

    state: SeenRows
    eps: float

    def __call__(self, rows: Array) -> Array:
        """h (B, k) of prompts (B, N, k)."""
        seen = self.state(rows)
        short = 1.0 - (seen * seen).mean(axis=1, keepdims=True)
        return np.asarray(seen * np.sqrt(self.eps / np.maximum(short, 1e-300)))


def measure_last_eps(state: SeenRows, rng: np.random.Generator) -> float:
    """eps from rows T·n, behind which mean h² = T² + b·T + c + …: 32 queries, or 64 where rows meet kinks."""
    for further in _FURTHER_OUT:
        inverse, scatter = _inverse_eps(state, further * _SIZES, unit_rows(rng, _ROWS, state.width))
        if scatter < _SCATTER:
            return 1.0 / inverse
    raise Unresolved(
        f"the eps of the final norm is {1.0 / inverse:.2g}, known to {scatter:.1g} only: too small for the "
        "lengths of hidden states to show"
    )


def _inverse_eps(state: SeenRows, sizes: Array, n: Array) -> tuple[float, float]:
    """1/eps from rows of all sizes in the directions n, and its relative scatter over them."""
    seen = np.stack([state(size * n[:, None]) for size in sizes])  # (sizes, rows, k)
    short = 1.0 - (seen * seen).mean(axis=2)
    if short.min() <= 0.0:
        raise Unresolved("the final norm hides the length of what it norms; its eps may be zero")
    column = sizes[:, None]
    design = np.concatenate([column**2, *(column**power for power in _POWERS)], axis=1) / column**2
    slopes = np.linalg.lstsq(design, 1.0 / short / column**2, rcond=None)[0][0]  # of every row
    return float(slopes.mean()), float(np.ptp(slopes) / slopes.mean())
