"""v from rounded answers, in float64: the lengths of rows at which their answers step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters import MeasuredReadout
from unsoftmax.meters.one_head.rounded import bracketed_step
from unsoftmax.outcomes import OutsideClass, Test, Unresolved
from unsoftmax.solvers import FacingBasis

__all__ = ["read_steps", "steps_alike"]

_ALIKE = 1e-12  # relative length within which opposite rows step


def read_steps(asker: Asker, rough: MeasuredReadout, step: float, rng: np.random.Generator) -> Array:
    """v to float64, along a basis whose rows all have the same product with v."""
    d = asker.width
    basis = FacingBasis(d, rng, rough.v).columns(0, d).T
    longest = rough.bound * (1.0 - 1e-9)
    values = basis @ rough.v
    threshold = (np.floor(0.95 * longest * values / step) - 0.5) * step
    if float(threshold.min()) <= 0.0:
        raise Unresolved(
            f"answers rounded to {step:g} do not step within rows of norm {longest:.3g}; longer rows "
            "(input_bound) are needed"
        )

    def above(lengths: Array, which: NDArray[np.intp]) -> NDArray[np.bool_]:
        return np.asarray(asker.ask((lengths[:, None] * basis[which])[:, None]) > threshold[which])

    spread = np.full(d, 4.0 * rough.tau / (longest * float(values.min())))
    lengths, lost = bracketed_step(above, threshold / values, spread, np.zeros(d), np.full(d, longest))
    if lost.any():
        raise OutsideClass(
            Test("one-row answers step where x·v does"),
            f"{int(lost.sum())} of {d} rows never reach the step that their value predicts",
        )
    return np.asarray(basis.T @ (threshold / lengths))


def steps_alike(asker: Asker, v: Array, longest: float, step: float) -> bool:
    """Whether the row -x steps where x does, for x along v: with a constant, one of them steps earlier."""
    size = float(np.linalg.norm(v))
    threshold = (np.floor(0.9 * longest * size / step) - 0.5) * step
    lengths = threshold / size * np.array([1.0 - _ALIKE, 1.0 + _ALIKE])
    rows = np.outer(np.concatenate([lengths, -lengths]), v / size)
    with asker.phase(VERIFICATION):
        beyond = np.abs(asker.ask(rows[:, None])) > threshold
    return bool((beyond == np.array([False, True, False, True])).all())
