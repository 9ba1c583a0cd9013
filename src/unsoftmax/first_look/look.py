"""A first look at a box: cheap tests, each a finding with its evidence and its price, before anything
expensive is asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.answers import Answers, Computed, Finding, Labels, Rounded, Seen, Subject, Unsteady, identify
from unsoftmax.arrays import Array
from unsoftmax.families import Family
from unsoftmax.first_look.asking import FirstLookAsker
from unsoftmax.first_look.family_from_labels import family_from_labels, sure_labels
from unsoftmax.first_look.family_from_values import family_from_values
from unsoftmax.ledger import Ledger

__all__ = ["FirstLook", "first_look", "take_look"]


_DETERMINISTIC = "deterministic"
# relative: sums in another order move answers of float16 by about 1e-3, attention over the batch by about 1
_BATCH_COUNTS = 0.01


@dataclass(frozen=True)
class FirstLook:
    """What the first look found: the kind of answers (None for vectors in full precision), the family that
    learning should begin with, and every finding."""

    answers: Answers | None
    family: Family
    findings: tuple[Finding, ...]
    repeats: bool = True  # the same sequence was answered alike

    def value(self, subject: str) -> str | None:
        """What was found about a subject."""
        return next((finding.value for finding in self.findings if finding.subject == subject), None)

    def evidence(self, subject: str) -> str:
        """What was seen of a subject; empty where nothing was asked about it."""
        return next((finding.evidence for finding in self.findings if finding.subject == subject), "")

    @property
    def finds_nothing(self) -> bool:
        """Whether the target is none of the known families."""
        return self.value(Subject.FAMILY) == Seen.NONE

    @property
    def guess(self) -> Family | None:
        """The family that the look takes the target for; None where it cannot tell, or finds none."""
        found = self.value(Subject.FAMILY)
        return None if found in (None, Seen.NONE, Seen.UNKNOWN) else Family(str(found))

    @property
    def beyond_these_answers(self) -> str:
        """What was found that answers with errors may not be enough for, in words; empty when there is
        nothing."""
        if self.answers is None or self.answers.exact:
            return ""
        if self.family in (Family.TRANSFORMER, Family.ENCODER_BLOCK):
            return (
                "this looks like a network on top of attention, which is only recovered from exact answers "
                f"(here: {self.value(Subject.ANSWERS)})"
            )
        extras = [
            name
            for name in (Subject.QUERY_BIAS, Subject.CONSTANT)
            if self.value(name) not in (None, Seen.NONE, Seen.UNKNOWN)
        ]
        if self.family is not Family.SINGLE_HEAD or not extras:
            return ""
        looks = "looks like" if self.guess is self.family else "may be"
        return (
            f"this {looks} one head with a {' and a '.join(extras)}, for which these answers "
            f"({self.value(Subject.ANSWERS)}) are not enough"
        )


def first_look(ledger: Ledger, rng: np.random.Generator, told: Answers | None = None) -> FirstLook:
    """Width, answer model, repeatability, constant, order, copies, query bias and family. Labels cost most:
    they are read by bisection.

    told: the kind of answers, where it is known already.

    >>> import unsoftmax
    >>> ledger = Ledger(unsoftmax.as_oracle("demo:single-head?d=6&biases=1"))
    >>> look = first_look(ledger, np.random.default_rng(0))
    >>> look.value("query bias"), str(look.family)
    ('present', 'single-head')
    """
    return take_look(FirstLookAsker(ledger, rng), told)


def take_look(look: FirstLookAsker, told: Answers | None = None, evidence: str = "known before") -> FirstLook:
    """A first look through an asker that keeps its findings, for whoever may be stopped in the middle."""
    ledger = look.ledger
    by_target = ledger.oracle.spec.width is not None
    source = "told by the target" if by_target else "given by the user; the target does not tell"
    look.add(Subject.WIDTH, lambda: (str(ledger.width), source))
    if ledger.outputs is not None:
        look.add(Subject.ANSWERS, lambda: _vectors(look, ledger.outputs, told, evidence))
    else:
        look.add(Subject.ANSWERS, lambda: _answers(look, told, evidence))
    if isinstance(look.answers, Unsteady):
        look.add(Subject.REPEATABILITY, lambda: (Seen.RANDOM, "see the answers"))
        look.add(
            Subject.FAMILY,
            lambda: (
                Seen.NONE,
                "what changes with time, or with being asked, is not a function of the sequence",
            ),
        )
        return FirstLook(look.answers, Family.SINGLE_HEAD, tuple(look.findings), repeats=False)
    repeats = look.add(Subject.REPEATABILITY, lambda: _repeatability(look)) == _DETERMINISTIC
    if repeats and not look.labels:
        look.add(Subject.BATCHES, lambda: _batches(look))
    if not look.labels:
        look.add(Subject.CONSTANT, lambda: _constant(look))
    if look.longest is None or look.longest >= 3:
        look.add(Subject.ORDER, lambda: _order(look))
        look.add(Subject.COPIES, lambda: _copies(look))
    family = family_from_labels(look) if look.labels else family_from_values(look)
    return FirstLook(look.answers, family, tuple(look.findings), repeats)


def _answers(look: FirstLookAsker, told: Answers | None, evidence: str) -> tuple[str, str]:
    answers = told
    if answers is None:
        found = identify(look.ledger, look.rng)
        answers, evidence = found.answers, found.evidence
    look.take(answers)
    look.keep_inside()
    name = f"rounded to {answers.decimals} decimals" if isinstance(answers, Rounded) else answers.name
    return name, evidence


def _vectors(look: FirstLookAsker, m: int | None, told: Answers | None, evidence: str) -> tuple[str, str]:
    """Vectors, and the arithmetic behind them where it is short."""
    vectors = f"vectors of {m} number{'' if m == 1 else 's'}"
    if told is None:
        return vectors, "told by the target"
    look.take(told)
    return f"{vectors}, {told.name}", evidence


def _repeatability(look: FirstLookAsker) -> tuple[str, str]:
    length = min(3, look.longest or 3)
    sequence = look.rows(length, look.near)
    answers = np.concatenate([look.ask(sequence) for _ in range(3)])
    flipped = isinstance(look.answers, Labels) and look.answers.flip > 0.0
    if flipped or look.sigma > 0.0:
        return (
            Seen.RANDOM,
            f"{look.evidence(Subject.ANSWERS)}; a sequence of {length} rows asked three times had a spread "
            f"of {np.ptp(answers):.2g}",
        )
    spread = float(np.ptp(answers, axis=0).max())
    if spread > 1e-12 * float(np.abs(answers).max()):
        text = f"a sequence of {length} rows asked three times was answered with a spread of {spread:.2g}"
        longest = float(np.linalg.norm(sequence, axis=1).max())
        if isinstance(look.inner, Computed) and spread <= look.allowed(answers, longest):
            return _DETERMINISTIC, f"{text}, which is rounding inside the target"
        return Seen.RANDOM, text
    return (
        _DETERMINISTIC,
        f"a sequence of {length} rows was asked three times, in separate calls, and got the same answer",
    )


def _batches(look: FirstLookAsker) -> tuple[str, str]:
    """Matrix products add up in another order in another batch, so a sequence may be answered otherwise in
    the last digits beside others."""
    sequence, other = (look.rows(min(3, look.longest or 3), look.near) for _ in range(2))
    alone, beside = look.ask(sequence)[0], look.ask(sequence, other)[0]
    apart = float(np.max(np.abs(alone - beside)))
    if apart == 0.0:
        return "do not matter", "a sequence got the same answer alone and beside another one"
    size = max(float(np.max(np.abs(alone))), 1e-300)
    longest = float(np.linalg.norm(sequence, axis=1).max())
    if apart > max(_BATCH_COUNTS * size, look.allowed(np.stack([alone, beside]), longest)):
        return (
            Seen.MATTER,
            f"beside another sequence, the answer to a sequence differs by {apart / size:.2g} of it",
        )
    return (
        f"matter little ({apart / size:.0e})",
        "relative difference of the answers to a sequence alone and beside another one, which rounding and "
        "errors of answers explain",
    )


def _constant(look: FirstLookAsker) -> tuple[str, str]:
    value = look.origin()
    size = float(np.max(np.abs(value)))
    if size <= look.own_error():
        return (
            Seen.NONE,
            "a row of zeros is answered 0"
            if size == 0.0
            else f"a row of zeros is answered {size:.2g}, within the answers' own error",
        )
    shown = f"{float(value):.6g}" if np.ndim(value) == 0 else f"a vector of norm {np.linalg.norm(value):.6g}"
    return shown, f"a row of zeros is answered {shown}, where without a constant it would be 0"


def _order(look: FirstLookAsker) -> tuple[str, str]:
    """Earlier rows swapped, at four sizes: weak and strong scores. Behind errors the shortest rows show
    nothing; long ones, asked softly, do."""
    worst, at = 0.0, 0.0
    sizes = np.column_stack([_sizes(look)] * 2)
    if not look.exact and not look.labels and look.answers is not None and look.answers.limits is None:
        sizes[0] = look.far / 3, min(1.0 / look.far, look.far)
    for size, asking in sizes:
        x, y, z = *look.rows(2, size), look.rows(1, asking)[0]
        gap = _gap(look, np.stack([x, y, z]), np.stack([y, x, z]))
        if gap > worst:
            worst, at = gap, size
    if worst > 0.0:
        return (
            Seen.MATTERS,
            f"swapping the first two of three rows of norm {at:.3g} moved the answer by {worst:.3g}",
        )
    return (
        "does not matter",
        "swapping the first two of three rows did not change the answer, at four sizes of rows",
    )


def _copies(look: FirstLookAsker) -> tuple[str, str]:
    """A row and three copies of it, two rows and both of them twice: attention averages, so positions or
    lengths must show here."""
    first, second = _sizes(look)[1:3]
    x, y, z = *look.rows(1, first), *look.rows(2, second)
    several = [("three copies of one row", x[None], np.stack([x, x, x]))]
    if look.longest is None or look.longest >= 4:
        several.append(("two rows, each twice,", np.stack([y, z]), np.stack([y, y, z, z])))
    for what, once, copied in several:
        if (apart := _gap(look, once, copied)) > 0.0:
            text = f"the answer to {what} differs by {apart:.3g} from that to the rows without copies: "
            return Seen.COUNT, f"{text}positions, lengths or sums play a part"
    return "do not count", "copies of one row, and of two rows, did not change the answer"


def _gap(look: FirstLookAsker, first: Array, second: Array) -> float:
    """How far the answers to two sequences lie apart, 0 when their own errors explain it."""
    if look.labels:
        return float(sure_labels(look, first[None])[0] != sure_labels(look, second[None])[0])
    answers = np.stack([look.ask(first)[0], look.ask(second)[0]])
    gap = float(np.max(np.abs(answers[0] - answers[1])))
    longest = float(np.linalg.norm(np.concatenate([first, second]), axis=1).max())
    return gap if gap > look.allowed(answers, longest) else 0.0


def _sizes(look: FirstLookAsker) -> Array:
    return np.minimum(np.array([0.3, 1.0, 4.0, 16.0]) * min(1.0, look.far / 4), look.far)
