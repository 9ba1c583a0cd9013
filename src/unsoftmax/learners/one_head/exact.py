"""The default learner for one head: as many queries as parameters, rank and biases unknown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.one_head.checks import (
    check_attention_shape,
    check_constant,
    check_one_row_affine,
    check_repeatable,
)
from unsoftmax.learners.readouts.exact import read_values
from unsoftmax.ledger import Asker
from unsoftmax.meters import SigmoidMeter
from unsoftmax.models import SingleHead
from unsoftmax.outcomes import NotIdentifiable, Stop, Unresolved
from unsoftmax.solvers import RangeFinder

__all__ = ["SingleHeadLearner", "nothing_moves"]


def _queries(size: Size) -> int:
    """Parameters, one test a column, and an allowance for finding the range and asking saturated probes
    again: 11 to 31 and a few in ten thousand, measured up to width 1024."""
    forms = size.matrix_parameters
    columns = size.width * (2 if size.biased else 1) + size.rank
    return forms + forms // 1000 + columns + _unlucky(size) + 40


def _unlucky(size: Size) -> int:
    """One more column where one is too weak to build on, and one more probe for each of the others where v
    lies in the range of W."""
    return size.weak_column + size.width - size.rank


def _usual(size: Size) -> int:
    """Measured: half of the allowance is left."""
    return _queries(size) - _unlucky(size) - (29 if size.biased else 25)


_CLAIM = Claim(
    title="One head at the price of its parameters",
    source="this library; extends Theorem 4.1 of arXiv 2601.16873",
    assumptions=(
        Assumption("v is not zero", "one-row queries"),
        Assumption("one-row answers are affine", "fresh rows of four sizes"),
        Assumption(
            "scores are bilinear and shared by softmax",
            "a row asked at three sizes, three rows in two orders",
        ),
        Assumption("answers repeat", "early queries asked again"),
    ),
    queries=QueryCount(
        "1.001 r(2d - r) + d + r + 40; d more with a query bias; rarely, up to 3(d - r) more for a weak "
        "column or v in the range of W",
        "upper",
        _queries,
        _usual,
    ),
    recovers="W (any rank), v, w0 and c, in float64",
    symmetry="none; all of them are unique when v is not zero",
)


@dataclass(frozen=True)
class SingleHeadLearner:
    """Recovers f(X) = c + Σ α_i (x_i·v) with scores x_iᵀ(W x_N + w0).

    Claim: exact recovery in float64. Queries: about r(2d-r) + d + r, d more with a query bias.
    Assumes: v not zero (seen by one-row queries), exact deterministic answers (asked again), the class itself
    (cheap tests first, certificate last).
    Recovers: everything, uniquely. Departs from the paper: see `claim`. Fails when: the answers carry errors;
    then it ends as OUTSIDE_CLASS.
    """

    family: ClassVar[Family] = Family.SINGLE_HEAD
    claim: ClassVar[Claim] = _CLAIM
    solver: RangeFinder = field(default_factory=RangeFinder)

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        d = asker.width
        readout = read_values(asker, known, rng)
        v, c = readout.v, readout.c
        check_repeatable(asker, v, c)
        if not v.any():
            check_constant(asker, c, rng)
            raise nothing_moves(asker, c)
        check_one_row_affine(asker, v, c, rng)
        with asker.phase("bias"):
            w0 = SigmoidMeter(asker, v, c, rng=rng).query_bias()
        meter = SigmoidMeter(asker, v, c, w0, rng=rng)
        with asker.phase("range"):
            scales = meter.sizes()
        check_attention_shape(asker, v, c, scales, rng)
        asker.expect(asker.bill.total + d * d)
        with asker.phase("scores"):
            found = self.solver.solve(meter, rng, lambda left: asker.expect(asker.bill.total + left))
        return Learned(SingleHead(found.matrix, v, w0, c), self.claim)


def nothing_moves(asker: Asker, c: float) -> Stop:
    """No row moves the answer: v = 0, unless answers are so coarse, and rows so short, that none could."""
    coarse = c == round(c, 3)
    if coarse and asker.input_bound is not None:
        return Unresolved(
            f"every row up to the largest norm allowed, {asker.input_bound:g}, is answered {c:.6g}: v = 0, "
            "or answers too coarse for them; longer rows (input_bound) or finer answers would tell"
        )
    why = "v = 0, or the answers are so coarse that nothing moves them" if coarse else "v = 0"
    return NotIdentifiable(
        f"{why}: every answer is the constant {c:.6g}, which is recovered, but W and w0 leave no trace in "
        "any answer and cannot be seen"
    )
