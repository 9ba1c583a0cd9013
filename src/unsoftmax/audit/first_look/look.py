"""A first look at a box: cheap tests, each a finding with its evidence and its price, before anything
expensive is asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.audit.first_look.asking import FirstLookAsker
from unsoftmax.audit.first_look.family_from_labels import family_from_labels, sure_labels
from unsoftmax.audit.first_look.family_from_values import UNKNOWN, family_from_values
from unsoftmax.learners import ANSWERS_KNOWN, AnswerModel, Finding, identify
from unsoftmax.ledger import Ledger

__all__ = ["FirstLook", "first_look"]


@dataclass(frozen=True)
class FirstLook:
    """What the first look found: the answer model (None for vector answers), the family that fits so far, and
    every finding."""

    answers: AnswerModel | None
    family: str
    findings: tuple[Finding, ...]

    def value(self, subject: str) -> str | None:
        """What was found about a subject."""
        return next((finding.value for finding in self.findings if finding.subject == subject), None)

    def evidence(self, subject: str) -> str:
        """What was seen of a subject; empty where nothing was asked about it."""
        return next((finding.evidence for finding in self.findings if finding.subject == subject), "")

    @property
    def beyond_these_answers(self) -> str:
        """What was found that answers with errors may not be enough for, in words; empty when there is
        nothing."""
        if self.answers is None or self.answers.exact:
            return ""
        if self.family == "transformer":
            return (
                "this looks like a network on top of attention, which is only recovered from exact answers "
                f"(here: {self.value('answers')})"
            )
        extras = [
            name for name in ("query bias", "constant") if self.value(name) not in (None, "none", UNKNOWN)
        ]
        if self.family != "single-head" or not extras:
            return ""
        looks = "looks like" if self.value("family") == self.family else "may be"
        return (
            f"this {looks} one head with a {' and a '.join(extras)}, for which these answers "
            f"({self.value('answers')}) are not enough"
        )


def first_look(ledger: Ledger, rng: np.random.Generator, tolerance: float | None = None) -> FirstLook:
    """Width, answer model, repeatability, constant, order, copies, query bias and family. Labels cost most:
    they are read by bisection.

    >>> import unsoftmax
    >>> look = first_look(Ledger(unsoftmax.as_oracle("demo:single-head?d=6&biases=1")), np.random.default_rng(
    ...     0))
    >>> look.value("query bias"), look.family
    ('present', 'single-head')
    """
    look = FirstLookAsker(ledger, rng)
    told = (
        "told by the target"
        if ledger.oracle.spec.width is not None
        else "given by the user; the target does not tell"
    )
    look.add("width", lambda: (str(ledger.width), told))
    if ledger.outputs is not None:
        look.add("answers", lambda: (f"vectors of {ledger.outputs} numbers", "told by the target"))
    else:
        look.add("answers", lambda: _answers(look, tolerance))
        ledger.known[ANSWERS_KNOWN] = look.answers
    if look.answers is not None and look.answers.kind == "unsteady":
        look.add("repeatability", lambda: ("random", "see the answers"))
        look.add(
            "family",
            lambda: ("none", "what changes with time, or with being asked, is no function of the sequence"),
        )
        return FirstLook(look.answers, "single-head", tuple(look.findings))
    look.add("repeatability", lambda: _repeatability(look))
    if not look.labels:
        look.add("constant", lambda: _constant(look))
    if look.longest is None or look.longest >= 3:
        look.add("order of rows", lambda: _order(look))
        look.add("copies of a row", lambda: _copies(look))
    family = family_from_labels(look) if look.labels else family_from_values(look)
    return FirstLook(look.answers, family, tuple(look.findings))


def _answers(look: FirstLookAsker, tolerance: float | None) -> tuple[str, str]:
    if tolerance is not None:
        kind, text = (
            "exact" if tolerance == 0.0 else "tolerance",
            f"told by the user: off by up to {tolerance:g}",
        )
        look.answers = AnswerModel(kind, text, 0, tau=tolerance)
        return kind, text
    look.answers = found = identify(look.ledger, look.rng)
    look.keep_inside()
    return (
        f"rounded to {found.decimals} decimals"
        if found.kind == "decimals" and found.clip is None
        else found.name
    ), found.evidence


def _repeatability(look: FirstLookAsker) -> tuple[str, str]:
    length = min(3, look.longest or 3)
    sequence = look.rows(length, look.near)
    answers = np.concatenate([look.ask(sequence) for _ in range(3)])
    if look.answers is not None and (look.answers.kind == "flipped labels" or look.answers.sigma > 0.0):
        return (
            "random",
            f"{look.answers.evidence}; a sequence of {length} rows asked three times had a spread of "
            f"{np.ptp(answers):.2g}",
        )
    if float(np.ptp(answers, axis=0).max()) > 1e-12 * float(np.abs(answers).max()):
        return (
            "random",
            f"a sequence of {length} rows asked three times was answered with a spread of "
            f"{np.ptp(answers, axis=0).max():.2g}",
        )
    return (
        "deterministic",
        f"a sequence of {length} rows was asked three times, in calls of its own, and answered alike",
    )


def _constant(look: FirstLookAsker) -> tuple[str, str]:
    value = look.origin()
    size = float(np.max(np.abs(value)))
    if size <= look.own_error():
        return (
            "none",
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
    if not look.exact and not look.labels and look.answers is not None and look.answers.clip is None:
        sizes[0] = look.far / 3, min(1.0 / look.far, look.far)
    for size, asking in sizes:
        x, y, z = *look.rows(2, size), look.rows(1, asking)[0]
        gap = _gap(look, np.stack([x, y, z]), np.stack([y, x, z]))
        if gap > worst:
            worst, at = gap, size
    if worst > 0.0:
        return (
            "matters",
            f"swapping the first two of three rows of norm {at:.3g} moved the answer by {worst:.3g}",
        )
    return "does not matter", "swapping the first two of three rows left the answer alone at four sizes"


def _copies(look: FirstLookAsker) -> tuple[str, str]:
    """A row and three copies of it: attention averages them, so positions or lengths must show here."""
    worst = 0.0
    for size in _sizes(look)[1:3]:
        (x,) = look.rows(1, size)
        worst = max(worst, _gap(look, x[None], np.stack([x, x, x])))
    if worst > 0.0:
        return (
            "count",
            f"three copies of one row are answered {worst:.3g} away from the row alone: positions, lengths "
            "or sums play a part",
        )
    return "do not count", "three copies of one row are answered as the row alone, at two sizes"


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
