"""The search for a network: lines, checks, repairs, until fresh rows agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.relu_network.arcs import Arcs
from unsoftmax.learners.relu_network.blind_spot import blind_spot
from unsoftmax.learners.relu_network.bound import NetworkError
from unsoftmax.learners.relu_network.circle import HalfCircle, RowFunction
from unsoftmax.learners.relu_network.found import NetworkFound
from unsoftmax.learners.relu_network.gradients import Sketch
from unsoftmax.learners.relu_network.group_testing import repair
from unsoftmax.learners.relu_network.line_search import LineSearch
from unsoftmax.learners.relu_network.residual_bumps import learn_leftover
from unsoftmax.learners.relu_network.sharpen_gradients import polish
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.models import CanonicalNetwork, ReluNetwork
from unsoftmax.outcomes import OutsideClass, Test, Unresolved

__all__ = ["HYPERPLANE_TEST", "Effort", "Search"]

HYPERPLANE_TEST = Test("kinks lie on whole hyperplanes")

# lines: the first finds, the next confirm; a limit on what is paid, not a matter of accuracy
_ROUNDS = 4
_LEFTOVERS = 40  # bumps (each a line of its own) that are learnt from residuals at most
_CAP = 1e-7  # the largest error, relative to the answers, with which a network counts as found
# lengths of the steps with which components are tested, in those they were measured with
_REPAIRS = (0.1, 0.01)
_SUSPECTS = 8  # rows of one line that are looked at again
# the part of fresh rows beyond which not a bump, but the network itself is wrong: a wrong gradient shows on
# half of them
_MANY = 0.2
_CHECKS, _DIRECTIONS = 12, 3  # fresh rows at all distances; directions of those beyond everything
_LOOKS, _FEWEST = 150, 24  # fresh rows that look for bumps, times thoroughness: most and fewest
# hyperplanes of strong folds this many units away, or that many times nearer, need another unit
_TOO_SHORT, _TOO_LONG = 200.0, 200.0
_BETTER = 3.0  # the same where a bound is not as small as it could be
_ORDERLY = 5.0  # decades of sizes and distances; where they differ more, what does not fit may be rounding
# of the distance of the furthest hyperplane: no unit is shorter, or a line would hardly show that
_SEEN = 1e-4
# units to which a line is followed, and at which a pair of rows sees every fold that is nearer
_FAR, _BEYOND = 1e6, 1e15


class Effort(Protocol):
    """How much a search may spend, see `ReluNetworkLearner`."""

    @property
    def polish(self) -> float: ...
    @property
    def goal(self) -> float: ...
    @property
    def thoroughness(self) -> float: ...
    @property
    def max_neurons(self) -> int: ...


class Search:
    """Lines, checks, repairs, until fresh rows agree."""

    def __init__(
        self,
        effort: Effort,
        asker: Asker,
        function: RowFunction,
        biased: bool,
        unit: float,
        rng: np.random.Generator,
    ) -> None:
        self.effort, self.asker, self.function, self.rng = effort, asker, function, rng
        self.width = asker.width
        self.sketcher = LineSearch(
            function, self.width, biased, rng, unit=unit, limit=12 * effort.max_neurons + 2000
        )
        self.failed: list[Array] = []
        self.agreed = np.empty((0, self.width))
        self._corrected = False
        self._many_deviate = False
        self._shown = 0.0  # the largest deviation of the last fresh rows that agreed

    @property
    def biased(self) -> bool:
        return self.sketcher.biased

    def run(self) -> NetworkFound:
        """The network, from the first line on which everything agrees; from another in a better unit where
        its bound is not small."""
        pieces, through = 8, None
        found: NetworkFound | None = None
        for _ in range(_ROUNDS):
            with self.asker.phase("kinks"):
                circle, arcs = self._line(pieces, through)
            self.asker.expect(self.asker.bill.total + (arcs.count + 1) * circle.dimensions)
            with self.asker.phase("gradients"):
                sketch = self.sketcher.gradients(circle, arcs)
            folds, errors = self._polished(sketch)
            if self._other_unit(folds, _TOO_SHORT, _TOO_LONG):
                continue
            folds, errors, deviating = self._looked(folds, errors, sketch)
            for shrink in _REPAIRS:
                if deviating is None or not self._repaired(sketch, shrink):
                    break
                folds, errors = self._polished(sketch)
                folds, errors, deviating = self._looked(folds, errors, sketch)
            if deviating is None:
                fresh = self._found(circle, folds, errors)
                found = fresh if found is None or fresh.error_bound < found.error_bound else found
                if found.error_bound > ReluNetwork.exact_at and self._other_unit(folds, _BETTER, _BETTER):
                    continue
                return found
            if not self.biased and self._has_biases(deviating):
                self.sketcher.expect_biases()
            pieces *= 4
            self._remember(deviating[None])
            near = float(np.abs(deviating).max()) < 20 * self.sketcher.unit
            through = deviating if near or not self.biased else None
        if found is not None:
            return found
        assert deviating is not None
        self._refute(folds, deviating)
        raise Unresolved(
            f"after {_ROUNDS} lines fresh rows still deviate from the network that was found ({folds.count} "
            f"kinks, sizes {_range(folds.sizes)}, {_range(np.abs(folds.distances))} from the origin); the "
            "answers may carry errors (rounding looks like "
            f"{self.sketcher.noise / max(self.sketcher.size, 1e-300):.1g} of their size), or neurons differ "
            "too much or lie too close together"
        )

    def _found(self, circle: HalfCircle, folds: CanonicalNetwork, errors: Array) -> NetworkFound:
        _, far = self._region(folds)
        narrowest = blind_spot(self.agreed, far, self.rng) if self.biased else 0.0
        doubt = NetworkError(circle, float(np.linalg.norm(errors)), self._shown, self.sketcher.blurred)
        sketcher = self.sketcher
        return NetworkFound(
            folds,
            doubt.bound(folds),
            narrowest,
            far,
            doubt.faintest,
            doubt.vague(folds),
            sketcher.merged,
            sketcher.closest,
        )

    def _remember(self, rows: Array) -> None:
        """Rows that deviated: asked again whenever rows are checked."""
        self.failed = [*self.failed, *rows][-16:]

    def _line(self, pieces: int, through: Array | None) -> tuple[HalfCircle, Arcs]:
        """A line; when a function that looked homogeneous bends everywhere on its circle, it may have biases
        after all."""
        try:
            return self.sketcher.line(pieces=pieces, through=through)
        except OutsideClass:
            rows = self.sketcher.unit * self.rng.standard_normal((3, self.width))
            if self.biased or not any(self._has_biases(row) for row in rows):
                raise
            self.sketcher.expect_biases()
            return self.sketcher.line(pieces=pieces)

    def _refute(self, folds: CanonicalNetwork, row: Array) -> None:
        """Exact answers and a large deviation that line after line does not explain: kinks are there, but not
        on hyperplanes."""
        with self.asker.phase(VERIFICATION):
            off = float(self._deviations(folds, row[None], self.function(row[None]))[0])
        size = self.sketcher.size
        if self.sketcher.noise <= 1e-11 * size and off > 1e-4 * size and _decades(folds) < _ORDERLY:
            raise OutsideClass(
                HYPERPLANE_TEST,
                f"{_ROUNDS} lines each show kinks ({folds.count} on the last), but a fresh row is answered "
                f"{off / size:.2g} of the answers' size away from every network that has them",
            )

    def _rows(self, n: int) -> Array:
        """Random rows of the line's own unit, a third of them much further out, a sixth much nearer; and
        those that deviated before."""
        rows = self.sketcher.unit * self.rng.standard_normal((n, self.width))
        bound = self.asker.input_bound
        far, near = n // 3, n // 6
        rows[:far] *= 10.0 ** self.rng.uniform(0.0, 4.0 if bound is None else 0.3, (far, 1))
        rows[far : far + near] *= 10.0 ** self.rng.uniform(-3.0, 0.0, (near, 1))
        return np.vstack([rows, *self.failed]) if self.failed else rows

    def _deviations(self, folds: CanonicalNetwork, rows: Array, answers: Array) -> Array:
        """Differences on the half circle's scale, where rounding is the same everywhere."""
        square = np.mean(rows**2, axis=1) / self.sketcher.unit**2
        return np.asarray(np.abs(answers - folds(rows)) / np.sqrt(1.0 + square if self.biased else square))

    def _allowed(self, errors: Array) -> float:
        noise, size = self.sketcher.noise, self.sketcher.size
        explained = 12.0 * float(np.sqrt(np.square(errors).sum()))
        return float(max(1e-10 * size, 200.0 * noise, explained))

    def _polished(self, sketch: Sketch) -> tuple[CanonicalNetwork, Array]:
        """The folds of a sketch, its worst gradients measured once more, and the errors that are left."""
        folds, errors = sketch.folds(), sketch.uncertainty()
        if self.effort.polish > 0.0 and folds.count:
            with self.asker.phase("polish"):
                better = polish(
                    sketch,
                    folds,
                    self.sketcher.size,
                    self.rng,
                    share=self.effort.polish,
                    goal=self.effort.goal,
                )
            folds, errors = better.folds, better.errors
        cleaned = self._without_dust(folds, errors)
        dropped = [
            *(cleaned.offsets - folds.offsets),
            cleaned.constant - folds.constant,
            *self.sketcher.unit * (cleaned.linear - folds.linear),
        ]
        return cleaned, np.append(errors, np.linalg.norm(dropped))

    def _repaired(self, sketch: Sketch, shrink: float) -> bool:
        """Looks for wrong components and corrects them. Where one was measured something may hide that spoilt
        it, so that row is checked, too."""
        if not self._many_deviate or sketch.arcs.count == 0:
            return False
        with self.asker.phase("repair"):
            arc, direction = repair(sketch, self.rng, shrink)
        self._remember(sketch.rows(arc[:_SUSPECTS], direction[:_SUSPECTS]))
        return len(arc) > 0

    def _without_dust(self, folds: CanonicalNetwork, errors: Array) -> CanonicalNetwork:
        """Offsets and constant that are nothing but their own doubt are zero: a hyperplane through the origin
        is one; so is a constant's slope."""
        doubt, ends = 16.0 * (errors[1:] + errors[:-1]), 16.0 * (errors[0] + errors[-1])
        return replace(
            folds,
            offsets=np.where(np.abs(folds.offsets) <= doubt, 0.0, folds.offsets),
            constant=0.0 if abs(folds.constant) <= ends else folds.constant,
            linear=np.zeros(self.width) if folds.count == 0 and self._constant(folds, ends) else folds.linear,
        )

    def _constant(self, folds: CanonicalNetwork, doubt: float) -> bool:
        """Whether nothing but rounding is left of an affine function's slope, even where it would be
        largest."""
        if not self.biased or self.sketcher.unit * float(np.linalg.norm(folds.linear)) > doubt:
            return False
        with self.asker.phase("shape"):
            answers = self.function(self._far_pairs())
        return bool((np.abs(answers - folds.constant) <= 1e-9 * abs(folds.constant)).all())

    def _other_unit(self, folds: CanonicalNetwork, too_short: float, too_long: float) -> bool:
        """Whether the hyperplanes of strong folds lie elsewhere than the line's unit says, so that digits are
        lost; then it is set right, once."""
        if not self.biased or self._corrected:
            return False
        # a constant is not a hyperplane: at the distance where the linear part outweighs it, none need lie
        steep = replace(folds, linear=np.zeros(self.width), constant=0.0).unit
        best = max(np.sqrt(steep * folds.reach), _SEEN * float(np.abs(folds.distances).max(initial=0.0)))
        if (
            not folds.offsets.any()
        ):  # all lost: what the function is at the origin, against its steepness, tells where they are
            if folds.count == 0:
                return False
            with self.asker.phase("shape"):
                value = abs(float(self.function(np.zeros((1, self.width)))[0]))
            best = value / float(np.hypot(np.linalg.norm(folds.normals), np.linalg.norm(folds.linear)))
        if best == 0.0 or 1.0 / too_long <= best / self.sketcher.unit <= too_short:
            return False
        self._corrected = True
        self.sketcher.keep_unit(best)
        return True

    def _looked(
        self, folds: CanonicalNetwork, errors: Array, sketch: Sketch
    ) -> tuple[CanonicalNetwork, Array, Array | None]:
        """Fresh rows until a whole set of them agrees; bumps that they meet are learnt. With a row that still
        deviates, if any."""
        limit = min(self._allowed(errors), _CAP * self.sketcher.size) if self.sketcher.size > 0 else 0.0
        for _ in range(1 + _LEFTOVERS):
            with self.asker.phase(VERIFICATION):
                looks = self._looks(folds, sketch)
                beyond = self._far_pairs()
                rows = np.vstack([beyond, looks, self._rows(_CHECKS)])
                deviations = self._deviations(folds, rows, self.function(rows))
            others = deviations[len(beyond) :] > limit
            self._many_deviate = bool(others.mean() > _MANY)
            worst = int(deviations.argmax())
            if deviations[worst] <= limit:
                self.agreed = np.vstack([looks, sketch.all_rows()])
                self._shown = float(deviations[worst])
                return folds, errors, None
            if not self.biased or self._many_deviate:
                return folds, errors, rows[worst]
            explained = float(deviations[deviations <= limit].max(initial=limit / 4))
            stretch = _FAR if worst < len(beyond) and not others.any() else 1.0
            rounding = 4.0 * self.sketcher.noise
            slack = max(rounding, explained / 4.0)
            with self.asker.phase("bumps"):
                better = learn_leftover(
                    self.function,
                    folds,
                    rows[worst],
                    stretch * self.sketcher.unit,
                    stretch * slack,
                    self.rng,
                    self.sketcher.limit,
                )
            if better is None:
                return folds, errors, rows[worst]
            folds, errors = better[0], np.concatenate([errors, better[1] / stretch * (rounding / slack)])
        return folds, errors, rows[worst]

    def _far_pairs(self) -> Array:
        """x and -x, far beyond everything, in a few directions: a fold that no line met shows on one of them,
        unless all run along it."""
        if not self.biased:
            return np.empty((0, self.width))
        directions = np.linalg.qr(self.rng.standard_normal((self.width, min(self.width, _DIRECTIONS))))[0].T
        rows = _BEYOND * self.sketcher.unit * np.sqrt(self.width) * directions
        return np.concatenate([rows, -rows])

    def _looks(self, folds: CanonicalNetwork, sketch: Sketch) -> Array:
        """Random rows that look for bumps, as near to the origin and as far from it as the known hyperplanes.

        The rows of the gradients have looked already, near the line: the more of them there are, the fewer
        are needed, until a hundredth of their price buys as many.
        """
        paid = sketch.gradients.size
        needed = max(_FEWEST, _LOOKS - paid / 16.0, min(_LOOKS, paid / 100.0))
        n = int(np.ceil(needed * self.effort.thoroughness)) if self.biased else _CHECKS
        near, far = self._region(folds)
        sizes = np.exp(self.rng.uniform(np.log(0.5 * near), np.log(2.0 * far), (n, 1)))
        return np.asarray(sizes * self.rng.standard_normal((n, self.width)))

    def _region(self, folds: CanonicalNetwork) -> tuple[float, float]:
        """Distances from the origin at which hyperplanes lie: the typical one, and the largest (up to sixteen
        times that)."""
        if not self.biased or not folds.offsets.any():
            return self.sketcher.unit, self.sketcher.unit
        return folds.reach, min(float(np.abs(folds.distances).max()), 16.0 * folds.reach)

    def _has_biases(self, row: Array) -> bool:
        """Whether the function is not homogeneous after all, seen on one ray."""
        with self.asker.phase("shape"):
            answers = self.function(np.stack([row, 2.0**12 * row, 2.0**-12 * row]))
        ratios = answers * np.array([1.0, 2.0**-12, 2.0**12])
        return bool(np.ptp(ratios) > 1e-10 * np.abs(ratios).max())


def _decades(folds: CanonicalNetwork) -> float:
    """Over how many powers of ten sizes and distances are spread."""
    if folds.count == 0:
        return 0.0
    furthest = max(float(np.abs(folds.distances).max()) / folds.reach, 1.0)
    return float(np.ptp(np.log10(folds.sizes)) + np.log10(furthest))


def _range(sizes: Array) -> str:
    return f"{sizes.min():.1g} to {sizes.max():.1g}" if len(sizes) else "none"
