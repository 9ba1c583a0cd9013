"""What a learner is: immutable options, a claim, and `learn`, a deterministic function of (seed, answers)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.claims import Claim
from unsoftmax.ledger import Ledger
from unsoftmax.models import Model

__all__ = ["Learned", "Learner"]


@dataclass(frozen=True)
class Learned:
    """What a learner hands on to the certificate.

    error_bound: a bound on the relative error of the parameters, when the learner has one of its own (None:
    it is measured
    afterwards on fresh probes). tolerance: the largest error of an answer that is the oracle's and not the
    model's (0: exact answers).
    exact_answers: False when answers carry errors, so that the outcome is at best WITHIN_BOUND.
    deviation: how far an answer is from what the oracle should make of the function's value, as a function of
    (answers, values);
    None for the plain difference. repeats: an odd number of times to ask when single answers are unreliable,
    taking the median.
    note: one clause for people, such as what is only known up to a symmetry. caveat: what the certificate's
    queries cannot rule out.
    constant_bound: how far c may be off, where that is not inside `error_bound`.
    bound_at_least: what the learner knows of the error by itself, where a bound is measured afterwards.
    """

    model: Model
    error_bound: float | None = None
    tolerance: float = 0.0
    note: str = ""
    caveat: str = ""
    bound_at_least: float = 0.0
    constant_bound: float | None = None
    exact_answers: bool = True
    deviation: Callable[[Array, Array], Array] | None = None
    repeats: int = 1


class Learner(Protocol):
    """Returns what was learnt, or raises a `Stop` with the reason."""

    @property
    def family(self) -> str:
        """The family of the models it returns ("auto" when it finds out)."""

    @property
    def claim(self) -> Claim:
        """What is promised."""

    def learn(self, ledger: Ledger, rng: np.random.Generator) -> Learned:
        """Queries through the ledger only."""
