"""One head from labels alone: the direction of v and all of W, at one query per bit. Flipped labels take as
many more as the capacity of such a channel asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from unsoftmax.answers import Labels, votes_needed
from unsoftmax.arrays import EPS, Array
from unsoftmax.errors import UsageError
from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.one_head.bias_checks import alike_labels, refused_labels
from unsoftmax.learners.one_head.bias_refinement import BiasedRefinement
from unsoftmax.learners.one_head.bias_scores import BiasedSolution
from unsoftmax.learners.readouts.labels import MORE_BITS, error_of_direction, read_labels, smallest_margin
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters.one_head.labels import Labeller, LabelMeter
from unsoftmax.meters.one_head.sign_change import EDGE
from unsoftmax.meters.probes.bisection import Bisection, Locator, ProbabilisticBisection
from unsoftmax.meters.query_bias.from_labels import LabelVectors
from unsoftmax.meters.query_bias.refined import Steps, ZeroVectors
from unsoftmax.models import SingleHead
from unsoftmax.models.matrices import Dense
from unsoftmax.outcomes import OutsideClass, Test, Unresolved
from unsoftmax.solvers import RangeFinder, Solution
from unsoftmax.solvers.balanced_rows import balanced_rows, solve_rows

__all__ = ["LabelLearner", "from_labels"]

_CHECKS = 16  # see `_FACTOR`
_SIZES = (1.0, 0.5, 2.0, 1.0)  # scores at which pairs are checked, in turn
# sixteen random forms of an error matrix all lie within a third of its size once in many thousand times
_FACTOR = 3.0
# Rows of width 1 or 2 leave several heads no other trace than scores that turn elsewhere at other sizes.
# Measured: two heads a tenth apart, relative to W, turn 1e-3 to 2e-2 of a score away, those 1e-4 apart
# 1e-9 to 2e-8. The scores of one head are bisected to 1e-13.
_NO_ROOM, _ELSEWHERE = 2, 1e-9
_LIKE_ONE = "several heads that are closer than 1e-4, relative to W, would look like this one"
_PARTS = (1.0, 0.6, 0.35, 0.2)  # of an asking row's length, tried in turn
_PASSES = 3  # one pass bisects to 1e-9; the others confirm that nothing moves
_BISECTED = 1e-9  # part of a correction that bisected labels leave
_ROUGH = 2.0**-21  # relative error of scores that signs alone tell
_NOTE = "labels show only the direction of v (returned with length 1); W is complete"


_CERTAIN_BITS = 14  # of doubt 1e-4: beyond the bits of a number, what it takes to be sure of it
_BIASED_LABELS = 80  # a score with a query bias: 31 for its sign and 21 bits, 44 for the missing ones, spare


def _labels_a_number(bits: int, flip: float) -> int:
    """Labels that tell a number to so many bits: one a bit, or what the channel's capacity takes."""
    if flip == 0.0:
        return bits
    wrong = Labels(flip).most_flipped
    capacity = 1.0 + wrong * np.log2(wrong) + (1.0 - wrong) * np.log2(1.0 - wrong)
    return int(np.ceil(1.1 * (bits + _CERTAIN_BITS) / capacity))


def _queries(size: Size, bits: int, flip: float) -> int:
    d, r = size.width, size.rank
    votes = Labels(flip).repeats
    if size.biased:
        return _BIASED_LABELS * d * (d + 1) + max(0, bits - 48) * d + 1000
    numbers = size.matrix_parameters + d + r + 16 + size.weak_column
    return _labels_a_number(bits + MORE_BITS, flip) * numbers + votes * (2 * d + 16) + 384


def _usual(size: Size, bits: int, flip: float) -> int:
    d = size.width
    numbers = (
        76 * d * (d + 1)
        if size.biased
        else _labels_a_number(bits, flip) * (size.matrix_parameters + size.rank + 4)
    )
    return numbers + _labels_a_number(bits + MORE_BITS, flip) * d + 56


def _verification(size: Size, flip: float) -> int:
    """Measured: 600 to 632, 326 to 435 for each vote where labels are flipped; with a query bias 840 to 984
    (d = 3) and 1304 to 1496 (d = 8)."""
    if size.biased:
        return 600 + 100 * size.width
    return 610 if flip == 0.0 else 380 * Labels(flip).repeats


_CLAIM = Claim(
    title="One head from labels",
    source="this library; extends Theorem B.1 of arXiv 2601.16873",
    assumptions=(
        Assumption("a label says whether the function is positive", "two rows of opposite sign"),
        Assumption(
            "no constant (c = 0), and no query bias where labels are flipped",
            "labels of tiny rows, alone and asking",
        ),
        Assumption("v is not zero", "some row is labelled 1"),
    ),
    queries=QueryCount(
        "53 (r(2d - r) + 3d - r + 16) + 2d + 400 for 48 bits and true labels (19 bits more, divided by the "
        "channel's capacity, where labels are flipped); 80 d(d + 1) + 1000 with a query bias",
        "upper",
        partial(_queries, bits=48, flip=0.0),
    ),
    recovers="W (any rank), a query bias and v/|v|, to 48 bits of a typical score",
    symmetry="the length of v leaves no trace in labels",
)


@dataclass(frozen=True)
class LabelLearner:
    """Recovers W, a query bias and v/|v| from labels, true ones or ones flipped with probability `flip`.

    Claim: 48 bits of every score. Queries: one a parameter and bit, and a few percent more; with flips, what
    the channel's capacity takes.
    Assumes: see `claim`. Recovers: W, the direction of v. Departs from the paper: see `claim`. Fails when: a
    constant moves the zero.
    """

    family: ClassVar[Family] = Family.SINGLE_HEAD
    bits: int = 48
    flip: float = 0.0
    middle: float = 0.5

    @property
    def claim(self) -> Claim:
        count = partial(_queries, bits=self.bits, flip=self.flip)
        usual = partial(_usual, bits=self.bits, flip=self.flip)
        return replace(
            _CLAIM,
            queries=replace(_CLAIM.queries, count=count, usual=usual),
            verification=partial(_verification, flip=self.flip),
        )

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        d = asker.width
        flip = Labels(self.flip).most_flipped
        if flip > 0.4:
            raise Unresolved(
                f"{self.flip:.0%} of the labels are flipped, which leaves hardly any information; ask a "
                "target with less than 40 %"
            )
        votes = votes_needed(flip)
        labeller = Labeller(asker, self.middle, votes)
        asker.expect(asker.bill.total + self.bits * (d * d + d) * (1 if not flip else 2))
        with asker.phase("values"):
            v = read_labels(asker, labeller, self._locator(flip, MORE_BITS), rng)
        alike = alike_labels(
            labeller, v, 1.0 if asker.input_bound is None else min(1.0, asker.input_bound / 2), rng
        )
        if alike:
            if d < 2 or flip > 0.0:
                raise refused_labels(alike)
            head, bound = self._with_bias(asker, labeller, v, rng)
            with asker.phase(VERIFICATION):
                bound = max(bound, error_of_direction(asker, labeller, v, self.bits, rng))
            return self._learned(head, bound)
        meter = LabelMeter(labeller, v, rng, self._locator(flip, 0))
        with asker.phase("range"):
            meter.typical_score()
        with asker.phase("scores"):
            found = RangeFinder(again=meter.column_near).solve(
                meter, rng, lambda left: asker.expect(asker.bill.total + self.bits * left)
            )
        head = SingleHead(found.matrix, v)
        if head.matrix.norm() == 0.0:
            raise Unresolved(
                f"no score is told from zero at {self.bits} bits of rows of any length allowed; either W = "
                "0, or longer rows are needed"
            )
        with asker.phase(VERIFICATION):
            bound = self._bound(asker, labeller, head, meter, rng)
        return self._learned(head, bound)

    def _learned(self, head: SingleHead, bound: float) -> Learned:
        if not np.isfinite(bound):
            raise OutsideClass(
                Test("labels turn where the scores predict"),
                "fresh labels contradict the recovered scores by more than a whole score",
            )
        note = _NOTE if head.width > _NO_ROOM else f"{_NOTE}; {_LIKE_ONE}"
        return Learned(head, self.claim, bound, note=note)

    def _with_bias(
        self, asker: Asker, labeller: Labeller, v: Array, rng: np.random.Generator
    ) -> tuple[SingleHead, float]:
        """The head with its query bias and a bound for W and w0: vectors of scores from signs, then the
        missing bits where labels should turn."""
        asker.expect(asker.bill.total + 80 * asker.width * (asker.width + 1))
        vectors = LabelVectors(labeller, v, rng, asker.input_bound)
        with asker.phase("range"):
            length = vectors.usual_length()
        with asker.phase("scores"):
            rough = self._rough(vectors, v, length, rng)
        turns = ZeroVectors(asker, v, rng, Steps(0.0, self.middle), asker.input_bound)
        refinement = BiasedRefinement(asker, turns, v, asker.input_bound, gain=_BISECTED)
        sharp, w0 = refinement.refine(rough, _PASSES, rng)
        return SingleHead(sharp, v, w0), refinement.relative_error(sharp, w0, rng)

    def _rough(
        self, vectors: LabelVectors, v: Array, length: float, rng: np.random.Generator
    ) -> BiasedSolution:
        """W and w0 from signs; with other asking rows where v is along the vector of scores of one of
        them."""
        for attempt, part in enumerate(_PARTS):
            rows = balanced_rows(v, part * length, rng)
            try:
                Z = vectors.measure(rows)
                break
            except Unresolved:
                if attempt == len(_PARTS) - 1:
                    raise
        W, w0 = solve_rows(rows, Z)
        off = _ROUGH * float(np.linalg.norm(Z, axis=1).max())
        return BiasedSolution(
            Solution(Dense(W), off * np.sqrt(len(v)) / (part * length), _rank(W), False), w0, off
        )

    def _locator(self, flip: float, more: int) -> Locator:
        return (
            Bisection(self.bits + more)
            if flip == 0.0
            else ProbabilisticBisection(self.bits + more, flip, 1e-5 if more else 1e-4)
        )

    def _bound(
        self, asker: Asker, labeller: Labeller, head: SingleHead, meter: LabelMeter, rng: np.random.Generator
    ) -> float:
        """How wrong v and W can be: fresh pairs whose labels must turn where the model says, within a margin
        likewise."""
        d = asker.width
        of_v = error_of_direction(asker, labeller, head.v, self.bits, rng)
        G, B = meter.random_pairs(_CHECKS)
        forms = np.einsum("nd,nd->n", G, head.matrix.apply(B))
        typical = max(float(np.sqrt(np.mean(forms**2))), meter.typical_score() / 8)
        # several heads, seen as one, turn elsewhere at other sizes
        sizes = np.resize(_SIZES, _CHECKS) / typical
        c = np.minimum(sizes, 0.9 * EDGE / np.maximum(np.abs(forms), 1e-300))
        if asker.input_bound is not None:
            c = np.minimum(c, (asker.input_bound / 23.0) ** 2)

        def crosses(margin: float) -> bool:
            return bool(
                meter.above(G, B, c, c * forms - margin).all()
                and not meter.above(G, B, c, c * forms + margin).any()
            )

        start = 2.0 ** -(self.bits - 4) + 64 * EPS
        margin = smallest_margin(crosses, start)
        if d <= _NO_ROOM and margin > max(_ELSEWHERE, 64.0 * start):
            far = f"up to {margin:.1g}" if margin < 1.0 else "a whole score"
            raise Unresolved(
                f"labels turn {far} away from where the scores of one head would; several heads, or numbers "
                f"shorter than float64, look alike in labels at width {d}"
            )
        norm = head.matrix.norm()
        of_W = _FACTOR * d * margin / float(c.min()) / norm if norm > 0.0 else np.inf
        return float(max(of_v, of_W))


def _rank(W: Array) -> int:
    """Singular values above what rough vectors leave open."""
    values = np.linalg.svd(W, compute_uv=False)
    return int((values > 1e-4 * values[0]).sum())


def from_labels(bits: int = 48, flip: float = 0.0, middle: float = 0.5) -> LabelLearner:
    """The learner for labels, for `recover(target, learner=...)`. flip: how often a label is wrong. middle:
    between the two labels.

    >>> import numpy as np, unsoftmax
    >>> head = unsoftmax.random_single_head(4, seed=0)
    >>> result = unsoftmax.recover(unsoftmax.Labels(unsoftmax.as_oracle(head)), learner=unsoftmax.from_labels(
    ...     ))
    >>> str(result.status), bool(np.allclose(result.model.W, head.W)), round(float(np.linalg.norm(
    ...     result.model.v)), 9)
    ('WITHIN_BOUND', True, 1.0)
    """
    if isinstance(bits, bool) or not isinstance(bits, int) or not 8 <= bits <= 50:
        raise UsageError(f"bits must be a whole number from 8 to 50, not {bits!r}")
    if not 0.0 <= flip < 0.5:
        raise UsageError(f"flip must be a probability from 0 to below 0.5, not {flip!r}")
    return LabelLearner(bits, float(flip), float(middle))
