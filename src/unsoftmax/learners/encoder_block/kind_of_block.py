"""Which kind of block a target is, by a few queries: what large rows do, and how to begin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TypeAlias

import numpy as np

from unsoftmax.answers.probabilities import probabilities
from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.no_network import find_without_network
from unsoftmax.learners.encoder_block.no_norms import find_without_norms
from unsoftmax.learners.encoder_block.post_norm import find_post_norm
from unsoftmax.learners.encoder_block.post_norm_rows import read_post_norm_rows
from unsoftmax.learners.encoder_block.pre_norm import find_pre_norm
from unsoftmax.learners.encoder_block.pre_norm_rows import read_far_rows, read_readout
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.models import AskingRow
from unsoftmax.models.parts import GELU
from unsoftmax.outcomes import Unresolved

__all__ = ["BehindNorm", "Start", "Starts", "bounded_start", "start_of"]

Start: TypeAlias = Callable[[], tuple[BlockShape, BlockState]]

_NEAR, _LARGE = 1e3, 1e6  # sizes of rows
_GROWS = 30.0  # answers to rows a thousand times larger: behind a last norm they stay as they are
_ODD = 1e-5  # of answers to large rows: the constant before a norm leaves 1e-6 of them
_PASSED = 1e-4  # of large rows: norms let through nothing else that grows with them


_HUGE = 1e8  # size of rows beside which everything that a layer adds is 1e-8
_COLUMN_ROWS = 6  # two numbers a column are fitted to them
_EPS_AGAIN = (1e-5, 1e-3)  # of norms, in turn, where the start needs about the right one
_FAR_OUT = 1e6  # size of rows where eps and constants do not count
_PIECES, _POINTS, _PIECE = 16, 12, 0.01  # with 256 neurons half of such pieces have a kink
# of the largest singular value: rounding leaves 1e-14 to 7e-14, smooth functions 6e-12 at least
_STRAIGHT = 1e-12


class BehindNorm(Unresolved):
    """A norm stands where only the value path can be read through it."""


@dataclass(frozen=True)
class Starts:
    """How to begin, and how to begin again where that does not arrive."""

    first: Start
    again: Start


def start_of(asks: AsksSequences, width: int, rng: np.random.Generator, *, pooled: bool = False) -> Starts:
    """How to begin where the last row asks: with a norm that comes last, with norms that come first, or
    without norms. A second start behind norms needs no eps: it finds the network on the sphere that a norm's
    output fills, as behind float32 arithmetic, and the eps from single rows. pooled: where all rows ask, and
    the mean is answered."""
    a, b = rng.standard_normal((2, width))
    far = np.stack([_NEAR * a, _LARGE * a, _LARGE * b, _LARGE * (a + b)])
    near, large, other, both = asks(far[:, None])
    if not float(np.abs(large).max()) > _GROWS * float(np.abs(near).max()):
        if (stop := probabilities(asks(far[:, None] / _LARGE))) is not None:
            raise stop
        return _norm_last(asks, far[1:3], np.stack([large, other]), rng, pooled)
    passed = _passed_on(np.stack([large, other, both]))
    if pooled:
        _check_mean(asks, far[1:3], np.stack([large, other]), passed)
    elif not passed:
        return _only(lambda: find_without_norms(asks, width, rng))
    identity = len(near) == width and float(np.abs(large / _LARGE - a).max()) <= _PASSED * np.abs(a).max()
    readout = None if identity else read_readout(asks, width)
    shape = BlockShape(True, _centred(asks, width, readout, rng), GELU, width, pooled=pooled)
    if _without_network(asks, np.stack([a, b]), readout):
        if readout is None and not pooled:
            return _only(lambda: find_without_network(asks, shape, rng))
        raise Unresolved(
            "a linear readout, or a mean over rows, follows x + attention(norm(x)), without a network "
            "between them; such a layer is recovered where its own columns of one row are answered"
        )
    if pooled:
        return _only(lambda: _mean_start(asks, shape, readout, rng))
    first = _only(lambda: find_pre_norm(asks, shape, readout, rng))
    return first if readout is not None else replace(first, again=lambda: _pre_norm_again(asks, shape, rng))


def bounded_start(
    asks: AsksSequences, width: int, bound: float, rng: np.random.Generator, *, asking: AskingRow
) -> Starts:
    """How to begin inside a ball. Raises where what needs longer rows is answered."""
    answers = asks(np.zeros((1, 1, width)))
    if asking is AskingRow.MEAN or answers.shape[1] != width:
        raise Unresolved(
            "rows are bounded (input_bound), and a block is recovered inside a bound where its own columns "
            "of one row are answered, not the mean over rows or a linear map of them"
        )

    eps = cycle(_EPS_AGAIN)

    def begin() -> tuple[BlockShape, BlockState]:
        from unsoftmax.learners.computed_block.bounded_start import find_bounded_start

        return find_bounded_start(asks, width, bound, next(eps), rng)

    return _only(begin)


def _passed_on(answers: Array) -> bool:
    """Whether a large row, another one and their sum are answered as by a linear map."""
    large, other, both = answers
    return float(np.abs(large + other - both).max()) <= _PASSED * float(np.abs(answers).max())


def _norm_last(
    asks: AsksSequences, far: Array, answers: Array, rng: np.random.Generator, pooled: bool
) -> Starts:
    """Behind a norm that bounds answers, which large rows (2, d) have. Raises BehindNorm where only the value
    path can be read."""
    width, count = far.shape[1], answers.shape[1]
    if pooled:
        raise Unresolved(
            "answers are the mean over rows, and a LayerNorm comes last in each of them: what single rows "
            "add up to is bounded, and shows no head alone; such a block is recovered where one of its rows "
            "is answered (row='last', where the target answers every row), or where norms come first"
        )
    if count != width:
        raise BehindNorm(
            f"a LayerNorm follows the attention, and answers hold {count} numbers where rows have "
            f"{width}, as behind a classifier; such a block is recovered whole where its own columns are "
            "answered"
        )
    sums = answers + asks(-far[:, None])
    if float(np.abs(sums[0] - sums[1]).max()) <= _ODD * float(np.abs(answers[0]).max()):
        if _passes_rows_to_a_norm(asks, width, rng):
            raise Unresolved(
                "large rows are answered with a norm of the rows themselves: a final norm follows a layer "
                "whose norms come first, or several, as in torch.nn.TransformerEncoder(layer, 1, norm=...); "
                "such a layer is recovered where it is answered without the final norm"
            )
        raise BehindNorm(
            "a norm follows the attention, or precedes it without a residual connection, and no network "
            "follows: opposite large rows have opposite answers; such a layer is not recovered whole"
        )
    if _bends_beside_kinks(asks, width, rng):
        raise BehindNorm(
            "what follows the attention bends everywhere and has kinks too, which no network of one kind of "
            "neurons does: cross attention to a memory beside a ReLU network, as in a decoder layer, another "
            "norm between them, or neurons of two kinds; such a layer is not recovered whole"
        )
    return Starts(lambda: find_post_norm(asks, width, rng), lambda: _post_norm_again(asks, width, rng))


def _passes_rows_to_a_norm(asks: AsksSequences, width: int, rng: np.random.Generator) -> bool:
    """Whether every column of answers to large rows is an affine function of that column of the rows, as
    LayerNorm makes them."""
    rows = rng.standard_normal((_COLUMN_ROWS, width))
    rows -= rows.mean(axis=1, keepdims=True)
    rows /= np.sqrt((rows**2).mean(axis=1, keepdims=True))
    answers = asks(_HUGE * rows[:, None])
    centred = rows - rows.mean(axis=0)
    away = answers - answers.mean(axis=0)
    gain = (centred * away).sum(axis=0) / (centred**2).sum(axis=0)
    return float(np.abs(away - gain * centred).max()) <= _PASSED * float(np.abs(answers).max())


def _bends_beside_kinks(asks: AsksSequences, width: int, rng: np.random.Generator) -> bool:
    """Whether no piece of a line far out is straight, though there are kinks: behind a ReLU network alone
    most pieces are straight, and a smooth one has no kinks. 192 queries, and 512 for each smooth one."""
    from unsoftmax.learners.computed_block.circles import Sphere, has_kinks

    if _straight_pieces(asks, width, rng) > 0:
        return False
    return has_kinks(Sphere(lambda u: asks(_FAR_OUT * u[:, None]), width, 1.0, directions=True), rng)


def _check_mean(asks: AsksSequences, far: Array, answers: Array, passed: bool) -> None:
    """Raises unless two large rows (2, d) are answered as the mean of what each is answered alone, but for
    what heads add behind a norm."""
    together = asks(far[None])[0]
    if float(np.abs(together - answers.mean(axis=0)).max()) > _PASSED * float(np.abs(answers).max()):
        raise Unresolved(
            "answers are the same for every order of rows, but two large rows are not answered with the mean "
            "of both, as with the largest number over rows, or with attention pooling; such a block is "
            "recovered where one of its rows is answered (row='last', where the target answers every row)"
        )
    if not passed:
        raise Unresolved(
            "answers are the mean over rows of a block without norms; such a block is recovered where one of "
            "its rows is answered (row='last', where the target answers every row)"
        )


def _only(start: Start) -> Starts:
    return Starts(start, start)


def _mean_start(
    asks: AsksSequences, shape: BlockShape, readout: Array | None, rng: np.random.Generator
) -> tuple[BlockShape, BlockState]:
    from unsoftmax.learners.computed_block.mean_start import find_mean_start

    return find_mean_start(asks, shape, readout, rng)


def _pre_norm_again(
    asks: AsksSequences, shape: BlockShape, rng: np.random.Generator
) -> tuple[BlockShape, BlockState]:
    from unsoftmax.learners.computed_block.pre_norm_start import find_pre_norm_start

    known = read_far_rows(asks, shape, rng)
    return find_pre_norm_start(asks, shape.width, shape.centred, FloatFormat.FLOAT32, rng, known=known)


def _post_norm_again(
    asks: AsksSequences, width: int, rng: np.random.Generator
) -> tuple[BlockShape, BlockState]:
    from unsoftmax.learners.computed_block.post_norm_start import find_post_norm_start

    known = read_post_norm_rows(asks, BlockShape(False, True, GELU, width), rng)
    kinked = _straight_pieces(asks, width, rng) > 0
    return find_post_norm_start(asks, width, FloatFormat.FLOAT32, rng, known=known, kinked=kinked)


def _straight_pieces(asks: AsksSequences, width: int, rng: np.random.Generator) -> int:
    """On how many short pieces of lines far out answers keep to four dimensions, as behind two norms and a
    ReLU network without a kink there: its value is then a combination of both ends and a constant."""
    ends = _FAR_OUT * rng.standard_normal((_PIECES, 2, 1, width))
    along = np.linspace(0.0, _PIECE, _POINTS)[None, :, None]
    rows = (ends[:, 0] + along * ends[:, 1]).reshape(-1, 1, width)
    answers = asks(rows).reshape(_PIECES, _POINTS, -1)
    sizes = np.linalg.svd(answers - answers.mean(axis=1, keepdims=True), compute_uv=False)
    return int((sizes[:, 3] <= _STRAIGHT * sizes[:, 0]).sum())


def _without_network(asks: AsksSequences, rows: Array, readout: Array | None) -> bool:
    """Whether opposite large rows have opposite answers, up to a constant."""
    up, down = asks(np.concatenate([_NEAR * rows, -_NEAR * rows])[:, None]).reshape(2, len(rows), -1)
    sums = up + down
    beside = up - _NEAR * (rows if readout is None else rows @ readout.T)
    return float(np.abs(sums[0] - sums[1]).max()) <= _ODD * float(np.abs(beside).max())


def _centred(asks: AsksSequences, width: int, readout: Array | None, rng: np.random.Generator) -> bool:
    """Whether a shift of all columns of a single row passes straight through, as behind LayerNorm."""
    row = rng.standard_normal(width)
    before, after = asks(np.stack([row, row + 0.7])[:, None])
    shift = 0.7 * (np.ones(width) if readout is None else readout.sum(axis=1))
    return float(np.abs(after - before - shift).max()) < 1e-9 * (1.0 + float(np.abs(before).max()))
