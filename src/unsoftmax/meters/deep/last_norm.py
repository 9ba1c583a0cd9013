"""What follows the last layer of a pre-norm stack: nothing, a factor, or a norm with its gain and bias.

Rows T·n with a huge T reach the end as they are, up to O(1/T). Behind nothing they come out as T·n, behind a
norm as gain·n + bias, whatever the layers do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from unsoftmax.arrays import Array, centred_basis
from unsoftmax.float_formats import FloatFormat
from unsoftmax.meters.deep.collapsed_layer import Scales
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.models.parts import LayerNorm, Norm, RMSNorm
from unsoftmax.outcomes import OutsideClass, Test, Unresolved

__all__ = ["PRE_NORM_TEST", "LastNorm", "StreamAnswers", "read_last_norm"]

PRE_NORM_TEST = Test("large rows reach the end of the stack as they are", frozenset())

Answers = Callable[[Array], Array]

_LARGEST = 2.0**50  # T: 1/T is the rounding of float64, and squares of rows stay inside float32
_FAR = 2.0**26  # T up to which what layers add shows in an answer, and a polynomial in 1/T removes it
_TERMS = 6  # of the polynomial in the inverse size of rows
_LEAST = 40.0  # T below which a polynomial of six terms leaves more than a thousandth
_ROWS = 4  # for a gain and a bias of every column: two would do
_AS_IT_IS = 1e-5  # of the answers: float32 leaves 1e-6, and stacks that are not pre-norm differ by themselves
_NO_BIAS = 1e-6  # of the gain


@dataclass(frozen=True, eq=False)
class LastNorm:
    """norm: None where the answer is scale times the stream. centred: whether all norms see rows without
    their mean. misfit: of fresh rows, relative."""

    norm: Norm | None
    scale: float
    centred: bool
    misfit: float


def read_last_norm(answers: Answers, d: int, rng: np.random.Generator, bound: float = np.inf) -> LastNorm:
    """9 queries without a bound on the norm of rows, or 6 times as many."""
    top = min(_LARGEST, bound / (2.0 * np.sqrt(d)))
    if top < _LEAST:
        raise Unresolved(
            f"rows of norm {bound:.3g} and below are too short to see what follows the last layer; "
            f"{2.0 * _LEAST * np.sqrt(d):.3g} is the least"
        )
    rows = unit_rows(rng, _ROWS + 2, d)
    far, near = (_at(answers, rows[:count], size) for count, size in ((len(rows), top), (2, top / 2.0)))
    growth = float(np.linalg.norm(far[:2]) / np.linalg.norm(near))
    if not np.isfinite(far).all() or not np.isfinite(growth):
        raise OutsideClass(PRE_NORM_TEST, f"rows of norm {top * np.sqrt(d):.1g} have no finite answers")
    if growth > 1.5:
        scale = float((far * rows).mean() / top)
        misfit = float(np.abs(far / (scale * top) - rows).max()) if scale else np.inf
        found = LastNorm(None, scale, _mean_unread(answers, rows, scale), misfit)
    else:
        found = _fitted(far, rows)
    if not found.misfit < _AS_IT_IS:
        raise OutsideClass(
            PRE_NORM_TEST, f"answers to rows of norm {top * np.sqrt(d):.1g} are {found.misfit:.2g} off"
        )
    return found


def _at(answers: Answers, rows: Array, size: float) -> Array:
    """Answers to rows of this size; where what layers add still shows, it is removed by a polynomial."""
    if size >= _FAR:
        return answers(size * rows)
    scales = Scales(20.0 / size, _TERMS)
    seen = np.array([answers(rows / s) for s in scales.nodes])
    grown = seen * scales.nodes[:, None, None] * size  # a stream that grows with the row, at one size
    flat = np.abs(seen).max(axis=(1, 2)).std() < 0.1 * np.abs(seen).max()
    return np.asarray(np.einsum("t,tbd->bd", scales.weights(1)[0], seen if flat else grown))


def _fitted(far: Array, rows: Array) -> LastNorm:
    """The norm that explains all but two rows, judged by these."""
    d = rows.shape[1]
    found = []
    for kind in (RMSNorm, LayerNorm):
        plain = kind(np.ones(d), None, 0.0)(rows)
        gain, bias = np.empty(d), np.empty(d)
        for i in range(d):
            columns = np.column_stack([plain[:_ROWS, i], np.ones(_ROWS)])
            gain[i], bias[i] = np.linalg.lstsq(columns, far[:_ROWS, i], rcond=None)[0]
        size = float(np.abs(gain).max())
        kept = None if np.abs(bias).max() <= _NO_BIAS * size else bias
        norm = kind(gain, kept, 0.0)
        misfit = float(np.abs(norm(rows[_ROWS:]) - far[_ROWS:]).max() / max(np.abs(far).max(), 1e-300))
        found.append(LastNorm(norm, 1.0, kind is LayerNorm, misfit))
    return min(found, key=lambda each: each.misfit)


def _mean_unread(answers: Answers, rows: Array, scale: float) -> bool:
    """Whether a constant added to all entries of a row goes through unchanged."""
    one, other = answers(np.stack([rows[0], rows[0] + 1.0])) / scale
    return bool(np.abs(other - one - 1.0).max() < _AS_IT_IS)


@dataclass(frozen=True, eq=False)
class StreamAnswers:
    """The last stream of rows, before the last norm's gain and bias. Without mean where no norm sees it: rows
    and streams are then coordinates across the mean, and a LayerNorm of d columns is an RMSNorm of d - 1."""

    answers: Answers
    last: LastNorm
    columns: int
    held: FloatFormat | None = None

    @property
    def width(self) -> int:
        return self.columns - self.last.centred

    @property
    def basis(self) -> Array:
        """(columns, width)."""
        return centred_basis(self.columns) if self.last.centred else np.eye(self.columns)

    def __call__(self, rows: Array, /) -> Array:
        if not self.last.centred:
            return self._plain(self.answers(rows))
        seen = self._plain(self.answers(rows @ self.basis.T)) @ self.basis
        return seen if self.last.norm is None else seen * np.sqrt(self.width / self.columns)

    def _plain(self, seen: Array) -> Array:
        norm = self.last.norm
        if norm is None:
            return np.asarray(seen / self.last.scale)
        return np.asarray((seen if norm.bias is None else seen - norm.bias) / norm.gain)
