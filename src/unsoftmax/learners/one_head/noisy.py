"""One head behind fresh random noise: long rows first, because ten times the length is worth a hundred
repeats."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from unsoftmax.answers import Clipped, Noisy, ask_longest_row, identify
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.one_head.checks_with_errors import check_linear_within, moved_by_query_bias
from unsoftmax.learners.one_head.within_tolerance import (
    learn_behind,
    queries_within_tolerance,
    refuse_noise,
    usual_within_tolerance,
)
from unsoftmax.learners.readouts.long_rows import read_long_rows
from unsoftmax.ledger import Asker
from unsoftmax.meters import MeasuredReadout
from unsoftmax.solvers import BoundedRangeFinder

__all__ = ["NoiseLearner", "noisy"]

_BAR = 1.75  # standard deviations that make a bar filled like one of a uniform error
_COVER = 1.3  # a sum of squares of few Gaussian errors can exceed what bars say of it
_CERTAIN = 6.0  # standard deviations that no single answer exceeds
# Answers to a row of zeros: the constant is in every answer, and its error shows in all of them together.
# From one answer, sequences of the certificate were off by more than noise explains in 9 of 60 heads.
_ZEROS = 16
_TYPICAL = 3.5  # measured: relative error of W times R|v|/sigma
_MOST_REPEATS = 10_000  # a hundredth of the noise; more would cost more than longer rows

_CLAIM = Claim(
    title="One head behind random noise",
    source="this library",
    assumptions=(
        Assumption(
            "errors are fresh, independent and of standard deviation sigma",
            "the same row asked again (identify)",
        ),
        Assumption("R|v|/sigma is at least about 100", "the bound itself"),
    ),
    queries=QueryCount(
        "m times those within a tolerance, m repeats: m (1.5 (r(2d - r) + d) + 100), rarely 2.1 (m (16 d + "
        "300) more with a query bias)",
        "upper",
        queries_within_tolerance,
        usual_within_tolerance,
    ),
    recovers=(
        "W, v and a query bias to a relative error of about 3.5 sigma / (R |v| sqrt(m)), with error bars "
        "that cover"
    ),
    symmetry="none",
    verification=lambda size: 421 if size.biased else 405,  # measured: 401 to 423
)


@dataclass(frozen=True)
class NoiseLearner:
    """Recovers W, v and a query bias behind Gaussian noise (sigma None: found by `identify`).

    Every query has the longest row allowed, which is free; only what that leaves open is bought with repeats:
    `accuracy` asks for a relative error, `repeats` sets their number. Claim, Queries, Assumes, Recovers: see
    `claim`. Fails when: R|v|/sigma is below about 100.
    """

    family: ClassVar[Family] = Family.SINGLE_HEAD
    sigma: float | None = None
    repeats: int | None = None
    accuracy: float | None = None
    solver: BoundedRangeFinder = field(default_factory=BoundedRangeFinder)

    @property
    def claim(self) -> Claim:
        if self.repeats is None:
            return _CLAIM
        repeats = self.repeats
        queries = _CLAIM.queries

        def repeated(size: Size) -> Size:
            return replace(size, repeats=repeats)

        return replace(
            _CLAIM,
            queries=replace(
                queries,
                count=lambda size: queries_within_tolerance(repeated(size)),
                usual=lambda size: usual_within_tolerance(repeated(size)),
            ),
        )

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        noise = _noise(asker, known, self.sigma, rng)
        sigma = noise.sigma
        if np.isfinite(noise.longest_row):
            asker = asker.within(noise.longest_row)
        off = _CERTAIN * sigma
        repeats = self.repeats or 1
        readout = _readout(asker, sigma, repeats, rng)
        if self.repeats is None and self.accuracy is not None:
            wanted = (_TYPICAL * sigma / (readout.bound * readout.norm * self.accuracy)) ** 2
            repeats = int(np.clip(np.ceil(wanted), 1, _MOST_REPEATS))
            if repeats > 1:
                readout = _readout(asker, sigma, repeats, rng)
        check_linear_within(asker, readout, rng, off)
        moved = moved_by_query_bias(asker, readout, rng, off)
        head, bound, v_bound = learn_behind(asker, readout, self.solver, rng, moved, repeats)
        bound *= _COVER
        refuse_noise(bound, readout)
        note = (
            f"answers carry noise of standard deviation {sigma:.2g} (and so does the constant c, outside the "
            f"bound); rows of norm {readout.bound:.3g} were asked, {repeats} times each"
        )
        return Learned(
            head, self.claim, bound, v_bound=v_bound, constant_bound=2.0 * off / np.sqrt(_ZEROS), note=note
        )


def _readout(asker: Asker, sigma: float, repeats: int, rng: np.random.Generator) -> MeasuredReadout:
    """The readout, and the constant where zeros show one."""
    none = _CERTAIN * sigma / np.sqrt(repeats * _ZEROS)
    tau = _BAR * sigma / np.sqrt(repeats)
    return read_long_rows(asker, tau, rng, repeats=repeats, zeros=_ZEROS, no_constant=none)


def _noise(asker: Asker, known: Known, sigma: float | None, rng: np.random.Generator) -> Noisy:
    """The answers' errors; none where they repeat. sigma: their size, where it was told: then, where rows
    could be of any length, it is asked whether answers are rounded beside them."""
    found = known.answers.inner if isinstance(known.answers, Clipped) else known.answers
    if found is None and sigma is not None:
        bounded = asker.input_bound is not None
        return Noisy(sigma) if bounded else Noisy(sigma, ask_longest_row(asker, sigma, rng.spawn(1)[0]))
    if found is None:
        found = identify(asker, rng).answers
    if sigma is None:
        sigma = found.sigma if isinstance(found, Noisy) else 0.0
    return Noisy(sigma, found.longest_row)


def noisy(
    sigma: float | None = None, *, repeats: int | None = None, accuracy: float | None = None
) -> NoiseLearner:
    """The learner for noisy answers, for `recover(target, learner=...)`.

    >>> import unsoftmax
    >>> head = unsoftmax.random_single_head(6, seed=0)
    >>> oracle = unsoftmax.BoundedInputs(unsoftmax.Noisy(unsoftmax.as_oracle(head), 0.01), 1000.0)
    >>> result = unsoftmax.recover(oracle, learner=unsoftmax.noisy(0.01))
    >>> str(result.status), head.distance(result.model) <= result.error_bound < 1e-2
    ('WITHIN_BOUND', True)
    """
    for name, value in (("sigma", sigma), ("accuracy", accuracy)):
        if value is not None and not (np.isfinite(value) and value > 0.0):
            raise UsageError(f"{name} must be a finite number > 0, not {value!r}")
    if repeats is not None and (isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1):
        raise UsageError(f"repeats must be a whole number >= 1, not {repeats!r}")
    return NoiseLearner(sigma, repeats, accuracy)
