"""Several heads at the price of their parameters: number of heads, ranks and biases unknown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.one_head.checks import check_repeatable
from unsoftmax.learners.readouts.exact import read_values
from unsoftmax.learners.several_heads.attempt import Restart, SharedStep, TooClose, Unexplained
from unsoftmax.learners.several_heads.by_copies import MOST_UNKNOWNS, heads_by_copies, polished
from unsoftmax.learners.several_heads.class_tests import check_opposite_rows, has_query_bias, largest_score
from unsoftmax.learners.several_heads.correct_matrices import parameter_error
from unsoftmax.learners.several_heads.fresh_answers import fresh_deviation
from unsoftmax.learners.several_heads.isolate import Heads, isolate_heads
from unsoftmax.learners.several_heads.one_column import heads_of_one_column
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters.several_heads.excess_answers import Responses
from unsoftmax.models import MultiHead
from unsoftmax.outcomes import Unresolved

__all__ = ["MultiHeadLearner"]

_COPIES = 4  # attempts by copies when steps are shared

# deviations on fresh queries between which all heads are corrected together: below, nothing is left to gain;
# above, Gauss-Newton steps are not sure to settle
_SETTLED, _NEARLY = 1e-12, 1e-6

_MODERATE = 0.3  # score from which on heads differ by more than a hundredth of what they add

_SWITCHES = 26  # queries a head that find where it switches on or off; measured
_SECOND_LOOK = 16  # queries a head that look at every matrix once more
_CORRECTED = 0.7  # of a parameter, where heads are more than columns; measured: 0.68 to 0.71


def _usual(size: Size) -> int:
    """One attempt on heads that are told apart at once: what every phase asks."""
    d, heads, biased = size.width, max(1, size.heads), int(size.biased)
    scores = sum(r * (2 * d + biased - r) + (r + 2 if r < d else 0) for r in size.ranks or (d,))
    rows_and_readouts = heads * (2 * d + 1 + biased)
    first = (d + 2) + (d + 4 if size.biased else 7)
    if heads > d:  # each is read with the others in place, and every matrix is corrected
        scores += int(_CORRECTED * size.matrix_parameters) + heads * (d - _SECOND_LOOK)
    return scores + rows_and_readouts + first + heads * (_SWITCHES + _SECOND_LOOK) + 42


def _queries(size: Size) -> int:
    """One attempt on heads that lie close or switch nearly together: all matrices are corrected twice."""
    corrected = sum(r * (2 * size.width + 1 - r) for r in size.ranks or (size.width,))
    return _usual(size) + 2 * corrected + 60 * max(1, size.heads) + 450


def _verification_of_short_floats(size: Size) -> int:
    """The claimed error is measured too, with 16 queries per matrix and a readout. Measured: 457 (two
    heads)."""
    return 345 + 56 * max(1, size.heads)


_CLAIM = Claim(
    title="Several heads at the price of their parameters",
    source="this library; open in arXiv 2601.16873; the canonical form is also in arXiv 2608.03294",
    assumptions=(
        Assumption(
            "every head is one softmax over the rows",
            "opposite first rows share the whole readout; certificate",
        ),
        Assumption("answers repeat", "early queries asked again"),
        Assumption("rows may be large enough to saturate the scores", "a ladder of sizes"),
        Assumption(
            "the heads can be told apart in float64", "shape of every step; a fresh check after every attempt"
        ),
    ),
    queries=QueryCount(
        "usually the sum of r(2d - r) + r + 2d + 45 over the heads, and d + 51; r + 1 more a head and d more "
        "with query biases; up to 2r(2d + 1 - r) + 60 a head and 450 more where heads lie close; six "
        "attempts at most",
        "upper",
        _queries,
        _usual,
        attempts=6,
    ),
    recovers="W, v and w0 of every head, and c",
    symmetry="order of heads; heads with equal W and w0 come as one, heads with v = 0 not at all",
    verification=lambda size: 255 + 24 * max(1, size.heads),
)


@dataclass(frozen=True)
class MultiHeadLearner:
    """Recovers f(X) = c + Σ_h Σ_i α_i^h (x_i·v_h) by saturating all heads but one.

    Claim: canonical form in float64. Queries: about 1.02 to 1.3 times the parameters. Assumes: large rows may
    be sent. Recovers: all heads up to their order. Departs from the paper: no subspaces are assumed. Fails
    when: heads are too close for float64 (ends as UNRESOLVED).
    """

    family: ClassVar[Family] = Family.MULTI_HEAD
    claim: ClassVar[Claim] = _CLAIM
    attempts: int = 6

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        readout = read_values(asker, known, rng)
        v, c = readout.v, readout.c
        check_repeatable(asker, v, c)
        rounding = check_opposite_rows(asker, v, c, rng)
        biased = has_query_bias(asker, v, c, rounding, rng)
        respond = Responses(asker, v, c, biased=biased, rounding=rounding)
        model = _Search(respond, self.attempts).model(rng).canonical()
        if rounding < 1e-12:
            return Learned(model, self.claim)
        with asker.phase(VERIFICATION):
            error = parameter_error(respond, model, rng)
        claim = replace(self.claim, verification=_verification_of_short_floats)
        return Learned(model, claim, error_bound=error, note="answers are float32 numbers")


class _Search:
    """One attempt after another at the heads behind these answers."""

    def __init__(self, respond: Responses, attempts: int) -> None:
        self._respond, self._attempts = respond, attempts
        self._small = 2 * respond.columns * (respond.width + 1) <= MOST_UNKNOWNS
        # attempts by copies that are still due; one column has no circle of asking rows
        self._copies = attempts if respond.columns == 1 else 0
        self._limit = max(1e-10, 1e3 * respond.rounding)  # deviations that rounding explains
        self._best: tuple[float, MultiHead] | None = None
        self._of_pairs: MultiHead | None = None  # answers two rows as the target does, and five otherwise
        self._too_close = False  # more heads were seen than could be told apart
        self._found: MultiHead | None = None
        self._over = False  # no other attempt would see more
        self._reasons: list[str] = []

    def model(self, rng: np.random.Generator) -> MultiHead:
        """Heads that answer fresh sequences as the target does, or as nearly as any: the certificate says
        what it sees. Raises `Unresolved` where they are too far off."""
        asker, attempt = self._respond.ledger, 0
        while not self._over and attempt < self._attempts:
            copied = self._copies > 0
            try:
                heads = self._heads(attempt, rng)
            except (Restart, Unresolved, np.linalg.LinAlgError) as reason:
                self._refused(reason)
            else:
                self._compare(heads, copied, rng)
            attempt += 1
        if self._found is not None:
            return self._found
        # what short rows leave open looks like another function, and is none
        strict = self._too_close or asker.input_bound is not None
        most = max(1e-9, 1e3 * self._respond.rounding) if strict else 1e-3
        if self._best is not None and self._best[0] <= most:
            return self._best[1]
        told = f"the answers are those of several heads as far as tested, but {attempt} attempts "
        told += f"could not tell the heads apart: {'; '.join(dict.fromkeys(self._reasons))}; another seed or "
        if asker.input_bound is not None:
            score = largest_score(asker, self._respond.v, self._respond.c, rng)
            told = _short_rows(asker.input_bound, score) + told
        raise Unresolved(f"{told}larger rows (input_bound) may help")

    def _heads(self, attempt: int, rng: np.random.Generator) -> Heads:
        respond = self._respond
        if respond.width == 1 and attempt == 0:
            return heads_of_one_column(respond, rng)
        if self._copies:
            self._copies -= 1
            return heads_by_copies(respond, rng)
        return isolate_heads(respond, rng, max(1e-9 if attempt % 2 == 0 else 1e-11, 50 * respond.rounding))[0]

    def _refused(self, reason: Exception) -> None:
        self._reasons.append(str(reason))
        self._too_close = self._too_close or isinstance(reason, TooClose)
        if isinstance(reason, Unexplained):  # whatever the pairs are
            self._found, self._over = self._of_pairs, True
        # isolating one head needs long rows, copies do not
        if isinstance(reason, SharedStep) or self._respond.ledger.input_bound is not None:
            self._copy_next()

    def _copy_next(self) -> None:
        if self._small and self._copies == 0:
            self._copies = _COPIES

    def _compare(self, heads: Heads, copied: bool, rng: np.random.Generator) -> None:
        """Holds heads against fresh sequences."""
        respond = self._respond
        model = heads.model(respond)
        fresh = fresh_deviation(respond.ledger, model, rng)
        if max(_SETTLED, 1e3 * respond.rounding) < fresh.largest < _NEARLY:
            model = polished(respond, heads, rng).model(respond)
            fresh = fresh_deviation(respond.ledger, model, rng)
        if self._best is None or fresh.largest < self._best[0]:
            self._best = (fresh.largest, model)
        only_longer = fresh.only_longer(self._limit)
        if fresh.largest <= self._limit or (only_longer and copied):
            self._found, self._over = model, True
            return
        self._reasons.append(f"fresh queries deviate by {fresh.largest:.1g}")
        if fresh.largest > 1e-6:
            self._copy_next()
        if only_longer and self._small:
            self._of_pairs = model
        elif only_longer:
            self._over = True
            told = "two rows are answered as these heads say and five are not, as beside heads W and -W"
            self._reasons.append(told)


def _short_rows(bound: float, score: float) -> str:
    """What keeps heads from being told apart, where rows may only be short; empty where their scores are
    moderate."""
    if score > _MODERATE:
        return ""
    return (
        f"rows may be {bound:g} long, and then no score is above {score:.1g}: heads are told apart by "
        f"{score**2 / 12.0:.1g} of what a score changes, beside the rounding of the answers; "
    )
