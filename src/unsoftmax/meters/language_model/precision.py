"""How precise the states of a decoder are, and the sizes and steps of measurements that follow from it.

Every step is where the error of a measurement, answers over the step, equals what the step itself leaves out.
Rounding of short arithmetic is measured: states along a short line are a polynomial of low degree, and the
rest is rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import EPS
from unsoftmax.meters.language_model.hidden_state import HiddenState
from unsoftmax.meters.language_model.prompts import Prompts, in_float32, unit_rows

__all__ = ["FLOAT64", "Differences", "Precision", "measure_precision", "rows_are_rounded"]

_LINES, _POINTS, _DEGREE = 4, 12, 3  # eight points a line are left over to show the noise
# of the row's size: the fourth power of the whole line is 2e-10, far below rounding in float32
_SPACING = 3e-4
_UNSEEN = 2.0**-28  # of a row: a sixteenth of what float32 rounds away
_SHORT = 1e-12  # rounding above is not that of float64


@dataclass(frozen=True)
class Differences:
    """step: radians. fine: whether values at twice the step are used as well."""

    step: float
    fine: bool


@dataclass(frozen=True)
class Precision:
    """noise: rms error of a coordinate of a state, whose rms is one."""

    noise: float

    @property
    def short(self) -> bool:
        """Whether answers come from less than float64."""
        return self.noise > _SHORT

    @property
    def differences(self) -> Differences:
        """Steps of derivatives on the sphere. Network values are read at about eight times the size of a
        state, so rounding leaves 4·8·noise/step². Of a plain second difference the step leaves step²/12.
        Where answers are rounded, four values at once leave a hundred times less: step⁴/90 of the sixth
        derivative, whose size was measured: the rank of Hessians shows best at 0.1 for width 64, at 0.15 for
        width 16."""
        if self.short:
            return Differences((8.0 * self.noise) ** (1.0 / 6.0), fine=True)
        return Differences((400.0 * self.noise) ** 0.25, fine=False)

    def tiny(self, bend: float) -> float:
        """Size of a state whose linear part is read at it and half of it; bend: its cubic part over the
        square of the size.
        Rounding leaves noise/size, the two sizes (bend·size²)²."""
        return float((self.noise / max(bend, 1.0) ** 2) ** 0.2)

    def far(self, added: float) -> float:
        """The least size of a row beside which a layer's sum `added` is read by four terms of a series: they
        leave (2·added/size)⁴, rounding ten times noise·size."""
        return float(((2.0 * added) ** 4 / (10.0 * self.noise)) ** 0.2)


FLOAT64 = Precision(4.0 * EPS)


def rows_are_rounded(prompts: Prompts, rng: np.random.Generator) -> bool:
    """Whether rows are rounded on their way, as by servers that take them in float32: two rows that only more
    digits tell apart are answered alike."""
    row = in_float32(unit_rows(rng, 1, prompts.width))
    one, other = prompts.ask(np.stack([row, (1.0 + _UNSEEN) * row]))
    return bool((one == other).all())


def measure_precision(state: HiddenState, rng: np.random.Generator) -> Precision:
    """Rounding of the states of single rows, by 48 queries."""
    d = state.prompts.width
    along = np.arange(_POINTS) * _SPACING
    starts, directions = unit_rows(rng, _LINES, d), unit_rows(rng, _LINES, d)
    rows = starts[:, None] + along[:, None] * directions[:, None]
    seen = state(rows.reshape(-1, 1, d)).reshape(_LINES, _POINTS, d)
    basis = np.linalg.qr(np.vander(along / along[-1], _DEGREE + 1))[0]
    left = seen - basis @ (basis.T @ seen)
    square = (left**2).sum() / (_LINES * d * (_POINTS - _DEGREE - 1))
    return Precision(max(float(np.sqrt(square)), FLOAT64.noise))
