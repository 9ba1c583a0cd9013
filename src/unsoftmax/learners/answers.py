"""Which learner fits the answers? A first look costs three queries, or thirteen; only answers that do not
look exact cost a full identification."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.answers.identify import AnswerModel, Finding, first_look, identify
from unsoftmax.learners.base import Learned, Learner
from unsoftmax.learners.claims import Claim
from unsoftmax.learners.one_head.checks import REPEAT_TEST
from unsoftmax.learners.one_head.clipped import ClippedLearner
from unsoftmax.learners.one_head.exact import SingleHeadLearner
from unsoftmax.learners.one_head.labels import LabelLearner
from unsoftmax.learners.one_head.low_precision import LowPrecisionLearner
from unsoftmax.learners.one_head.noisy import NoiseLearner
from unsoftmax.learners.one_head.rounded import RoundedLearner
from unsoftmax.learners.one_head.within_tolerance import ToleranceLearner
from unsoftmax.learners.several_heads import MultiHeadLearner
from unsoftmax.learners.transformer import TransformerLearner
from unsoftmax.ledger import Ledger
from unsoftmax.meters.one_head.low_precision import PASSES
from unsoftmax.outcomes import OutsideClass, Unresolved

__all__ = ["ANSWERS_KNOWN", "AnswerAwareLearner", "learner_for_answers", "note"]

ANSWERS_KNOWN = (
    "answer model"  # key of `Ledger.known` for an `AnswerModel` that was identified, and paid for, before
)


@dataclass(frozen=True)
class AnswerAwareLearner:
    """`base` where answers are exact, else the single-head learner for the kind of answers that was found, or
    was told by `tolerance`."""

    base: Learner
    tolerance: float | None = None

    @property
    def family(self) -> str:
        return self.base.family

    @property
    def claim(self) -> Claim:
        return self.base.claim

    def learn(self, ledger: Ledger, rng: np.random.Generator) -> Learned:
        if self.tolerance is not None:
            note(
                ledger,
                Finding("answers", "tolerance", f"told by the user: off by up to {self.tolerance:g}", 0),
            )
            told = (
                self.base
                if self.tolerance == 0.0
                else _OfFamily(self.family, ToleranceLearner(self.tolerance))
            )
            return told.learn(ledger, rng)
        if ledger.outputs is not None:
            return self.base.learn(ledger, rng)
        known: AnswerModel | None = ledger.known.get(ANSWERS_KNOWN)
        if known is not None:
            return (self.base if known.exact else self._for(known)).learn(ledger, rng)
        seen = first_look(ledger, rng)
        if seen is not None:
            note(ledger, seen)
            return self.base.learn(ledger, rng)
        return (self.reconsider(ledger, rng) or self.base).learn(ledger, rng)

    def reconsider(self, ledger: Ledger, rng: np.random.Generator) -> Learner | None:
        """The learner for the answers as a full identification sees them; None where they are exact, or were
        identified before."""
        if self.tolerance is not None or ledger.outputs is not None or ANSWERS_KNOWN in ledger.known:
            return None
        found = identify(ledger, rng)
        ledger.known[ANSWERS_KNOWN] = found
        note(ledger, Finding("answers", found.name, found.evidence, found.queries))
        return None if found.exact else self._for(found)

    def _for(self, found: AnswerModel) -> Learner:
        if found.kind == "unsteady":
            raise OutsideClass(REPEAT_TEST, found.evidence)
        return _OfFamily(
            self.family,
            learner_for_answers(found),
            several=found.kind == "float32",
            flat=found.clip is not None and found.kind == "exact",
        )


@dataclass(frozen=True)
class _OfFamily:
    """A learner for answers with errors, where the user allows its family."""

    asked: str
    inner: Learner
    several: bool = False  # several heads know by themselves how well float32 answers tell
    flat: bool = (
        False  # exact answers that stop growing are a clipped head, or a ReLU network with flat pieces
    )

    @property
    def family(self) -> str:
        return self.inner.family

    @property
    def claim(self) -> Claim:
        return self.inner.claim

    def learn(self, ledger: Ledger, rng: np.random.Generator) -> Learned:
        ledger.known["claim"] = self.claim
        if self.several and self.asked == "multi-head":
            return MultiHeadLearner().learn(ledger, rng)
        if self.several and self.asked == "auto":
            try:
                return self.inner.learn(ledger, rng)
            except OutsideClass as alone:
                return _several_instead(ledger, rng, alone)
        if self.flat and self.asked in ("auto", TransformerLearner.family):
            bound = ledger.input_bound
            try:
                return (self.inner if self.asked == "auto" else TransformerLearner()).learn(ledger, rng)
            except (OutsideClass, Unresolved):
                if self.asked != "auto":
                    raise
                ledger.input_bound = bound  # the clipped head's learner had kept rows inside the limits
                return TransformerLearner().learn(ledger, rng)
        if self.asked not in ("auto", self.family):
            raise Unresolved(
                f"answers carry errors, and the family {self.asked!r} is only recovered from exact ones; "
                "ask a target without them"
            )
        return self.inner.learn(ledger, rng)


def _several_instead(ledger: Ledger, rng: np.random.Generator, alone: OutsideClass) -> Learned:
    """Several heads, after one head failed; where they fail too, both reasons count."""
    try:
        return MultiHeadLearner().learn(ledger, rng)
    except Unresolved as several:
        raise Unresolved(f"{several.reason}; as one head it {alone.reason}") from several


def learner_for_answers(found: AnswerModel) -> Learner:
    """The single-head learner for a kind of answers."""
    if found.clip is not None:
        return ClippedLearner(
            found.clip,
            learner_for_answers(replace(found, clip=None)) if found.kind != "exact" else SingleHeadLearner(),
        )
    if found.kind == "noise":
        return NoiseLearner(found.sigma)
    if found.kind == "decimals" and found.decimals is not None:
        return RoundedLearner(found.decimals)
    if found.kind in ("labels", "flipped labels"):
        return LabelLearner(24 if found.flip else 48, found.flip, found.middle)
    if found.kind in PASSES:
        return LowPrecisionLearner(found.kind)
    return ToleranceLearner(found.tau)


def note(ledger: Ledger, finding: Finding) -> None:
    """Adds a finding to what the result will report."""
    ledger.known.setdefault("findings", []).append(finding)
