"""How wrong can a network be? What rounding explains, and what fresh rows show, as a relative error of all
parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import EPS
from unsoftmax.learners.relu_network.circle import HalfCircle
from unsoftmax.models import CanonicalNetwork, MeasuredNetwork

__all__ = ["NetworkError"]

# times the errors that rounding explains; and more where few components make up a gradient
_ROUNDING, _FEW = 1.0, 2.0
# times the largest deviation of dozens of fresh rows: an error of any shape shows on many of them, with about
# its size
_SHOWN = 3.0
_COUPLED, _VALUE = (
    0.3,
    1.4,
    # least part of the errors of places that the gradient near the origin shares; the same for the value
    # there
    # and places
)
_DIGITS = 1e-3  # of a fold: three digits are left where the faintest that shows is smaller
_SURE = 30.0  # times the size from which on a fold shows


@dataclass(frozen=True)
class NetworkError:
    """Errors of a network found on a line, on its half circle's scale, on which rounding is the same
    everywhere.

    explained: of all gradients together, from rounding. shown: the largest deviation of fresh rows; it
    catches what rounding does not explain, such as a fold too faint for the line, or one mixed up with a
    neighbour. blurred: how far apart folds that were taken for one may be, times their size.
    """

    circle: HalfCircle
    explained: float
    shown: float
    blurred: float = 0.0

    @property
    def size(self) -> float:
        """All of it together."""
        rounding = _ROUNDING + _FEW / np.sqrt(self.circle.width)
        return float(np.hypot(max(rounding * self.explained, _SHOWN * self.shown), self.blurred))

    @property
    def faintest(self) -> float:
        """The size |c| of a fold below which it may have been missed."""
        return self.size / self.circle.unit

    def bound(self, folds: CanonicalNetwork) -> float:
        """A bound on `fold_distance` from the true network."""
        circle = self.circle
        unit = folds.unit if folds.biased else circle.unit
        shift = self.size * circle.leverage if circle.biased else 0.0
        furthest = float(np.abs(folds.distances).max(initial=0.0))
        spread = 1.0 + float(np.arcsinh(furthest / unit))
        steep = self.faintest + _coupling(folds, unit) * shift / unit
        # others may be rounding, and must not make the error look small beside them
        sure = folds.sizes > _SURE * self.faintest
        measured = MeasuredNetwork.of(
            replace(folds, normals=folds.normals[sure], offsets=folds.offsets[sure], signs=folds.signs[sure]),
            unit,
        )
        if (circle.biased and measured.shift == 0.0 < measured.steepness) or (
            folds.count and measured.steepness == 0.0
        ):
            return np.inf  # biases (or folds) there are, but rounding hides all of them
        return (
            measured.relative(steep, _VALUE * shift + spread * unit * self.faintest if circle.biased else 0.0)
            + 8 * EPS
        )

    def vague(self, folds: CanonicalNetwork) -> int:
        """How many folds are known to fewer than three digits."""
        return int((_DIGITS * folds.sizes < self.faintest).sum())


def _coupling(folds: CanonicalNetwork, unit: float) -> float:
    """How much of the errors of places, in units, the gradient near the origin shares: hyperplanes that are
    far from there do not matter to it."""
    if folds.count == 0:
        return 1.0
    return max(float(np.sqrt(np.mean((1.0 + np.square(folds.distances / unit)) ** -3.0))), _COUPLED)
