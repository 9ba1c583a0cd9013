"""One head whose answers are rounded to a known grid: a pass within the tolerance, then steps of the answers,
bisected."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.one_head.bias_refinement import BiasedRefinement
from unsoftmax.learners.one_head.bias_scores import learn_biased_scores
from unsoftmax.learners.one_head.checks_with_errors import (
    check_linear_within,
    moved_by_query_bias,
    refused_query_bias,
)
from unsoftmax.learners.one_head.within_tolerance import (
    ToleranceLearner,
    learn_scores,
    refuse_noise,
    relative_bound,
)
from unsoftmax.learners.readouts.long_rows import read_long_rows
from unsoftmax.learners.readouts.steps import read_steps, steps_alike
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters import MeasuredReadout, ToleranceMeter
from unsoftmax.meters.one_head.rounded import RoundingMeter
from unsoftmax.meters.query_bias.refined import Steps, ZeroVectors
from unsoftmax.models import SingleHead
from unsoftmax.models.matrices import Dense, Factors, Matrix
from unsoftmax.outcomes import OutsideClass, Test, Unresolved
from unsoftmax.solvers import BoundedRangeFinder, RangeFinder
from unsoftmax.solvers.orthogonal_correction import refine

__all__ = ["RoundedLearner", "rounded"]

_CHECKS = 16  # random probes all lie within a third of their usual size once in many thousand times
_FACTOR = 3.0  # see `_CHECKS`
_LONG = 1e-5  # tau/(R|v|) below which two refinements reach float64
_PASSES = 3  # one pass bisects to 1e-9; the others confirm that nothing moves
_BISECTED = 1e-9  # part of a correction that bisected steps leave
_LEAST_STEPS = 4.0  # of an asking row's value, where rows are long enough
_USEFUL = 0.1  # relative error from which a recovery is none
# bound up to which refinements have arrived: they leave 1e-12, but with short rows 1e-4 and more (R = 5,
# d = 6), since what they measure beside W grows with R^2
_REFINED = 1e-9
_BESIDE = 0.05  # part of v that must be orthogonal to W b: refinements measure along it


def _queries(size: Size) -> int:
    if size.biased:
        return 80 * size.width * (size.width + 1) + 1000
    return 60 * (size.matrix_parameters + 3 * size.width) + 1000


def _usual(size: Size) -> int:
    """Measured, for rows of 100,000 steps."""
    d = size.width
    if size.biased:
        return 45 * d * (d + 1) + 50 * d
    return int(1.05 * size.matrix_parameters) + 2 * d * (d + 1) + 45 * d + 80


def _verification_of_one_pass(size: Size) -> int:
    """Measured."""
    return 389 if size.biased else 373


_CLAIM = Claim(
    title="One head from rounded answers",
    source="this library",
    assumptions=(
        Assumption(
            "answers are rounded to a known grid, and nothing else",
            "every answer is on the grid (identify); steps come where predicted",
        ),
        Assumption("no constant (c = 0; with c, see tolerance)", "a row of zeros, opposite rows"),
        Assumption("R|v| is at least about 100 steps", "the first pass's bound"),
    ),
    queries=QueryCount(
        "60 (r(2d - r) + 3d) + 1000; about 6 a parameter where R|v| is 100,000 steps or more; 80 d(d + 1) + "
        "1000 with a query bias",
        "upper",
        _queries,
        _usual,
    ),
    recovers="W, v and a query bias in float64, from answers of any number of decimals",
    symmetry="none",
    # measured: 465 to 1587, with a query bias 657 to 805 (d = 3) and 991 to 1445 (d = 8)
    verification=lambda size: 400 + 95 * size.width if size.biased else 1000,
)


@dataclass(frozen=True)
class RoundedLearner:
    """Recovers W, v and a query bias from answers rounded to `decimals` places.

    Claim: float64 precision. Queries: 6 a parameter with long rows, about 45 with short ones. Assumes: see
    `claim`. Recovers: W, v, w0.
    Departs from the paper: not in it. Fails when: the rows may not be long enough for 100 steps (UNRESOLVED,
    with the norm that would do).
    """

    family: ClassVar[Family] = Family.SINGLE_HEAD
    claim: ClassVar[Claim] = _CLAIM
    decimals: int = 2

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        step = 10.0**-self.decimals
        if asker.input_bound is None:
            # rows may be so long that one pass within the tolerance is float64 already
            learned = ToleranceLearner(step / 2).learn(asker, known, rng)
            return replace(learned, claim=replace(learned.claim, verification=_verification_of_one_pass))
        rough = read_long_rows(asker, step / 2, rng)
        if rough.c != 0.0:
            return ToleranceLearner(step / 2).learn(asker, known, rng)
        check_linear_within(asker, rough, rng)
        moved = moved_by_query_bias(asker, rough, rng)
        if moved > 0.0:
            return self._with_bias(asker, known, rough, rng, moved)
        with asker.phase("values"):
            first = ToleranceMeter(asker, rough, rng)
        found = learn_scores(asker, first, BoundedRangeFinder(), rng)
        _refuse_rough(relative_bound(found, rough), rough)
        with asker.phase("values"):
            v = read_steps(asker, rough, step, rng)
        if not steps_alike(asker, v, rough.bound, step):
            # a constant that rounding hides: one more error of half a step
            return ToleranceLearner(step).learn(asker, known, rng)
        readout = MeasuredReadout(v, 0.0, step / 2, rough.bound, sharp=4 * EPS * rough.norm)
        W, error = found.matrix, found.error
        rank = found.rank if isinstance(W, Factors) else asker.width
        if readout.tau / (readout.bound * readout.norm) < _LONG and _part_beside(W, v, rng) > _BESIDE:
            refined, _ = self._refine(asker, readout, W, error, rank, step, rng)
            head = SingleHead(refined, v)
            if (bound := self._bound(asker, head, rough.bound, step, rng)) <= _REFINED:
                return self._learned(head, bound, rough)
        meter = RoundingMeter(asker, v, rough.bound, step, W, error, rng)
        with asker.phase("steps"):
            head = SingleHead(RangeFinder(near=W).solve(meter, rng).matrix, v)
        if (bound := self._bound(asker, head, rough.bound, step, rng)) == np.inf:
            raise OutsideClass(
                Test("answers step where the scores predict"),
                "fresh probes step more than 10 % away from where the recovered head says",
            )
        return self._learned(head, bound, rough)

    def _learned(self, head: SingleHead, bound: float, rough: MeasuredReadout) -> Learned:
        note = (
            f"answers are rounded to {self.decimals} decimals, and rows of norm {rough.bound:.3g} were asked"
        )
        return Learned(head, self.claim, bound, note=note)

    def _with_bias(
        self, asker: Asker, known: Known, rough: MeasuredReadout, rng: np.random.Generator, moved: float
    ) -> Learned:
        """The same with a query bias: a pass within the tolerance, then the vectors of scores of d + 1 asking
        rows from steps."""
        step = 2.0 * rough.tau
        if asker.width < 2:
            raise refused_query_bias(moved, rough)
        first = learn_biased_scores(asker, rough, BoundedRangeFinder(), rng)
        bound = first.relative_bound()
        _refuse_rough(bound, rough)
        with asker.phase("values"):
            v = read_steps(asker, rough, step, rng)
        if not steps_alike(asker, v, rough.bound, step):
            return ToleranceLearner(step).learn(asker, known, rng)
        vectors = ZeroVectors(asker, v, rng, Steps(step / 2), rough.bound)
        refinement = BiasedRefinement(
            asker, vectors, v, rough.bound, gain=_BISECTED, least=_LEAST_STEPS * step
        )
        try:
            W, w0 = refinement.refine(first, _PASSES, rng)
        except Unresolved:  # too rough to say where answers step
            if max(bound, relative_bound(first.scores, rough)) > _USEFUL:
                raise
            head, bound = (
                SingleHead(first.scores.matrix, rough.v, first.w0),
                max(bound, relative_bound(first.scores, rough)),
            )
        else:
            head, bound = SingleHead(W, v, w0), refinement.relative_error(W, w0, rng)
        return self._learned(head, bound, rough)

    def _refine(
        self,
        asker: Asker,
        readout: MeasuredReadout,
        W: Matrix,
        error: float,
        rank: int,
        step: float,
        rng: np.random.Generator,
    ) -> tuple[Matrix, float]:
        """Two passes beside W, then its scale from a few steps."""
        meter = ToleranceMeter(asker, readout, rng)
        dense = W.dense()
        with asker.phase("refine"):
            for _ in range(2 if asker.width > 2 else 0):
                dense = refine(meter, dense, error, rng)
                error = max(
                    error * 8.0 * readout.tau / (readout.bound * readout.norm),
                    1e-14 * float(np.linalg.norm(dense)),
                )
        if rank < asker.width:
            left, values, right = np.linalg.svd(dense)
            W = Factors(left[:, :rank] * values[:rank], right[:rank].T)
        else:
            W = Dense(dense)
        rough_scale = 16.0 * readout.tau / (readout.bound * readout.norm) * W.norm()
        steps = RoundingMeter(asker, readout.v, readout.bound, step, W, rough_scale, rng)
        with asker.phase("steps"):
            if asker.width <= 2:
                return RangeFinder().solve(steps, rng).matrix, error
            B = rng.standard_normal((2, asker.width)) + 2.0 * np.sqrt(asker.width) * steps.towards
            B /= np.linalg.norm(B, axis=1)[:, None]
            A = np.tile(steps.carrier, (2, 1))
            ratio = float(np.mean(steps.pairs(A, B) / np.einsum("nd,nd->n", A, W.apply(B))))
        return (Dense(ratio * W.array) if isinstance(W, Dense) else Factors(ratio * W.left, W.right)), error

    def _bound(
        self, asker: Asker, head: SingleHead, longest: float, step: float, rng: np.random.Generator
    ) -> float:
        """Fresh probes must step where the model says, within a margin that grows until they do; infinite
        where they do not."""
        norm = head.matrix.norm()
        with asker.phase(VERIFICATION):
            meter = RoundingMeter(asker, head.v, longest, step, head.matrix, 0.0, rng)
            margin = 2.0**-44
            while margin < 0.1:
                holds, form = meter.steps_where_predicted(margin, _CHECKS)
                if holds:
                    return float(_FACTOR * form * head.width / norm) + 16 * EPS
                margin *= 4.0
        return float(np.inf)


def _refuse_rough(bound: float, rough: MeasuredReadout) -> None:
    """Raises `Unresolved` when the first pass tells too little for the others to start from."""
    if not np.isfinite(bound):
        refuse_noise(bound, rough)
    if not bound < 0.5:
        raise Unresolved(
            f"the first pass leaves a relative error of {bound:.2g}; rows of norm "
            f"{3.0 * bound * rough.bound:.2g} instead of {rough.bound:.3g} (input_bound) would help"
        )


def _part_beside(W: Matrix, v: Array, rng: np.random.Generator) -> float:
    """The smallest part of v that is orthogonal to W b, over some random b."""
    images = W.apply(rng.standard_normal((16, W.width)))
    images /= np.maximum(np.linalg.norm(images, axis=1), 1e-300)[:, None]
    along = images @ (v / np.linalg.norm(v))
    return float(np.sqrt(np.maximum(1.0 - along**2, 0.0)).min())


def rounded(decimals: int) -> RoundedLearner:
    """The learner for answers rounded to `decimals` places, for `recover(target, learner=...)`.

    >>> import unsoftmax
    >>> head = unsoftmax.random_single_head(6, seed=0)
    >>> oracle = unsoftmax.BoundedInputs(unsoftmax.Rounded(unsoftmax.as_oracle(head), 2), 1e4)
    >>> result = unsoftmax.recover(oracle, learner=unsoftmax.rounded(2))
    >>> str(result.status), head.distance(result.model) < 1e-11
    ('WITHIN_BOUND', True)
    """
    if isinstance(decimals, bool) or not isinstance(decimals, int) or not 0 <= decimals <= 12:
        raise UsageError(f"decimals must be a whole number from 0 to 12, not {decimals!r}")
    return RoundedLearner(decimals)
