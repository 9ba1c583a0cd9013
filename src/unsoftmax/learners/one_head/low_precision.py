"""One head whose answers are stored as float32, float16 or bfloat16: recovered beyond the answers' own
precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.one_head.bias_checks import moved_by_bias, refused_bias
from unsoftmax.learners.one_head.bias_refinement import BiasedRefinement
from unsoftmax.learners.one_head.bias_scores import learn_biased_scores
from unsoftmax.learners.readouts.short_floats import read_short_floats
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters import MeasuredReadout
from unsoftmax.meters.one_head.low_precision import PASSES, ZeroCentredMeter
from unsoftmax.meters.query_bias.refined import Zeros, ZeroVectors
from unsoftmax.models import SingleHead
from unsoftmax.outcomes import OutsideClass, Test
from unsoftmax.solvers import BoundedRangeFinder, RangeFinder

__all__ = ["LowPrecisionLearner", "low_precision"]

_LARGEST_ANSWER = 3e4  # float16 overflows at 65504
# norm times |v| up to which float32 and bfloat16, whose numbers end at 3e38, leave products finite
_ENDLESS = 1e12
_MORE_PASSES = 4  # with a query bias, a pass gains a little less
# random forms of an error matrix: their root mean square is within a sixth of it but once in 10^12 times
_CHECKS = 16
_FACTOR = 6.0  # see `_CHECKS`
# a bound beyond is not a matter of precision: scores of one head do not explain the answers
_HOPELESS = {"float32": 1e-2, "float16": 1.0, "bfloat16": 1.0}


def _queries(size: Size, passes: int) -> int:
    d = size.width
    if size.biased:
        return (passes + 5) * d * (d + 1) + 16 * d + 400
    return passes * (size.matrix_parameters + 2 * d + 2 * size.rank + 24 + size.weak_column) + 160


def _usual(size: Size, passes: int) -> int:
    """Measured."""
    d = size.width
    readout = 75 + (passes + 1) * d
    if size.biased:
        return readout + max(3, passes - 1) * d * (d + 1) + int(1.1 * size.matrix_parameters) + 8 * d + 70
    return readout + passes * (size.matrix_parameters + size.rank + 5) + 11


_CLAIM = Claim(
    title="One head from answers in low precision",
    source="this library",
    assumptions=(
        Assumption(
            "the function is computed in float64 and only its answer is stored in the format",
            "fresh probes at predicted zeros",
        ),
        Assumption("no constant (c = 0)", "a row of zeros"),
        Assumption("v is not zero", "one-row queries"),
    ),
    queries=QueryCount(
        "p (r(2d - r) + 4d + 24) + 160, p = 2 (float32), 4 (float16), 7 (bfloat16); (p + 5) d(d + 1) + 16 d "
        "+ 400 with a query bias",
        "upper",
        partial(_queries, passes=max(PASSES.values())),
    ),
    recovers=(
        "W, v and a query bias, to float64 for float32 and bfloat16; float16 stops where its smallest steps "
        "do"
    ),
    symmetry="none",
    # measured: 441 to 507, with a query bias 465 to 531 (d = 3) and 505 to 571 (d = 8)
    verification=lambda size: 480 + 8 * size.width if size.biased else 490,
)


@dataclass(frozen=True)
class LowPrecisionLearner:
    """Recovers W, v and a query bias through zeros, where the answers' relative precision measures a
    residual.

    Claim: see `claim`. Queries: two a parameter for float32, seven for bfloat16. Assumes: rounding of the
    answer only (checked on fresh probes).
    Recovers: W (any rank), v, w0. Departs from the paper: not in it. Fails when: the target computes in low
    precision inside; then the bound says so.
    """

    family: ClassVar[Family] = Family.SINGLE_HEAD
    precision: str = "float32"

    @property
    def claim(self) -> Claim:
        passes = PASSES[self.precision]
        count, usual = partial(_queries, passes=passes), partial(_usual, passes=passes)
        return replace(_CLAIM, queries=replace(_CLAIM.queries, count=count, usual=usual))

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        d = asker.width
        passes = PASSES[self.precision]
        asker.expect(asker.bill.total + passes * (d * d + d))
        readout = read_short_floats(asker, FloatFormat(self.precision), passes)
        v, size = readout.v, readout.size
        moved = moved_by_bias(asker, v, size, FloatFormat(self.precision).smallest, rng)
        if moved > 0.0:
            if d < 2:
                raise refused_bias(moved)
            head, bound = self._with_bias(asker, v, rng)
            bound = max(bound, readout.length_error, readout.error(asker, rng))
            return self._learned(head, bound)
        meter = ZeroCentredMeter(asker, v, rng, self.precision)
        with asker.phase("range"):
            meter.typical_score()
        with asker.phase("scores"):
            solver = RangeFinder(again=meter.column_near if self.precision == FloatFormat.FLOAT32 else None)
            found = solver.solve(meter, rng, lambda left: asker.expect(asker.bill.total + passes * left))
        head = SingleHead(found.matrix, v)
        bound = max(self._bound(asker, head, meter), readout.error(asker, rng), readout.length_error)
        return self._learned(head, bound)

    def _learned(self, head: SingleHead, bound: float) -> Learned:
        if bound > _HOPELESS[self.precision]:
            raise OutsideClass(
                Test("answers vanish where the scores predict"),
                f"fresh probes at predicted zeros leave a relative error of {bound:.2g} in W",
            )
        longest = None
        if self.precision == FloatFormat.FLOAT16:  # longer rows are not answered with numbers
            longest = self._longest(float(np.linalg.norm(head.v)))
        return Learned(head, self.claim, bound, within=longest, note=f"answers are {self.precision} numbers")

    def _longest(self, length: float) -> float:
        """The norm of rows up to which answers stay inside the format, for a v of that length."""
        return (_LARGEST_ANSWER if self.precision == FloatFormat.FLOAT16 else _ENDLESS) / length

    def _with_bias(self, asker: Asker, v: Array, rng: np.random.Generator) -> tuple[SingleHead, float]:
        """The head with its query bias and a bound for W and w0: first as far as errors of the answers' size
        allow, then through zeros."""
        unit, smallest = FloatFormat(self.precision).unit, FloatFormat(self.precision).smallest
        length = float(np.linalg.norm(v))
        longest = self._longest(length)
        longest = longest if asker.input_bound is None else min(longest, asker.input_bound)
        readout = MeasuredReadout(v, 0.0, smallest, longest, sharp=4.0 * EPS * length, relative=unit)
        rough = learn_biased_scores(asker, readout, BoundedRangeFinder(), rng)
        vectors = ZeroVectors(asker, v, rng, Zeros(), asker.input_bound)
        refinement = BiasedRefinement(asker, vectors, v, asker.input_bound, smallest=smallest, unit=unit)
        W, w0 = refinement.refine(rough, PASSES[self.precision] + _MORE_PASSES, rng)
        return SingleHead(W, v, w0), refinement.relative_error(W, w0, rng)

    def _bound(self, asker: Asker, head: SingleHead, meter: ZeroCentredMeter) -> float:
        """How wrong W can be, from fresh probes at predicted zeros."""
        w_norm = head.matrix.norm()
        with asker.phase(VERIFICATION):
            G, B = meter.random_pairs(_CHECKS)
            expected = np.einsum("nd,nd->n", G, head.matrix.apply(B))
            forms = meter.residual_forms(G, B, expected)
        of_W = _FACTOR * float(np.sqrt(np.mean(forms**2))) * head.width / (w_norm if w_norm > 0.0 else 1.0)
        return of_W + 32 * EPS


def low_precision(precision: str = "float32") -> LowPrecisionLearner:
    """The learner for answers stored in a low precision, for `recover(target, learner=...)`.

    >>> import unsoftmax
    >>> head = unsoftmax.random_single_head(6, seed=0)
    >>> oracle = unsoftmax.LowPrecision(unsoftmax.as_oracle(head), "float32")
    >>> result = unsoftmax.recover(oracle, learner=unsoftmax.low_precision("float32"))
    >>> str(result.status), head.distance(result.model) < 1e-12
    ('WITHIN_BOUND', True)
    """
    if precision not in PASSES:
        raise UsageError(f"precision must be one of {', '.join(PASSES)}, not {precision!r}")
    return LowPrecisionLearner(precision)
