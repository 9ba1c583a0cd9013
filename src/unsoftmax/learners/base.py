"""What a learner is: immutable options, a claim, and `learn`, a deterministic function of (seed, answers)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from unsoftmax.answers import Answers, Finding
from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.first_look.look import FirstLook
from unsoftmax.learners.claims import Claim
from unsoftmax.ledger import Asker
from unsoftmax.models import Model
from unsoftmax.oracles.domain import Domain
from unsoftmax.outcomes import Refutation

__all__ = ["Known", "Learned", "Learner", "Readout"]


@dataclass(frozen=True)
class Readout:
    """f([x]) = c + x·v: the readout v (d,) and the constant c."""

    v: Array
    c: float


@dataclass(frozen=True)
class Known:
    """What was found out about a target before a learner begins. Nobody changes it; what is learnt makes a
    new one.

    domain, outputs, max_length: what may be sent, the size of an answer (None: one number), and the longest
    sequence, as the asker tells them. answers: the kind of answers; None where nobody looked. told: the user
    said so. identified: a full identification was paid for, and asking for another would tell nothing new.
    bends: single rows are not answered linearly. skip: what the asking row adds by itself, where that was
    found. look: what a first look saw, where one was taken. refuted: tests that failed.
    """

    domain: Domain | None = None
    outputs: int | None = None
    max_length: int | None = None
    answers: Answers | None = None
    told: bool = False
    identified: bool = False
    bends: bool = False
    skip: Array | None = None
    look: FirstLook | None = None
    constant: float | None = None
    readout: Readout | None = None
    refuted: tuple[Refutation, ...] = ()
    findings: tuple[Finding, ...] = ()
    sequences: Array | None = None

    @property
    def exact(self) -> bool:
        """Whether answers are the function's values, as far as is known."""
        return self.answers is None or self.answers.exact

    def with_answers(self, answers: Answers, finding: Finding) -> Known:
        """The same, and the kind of answers with what was seen of it."""
        return replace(self, answers=answers, findings=(*self.findings, finding))

    def rules_out(self, family: Family) -> bool:
        """Whether a test that failed excludes the family."""
        return any(family in refutation.test.rules_out for refutation in self.refuted)


@dataclass(frozen=True)
class Learned:
    """What a learner hands on to the judge: a model, and what it says of it. The judge believes none of it
    unseen.

    claim: that of the learner that made the model. error_bound: a bound on the relative error of the
    parameters, when the learner has one of its own (None: it is measured afterwards on fresh probes).
    bound_at_least: what the learner knows of the error by itself, where a bound is measured afterwards.
    v_bound: the same for v alone, where that is known better. answers_bound: the same without parameters that
    hardly move an answer (eps of a norm), which is what answers are held against.
    constant_bound: how far c may be off, where that is not inside `error_bound`. within: the norm of rows up
    to which answers stay inside the target's limits or its float format. note: one clause for people, such as
    what is only known up to a symmetry. caveat: what the certificate's queries cannot rule out.
    """

    model: Model
    claim: Claim
    error_bound: float | None = None
    v_bound: float | None = None
    answers_bound: float | None = None
    bound_at_least: float = 0.0
    constant_bound: float | None = None
    within: float | None = None
    note: str = ""
    caveat: str = ""

    def __post_init__(self) -> None:
        for name in ("error_bound", "v_bound", "answers_bound", "bound_at_least", "constant_bound", "within"):
            value = getattr(self, name)
            if value is not None and not value >= 0.0:
                raise UsageError(f"a learner must give {name} as a number from 0 on, not {value!r}")


class Learner(Protocol):
    """Returns what was learnt, or raises a `Stop` with the reason."""

    @property
    def family(self) -> Family:
        """The family of the models it returns, or the first of several."""

    @property
    def claim(self) -> Claim:
        """What is promised."""

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        """Queries through the asker only."""
