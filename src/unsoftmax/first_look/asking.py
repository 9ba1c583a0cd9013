"""What the tests of a first look share: a way to ask, how far answers may be off by themselves, and a list of
findings with their prices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from unsoftmax.answers import (
    IDENTIFY,
    Answers,
    Clipped,
    Computed,
    Finding,
    Labels,
    Noisy,
    Rounded,
    Stored,
    Within,
)
from unsoftmax.answers.looks_exact import CANCELS
from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat, smallest_format
from unsoftmax.ledger import Ledger

__all__ = ["FirstLookAsker"]

_FARTHEST = 1e4  # how far out to ask when rows have no bound
_ROUNDING = 1e-9  # relative deviation that a float64 computation never shows
_SPREAD = 12.0  # standard deviations of noise that an effect must exceed
# roundings of |row| |v|: a whole computation in float32, whose terms may cancel, and not only its last step
_COMPUTED = 16.0
_LARGEST_HALF = 2e4  # float16 ends at 65504
_SHRINKING = 12  # at a tenth each: limits within twelve decades
_ROWS_FOR_SIZE = 12  # their root mean square is known to a fifth


class FirstLookAsker:
    """Asks through the ledger, in a phase of its own, and notes what every finding cost.

    near, far: sizes of rows that are short and as long as they may usefully be.
    """

    def __init__(self, ledger: Ledger, rng: np.random.Generator) -> None:
        self.ledger, self.rng = ledger, rng
        self.answers: Answers | None = None
        self.findings: list[Finding] = []
        self.far = min(_FARTHEST, ledger.input_bound or np.inf)
        self.near = min(1.0, self.far / 4)
        self._steepest = 0.0  # answer to a single row, of the row's norm
        self._origin: Array | None = None
        ledger.watch(self._note)

    def _note(self, phase: str, batch: Array, answers: Array) -> None:
        if phase != IDENTIFY or batch.shape[1] != 1:
            return
        answers = np.abs(answers).reshape(len(answers), -1).max(axis=1)
        norms = np.linalg.norm(batch[:, 0], axis=1)
        if (long := norms >= 0.5 * self.near).any():
            self._steepest = max(self._steepest, float((np.abs(answers[long]) / norms[long]).max()))

    def take(self, answers: Answers) -> None:
        """From now on answers are known to be of this kind."""
        self.answers = answers

    @property
    def inner(self) -> Answers | None:
        """The kind of answers between limits, if there are any."""
        return self.answers.inner if isinstance(self.answers, Clipped) else self.answers

    @property
    def labels(self) -> bool:
        """Whether answers are labels."""
        return isinstance(self.inner, Labels)

    @property
    def tau(self) -> float:
        """How far an answer may be off by itself, whatever the value; 0 where it depends on the value."""
        return self.inner.tolerance if isinstance(self.inner, Rounded | Within) else 0.0

    @property
    def sigma(self) -> float:
        """Standard deviation of fresh errors."""
        return self.inner.sigma if isinstance(self.inner, Noisy) else 0.0

    @property
    def limits(self) -> tuple[float, float] | None:
        """Where answers stop, if they do."""
        return None if self.answers is None else self.answers.limits

    @property
    def exact(self) -> bool:
        """Whether answers are the function's values, as far as is known."""
        return self.answers is None or self.answers.exact

    @property
    def longest(self) -> int | None:
        """The largest number of rows that the target takes."""
        return self.ledger.max_length

    def add(self, subject: str, test: Callable[[], tuple[str, str]]) -> str:
        """Runs a test, keeps what it found with its price, and gives its value."""
        before = self.ledger.bill.total
        with self.ledger.phase(IDENTIFY):
            value, evidence = test()
        finding = Finding(subject, str(value), evidence, self.ledger.bill.total - before)
        self.findings.append(finding)
        return value

    def found(self, subject: str) -> str | None:
        """What was found about a subject."""
        return next((finding.value for finding in self.findings if finding.subject == subject), None)

    def evidence(self, subject: str) -> str:
        """What was seen of a subject."""
        return next((finding.evidence for finding in self.findings if finding.subject == subject), "")

    def rows(self, n: int, size: float) -> Array:
        """Random rows of that norm."""
        rows = self.rng.standard_normal((n, self.ledger.width))
        return np.asarray(size * rows / np.linalg.norm(rows, axis=1)[:, None])

    def ask(self, *sequences: Array) -> Array:
        """Answers to sequences of one length, (n,) or (n, m)."""
        return self.ledger.ask(np.stack(sequences))

    def origin(self) -> Array:
        """The answer to a row of zeros, asked once."""
        if self._origin is None:
            self._origin = np.asarray(self.ask(np.zeros((1, self.ledger.width)))[0])
        return self._origin

    def allowed(self, answers: Array, longest: float) -> float:
        """How far two answers of one value may lie apart, to sequences whose longest row has that norm."""
        size = float(np.abs(answers).max(initial=0.0))
        if self.answers is None or self.exact:
            rounding = (_ROUNDING + self._rounding_of_vectors(answers)) * max(size, 1e-300)
            return rounding + (CANCELS * longest if 0.0 < self._steepest < CANCELS else 0.0)
        # beyond some rows noisy answers are rounded further than noise moves them, by what grows with the row
        noise = self.sigma * max(1.0, longest / self.answers.longest_row)
        off = 4.0 * self.tau + 1.5 * _SPREAD * noise + _ROUNDING * size
        if isinstance(self.inner, Stored | Computed):
            off += 2.0 * self.inner.format.unit * size
            if isinstance(self.inner, Computed):
                off += _SPREAD * self.inner.noise * size
            if isinstance(self.inner, Computed) or self.inner.format is FloatFormat.FLOAT32:
                per_row = _COMPUTED * self.inner.format.unit * np.sqrt(self.ledger.width)
                if isinstance(self.inner, Computed):  # what heads show may cancel in single rows
                    per_row = max(per_row, _SPREAD * self.inner.noise)
                off += float(per_row * self._steepest * longest)
        return off

    def _rounding_of_vectors(self, answers: Array) -> float:
        """Relative rounding of vectors whose numbers all have a short format, as their kind is not known."""
        short = smallest_format(answers) if answers.ndim > 1 else None
        return 0.0 if short is None else _COMPUTED * short.unit * float(np.sqrt(self.ledger.width))

    def own_error(self) -> float:
        """How far an answer near zero may be off by itself."""
        smallest = self.inner.format.smallest if isinstance(self.inner, Stored | Computed) else 0.0
        return self.tau + _SPREAD * self.sigma + smallest

    def keep_inside(self) -> None:
        """Long rows must not overflow a short float format, and none should reach a limit of the answers."""
        half = self.inner == Stored(FloatFormat.FLOAT16)
        if not half and self.limits is None:
            return
        low, high = self.limits or (-_LARGEST_HALF, _LARGEST_HALF)
        for _ in range(_SHRINKING):
            answers = self.ask(*self.rows(_ROWS_FOR_SIZE, self.near)[:, None])
            if ((answers > low) & (answers < high)).all():
                break
            self.near *= 0.1
        if half:
            # about |v| times the size, whatever the rows
            largest = float(np.sqrt(self.ledger.width * np.mean(np.square(answers))))
            self.far = min(self.far, max(self.near, self.near * _LARGEST_HALF / max(largest, 1e-300)))

    def within_limits(self, answers: Array) -> bool:
        """Whether no answer is at a limit."""
        low, high = self.limits or (-np.inf, np.inf)
        return bool(((answers > low) & (answers < high)).all())

    def signal_size(self) -> float:
        """Rows long enough to stand out of the answers' own errors, and inside a clipping limit."""
        if self.exact:
            return self.near
        return self.near * 0.3 if self.limits is not None else self.far
