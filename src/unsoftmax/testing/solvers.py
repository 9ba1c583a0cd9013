"""Does a solver find matrices as `Solver` promises?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.solvers import Solution, Solver
from unsoftmax.testing.matrix_meter import MatrixMeter
from unsoftmax.testing.violations import raise_if_any

__all__ = ["check_solver"]

# width and rank: the smallest, low rank, full rank, zero
_SHAPES = ((1, 1), (5, 2), (5, 5), (9, 0), (9, 3))
# of W, in turn: no solver may rely on its size
_SCALES = (1.0, 1e-3, 1e4)
_ROUNDING = 64 * EPS  # of the solver's own arithmetic, which no meter knows of
_MOST = 4  # times d², and a few more: a solver that measures more than this does not stop


def check_solver(
    solver: Solver[Any],
    *,
    accuracy: float = 1e-8,
    shapes: Sequence[tuple[int, int]] = _SHAPES,
    facing: bool = False,
    seed: int = 0,
) -> None:
    """Runs a solver's promises on known matrices; raises `NonConformance` with all that are broken.

    accuracy: largest error, relative to the norm of W. shapes: widths and ranks to try. facing: also with a
    meter that names a vector to face.

    >>> from unsoftmax.solvers import RangeFinder
    >>> check_solver(RangeFinder())
    """
    broken: list[str] = []
    for i, (d, r) in enumerate(shapes):
        rng = np.random.default_rng([seed, d, r])
        scale = _SCALES[i % len(_SCALES)]
        W = scale * rng.standard_normal((d, r)) @ rng.standard_normal((r, d))
        v = rng.standard_normal(d) if facing else None
        broken += _one_matrix(solver, W, r, v, accuracy)
    raise_if_any(type(solver).__name__, broken)


def _one_matrix(solver: Solver[Any], W: Array, rank: int, facing: Array | None, accuracy: float) -> list[str]:
    d = len(W)
    where = f"at width {d} and rank {rank}"
    meters = [MatrixMeter(W, facing=facing) for _ in range(2)]
    announced: list[int] = []
    before = repr(solver)
    found, again = (solver.solve(meter, np.random.default_rng(7), announced.append) for meter in meters)
    if not isinstance(found, Solution):
        return [f"solve returns {type(found).__name__} instead of a Solution"]
    broken = []
    if repr(solver) != before:
        broken.append("solve changes the solver, which should be immutable")
    error, size = float(np.linalg.norm(found.matrix.dense() - W)), float(np.linalg.norm(W))
    if not error <= accuracy * size:
        broken.append(f"{where} the matrix is off by {error:.2g}; {accuracy * size:.2g} is allowed")
    elif not error <= found.error + _ROUNDING * size:
        broken.append(f"{where} the matrix is off by {error:.2g}, and its bound is {found.error:.2g}")
    if found.rank < rank:
        broken.append(f"{where} the solution has rank {found.rank}")
    if meters[0].measured > _MOST * d * d + 100:
        broken.append(f"{where} it takes {meters[0].measured} measurements; W has {d * d} entries")
    same = meters[0].measured == meters[1].measured
    if not same or not np.array_equal(found.matrix.dense(), again.matrix.dense()):
        broken.append(f"{where} two runs with the same seed differ: not every random choice comes from `rng`")
    if any(left < 0 or left > _MOST * d * d + 100 for left in announced):
        broken.append(f"{where} it announces {announced} measurements still to come")
    return broken
