"""The value path A = Σ V_h of a block whose answers are rounded, by differences of moderate steps.

Three copies of a row beside it get a quarter of the weight each, whatever the scores. Derivatives of that
query, and of the row alone, give A through the unknown Jacobian of all that follows. Rows where a kink lies
within the differences disagree with the others and are left out.
"""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.pre_norm_path import asked_beside
from unsoftmax.learners.encoder_block.state import BlockShape
from unsoftmax.outcomes import Unresolved

__all__ = ["agreed", "path_of", "slopes_beside", "value_path"]

# of the rows: rounding 1e-7/0.016 = 6e-6 meets truncation 0.016² times what third derivatives are beside it,
# about 2e-5; measured errors of A: 2e-5 to 3e-5 at width 16
_STEP = 0.016
_ROWS = 12  # the half of them that agrees best still holds six, and one determines the path
_SIZE = 2.0  # of entries of a row
_AGREES = 0.05  # of the path: a start this good is mended by the joint fit
_ROUNDS = 6  # a cap: the half that agrees best stays the same after a few rounds


def value_path(asks: AsksSequences, shape: BlockShape, eps: float, rng: np.random.Generator) -> Array:
    """Pre-norm: (d, k), what seen coordinates of the first norm add. Post-norm: (k, d), what rows add."""
    d = shape.width
    rows = _SIZE * rng.standard_normal((_ROWS, d))
    return path_of(shape, eps, rows, [slopes_beside(asks, b, _STEP * _SIZE) for b in rows])


def slopes_beside(asks: AsksSequences, b: Array, step: float) -> tuple[Array, Array]:
    """(outputs, d) each, by steps of this size: of a row alone, and 4/3 of three copies beside it."""
    moves = step * np.concatenate([np.eye(len(b)), -np.eye(len(b))])
    alone = _slopes(asks((b + moves)[:, None]), step)
    return alone, _slopes(asked_beside(asks, b, b + moves), step) * (4.0 / 3.0)


def path_of(shape: BlockShape, eps: float, rows: Array, slopes: list[tuple[Array, Array]]) -> Array:
    """The path from slopes at rows (n, d)."""
    d, basis = shape.width, shape.basis
    designs, found = [], []
    for b, (alone, copies) in zip(rows, slopes, strict=True):
        if shape.norm_first:
            seen = b @ basis
            size = np.sqrt(seen @ seen / d + eps)
            designs.append((basis.T - np.outer(seen, seen @ basis.T) / (d * size**2)).T / size)
            found.append(np.linalg.solve(alone - copies, copies).T)
        else:
            designs.append((alone - copies) @ basis)
            found.append(copies)
    path = agreed(np.array(designs), np.array(found))
    return path.T if shape.norm_first else path


def _slopes(answers: Array, step: float) -> Array:
    """(outputs, d) from answers at +step and -step along every column."""
    ahead, back = answers.reshape(2, -1, answers.shape[1])
    return np.asarray(((ahead - back) / (2.0 * step)).T)


def agreed(designs: Array, found: Array, size: float | None = None) -> Array:
    """X with design·X = found for the half of the rows that agree best. size: what is left is held against,
    that of what was found unless told."""
    chosen = np.ones(len(designs), dtype=bool)
    for _ in range(_ROUNDS):
        solved = np.linalg.lstsq(
            designs[chosen].reshape(-1, designs.shape[2]),
            found[chosen].reshape(-1, found.shape[2]),
            rcond=1e-6,
        )[0]
        off = np.sqrt(((designs @ solved - found) ** 2).mean(axis=(1, 2)))
        chosen = off <= np.median(off)
    size = float(np.sqrt((found[chosen] ** 2).mean())) if size is None else size
    if not float(np.median(off)) < _AGREES * size:
        raise Unresolved(
            "derivatives of copied rows do not agree on one value path "
            f"({float(np.median(off)) / max(size, 1e-300):.1g} of it)"
        )
    return np.asarray(solved)
