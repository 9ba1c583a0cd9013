"""What fresh answers need of the parameters' error, against a bound of it and what rounding explains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.certify import Certificate
from unsoftmax.certify.sample import length_class

__all__ = ["PARTS", "SLACK", "Evidence", "lengths_disagree", "smaller"]

SLACK = 100.0  # how far beyond the usual rounding a float64 computation may go
PARTS = 2.0  # errors of W and of v, each within the bound, add up
_NEARLY = 10.0  # times what rounding explains: estimates of it, and bounds, vary by so much
# classes of lengths of one model needed errors within a factor of 10 to 30 of each other
_DISAGREE, _LEAST = 300.0, 1e-13


@dataclass(frozen=True)
class Evidence:
    """Fresh answers, against which a bound is held. explained: the error of the parameters that the answers'
    own errors account for. in_answers: what of that shows in answers. usual, by_chance: how many times
    further than a random one an error may move most sequences, and a few."""

    certificate: Certificate
    explained: float
    in_answers: float
    usual: float
    by_chance: float
    exact: bool

    def raises(self, bound: float | None) -> float | None:
        """The bound that explains all fresh answers; None where no error of the parameters does."""
        seen, most = self.certificate, self.by_chance * self.explained
        raised = [
            _explaining(bound, seen.parameters_off, self.by_chance, most),
            _explaining(bound, max(seen.usually_off.values()), self.usual, most),
        ]
        if self.exact:
            raised.append(_raised(bound, seen.max_relative_error, self.explained, self.in_answers))
            raised.append(_explaining(bound, seen.scores_off, self.usual, most))
        known = [each for each in raised if each is not None]
        return max(known) if len(known) == len(raised) else None


def _raised(bound: float | None, seen: float, explained: float, in_answers: float) -> float | None:
    """What fresh answers say of the bound: where they deviate more than it explains, and rounding could be
    the reason, the bound was too small; where rounding cannot, there is none. in_answers: what of an error
    `explained` of the parameters shows in answers, which is less where a head is faint."""
    if bound is None or seen <= PARTS * bound:
        return bound
    if seen > in_answers:
        return None
    return max(bound, seen * explained / in_answers if np.isfinite(in_answers) else seen)


def _explaining(bound: float | None, needed: float, chance: float, most: float) -> float | None:
    """The bound, or the error of the parameters that fresh deviations need at most, where the bound explains
    them by no chance; None where the answers' own errors do not account for such an error either. chance: how
    many times further than usual, or less far, an error may move answers. most: what those errors account
    for, by chance."""
    if bound is None or needed <= chance * bound:
        return bound
    return chance * needed if needed <= most else None


def lengths_disagree(certificate: Certificate, explained: float, measured: float) -> bool:
    """Whether one class of lengths needs an error of the parameters far beyond rounding, and another one of
    several rows none that is nearly so large: then it is another function there. explained: the error that
    rounding accounts for, at most. measured: what the error that probes show accounts for, no more than an
    exact model may be off by; in a few columns, it moves classes differently."""
    several = [needed for length, needed in certificate.usually_off.items() if length != length_class(1)]
    usual = explained / SLACK if np.isfinite(explained) else np.inf
    return bool(several) and max(several) > max(_DISAGREE * min(several), _NEARLY * usual, _LEAST, measured)


def smaller(bound: float | None, other: float | None) -> float | None:
    """The smaller of two bounds, where there is a first one."""
    return bound if bound is None or other is None else min(bound, other)
