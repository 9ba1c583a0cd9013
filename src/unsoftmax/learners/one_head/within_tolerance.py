"""One head whose answers are off by up to tau: the longest rows allowed, one pass, and a bound that follows
from the answers."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from unsoftmax.answers import identify
from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.one_head.bias_scores import learn_biased_scores
from unsoftmax.learners.one_head.checks_with_errors import (
    check_linear_within,
    moved_by_query_bias,
    refused_query_bias,
)
from unsoftmax.learners.readouts.long_rows import read_long_rows
from unsoftmax.ledger import Asker
from unsoftmax.meters import MeasuredReadout, ToleranceMeter
from unsoftmax.models import SingleHead
from unsoftmax.outcomes import OutsideClass, Unresolved
from unsoftmax.solvers import BoundedRangeFinder, Solution

__all__ = [
    "ToleranceLearner",
    "learn_behind",
    "learn_scores",
    "queries_within_tolerance",
    "refuse_noise",
    "relative_bound",
    "usual_within_tolerance",
    "within_tolerance",
]

_USEFUL = 0.1  # relative error from which a recovery is none
_FAINT = 12.0  # times the usual error: an error of z beyond it is a direction of W like any other


def queries_within_tolerance(size: Size) -> int:
    """At most, with every query repeated as often as the size says."""
    factor = 1.5 if size.rank == size.width else 2.1
    more = 16 * size.width + 300 if size.biased else 0
    return size.repeats * (int(factor * (size.matrix_parameters + size.width)) + 100 + more)


def usual_within_tolerance(size: Size) -> int:
    """Measured. A query bias takes 60 to 160 more where rows are bounded by 10, 150 to 360 where nothing
    bounds them."""
    once = int(1.05 * size.matrix_parameters) + 5 * size.width + (170 if size.biased else 0)
    return size.repeats * once


_CLAIM = Claim(
    title="One head from answers within a tolerance",
    source="this library; extends Theorem 6.1 of arXiv 2601.16873",
    assumptions=(
        Assumption(
            "every answer is within tau of the function",
            "identified when not given; the certificate at the end",
        ),
        Assumption("a constant of at most tau or well above it", "the answer to a row of zeros"),
        Assumption(
            "v is not along every vector of scores, where there is a query bias",
            "a direction along v that has no score",
        ),
        Assumption("R|v|/tau is at least about 100", "the bound itself"),
    ),
    queries=QueryCount(
        "1.5 (r(2d - r) + d) + 100; up to 2.1 instead of 1.5 where a direction of low rank was missed, "
        "rarely (16 d + 300 more with a query bias)",
        "upper",
        queries_within_tolerance,
        usual_within_tolerance,
    ),
    recovers=(
        "W, v and a query bias to a relative error of about 2 tau / (R |v|), R the longest row, with a "
        "bound from interval arithmetic; c to tau"
    ),
    symmetry="none",
    verification=lambda size: 510 if size.biased else 495,  # measured: 449 to 531
)


@dataclass(frozen=True)
class ToleranceLearner:
    """Recovers W, v and a query bias when answers may be off by `tau` (None: found by `identify`).

    Claim: relative error of W about 2 tau/(R|v|). Queries: 1.5 parameters + 100 at most. Assumes: see
    `claim`. Recovers: W (any rank), v, w0, c.
    Departs from the paper: rows as long as allowed. Fails when: R|v|/tau is below about 100 (UNRESOLVED, with
    the R or tau that would do).
    """

    family: ClassVar[Family] = Family.SINGLE_HEAD
    claim: ClassVar[Claim] = _CLAIM
    tau: float | None = None
    solver: BoundedRangeFinder = field(default_factory=BoundedRangeFinder)

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        tau = _told_or_found(self.tau, asker, rng)
        readout = read_long_rows(asker, tau, rng)
        try:
            check_linear_within(asker, readout, rng)
        except OutsideClass:
            if readout.c != 0.0:
                raise
            # a constant that the tolerance hides is in every answer
            readout = replace(readout, tau=2.0 * readout.tau)
            check_linear_within(asker, readout, rng)
        moved = moved_by_query_bias(asker, readout, rng)
        head, bound, v_bound = learn_behind(asker, readout, self.solver, rng, moved)
        refuse_noise(bound, readout)
        note = (
            f"answers are off by up to {readout.tau:.2g} (so is the constant c, outside the bound), and rows "
            f"of norm {readout.bound:.3g} were asked"
        )
        return Learned(head, self.claim, bound, v_bound=v_bound, constant_bound=2.0 * readout.tau, note=note)


def learn_behind(
    asker: Asker,
    readout: MeasuredReadout,
    solver: BoundedRangeFinder,
    rng: np.random.Generator,
    moved: float,
    repeats: int = 1,
) -> tuple[SingleHead, float, float]:
    """The head behind a measured readout, and the relative errors of W and of v, at most. moved: how far
    a query bias moved an answer, 0 without one."""
    w0, of_bias = None, 0.0
    if moved > 0.0:
        if asker.width < 2:
            raise refused_query_bias(moved, readout)
        biased = learn_biased_scores(asker, readout, solver, rng, repeats=repeats)
        found, w0, of_bias = biased.scores, biased.w0, biased.relative_bound()
    else:
        with asker.phase("values"):
            meter = ToleranceMeter(asker, readout, rng, repeats=repeats)
        found = learn_scores(asker, meter, solver, rng)
    bound = max(of_bias, relative_bound(found, readout))
    v_bound = readout.tau * np.sqrt(asker.width) / (readout.bound * readout.norm)
    return SingleHead(found.matrix, readout.v, w0, readout.c), bound, float(v_bound)


def learn_scores(
    asker: Asker, meter: ToleranceMeter, solver: BoundedRangeFinder, rng: np.random.Generator
) -> Solution:
    """W with its error: first the row z = Wᵀu of the direction u that sees v best, then everything orthogonal
    to z, where u has no score."""
    d = meter.width
    with asker.phase("range"):
        asker.expect(asker.bill.total + d * d + 3 * d)
        meter.typical_score()
        z, z_error = meter.carrier_row()
    length = float(np.linalg.norm(z))
    direction = z / length if length > 0.0 else np.eye(d)[0]
    with asker.phase("scores"):
        column, column_error = meter.measure(None, direction[:, None])
        floor = z_error * float(np.linalg.norm(column)) / length if length > 0.0 else 0.0
        if floor > _FAINT * meter.resolution() * d:
            # the direction that sees v best has next to no score: z is any direction, and what W does beside
            # it is to be found
            floor = 0.0
        solver = replace(solver, floor=floor, within=_turned_complement(direction, rng))
        found = solver.solve(meter.beside(direction), rng, lambda left: asker.expect(asker.bill.total + left))
    return found.plus_column(column[:, 0], direction, float(column_error[0]))


def _told_or_found(tau: float | None, asker: Asker, rng: np.random.Generator) -> float:
    """How far answers may be off: as the user says, or as an identification finds."""
    return identify(asker, rng).answers.tolerance if tau is None else tau


def relative_bound(found: Solution, readout: MeasuredReadout) -> float:
    """The larger of the relative errors of W and v; infinite when W cannot be told from zero."""
    size = found.matrix.norm()
    of_W = found.error / (size - found.error) if size > found.error else np.inf
    of_v = readout.tau * np.sqrt(len(readout.v)) / (readout.bound * readout.norm)
    return float(max(of_W, of_v))


def refuse_noise(bound: float, readout: MeasuredReadout) -> None:
    """Raises `Unresolved` with what would help, when the bound is as large as the parameters."""
    if bound <= _USEFUL:
        return
    if not np.isfinite(bound):
        raise Unresolved(
            f"no score is told from zero with rows of norm {readout.bound:.3g} and answers off by "
            f"{readout.tau:.2g}; either W = 0, or much longer rows (input_bound) or a smaller tolerance are "
            "needed"
        )
    times = bound / _USEFUL
    raise Unresolved(
        f"the parameters are only known to a relative error of {bound:.2g}; rows of norm "
        f"{1.2 * times * readout.bound:.2g} instead of {readout.bound:.3g} (input_bound), or answers off by "
        f"{readout.tau / times / 1.2:.2g} instead of {readout.tau:.2g}, would bring it to {_USEFUL:g}"
    )


def _turned_complement(direction: Array, rng: np.random.Generator) -> Array:
    """A random orthonormal basis (d, d-1) of what is orthogonal to a unit vector."""
    d = len(direction)
    return np.asarray(np.linalg.qr(np.column_stack([direction, rng.standard_normal((d, d - 1))]))[0][:, 1:])


def within_tolerance(tau: float | None = None) -> ToleranceLearner:
    """The learner for answers off by up to `tau`, for `recover(target, learner=...)`.

    >>> import unsoftmax
    >>> head = unsoftmax.random_single_head(6, seed=0)
    >>> oracle = unsoftmax.BoundedInputs(unsoftmax.WithinTolerance(unsoftmax.as_oracle(head), 0.01), 1000.0)
    >>> result = unsoftmax.recover(oracle, learner=unsoftmax.within_tolerance(0.01))
    >>> str(result.status), head.distance(result.model) <= result.error_bound < 1e-3
    ('WITHIN_BOUND', True)
    """
    if tau is not None and not (np.isfinite(tau) and tau >= 0.0):
        raise UsageError(f"tau must be a finite number >= 0, not {tau!r}")
    return ToleranceLearner(None if tau is None else float(tau))
