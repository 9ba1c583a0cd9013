"""A two-layer ReLU network from value queries alone: any number of neurons, dependent or not, with or without biases."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from unsoftmax.errors import UsageError
from unsoftmax.learners.base import Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount
from unsoftmax.learners.relu.arcs import Arcs
from unsoftmax.learners.relu.blind_spot import blind_spot
from unsoftmax.learners.relu.bound import Doubt
from unsoftmax.learners.relu.circle import EPS, HalfCircle, RowFunction
from unsoftmax.learners.relu.gradients import Sketch
from unsoftmax.learners.relu.leftovers import learn_leftover
from unsoftmax.learners.relu.polish import polish
from unsoftmax.learners.relu.repair import repair
from unsoftmax.learners.relu.rows import check_pieces, look_along_rays, one_row_function
from unsoftmax.learners.relu.sketching import Sketcher
from unsoftmax.ledger import VERIFICATION, Ledger
from unsoftmax.models import Folds, ReluNetwork
from unsoftmax.oracles import Array
from unsoftmax.outcomes import OutsideClass, Unresolved

__all__ = ["HYPERPLANE_TEST", "NetworkFound", "ReluNetworkLearner"]

HYPERPLANE_TEST = "kinks lie on whole hyperplanes"

_ROUNDS = 4
_LEFTOVERS = 40  # bumps (each a line of its own) that are learnt from residuals at most
_CAP = 1e-7  # the largest error, relative to the answers, with which a network counts as found
_REPAIRS = (0.1, 0.01)  # lengths of the steps with which components are tested, in those they were measured with
_SUSPECTS = 8
_MANY = 0.2  # the part of fresh rows beyond which not a bump, but the network itself is wrong: a wrong gradient shows on half of them
_CHECKS = 12
_LOOKS, _FEWEST = 150, 24  # fresh rows that look for bumps, times thoroughness: most and fewest
_TOO_SHORT, _TOO_LONG = 200.0, 30.0  # loud hyperplanes this many units away, or that many times nearer, need another unit
_SEEN = 1e-4  # of the distance of the furthest hyperplane: no unit is shorter, or a line would hardly show that
_FAR = 1e6  # units to which a line is followed


def _queries(d: int, m: int) -> int:
    return (m + 1) * (d + 1) + 8 * m + 4 * d + 120 + int(0.08 * m * d)


_CLAIM = Claim(
    title="A two-layer ReLU network at little more than its parameters",
    source="this library; completes section 4.1 of arXiv 2601.16873, which assumes such a learner",
    assumptions=(
        Assumption("one-row answers are piecewise linear", "second differences at random rows, then the search for kinks itself"),
        Assumption("answers are exact up to rounding", "collinear answers 1e-10 apart"),
        Assumption("no bump hides between all points asked", "fresh random rows; the certificate states the smallest bump they would have met"),
    ),
    queries=QueryCount("1.08 (m + 1)(d + 1) + 8m + 4d + 120", "upper", _queries),
    recovers="the canonical form Σ c_j |u_j·x + β_j| + l·x + l0: number of kinks, directions, offsets, weights, affine part",
    symmetry="signs of (u_j, β_j) and order; a plain network of the same function follows (plain_network)",
    departs="the paper only assumes a learner for this part; independent rows are not needed",
)


@dataclass(frozen=True)
class NetworkFound:
    """The folds, a bound on their relative error, and the width of the narrowest slab, up to which distance, that fresh rows would have met."""

    folds: Folds
    error_bound: float
    blind_spot: float
    searched: float

    faintest: float = 0.0  # the size of a fold below which it may have been missed
    vague: int = 0  # folds known to fewer than three digits
    merged: int = 0  # hyperplanes so close to others that they are given as one with them
    closest: float = 0.0  # how close, as an angle

    @property
    def caveat(self) -> str:
        """The blind spot, and what could not be told apart, in words."""
        parts, loudest = [], float(self.folds.sizes.max(initial=0.0))
        if self.merged:
            many = f"{self.merged} hyperplanes lie" if self.merged > 1 else "one hyperplane lies"
            parts.append(f"{many} within {self.closest:.1g} of another, too close to tell them apart, and given as one with it")
        if self.vague:
            many = f"{self.vague} of {self.folds.count} folds are" if self.vague > 1 else f"one of {self.folds.count} folds is"
            parts.append(f"{many} so faint beside the others that fewer than three digits are known")
        if self.faintest > 0.0:
            parts.append(
                f"a fold of less than {self.faintest:.2g} (half the jump of the gradient; the largest is {loudest:.2g}) does not show, "
                "nor does a gap between hyperplanes that is less than that part of their folds"
            )
        if self.folds.biased:
            parts.append(
                f"a bump confined to a slab narrower than {self.blind_spot:.2g}, or further than {self.searched:.2g} from the origin "
                f"(hyperplanes lie about {self.folds.reach:.2g} from it), may have been missed; more thoroughness finds narrower ones"
            )
        return "; ".join(parts)


@dataclass(frozen=True)
class ReluNetworkLearner:
    """Recovers g(x) = Σ u_k relu(a_k·x + b_k) + l·x + c from g's values.

    Claim: exact in float64. Queries: about 1.1 m(d + 2). Assumes: nothing on the neurons; parallel, opposite, duplicate and cancelling ones are
    what they are as a function. Recovers: the canonical form. Departs from the paper: it assumes this learner. Fails when: a bump is narrower than
    the certificate's blind spot, kinks lie a million units apart, or hyperplanes differ by less than 1e-6.

    polish: largest share of gradients measured twice; goal: the relative error that polishing stops at. thoroughness: multiplies the fresh
    rows that look for bumps, and divides the width of the bumps they miss. max_neurons: where the search for kinks gives up.
    """

    family: ClassVar[str] = "relu-network"
    polish: float = 0.03
    goal: float = 1e-10
    thoroughness: float = 1.0
    max_neurons: int = 2048

    def __post_init__(self) -> None:
        for name, value, least in (("polish", self.polish, 0.0), ("goal", self.goal, 0.0), ("max_neurons", self.max_neurons, 1)):
            if not value >= least:
                raise UsageError(f"{name} must be at least {least}, not {value!r}")
        if not 0.0 < self.thoroughness <= 1e6:
            raise UsageError(
                f"thoroughness must be above 0 and at most 1e6, not {self.thoroughness!r}; 1 is the default, 10 finds ten times narrower bumps"
            )

    @property
    def claim(self) -> Claim:
        return _CLAIM

    def learn(self, ledger: Ledger, rng: np.random.Generator) -> Learned:
        found = self.find(ledger, rng)
        model = ReluNetwork.from_folds(found.folds.tidy())
        return Learned(model, error_bound=found.error_bound, caveat=found.caveat)

    def find(self, ledger: Ledger, rng: np.random.Generator) -> NetworkFound:
        """The network that one-row queries show."""
        function, d = one_row_function(ledger), ledger.width
        bound = ledger.input_bound
        unit = 1.0 if bound is None else min(1.0, bound / (8.0 * np.sqrt(d)))
        with ledger.phase("shape"):
            check_pieces(function, d, unit, rng)
            shape = look_along_rays(function, d, unit, np.inf if bound is None else bound, rng)
        if shape.homogeneous and d == 1:
            return self._one_dimension(ledger, function, unit)
        if not shape.homogeneous and bound is not None:
            raise Unresolved(
                f"one-row answers are not homogeneous, so the network has biases, and rows are limited to norm {bound:.3g}: "
                "its kinks are found along whole lines only; raise or drop input_bound"
            )
        return _Search(self, ledger, function, not shape.homogeneous, shape.unit, rng).run()

    def _one_dimension(self, ledger: Ledger, function: RowFunction, unit: float) -> NetworkFound:
        """Homogeneous on a line: two slopes, each measured at three sizes, whose spread is the rounding."""
        sizes = unit * np.array([1.0, 0.83, 0.71])
        with ledger.phase("gradients"):
            slopes = function(np.concatenate([sizes, -sizes])[:, None]).reshape(2, 3) / sizes
        right, left = slopes.mean(axis=1)
        noise = float(np.ptp(slopes, axis=1).max())
        fold = (right + left) / 2
        there = int(abs(fold) > 4.0 * (noise + EPS * (abs(right) + abs(left))))
        folds = Folds(np.full((there, 1), abs(fold)), np.zeros(there), np.full(there, np.sign(fold)), np.array([(right - left) / 2]), 0.0)
        return NetworkFound(folds, 8.0 * EPS + 8.0 * noise / max(float(np.hypot(right, left)), np.finfo(float).tiny), 0.0, np.inf)


class _Search:
    """Lines, checks, repairs, until fresh rows agree."""

    def __init__(
        self, options: ReluNetworkLearner, ledger: Ledger, function: RowFunction, biased: bool, unit: float, rng: np.random.Generator
    ) -> None:
        self.options, self.ledger, self.function, self.rng = options, ledger, function, rng
        self.width = ledger.width
        self.sketcher = Sketcher(function, self.width, biased, rng, unit=unit, limit=12 * options.max_neurons + 2000)
        self.failed: list[Array] = []
        self.agreed = np.empty((0, self.width))
        self._corrected = False
        self._many_deviate = False
        self._shown = 0.0  # the largest deviation of the last fresh rows that agreed

    @property
    def biased(self) -> bool:
        return self.sketcher.biased

    def run(self) -> NetworkFound:
        pieces, through = 8, None
        for _ in range(_ROUNDS):
            with self.ledger.phase("kinks"):
                circle, arcs = self._line(pieces, through)
            self.ledger.expect(self.ledger.bill.total + (arcs.count + 1) * circle.dimensions)
            with self.ledger.phase("gradients"):
                sketch = self.sketcher.gradients(circle, arcs)
            folds, errors = self._polished(sketch)
            if self._misjudged(folds):
                continue
            folds, errors, deviating = self._looked(folds, errors, sketch)
            for shrink in _REPAIRS:
                if deviating is None or not self._repaired(sketch, shrink):
                    break
                folds, errors = self._polished(sketch)
                folds, errors, deviating = self._looked(folds, errors, sketch)
            if deviating is None:
                _, far = self._region(folds)
                narrowest = blind_spot(self.agreed, far, self.rng) if self.biased else 0.0
                doubt = Doubt(circle, float(np.linalg.norm(errors)), self._shown, self.sketcher.blurred)
                return NetworkFound(
                    folds, doubt.bound(folds), narrowest, far, doubt.faintest, doubt.vague(folds), self.sketcher.merged, self.sketcher.closest
                )
            if not self.biased and self._has_biases(deviating):
                self.sketcher.biased = True
            pieces *= 4
            self._remember(deviating[None])
            near = float(np.abs(deviating).max()) < 20 * self.sketcher.unit
            through = deviating if near or not self.biased else None
        assert deviating is not None
        self._refute(folds, deviating)
        raise Unresolved(
            f"after {_ROUNDS} lines fresh rows still deviate from the network that was found ({folds.count} kinks); the answers may carry errors "
            f"(rounding looks like {self.sketcher.noise / max(self.sketcher.size, 1e-300):.1g} of their size), or kinks lie too close together"
        )

    def _remember(self, rows: Array) -> None:
        """Rows that deviated: asked again whenever rows are checked."""
        self.failed = [*self.failed, *rows][-16:]

    def _line(self, pieces: int, through: Array | None) -> tuple[HalfCircle, Arcs]:
        """A line; when a function that looked homogeneous bends everywhere on its circle, it may have biases after all."""
        try:
            return self.sketcher.line(pieces=pieces, through=through)
        except OutsideClass:
            rows = self.sketcher.unit * self.rng.standard_normal((3, self.width))
            if self.biased or not any(self._has_biases(row) for row in rows):
                raise
            self.sketcher.biased = True
            return self.sketcher.line(pieces=pieces)

    def _refute(self, folds: Folds, row: Array) -> None:
        """Exact answers and a large deviation that line after line does not explain: kinks are there, but not on hyperplanes."""
        with self.ledger.phase(VERIFICATION):
            off = float(self._deviations(folds, row[None], self.function(row[None]))[0])
        size = self.sketcher.size
        if self.sketcher.noise <= 1e-11 * size and off > 1e-6 * size:
            raise OutsideClass(
                HYPERPLANE_TEST,
                f"{_ROUNDS} lines each show kinks ({folds.count} on the last), but a fresh row is answered {off / size:.2g} of the answers' size "
                "away from every network that has them",
            )

    def _rows(self, n: int) -> Array:
        """Random rows of the line's own unit, a third of them much further out, a sixth much nearer; and those that deviated before."""
        rows = self.sketcher.unit * self.rng.standard_normal((n, self.width))
        bound = self.ledger.input_bound
        far, near = n // 3, n // 6
        rows[:far] *= 10.0 ** self.rng.uniform(0.0, 4.0 if bound is None else 0.3, (far, 1))
        rows[far : far + near] *= 10.0 ** self.rng.uniform(-3.0, 0.0, (near, 1))
        return np.vstack([rows, *self.failed]) if self.failed else rows

    def _deviations(self, folds: Folds, rows: Array, answers: Array) -> Array:
        """Differences on the half circle's scale, where rounding is the same everywhere."""
        square = np.mean(rows**2, axis=1) / self.sketcher.unit**2
        return np.asarray(np.abs(answers - folds(rows)) / np.sqrt(1.0 + square if self.biased else square))

    def _allowed(self, errors: Array) -> float:
        noise, size = self.sketcher.noise, self.sketcher.size
        explained = 12.0 * float(np.sqrt(np.square(errors).sum()))
        return float(max(1e-10 * size, 200.0 * noise, explained))

    def _polished(self, sketch: Sketch) -> tuple[Folds, Array]:
        """The folds of a sketch, its worst gradients measured once more, and the errors that are left."""
        folds, errors = sketch.folds(), sketch.uncertainty()
        if self.options.polish > 0.0 and folds.count:
            with self.ledger.phase("polish"):
                better = polish(sketch, folds, self.sketcher.size, self.rng, share=self.options.polish, goal=self.options.goal)
            folds, errors = better.folds, better.errors
        cleaned = self._without_dust(folds, errors)
        dropped = [*(cleaned.offsets - folds.offsets), cleaned.constant - folds.constant, *self.sketcher.unit * (cleaned.linear - folds.linear)]
        return cleaned, np.append(errors, np.linalg.norm(dropped))

    def _repaired(self, sketch: Sketch, shrink: float) -> bool:
        """Looks for wrong components and corrects them. Where one was measured something may hide that spoilt it, so that row is checked, too."""
        if not self._many_deviate or sketch.arcs.count == 0:
            return False
        with self.ledger.phase("repair"):
            arc, direction = repair(sketch, self.rng, shrink)
        self._remember(sketch.rows(arc[:_SUSPECTS], direction[:_SUSPECTS]))
        return len(arc) > 0

    def _without_dust(self, folds: Folds, errors: Array) -> Folds:
        """Offsets, constant and linear part that are nothing but their own uncertainty are zero: a hyperplane through the origin is one."""
        doubt, ends = 16.0 * (errors[1:] + errors[:-1]), 16.0 * (errors[0] + errors[-1])
        return replace(
            folds,
            offsets=np.where(np.abs(folds.offsets) <= doubt, 0.0, folds.offsets),
            constant=0.0 if abs(folds.constant) <= ends else folds.constant,
            linear=folds.linear * float(self.sketcher.unit * np.linalg.norm(folds.linear) > ends),
        )

    def _misjudged(self, folds: Folds) -> bool:
        """Whether the hyperplanes lie elsewhere than the line's unit says, so that their offsets are lost; then the unit is set right, once."""
        if not self.biased or self._corrected:
            return False
        self._corrected = True
        best = max(np.sqrt(folds.unit * folds.reach), _SEEN * float(np.abs(folds.distances).max(initial=0.0)))
        if not folds.offsets.any():
            steepness = float(np.hypot(np.linalg.norm(folds.normals), np.linalg.norm(folds.linear)))
            with self.ledger.phase("shape"):
                value = abs(float(self.function(np.zeros((1, self.width)))[0]))
            if folds.count == 0 or value == 0.0:
                return False
            best = value / steepness
        if 1.0 / _TOO_LONG <= best / self.sketcher.unit <= _TOO_SHORT:
            return False
        self.sketcher.keep_unit(best)
        return True

    def _looked(self, folds: Folds, errors: Array, sketch: Sketch) -> tuple[Folds, Array, Array | None]:
        """Fresh rows until a whole set of them agrees; bumps that they meet are learnt. With a row that still deviates, if any."""
        limit = min(self._allowed(errors), _CAP * self.sketcher.size) if self.sketcher.size > 0 else 0.0
        for _ in range(1 + _LEFTOVERS):
            with self.ledger.phase(VERIFICATION):
                looks = self._looks(folds, sketch)
                rows = np.vstack([self._far_pair(), looks, self._rows(_CHECKS)])
                deviations = self._deviations(folds, rows, self.function(rows))
            self._many_deviate = bool((deviations > limit).mean() > _MANY)
            worst = int(deviations.argmax())
            if deviations[worst] <= limit:
                self.agreed = np.vstack([looks, sketch.all_rows()])
                self._shown = float(deviations[worst])
                return folds, errors, None
            if not self.biased or self._many_deviate:
                return folds, errors, rows[worst]
            quiet = float(deviations[deviations <= limit].max(initial=limit / 4))
            stretch = _FAR if worst < 2 and not (deviations[2:] > limit).any() else 1.0
            rounding = 4.0 * self.sketcher.noise
            slack = max(rounding, quiet / 4.0)
            with self.ledger.phase("bumps"):
                better = learn_leftover(
                    self.function, folds, rows[worst], stretch * self.sketcher.unit, stretch * slack, self.rng, self.sketcher.limit
                )
            if better is None:
                return folds, errors, rows[worst]
            folds, errors = better[0], np.concatenate([errors, better[1] / stretch * (rounding / slack)])
        return folds, errors, rows[worst]

    def _far_pair(self) -> Array:
        """x and -x, far beyond everything: a fold that no line met shows on one of them for certain."""
        if not self.biased:
            return np.empty((0, self.width))
        row = _FAR**2 * self.sketcher.unit * self.rng.standard_normal(self.width)
        return np.stack([row, -row])

    def _looks(self, folds: Folds, sketch: Sketch) -> Array:
        """Random rows that look for bumps, as near to the origin and as far from it as the known hyperplanes.

        The rows of the gradients have looked already, near the line: the more of them there are, the fewer are needed, until a hundredth of
        their price buys as many.
        """
        paid = sketch.gradients.size
        needed = max(_FEWEST, _LOOKS - paid / 16.0, min(_LOOKS, paid / 100.0))
        n = int(np.ceil(needed * self.options.thoroughness)) if self.biased else _CHECKS
        near, far = self._region(folds)
        sizes = np.exp(self.rng.uniform(np.log(0.5 * near), np.log(2.0 * far), (n, 1)))
        return np.asarray(sizes * self.rng.standard_normal((n, self.width)))

    def _region(self, folds: Folds) -> tuple[float, float]:
        """Distances from the origin at which hyperplanes lie: the typical one, and the largest (up to sixteen times that)."""
        if not self.biased or not folds.offsets.any():
            return self.sketcher.unit, self.sketcher.unit
        return folds.reach, min(float(np.abs(folds.distances).max()), 16.0 * folds.reach)

    def _has_biases(self, row: Array) -> bool:
        """Whether the function is not homogeneous after all, seen on one ray."""
        with self.ledger.phase("shape"):
            answers = self.function(np.stack([row, 2.0**12 * row, 2.0**-12 * row]))
        ratios = answers * np.array([1.0, 2.0**-12, 2.0**12])
        return bool(np.ptp(ratios) > 1e-10 * np.abs(ratios).max())
