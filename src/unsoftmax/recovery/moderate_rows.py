"""How long rows may be before probabilities saturate, and how far off their logits are then."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.answers import Finding
from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.float_formats import smallest_format
from unsoftmax.oracles.logits import Logits

__all__ = ["SHORT_PROBABILITIES", "ModerateRows", "moderate_rows"]

SHORT_PROBABILITIES = (
    "the probabilities have few digits, as in float32; behind a sigmoid one head is recovered from such, "
    "and other models from float64 ones (torch: module.double())"
)

_SUBJECT = "norm of rows"
_DIRECTIONS = 8  # random rows whose logits tell how far they may be
_ROUNDS = 12  # lengths that are tried; eight times shorter ones after each that saturates
# Largest logit that is aimed at. log(p / (1 - p)) is off by u·e^z where p is off by u: at 8 by 3e-13 in
# float64, at 2 by 4e-7 in float32. Where probabilities add up to 1, log p keeps its digits down to 1e-308,
# and in float32 down to 1e-38.
_LARGEST, _LARGEST_SHORT, _LARGEST_SHARE = 8.0, 2.0, 40.0
# Logits may be so many times larger than aimed at: eight random rows give |v| to 25 %, usually.
_BEYOND = 2.0
_MOST_DECIMALS, _WHOLE = (
    9,
    1e-6,
)  # decimals that are looked for; how far from a whole number float64 leaves them


@dataclass(frozen=True)
class ModerateRows:
    """bound: of the norm of rows. tolerance: how far logits may be off, where probabilities are stored in a
    short format or told in few decimals; None where rounding of float64 alone is in them, or where
    probabilities add up to one, which keeps the digits of small ones. short: whether they are stored so."""

    bound: float
    tolerance: float | None
    finding: Finding
    short: bool

    @property
    def billed(self) -> dict[str, int]:
        """The queries, by phase."""
        return {self.finding.subject: self.finding.queries}


def moderate_rows(oracle: Logits, width: int, bound: float | None, rng: np.random.Generator) -> ModerateRows:
    """The longest rows, by powers of two, whose logits stay moderate. bound: what the user allows.

    Logits of random rows grow as |x|·|v|/√d where some row reaches |x|·|v|, so √d times their size is aimed
    at.
    """
    rows = rng.standard_normal((_DIRECTIONS, 1, width))
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    answers = [oracle.probabilities(np.zeros((1, 1, width)))]
    length = 1.0 if bound is None else bound
    found = 0.0
    for _ in range(_ROUNDS):
        answers.append(oracle.probabilities(length * rows))
        logits = oracle.logits_of(np.concatenate([answers[0], answers[-1]]))  # one alone tells no sum
        middle = logits[:1]
        size = _size(logits[1:] - middle, width)
        short = _rounding(np.concatenate([each.ravel() for each in answers]))
        largest = _LARGEST_SHARE if oracle.adds_up else _LARGEST if short is None else _LARGEST_SHORT
        if size <= 1.001 * largest:
            found, reached = length, size
        aimed = length / 8.0 if not np.isfinite(size) else length * largest / max(size, 1e-300)
        aimed = float(2.0 ** np.floor(np.log2(np.clip(aimed, length / 64.0, length * 64.0))))
        if found and (aimed <= found or found == bound):
            break
        length = aimed if bound is None else min(aimed, bound)
    if not found:
        raise UsageError(
            "no length of rows was found at which the probabilities do not saturate; pass input_bound"
        )
    evidence = (
        f"logits of {_DIRECTIONS} random rows of norm {found:g} are {reached / np.sqrt(width):.2g} large"
    )
    finding = Finding(_SUBJECT, f"at most {found:g}", evidence, sum(map(len, answers)))
    if short is None or oracle.adds_up:
        return ModerateRows(found, None, finding, short is not None)
    most = _BEYOND * reached + float(np.abs(middle).max())
    return ModerateRows(found, float(2.0 * short * (1.0 + np.exp(min(most, 30.0)))), finding, True)


def _rounding(probabilities: Array) -> float | None:
    """How far a probability is off by the decimals it is told in, or by the format it is stored in; None for
    all digits of float64."""
    for decimals in range(_MOST_DECIMALS + 1):
        shifted = probabilities * 10.0**decimals
        if float(np.abs(shifted - np.round(shifted)).max()) <= _WHOLE:
            return 0.5 * 10.0**-decimals
    short = smallest_format(probabilities)
    return None if short is None else short.unit


def _size(differences: Array, width: int) -> float:
    """√d times the root mean square of the largest differences; infinite where one is."""
    each = np.abs(differences).reshape(len(differences), -1).max(axis=1)
    return float(np.sqrt(width * np.mean(each**2))) if np.isfinite(each).all() else np.inf
