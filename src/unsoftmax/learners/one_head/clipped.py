"""One head whose answers stop at a limit: rows short enough that no answer reaches it, and everything else as
usual."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from unsoftmax.answers import Answers, Exact, limits_in_words
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned, Learner
from unsoftmax.learners.claims import Assumption, Claim, Size
from unsoftmax.learners.one_head.exact import SingleHeadLearner
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.models import SingleHead
from unsoftmax.outcomes import OutsideClass, Test, Unresolved

__all__ = ["ClippedLearner", "clipped"]

BEYOND_TEST = Test("longer rows are answered as by a head with these limits")
_SAFE = 0.9  # of the room between the constant and the nearer limit: answers at a limit tell nothing
_PRECISE = 1e-6  # relative error of values far out that rounding of scores there may leave
_FAR = 1e3  # norm of rows far out, where nothing bounds them
_LADDER = 12  # steps of ten or five that find the size of rows: limits within eight decades of |v|


@dataclass(frozen=True)
class ClippedLearner:
    """`inner` with rows of norm at most 0.9·limit/|v|: attention averages, so no answer can then reach the
    limit.

    Claim and Queries: those of `inner`, and 2d + 10 queries to find |v|. Assumes: limits on both sides of
    zero. Recovers: what `inner` does.
    Departs from the paper: not in it. Fails when: the limit is within the answers' other errors.
    """

    family: ClassVar[Family] = Family.SINGLE_HEAD
    limits: tuple[float, float] = (-1.0, 1.0)
    inner: Learner = field(default_factory=SingleHeadLearner)

    @property
    def claim(self) -> Claim:
        claim = self.inner.claim
        unreached = Assumption(
            "answers between the limits are those of the function",
            "the certificate, with rows that stay between them, and 64 sequences of longer ones",
        )
        inner = claim.queries

        def count(size: Size) -> int:
            return inner.count(size) + _LADDER * size.width + 1

        def usual(size: Size) -> int:
            return inner.expected(size) + size.width + 1

        return replace(
            claim,
            title=f"{claim.title}, clipped",
            assumptions=(*claim.assumptions, unreached),
            queries=replace(
                inner,
                formula=f"{inner.formula}; d + 1 more for the length of v, {_LADDER}d + 1 at most",
                kind="upper",
                count=count,
                usual=usual,
            ),
            # measured: 59 where rows are bounded by 10, else mostly 257 to 275
            verification=lambda size: claim.verification(size) + 190,
        )

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        longest = self._longest(asker, rng)
        inside = asker.within(longest)
        learned = self.inner.learn(inside, replace(known, readout=None), rng)
        note = (
            f"{limits_in_words(self.limits)}; rows were kept to a norm of {inside.input_bound:.3g}, where "
            "none does"
        )
        note = f"{note}; {learned.note}" if learned.note else note
        learned = replace(learned, claim=self.claim, within=inside.input_bound, note=note)
        head = learned.model
        if not isinstance(head, SingleHead):
            return learned
        learned = replace(learned, model=SingleHead(head.matrix, head.v, head.w0, head.c, clip=self.limits))
        self._check_beyond(asker, learned, longest, known.answers or Exact(), rng)
        return learned

    def _check_beyond(
        self, asker: Asker, learned: Learned, inside: float, answers: Answers, rng: np.random.Generator
    ) -> None:
        """Longer rows, which the limits cut off, are answered by the same head and stop at the limits; a
        network with flat ends bends before."""
        bound, model = asker.input_bound, learned.model
        length_of_v = float(np.linalg.norm(model.v)) if isinstance(model, SingleHead) else 0.0
        error = max(_PRECISE, 2.0 * (learned.error_bound or 0.0))
        for length, count in ((1, 48), (2, 8), (3, 8)):
            if asker.max_length is not None and length > asker.max_length:
                continue
            farthest = bound if bound is not None else max(50.0 * inside, _FAR)
            sizes = np.geomspace(min(1.05 * inside, farthest), farthest, count)
            rows = rng.standard_normal((count, length, asker.width))
            rows *= (sizes[:, None] / np.linalg.norm(rows, axis=2))[:, :, None]
            with asker.phase(VERIFICATION):
                given = asker.ask(rows)
            values = model(rows)
            off = np.abs(given - values) if answers.deviation is None else answers.deviation(given, values)
            # single rows hold no scores
            reach = np.abs(values) + sizes * length_of_v if length == 1 else model.sensitivity(rows)
            allowed = answers.tolerance + error * np.asarray(reach)
            worst = int(np.argmax(off - allowed))
            if not off[worst] <= allowed[worst]:
                text = (
                    f"{length} rows up to {sizes[worst] / inside:.3g} times as long are answered "
                    f"{given[worst]:.6g} instead of {values[worst]:.6g}"
                )
                raise OutsideClass(BEYOND_TEST, text)

    def _longest(self, asker: Asker, rng: np.random.Generator) -> float:
        """A norm at which no row's value reaches a limit, from the length of v as rows in a random basis tell
        it."""
        d = asker.width
        low, high = self.limits
        basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
        size = 1.0 if asker.input_bound is None else min(1.0, asker.input_bound)
        with asker.phase("limits"):
            c = float(asker.ask(np.zeros((1, 1, d)))[0])
            room = min(high - c, c - low)
            if not room > 0.0:
                raise Unresolved(
                    f"a row of zeros is already answered {c:.6g}, and {limits_in_words(self.limits)}; no row "
                    "shows what is beyond it"
                )
            for _ in range(80):
                answers = asker.ask(size * basis[:, None]) - c
                largest = float(np.abs(answers).max())
                if largest >= _SAFE * room:
                    size *= 0.1
                elif largest < 0.02 * room and (asker.input_bound is None or size < asker.input_bound):
                    size *= 5.0
                else:
                    break
        length = float(np.linalg.norm(answers)) / size
        return _SAFE * room / (1.05 * length) if length > 0.0 else size


def clipped(limit: float, inner: Learner | None = None) -> ClippedLearner:
    """The learner for answers held between -limit and limit, for `recover(target, learner=...)`.

    >>> import unsoftmax
    >>> head = unsoftmax.random_single_head(6, seed=0)
    >>> result = unsoftmax.recover(unsoftmax.Clipped(unsoftmax.as_oracle(head), 2.0),
    ...     learner=unsoftmax.clipped(2.0))
    >>> str(result.status), head.distance(result.model) < 1e-9
    ('WITHIN_BOUND', True)
    """
    if not (np.isfinite(limit) and limit > 0.0):
        raise UsageError(f"the limit must be a finite number > 0, not {limit!r}")
    return ClippedLearner((-float(limit), float(limit)), inner if inner is not None else SingleHeadLearner())
