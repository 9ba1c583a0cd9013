"""W and the query bias of one head behind answers with errors: the bias first, then W beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.ledger import Asker
from unsoftmax.meters import MeasuredReadout
from unsoftmax.meters.query_bias.within_tolerance import BiasedToleranceMeter
from unsoftmax.solvers import BoundedRangeFinder, Solution

__all__ = ["BiasedSolution", "learn_biased_scores"]

# times the usual error: an error of the carrier's row beyond it is a direction of W like any other
_FAINT = 12.0


@dataclass(frozen=True)
class BiasedSolution:
    """W with a bound on its error, and the query bias with a bound on the length of its error."""

    scores: Solution
    w0: Array
    w0_error: float

    def relative_bound(self) -> float:
        """The larger of the relative errors of W and w0 (against the longer of both); infinite when W cannot
        be told from zero."""
        size, bias = self.scores.matrix.norm(), float(np.linalg.norm(self.w0))
        if size <= self.scores.error:
            return np.inf
        of_W = self.scores.error / (size - self.scores.error)
        return float(max(of_W, self.w0_error / max(size - self.scores.error, bias - self.w0_error)))


def learn_biased_scores(
    asker: Asker,
    readout: MeasuredReadout,
    solver: BoundedRangeFinder,
    rng: np.random.Generator,
    *,
    repeats: int = 1,
) -> BiasedSolution:
    """W and w0 with their errors. One carrier has no score with the bias nor with any b orthogonal to its row
    of W; the last b has its own."""
    d = asker.width
    with asker.phase("range"):
        asker.expect(asker.bill.total + d * d + 6 * d + 60)
        meter = BiasedToleranceMeter(asker, readout, rng, repeats=repeats)
    length, direction = float(np.linalg.norm(meter.row)), meter.row_direction
    with asker.phase("scores"):
        column, column_error = meter.measure_alone(direction)
        floor = meter.row_error * np.sqrt(d) * float(np.linalg.norm(column)) / length if length > 0.0 else 0.0
        floor = 0.0 if floor > _FAINT * meter.resolution() * d else floor
        solver = replace(solver, floor=floor, within=meter.null_basis())
        found = solver.solve(meter, rng, lambda left: asker.expect(asker.bill.total + left))
    whole = found.plus_column(column, direction, column_error)
    w0 = meter.bias - whole.matrix.apply(meter.origin[None])[0]
    return BiasedSolution(whole, w0, meter.bias_error + whole.error * float(np.linalg.norm(meter.origin)))
