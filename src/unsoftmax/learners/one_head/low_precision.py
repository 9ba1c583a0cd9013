"""One head whose answers are stored as float32, float16 or bfloat16: recovered beyond the answers' own
precision."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import EPS, Array
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.one_head.bias_checks import moved_by_bias, refused_bias
from unsoftmax.learners.one_head.bias_refinement import BiasedRefinement
from unsoftmax.learners.one_head.bias_scores import learn_biased_scores
from unsoftmax.learners.one_head.checks import ONE_ROW_TEST
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters import MeasuredReadout
from unsoftmax.meters.one_head.low_precision import PASSES, ZeroCentredMeter
from unsoftmax.meters.probes.bisection import halve
from unsoftmax.meters.query_bias.refined import Zeros, ZeroVectors
from unsoftmax.models import SingleHead
from unsoftmax.outcomes import OutsideClass, Test, Unresolved
from unsoftmax.solvers import BoundedRangeFinder, RangeFinder

__all__ = ["LowPrecisionLearner", "low_precision"]

_LOUD = 2.0**12  # answers of about this size stay clear of float16's limits
_LARGEST_ANSWER = 3e4  # float16 overflows at 65504
_ENDLESS = 1e12
_MORE_PASSES = 4  # with a query bias, a pass gains a little less
_CHECKS = 16
_FACTOR = 6.0
_HOPELESS = {
    "float32": 1e-2,
    "float16": 1.0,
    "bfloat16": 1.0,
}  # a bound beyond is no matter of precision: scores of one head do not explain the answers


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
        return readout + max(3, passes - 1) * d * (d + 1) + int(1.1 * size.matrix_parameters) + 8 * d
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
        "p (r(2d - r) + 4d + 24) + 160, p = 2 (float32), 4 (float16), 7 (bfloat16); (p + 5) d(d + 1) + "
        "16 d + 400 with a query bias",
        "upper",
        partial(_queries, passes=max(PASSES.values())),
    ),
    recovers=(
        "W, v and a query bias, to float64 for float32 and bfloat16; float16 stops where its smallest "
        "steps do"
    ),
    symmetry="none",
    departs="not in the paper",
    verification=lambda size: 450 + 7 * size.width if size.biased else 460,
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
        direction, size = self._direction(asker, passes)
        length, length_error = self._length(asker, direction, size)
        v = length * direction
        moved = moved_by_bias(asker, v, size, FloatFormat(self.precision).smallest, rng)
        if moved > 0.0:
            if d < 2:
                raise refused_bias(moved)
            head, bound = self._with_bias(asker, v, rng)
            bound = max(bound, length_error, self._bound_of_v(asker, v, size, rng))
            return self._learned(head, bound)
        meter = ZeroCentredMeter(asker, v, rng, self.precision)
        with asker.phase("range"):
            meter.typical_score()
        with asker.phase("scores"):
            solver = RangeFinder(again=meter.column_near if self.precision == "float32" else None)
            found = solver.solve(meter, rng, lambda left: asker.expect(asker.bill.total + passes * left))
        head = SingleHead(found.matrix, v)
        bound = max(self._bound(asker, head, meter, size, rng), length_error)
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
        return (_LARGEST_ANSWER if self.precision == "float16" else _ENDLESS) / length

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

    def _direction(self, asker: Asker, passes: int) -> tuple[Array, float]:
        """v/|v| by ratios to the largest entry, and a size of rows at which answers are loud."""
        d = asker.width
        bound = np.inf if asker.input_bound is None else asker.input_bound / 2
        size = float(min(1.0, bound))
        with asker.phase("values"):
            if abs(float(asker.ask(np.zeros((1, 1, d)))[0])) > 0.0:
                raise OutsideClass(
                    Test("a row of zeros is answered zero"),
                    "a constant is only recovered from exact answers or within a tolerance",
                )
            for _ in range(30):
                answers = asker.ask(size * np.eye(d)[:, None])
                loudest = float(np.abs(answers).max())
                if 2.0**-6 <= loudest <= 2.0**14 or (loudest < 1.0 and size >= bound):
                    break
                size = float(min(size * (2.0**20 if loudest == 0.0 else _LOUD / loudest), bound))
            if loudest == 0.0:
                raise Unresolved(
                    f"no row of norm {size:.2g} moves the answer; longer rows are needed, or v = 0"
                )
            pivot = int(np.abs(answers).argmax())
            slope = float(answers[pivot]) / size
            size = float(min(_LOUD / abs(slope), bound))
            ratios = answers / answers[pivot]
            others = np.flatnonzero(np.arange(d) != pivot)
            for _ in range(passes):
                rows = size * np.eye(d)[others]
                rows[:, pivot] = -size * ratios[others]
                longest = np.maximum(1.0, np.linalg.norm(rows, axis=1) / (2 * bound))
                ratios[others] += asker.ask((rows / longest[:, None])[:, None]) * longest / (size * slope)
        v = np.sign(slope) * ratios
        return np.asarray(v / np.linalg.norm(v)), size

    def _length(self, asker: Asker, direction: Array, size: float) -> tuple[float, float]:
        """|v| and its relative error, from two rounding thresholds: the rows at which the stored answer steps
        to the next number."""
        steps = 54 - FloatFormat(self.precision).mantissa_bits
        with asker.phase("values"):
            answer = float(asker.ask((size * direction)[None, None])[0])
            if not answer > 0.0:
                raise OutsideClass(
                    ONE_ROW_TEST,
                    f"a row along v, which single entries told, is answered {answer:.3g} instead of its "
                    "length times |v|",
                )
            binade = 2.0 ** np.floor(np.log2(answer))
            size *= (
                (1.5 if answer >= 1.5 * binade else 0.75) * binade / answer
            )  # clear of the powers of two, where steps change
            first = float(asker.ask((size * direction)[None, None])[0])
            second = FloatFormat(self.precision).next_after(first)
            third = FloatFormat(self.precision).next_after(second)
            crossings = [
                self._crossing(asker, direction, size * (lower + upper) / 2 / first, lower, upper, steps)
                for lower, upper in ((first, second), (second, third))
            ]
        apart = abs((first + second) / crossings[0] / ((second + third) / crossings[1]) - 1.0)
        # a value that is rounded to float32 on the way moves neighbouring thresholds by the same step in
        # opposite directions
        length = float((first + 2.0 * second + third) / 2.0 / sum(crossings))
        return length, 0.0 if apart <= 2.0**-22 else apart

    def _crossing(
        self, asker: Asker, direction: Array, middle: float, lower: float, upper: float, steps: int
    ) -> float:
        """The length of a row along v at which the stored answer steps from `lower` to `upper`."""
        reach = np.array([1.5 * (upper - lower) / lower * middle])

        def above(moved: Array) -> NDArray[np.bool_]:
            return np.asarray(asker.ask(((middle + moved)[:, None] * direction)[:, None]) >= upper)

        low, high = halve(above, -reach, reach, steps)
        return float(middle + (low[0] + high[0]) / 2)

    def _bound(
        self, asker: Asker, head: SingleHead, meter: ZeroCentredMeter, size: float, rng: np.random.Generator
    ) -> float:
        """How wrong W and v can be, from fresh rows across v and fresh probes at predicted zeros."""
        of_v = self._bound_of_v(asker, head.v, size, rng)
        w_norm = head.matrix.norm()
        with asker.phase(VERIFICATION):
            G, B = meter.random_pairs(_CHECKS)
            expected = np.einsum("nd,nd->n", G, head.matrix.apply(B))
            forms = meter.residual_forms(G, B, expected)
        of_W = _FACTOR * float(np.sqrt(np.mean(forms**2))) * head.width / (w_norm if w_norm > 0.0 else 1.0)
        return float(max(of_W, of_v)) + 32 * EPS

    def _bound_of_v(self, asker: Asker, v: Array, size: float, rng: np.random.Generator) -> float:
        """How wrong v can be, from fresh rows across it and along it."""
        d = asker.width
        v_norm = float(np.linalg.norm(v))
        unit, smallest = FloatFormat(self.precision).unit, FloatFormat(self.precision).smallest
        with asker.phase(VERIFICATION):
            across = rng.standard_normal((_CHECKS, d))
            across -= np.outer(across @ v, v) / v_norm**2
            lengths = np.linalg.norm(across, axis=1)
            of_direction = 0.0
            if d > 1:
                answers = (
                    np.abs(asker.ask((size * across / lengths[:, None])[:, None])) + smallest / 2
                ) / size
                of_direction = _FACTOR * float(np.sqrt(np.mean(answers**2))) * np.sqrt(d) / v_norm
            rows = rng.standard_normal((_CHECKS, d))
            rows *= size / np.linalg.norm(rows, axis=1)[:, None]
            excess = np.abs(asker.ask(rows[:, None]) - rows @ v) - unit * np.abs(rows @ v) * (1 + 1e-9)
        wrong = float(excess.max()) / (size * v_norm / np.sqrt(d))
        if wrong > 0.02:
            raise OutsideClass(
                ONE_ROW_TEST,
                f"fresh rows are answered up to {float(excess.max()):.3g} away from x·v beyond their "
                "rounding",
            )
        return float(of_direction + (0.0 if wrong <= 64 * EPS * d else unit + wrong))


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
