"""The value path A = Σ V_h of attention beside a skip connection, through anything that follows.

y = x + Σ_h V_h Σ_i α_i x_i + c is answered with G(y). The derivative of a single row b is Γ(1 + A), Γ that of
G; the derivative of three copies of it beside b, where every row gets a quarter whatever the scores are, is
¾ΓA. So Γ is their difference, and A solves ΓA = 4/3 of the second, over as many rows b as it takes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.pre_norm_path import asked_beside
from unsoftmax.outcomes import Unresolved

__all__ = ["PathAsks", "has_skip", "value_path"]

_STEP = 5e-4  # truncation h⁴ = 6e-14 meets rounding 1e-16/h = 2e-13
_SIZE = 1.5  # of the entries of a row b
_LEAST_ROWS = 3  # behind as many answers as columns two see everything, the third one checks
_SURPLUS = 1.5  # equations over unknowns, where answers are fewer
_TRIES = 40  # rows beyond those that are needed
_AGREES = 1e-8  # of the path: rows without a kink nearby agree to 1e-11, a kink leaves 1e-4
_NO_SKIP = 1e-6  # of the derivatives: without a skip connection nothing is left


@dataclass(frozen=True)
class PathAsks:
    """How derivatives at one row are asked: (outputs, d) each, of the row alone and of copies beside it."""

    asks: AsksSequences
    size: float = _SIZE

    def __call__(self, rng: np.random.Generator, width: int) -> tuple[Array, Array]:
        b = self.size * rng.standard_normal(width)
        step = _STEP * self.size / _SIZE
        moves = step * np.concatenate([s * np.eye(width) for s in (1.0, -1.0, 2.0, -2.0)])
        alone = _slopes(self.asks((b + moves)[:, None]), step)
        return alone, _slopes(asked_beside(self.asks, b, b + moves), step) * (4.0 / 3.0)


def has_skip(asks: AsksSequences, width: int, rng: np.random.Generator) -> bool:
    """Whether a row alone moves the answer otherwise than through attention: 16 d queries."""
    pairs = [PathAsks(asks)(rng, width) for _ in range(2)]
    left = min(float(np.abs(alone - copies).max()) for alone, copies in pairs)
    return left > _NO_SKIP * max(float(np.abs(alone).max()) for alone, _ in pairs)


def value_path(asks: AsksSequences, basis: Array, rng: np.random.Generator) -> Array:
    """(k, d): A in the k coordinates of the basis (d, k), of which the answers' function sees the others not.

    8 d queries per row b."""
    d, k = basis.shape
    at = PathAsks(asks)
    designs: list[Array] = []
    found: list[Array] = []
    needed = _LEAST_ROWS
    for _ in range(needed + _TRIES):
        alone, copies = at(rng, d)
        designs.append((alone - copies) @ basis)
        found.append(copies)
        needed = max(_LEAST_ROWS, int(np.ceil(_SURPLUS * k / len(alone))) + 1)
        if len(designs) < needed:
            continue
        path, off = _fitted(designs, found)
        if off < _AGREES * max(float(np.abs(part).max()) for part in found):
            return path
        # a kink within the differences of one row: the others agree without it, while in a fit of all
        # the largest residual may be another row's
        without = [
            _fitted(*(part[:i] + part[i + 1 :] for part in (designs, found)))[1] for i in range(len(designs))
        ]
        spoilt = int(np.argmin(without))
        del designs[spoilt], found[spoilt]
    raise Unresolved(
        "derivatives of copied rows do not agree on one value path, as with a second layer of attention, or "
        "with a norm in front of the attention and another one behind it"
    )


def _fitted(designs: list[Array], found: list[Array]) -> tuple[Array, float]:
    """The path by least squares, and the largest residual."""
    design, there = np.vstack(designs), np.vstack(found)
    path = np.asarray(np.linalg.lstsq(design, there, rcond=1e-9)[0])
    return path, float(np.abs(design @ path - there).max())


def _slopes(answers: Array, step: float) -> Array:
    """(outputs, d) from answers at steps 1, -1, 2, -2 along every column."""
    near, back, far, far_back = answers.reshape(4, -1, answers.shape[1])
    one, two = (near - back) / (2.0 * step), (far - far_back) / (4.0 * step)
    return np.asarray(((4.0 * one - two) / 3.0).T)
