"""Cheap looks at a function of single rows, before anything is searched: does it bend only at kinks, is it homogeneous?"""

from __future__ import annotations

import numpy as np

from unsoftmax.learners.relu.circle import RowFunction
from unsoftmax.learners.relu.kinks import PIECES_TEST
from unsoftmax.ledger import Ledger
from unsoftmax.oracles import Array
from unsoftmax.outcomes import OutsideClass

__all__ = ["check_pieces", "is_homogeneous", "one_row_function"]

_PLACES = 4
_STEP = 1e-4  # of a row's length: a smooth function bends by 1e-8 of itself, a piecewise linear one hardly ever has a kink there


def one_row_function(ledger: Ledger) -> RowFunction:
    """x -> f([x]) on the rows of an array, in batches, billed."""

    def ask(rows: Array) -> Array:
        step = ledger.batch_size(1)
        return np.concatenate([ledger.ask(rows[i : i + step, None]) for i in range(0, max(len(rows), 1), step)])

    return ask


def check_pieces(function: RowFunction, width: int, unit: float, rng: np.random.Generator) -> None:
    """Second differences over tiny steps vanish almost everywhere, or the function is not piecewise linear."""
    places = unit * rng.standard_normal((_PLACES, width))
    steps = _STEP * unit * rng.standard_normal((_PLACES, width))
    first, second, third = function(np.concatenate([places, places + steps, places + 2 * steps])).reshape(3, _PLACES)
    bend = np.abs(first - 2.0 * second + third)
    allowed = 1e-12 * np.maximum(np.abs(np.stack([first, second, third])).max(), np.finfo(float).tiny)
    if (bend > allowed).sum() == _PLACES:
        raise OutsideClass(
            PIECES_TEST,
            f"at {_PLACES} of {_PLACES} random rows the answer bends by {np.median(bend):.2g} over a step of {_STEP:g} of the row "
            f"(allowed {allowed:.1g}); a ReLU network bends only at kinks",
        )


def is_homogeneous(function: RowFunction, width: int, unit: float, largest: float, rng: np.random.Generator) -> bool:
    """Whether g(t·x) = t·g(x) for t > 0, on two rows from a millionth to a million times their size (up to norm `largest`)."""
    if function(np.zeros((1, width)))[0] != 0.0:
        return False
    rows = unit * rng.standard_normal((2, width))
    factors = 2.0 ** np.array([0.0, 1.0, -10.0, 10.0, -20.0, 20.0])
    factors = factors[factors * np.linalg.norm(rows, axis=1).max() <= largest]
    ratios = function(np.concatenate([factors[:, None] * row for row in rows])).reshape(2, len(factors)) / factors
    spread = np.ptp(ratios, axis=1)
    return bool((spread <= 1e-12 * np.abs(ratios).max(axis=1)).all())
