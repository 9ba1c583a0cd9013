"""Do answers look exact? Three queries tell for most targets, thirteen for piecewise linear ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.answers.along_rays import ask_rows, random_rows
from unsoftmax.answers.findings import IDENTIFY, Finding
from unsoftmax.arrays import Array
from unsoftmax.float_formats import decimals_of, smallest_format
from unsoftmax.ledger import Asker

__all__ = ["CANCELS", "LooksExact", "looks_exact"]

CANCELS = 1e-14  # answers so small against their rows are rounding of values that cancel
# of the answers: a straight segment bends by no more, a moving one moves by a thousand times that
_STRAIGHT = 1e-13
_FAR_ROWS = 12  # the answer to a random row moves where a neuron is on: for half of them, with one neuron
_FAR_SEGMENTS = 4  # two rows each: that all four lie across a kink is rare, and one that does not is enough
_ON_A_LINE = 1e-11  # of the answers: three along a ray
_FAR = 32.0  # against plain rows: how far out networks move whose neurons are all off near the origin
_FARTHEST = 1024.0  # against the nearest of three rows along a ray: a limit of answers below that shows


@dataclass(frozen=True)
class LooksExact:
    """Answers look exact. bends: they do so on short segments only, so single rows are not answered
    linearly."""

    finding: Finding
    bends: bool = False


def looks_exact(asker: Asker, rng: np.random.Generator) -> LooksExact | None:
    """Whether answers use all float64 digits, on a line along a ray or else on short segments.

    No proof, and no refutation of a curved function. None: a full identification is needed.

    >>> import unsoftmax
    >>> ledger = unsoftmax.Ledger(unsoftmax.as_oracle("demo:single-head?d=4"))
    >>> looks_exact(ledger, np.random.default_rng(0)).finding.queries
    3
    """
    size = 1.0 if asker.input_bound is None else min(1.0, asker.input_bound / _FAR)
    farthest = _FARTHEST * size if asker.input_bound is None else min(_FARTHEST * size, asker.input_bound)
    x = random_rows(rng, 1, asker.width)
    with asker.phase(IDENTIFY):
        near, middle = ask_rows(asker, np.concatenate([size * x, 2.0 * size * x]))
        if near != middle and smallest_format(np.array([near, middle])) is not None:
            return None  # before a row so far out that short formats overflow inside the target
        (far,) = ask_rows(asker, farthest * x)
    answers = np.array([near, middle, far])
    largest = float(np.abs(answers).max())
    bend = abs(float((far - middle) - (farthest / size - 2.0) * (middle - near)))
    if near == middle == far or (near == middle and bend > _ON_A_LINE * largest):
        with asker.phase(IDENTIFY):
            return _look_far_out(asker, rng, _FAR * size, float(near))
    if 0.0 < largest < CANCELS * farthest:
        return _found("three answers along a ray are rounding of values that cancel", 3)
    if largest == 0.0 or decimals_of(answers) is not None or smallest_format(answers) is not None:
        return None
    if bend <= _ON_A_LINE * largest:
        return _found("three answers along a ray use all float64 digits and lie on a line", 3)
    with asker.phase(IDENTIFY):
        return _look_at_pieces(asker, rng, size, farthest * x[0], float(far))


def _look_at_pieces(
    asker: Asker, rng: np.random.Generator, size: float, end: Array, answer: float
) -> LooksExact | None:
    """A piecewise linear function bends along a ray, but neither on short segments nor, unless it is clipped,
    does it come to a rest."""
    places = size * random_rows(rng, 3, asker.width)
    segments = (1.0 + 1e-4 * np.arange(3.0))[:, None, None] * places
    answers = ask_rows(asker, np.vstack([segments.reshape(-1, asker.width), 0.97 * end[None]]))
    before_end, on_segments = float(answers[-1]), answers[:-1].reshape(3, 3)
    bends = np.abs(np.diff(on_segments, 2, axis=0))[0]
    moves = np.abs(np.diff(on_segments, axis=0)).min(axis=0)
    limit = _STRAIGHT * np.abs(on_segments).max()
    straight = (bends <= limit) & (moves > 1e3 * limit)
    resting = np.ptp(on_segments, axis=0) == 0.0
    if straight.sum() < 2 and resting.any():
        return _look_far_out(asker, rng, _FAR * size, float(on_segments[0, resting][0]))
    if straight.sum() < 2 or before_end == answer:
        return None
    if decimals_of(answers) is not None or smallest_format(answers) is not None:
        return None
    text = "answers use all float64 digits and lie on lines along short segments"
    return LooksExact(Finding("answers", "exact", text, 13), bends=True)


def _look_far_out(asker: Asker, rng: np.random.Generator, size: float, nearby: float) -> LooksExact | None:
    """Answers that do not move near the origin: a network whose neurons are all off there moves further out,
    on lines along short segments, and does not come to a rest."""
    places = size * random_rows(rng, _FAR_ROWS, asker.width)
    answers = ask_rows(asker, places)
    moving = np.flatnonzero(answers != nearby)[:_FAR_SEGMENTS]
    if len(moving) < 2 or decimals_of(answers) is not None or smallest_format(answers) is not None:
        return None
    segments = (1.0 - 1e-4 * np.arange(1.0, 3.0))[:, None, None] * places[moving]
    inward = ask_rows(asker, segments.reshape(-1, asker.width)).reshape(2, len(moving))
    three = np.vstack([answers[moving], inward])
    bends = np.abs(np.diff(three, 2, axis=0))[0]
    moves = np.abs(np.diff(three, axis=0)).min(axis=0)
    limit = _STRAIGHT * max(float(np.abs(three).max()), abs(nearby))
    straight = (bends <= limit) & (moves > 1e3 * limit)
    if straight.sum() < 2 or (~straight).sum() > 1:
        return None
    text = "answers do not move near the origin; further out they use all float64 digits and lie on lines"
    return LooksExact(Finding("answers", "exact", text, 3 + _FAR_ROWS + 2 * len(moving)), bends=True)


def _found(evidence: str, queries: int) -> LooksExact:
    return LooksExact(Finding("answers", "exact", evidence, queries))
