"""A first look at a box: cheap tests, each a finding with its evidence and its price, before anything expensive is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from unsoftmax.learners import ANSWERS_KNOWN, AnswerModel, Finding, identify, note
from unsoftmax.ledger import Ledger
from unsoftmax.oracles import Array

__all__ = ["FirstLook", "first_look"]

IDENTIFY = "identify"
NOT_ONE_HEAD = "not one head"
_FARTHEST = 1e4  # how far out to ask when rows have no bound
_ROUNDING = 1e-9  # relative deviation that a float64 computation never shows
_TELLING = 0.1  # scores known to within this tell one head from several
_PAIRS_FOR_ONE_HEAD = 4
_SPREAD = 12.0  # standard deviations of noise that an effect must exceed
_LABELS = ("labels", "flipped labels")


@dataclass(frozen=True)
class FirstLook:
    """What the first look found: the answer model (None for vector answers), the family that fits so far, and every finding."""

    answers: AnswerModel | None
    family: str
    findings: tuple[Finding, ...]


def first_look(ledger: Ledger, rng: np.random.Generator, tolerance: float | None = None) -> FirstLook:
    """Width, answer model, repeatability, constant, order, copies, query bias and family, with at most 90 queries beside the answer model.

    >>> import unsoftmax
    >>> look = first_look(Ledger(unsoftmax.as_oracle("demo:single-head?d=6&biases=1")), np.random.default_rng(0))
    >>> {finding.subject: finding.value for finding in look.findings}["query bias"], look.family
    ('present', 'single-head')
    """
    look = _Look(ledger, rng)
    told = "told by the target" if ledger.oracle.spec.width is not None else "given by the user; the target does not tell"
    look.add("width", lambda: (str(ledger.width), told))
    if ledger.outputs is not None:
        look.add("answers", lambda: (f"vectors of {ledger.outputs} numbers", "told by the target"))
    elif tolerance is not None:
        look.told(tolerance)
    else:
        look.add("answers", look.answer_model)
    if look.answers is not None and ledger.outputs is None:
        ledger.known[ANSWERS_KNOWN] = look.answers
    look.add("repeatability", look.repeatability)
    if not look.labels:
        look.add("constant", look.constant)
    if ledger.oracle.spec.max_length is None or ledger.oracle.spec.max_length >= 3:
        look.add("order of rows", look.order)
        look.add("copies of a row", look.copies)
    if look.labels:
        family = "single-head"
        look.add("family", lambda: ("unknown", "labels tell little at this price; one head is tried, and the certificate decides"))
    else:
        family = look.family()
    return FirstLook(look.answers, family, tuple(look.findings))


class _Look:
    """The tests, sharing what they learnt: the allowance for errors of answers, and the sizes to ask at."""

    def __init__(self, ledger: Ledger, rng: np.random.Generator) -> None:
        self.ledger, self.rng = ledger, rng
        self.answers: AnswerModel | None = None
        self.findings: list[Finding] = []
        self.far = min(_FARTHEST, ledger.input_bound or np.inf)
        self.near = min(1.0, self.far / 4)

    @property
    def labels(self) -> bool:
        return self.answers is not None and self.answers.kind in _LABELS

    def add(self, subject: str, test: Callable[[], tuple[str, str]]) -> None:
        """Runs a test and keeps what it found, with its price."""
        before = self.ledger.bill.total
        with self.ledger.phase(IDENTIFY):
            value, evidence = test()
        finding = Finding(subject, value, evidence, self.ledger.bill.total - before)
        self.findings.append(finding)
        note(self.ledger, finding)

    def told(self, tolerance: float) -> None:
        kind = "exact" if tolerance == 0.0 else "tolerance"
        self.answers = AnswerModel(kind, f"told by the user: off by up to {tolerance:g}", 0, tau=tolerance)
        self.add("answers", lambda: (kind, f"told by the user: off by up to {tolerance:g}"))

    def answer_model(self) -> tuple[str, str]:
        found = identify(self.ledger, self.rng)
        self.answers = found
        return (f"rounded to {found.decimals} decimals" if found.kind == "decimals" and found.clip is None else found.name), found.evidence

    def allowed(self, answers: Array) -> float:
        """How far two answers of one value may lie apart."""
        size = float(np.abs(answers).max(initial=0.0))
        found = self.answers
        if found is None or found.exact:
            return _ROUNDING * max(size, 1e-300)
        relative = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}.get(found.kind, 0.0)
        return 4.0 * found.tau + 1.5 * _SPREAD * found.sigma + 4.0 * relative * size + _ROUNDING * size

    def rows(self, n: int, size: float) -> Array:
        rows = self.rng.standard_normal((n, self.ledger.width))
        return np.asarray(size * rows / np.linalg.norm(rows, axis=1)[:, None])

    def ask(self, *sequences: Array) -> Array:
        """Answers to sequences of one length, (n,) or (n, m)."""
        return self.ledger.ask(np.stack(sequences))

    def repeatability(self) -> tuple[str, str]:
        length = min(3, self.ledger.oracle.spec.max_length or 3)
        sequence = self.rows(length, self.near)
        answers = np.concatenate([self.ask(sequence) for _ in range(3)])
        if self.answers is not None and (self.answers.kind == "flipped labels" or self.answers.sigma > 0.0):
            return (
                "random",
                f"{self.answers.evidence}; a sequence of {length} rows asked three times had a spread of {np.ptp(answers):.2g}",
            )
        if float(np.ptp(answers, axis=0).max()) > 1e-12 * float(np.abs(answers).max()):
            return "random", f"a sequence of {length} rows asked three times was answered with a spread of {np.ptp(answers, axis=0).max():.2g}"
        return "deterministic", f"a sequence of {length} rows was asked three times, in calls of its own, and answered alike"

    def constant(self) -> tuple[str, str]:
        value = self.ask(np.zeros((1, self.ledger.width)))[0]
        size, limit = float(np.max(np.abs(value))), self._own_error()
        if size <= limit:
            return "none", "a row of zeros is answered 0" if size == 0.0 else f"a row of zeros is answered {size:.2g}, within the answers' own error"
        shown = f"{float(value):.6g}" if np.ndim(value) == 0 else f"a vector of norm {np.linalg.norm(value):.6g}"
        return shown, f"a row of zeros is answered {shown}, where without a constant it would be 0"

    def _own_error(self) -> float:
        if self.answers is None:
            return 0.0
        return self.answers.tau + _SPREAD * self.answers.sigma

    def order(self) -> tuple[str, str]:
        """Earlier rows swapped, at four sizes: weak and strong scores."""
        worst, at = 0.0, 0.0
        for size in self._sizes():
            x, y, z = self.rows(3, size)
            straight, swapped = self.ask(np.stack([x, y, z]), np.stack([y, x, z]))
            gap = self._gap(straight, swapped)
            if gap > worst:
                worst, at = gap, size
        if worst > 0.0:
            return "matters", f"swapping the first two of three rows of norm {at:.3g} moved the answer by {worst:.3g}"
        return "does not matter", "swapping the first two of three rows left the answer alone at four sizes"

    def copies(self) -> tuple[str, str]:
        """A row and three copies of it: attention averages them, so positions or lengths must show here."""
        worst = 0.0
        for size in self._sizes()[1:3]:
            (x,) = self.rows(1, size)
            worst = max(worst, self._gap(self.ask(x[None])[0], self.ask(np.stack([x, x, x]))[0]))
        if worst > 0.0:
            return "count", f"three copies of one row are answered {worst:.3g} away from the row alone: positions, lengths or sums play a part"
        return "do not count", "three copies of one row are answered as the row alone, at two sizes"

    def _gap(self, first: Array, second: Array) -> float:
        """How far two answers lie apart, 0 when their own errors explain it."""
        gap = float(np.max(np.abs(first - second)))
        if self.answers is not None and self.answers.kind == "flipped labels":
            return 0.0
        return gap if gap > self.allowed(np.array([first, second])) else 0.0

    def _sizes(self) -> Array:
        return np.minimum(np.array([0.3, 1.0, 4.0, 16.0]) * min(1.0, self.far / 4), self.far)

    def family(self) -> str:
        """One-row answers on a line? Scores in proportion? A query bias? The cheap tests of the classes, with nothing learnt before."""
        if self.ledger.oracle.spec.max_length == 1:
            self.add("family", lambda: ("relu-network", "the target takes single rows only"))
            return "relu-network"
        found: list[str] = []
        self.add("single rows", self._single_rows)
        if self.findings[-1].value == "curved":
            exact = self.answers is None or self.answers.exact
            text = "single rows are answered along a curve" + ("" if exact else "; more is not told by answers with errors at this price")
            self.add("family", lambda: ("transformer" if exact else NOT_ONE_HEAD, text))
            return "transformer"
        self.add("query bias", self._query_bias)
        self.add("family", lambda: self._heads(found))
        return found[0]

    def _single_rows(self) -> tuple[str, str]:
        """On a line, or along a curve?"""
        size = self._signal_size()
        origin = self.ask(np.zeros((1, self.ledger.width)))[0]
        for x in self.rows(3, size):
            half, whole, back = self.ledger.ask(np.stack([0.5 * x, x, -x])[:, None])
            bend = max(float(np.max(np.abs(whole - 2.0 * half + origin))), float(np.max(np.abs(whole + back - 2.0 * origin))))
            if bend > 2.0 * self.allowed(np.stack([half, whole, back, origin])):
                return "curved", f"answers bend by {bend:.3g} along a ray of norm {size:.3g}"
        return "affine", f"answers to x/2, x, -x and 0 lie on a line, for three rays of norm {size:.3g}"

    def _signal_size(self) -> float:
        """Rows long enough to stand out of the answers' own errors, and inside a clipping limit."""
        found = self.answers
        if found is None or found.exact:
            return self.near
        if found.clip is not None:
            return self.near * 0.3
        return self.far

    def _query_bias(self) -> tuple[str, str]:
        """[a; 0]: without a query bias both rows weigh the same, whatever the heads."""
        limits = self.answers.clip if self.answers is not None else None
        for size in np.minimum(self._signal_size() * np.array([1.0, 8.0, 0.2]), self.far):
            a = self.rows(1, float(size))[0]
            origin = self.ask(np.zeros((1, self.ledger.width)))[0]
            alone, mixed = self.ask(a[None])[0], self.ask(np.stack([a, np.zeros_like(a)]))[0]
            if limits is not None and not (limits[0] < float(alone) < limits[1]):
                continue
            gap = float(np.max(np.abs(mixed - 0.5 * (alone + origin))))
            if gap > 2.0 * self.allowed(np.stack([alone, mixed, origin])):
                return "present", f"a row of zeros asks, and a row of norm {size:.3g} weighs more or less than half: {gap:.3g} off the mean"
        return "none", "a row of zeros asks, and every other row weighs as much as it"

    def _heads(self, found: list[str]) -> tuple[str, str]:
        """Scores in proportion to the row, by one head's sigmoid? Only exact answers can tell at this price."""
        if self.answers is not None and not self.answers.exact:
            found.append("single-head")
            return self._heads_despite_errors()
        if self.answers is not None and self.answers.kind == "constant":
            found.append("single-head")
            return "none", "no row moves the answer: a constant, as far as single rows show"
        origin = self.ask(np.zeros((1, self.ledger.width)))[0]
        tested = 0
        for size in self.near * np.array([1.0, 0.3, 3.0, 0.1, 10.0, 0.03, 30.0, 0.01]):
            if size > self.far / 3:
                continue
            a, b = self.rows(2, float(size))
            signal, base = self.ask(a[None], b[None]) - origin
            share = [float(np.ravel(self.ask(np.stack([k * a + b, b]))[0] - origin - base)[0] / (k * np.ravel(signal)[0])) for k in (1.0, 2.0, -1.0)]
            if not all(1e-4 < s < 1.0 - 1e-4 for s in share) or abs(share[0] - 0.5) < 1e-4:
                if any(s < -1e-6 or s > 1.0 + 1e-6 for s in share):
                    found.append("multi-head")
                    return "multi-head", f"a row weighs {min(share, key=lambda s: -abs(s - 0.5)):.3g}, outside [0, 1]: no single softmax does that"
                continue
            score = np.log(np.array(share) / (1.0 - np.array(share)))
            off = max(abs(score[1] - 2.0 * score[0]), abs(score[2] + score[0]))
            tested += 1
            if off > 1e-6 * (1.0 + (abs(origin) if np.ndim(origin) == 0 else 0.0) / size) / min(min(s, 1.0 - s) for s in share):
                found.append("multi-head")
                return "multi-head", f"a row has score {score[0]:.6g}, but twice the row {score[1]:.6g}: more than one softmax shares the rows"
            if tested == 2:
                found.append("single-head")
                return "single-head", "scores grow in proportion to the row, as one softmax head's do, on two pairs of rows"
        found.append("single-head")
        return "single-head", "nothing speaks against one head, but no pair of rows had a moderate score"

    def _heads_despite_errors(self) -> tuple[str, str]:
        """The same test where answers have errors, at sizes that let the signal stand out of them."""
        tested, widest = 0, 0.0
        for a_size, b_size in self._audible_sizes():
            a, b = self.rows(1, a_size)[0], self.rows(1, b_size)[0]
            found = self._scores_of_multiples(a, b)
            if found is None:
                continue
            logits, allowed = found
            off = max(abs(logits[1] - 2.0 * logits[0]), abs(logits[2] + logits[0]))
            if off > max(allowed, 1e-3):
                return (
                    NOT_ONE_HEAD,
                    f"a row has score {logits[0]:.3g}, but twice the row {logits[1]:.3g}, and errors of answers explain {allowed:.1g} only",
                )
            tested, widest = tested + (allowed <= _TELLING), max(widest, allowed if allowed <= _TELLING else 0.0)
            if tested == _PAIRS_FOR_ONE_HEAD:
                return (
                    "single-head",
                    f"scores grow in proportion to the row, as one softmax head's do, on {tested} pairs of rows, to within {widest:.1g}",
                )
        return "unknown", "answers with errors tell little at this price; one head is tried, and the certificate decides"

    def _audible_sizes(self) -> Iterator[tuple[float, float]]:
        """Sizes of a row and of the asking row. Long against short keeps the score moderate, but a query bias hears the long row alone."""
        assert self.answers is not None
        if self.answers.clip is None and self.findings[-1].value != "present":
            yield from ((self.far / 3, 3.0 * score / self.far) for score in (1.0, 10.0, 0.1, 100.0, 0.01, 3.0, 0.3, 30.0))
        else:
            longest = 0.5 * self.near if self.answers.clip is not None else self.far / 3
            yield from ((min(size, longest), min(size, longest)) for size in (1.0, 2.0, 0.5, 4.0, 1.0, 0.25, 2.0, 8.0))

    def _scores_of_multiples(self, a: Array, b: Array) -> tuple[Array, float] | None:
        """Scores of a, 2a and -a against b, as one softmax would have them, and how far errors of answers may put them apart; None if unreadable."""
        factors = np.array([1.0, 2.0, -1.0])
        origin, base, signal = self.ask(np.zeros_like(b)[None], b[None], a[None])
        mixed = self.ledger.ask(np.stack([np.stack([k * a + b, b]) for k in factors]))
        if float(np.abs(signal - origin)) == 0.0:
            return None
        share = (mixed - base) / (factors * (signal - origin))
        if not ((share > 0.05) & (share < 0.95)).all() or abs(share[0] - 0.5) < 0.05:
            return None
        errors = 2.0 * self.allowed(np.append(mixed, signal)) / np.abs(signal - origin) / (share * (1.0 - share))
        return np.log(share / (1.0 - share)), 3.0 * float(errors.sum())
