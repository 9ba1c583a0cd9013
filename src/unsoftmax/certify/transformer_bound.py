"""How wrong can W of a Transformer be? Fresh random probes in a fresh linear piece of its network."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.ledger import VERIFICATION, Asker
from unsoftmax.meters.transformer.linear_piece import Piece, choose_piece
from unsoftmax.models import Transformer

__all__ = ["transformer_error_bound", "transformer_rounding_limit"]

_PROBES = 16  # fresh pairs inside the linear piece
# as for a single head: 16 probes whose root mean square is 6 times below its expectation are less likely than
# 1e-5
_FACTOR = 6.0
_FLOOR = 16 * EPS  # rounding of the comparison itself
_PART = 0.4  # of the way to the piece's edge: rows and asking rows together stay inside


def transformer_error_bound(asker: Asker, model: Transformer, rng: np.random.Generator) -> float:
    """A bound on the relative error of W (and w0 against it), from 32 fresh queries.

    Inside a linear piece the model is a single head, and the deviation of an answer, less that of the one-row
    answer to the same asking row, is the error of one score through the sigmoid's slope. Random probes bound
    the error's norm, whatever its shape.
    """
    d = model.width
    folds = model.one_row.folds
    _, piece, size = _place(asker.input_bound, model, rng)
    a, b = _units(rng, d), _units(rng, d)
    toward = np.sign(a @ piece.gradient)
    slope = piece.gradient / np.linalg.norm(piece.gradient)
    a = a * toward[:, None] + slope / np.sqrt(d)  # always seen
    a /= np.linalg.norm(a, axis=1)[:, None]
    asking = piece.centre + (_PART * piece.room(b))[:, None] * b
    rows = (size * _PART * (1.0 + model.residual) * piece.room(a))[:, None] * a
    batch = np.stack([rows + asking, asking], axis=1)
    with asker.phase(VERIFICATION):
        deviations = asker.ask(batch) - model(batch)
        deviations -= asker.ask(asking[:, None]) - folds(asking)
    scores = model.scores(batch)
    score = np.clip(scores[:, 0] - scores[:, 1], -30.0, 30.0)
    steep = (rows @ piece.gradient) / (1.0 + model.residual) / (2.0 + 2.0 * np.cosh(score))
    forms = deviations / steep / np.linalg.norm(rows, axis=1) / np.linalg.norm(asking, axis=1)
    norm = model.matrix.norm()
    error = float(np.sqrt(np.mean(forms**2))) * d
    return float(_FACTOR * error / (norm if norm > 0 else 1.0)) + _FLOOR


def transformer_rounding_limit(model: Transformer, input_bound: float | None) -> float:
    """The relative error of W that float64 rounding explains, measuring where the model's own scores promise
    most."""
    merit, _, _ = _place(input_bound, model, np.random.default_rng(0))
    norm = model.matrix.norm()
    if merit <= 0.0:
        return 0.0  # no answer shows anything of W, so that nothing of it is excused
    return float(8.0 * EPS * model.width**1.5 / (merit * (norm if norm > 0 else 1.0)))


def _place(bound: float | None, model: Transformer, rng: np.random.Generator) -> tuple[float, Piece, float]:
    """Where the model's own scores promise the most exact measurement: how exact, the piece, and the part of
    its room for a."""
    folds = model.one_row.folds
    natural = folds.reach * np.sqrt(model.width)
    sizes = natural * 4.0 ** np.arange(-8.0, 9.0)
    if bound is not None:
        sizes = np.unique(np.minimum(sizes, bound / 4.0))
    best: tuple[float, Piece, float] | None = None
    directions = _units(rng, model.width)
    for size in sizes:
        piece = choose_piece(folds, float(size), rng, bound)
        room = _PART * float(np.median(piece.room(directions)))
        column = model.matrix.apply(piece.centre[None])[0] + (0.0 if model.w0 is None else model.w0)
        score = room * (float(np.linalg.norm(column)) + room * model.matrix.norm() / np.sqrt(model.width))
        shrink = min(1.0, 1.0 / max(score, 1e-300))
        merit = (
            float(np.linalg.norm(piece.gradient)) * (shrink * room) ** 2 * float(np.linalg.norm(piece.centre))
        )
        merit /= float(folds.magnitude(piece.centre[None])[0])
        if best is None or merit > best[0]:
            best = (merit, piece, shrink)
    assert best is not None
    return best


def _units(rng: np.random.Generator, width: int) -> Array:
    rows = rng.standard_normal((_PROBES, width))
    return np.asarray(rows / np.linalg.norm(rows, axis=1)[:, None])
