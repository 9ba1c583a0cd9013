"""Whole encoder blocks from the answers of their last row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.families import Family
from unsoftmax.float_formats import smallest_format
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.encoder_block.asking import AsksSequences, sequences_of
from unsoftmax.learners.encoder_block.no_norms import find_without_norms
from unsoftmax.learners.encoder_block.post_norm import find_post_norm
from unsoftmax.learners.encoder_block.pre_norm import find_pre_norm
from unsoftmax.learners.encoder_block.refine_block import parameter_error, refine_block
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.ledger import Asker
from unsoftmax.outcomes import OutsideClass, Stop, Test, Unresolved

__all__ = ["EncoderBlockLearner", "begun", "check_asker", "obstacle"]

WIDTH_TEST = Test("answers are as wide as rows", frozenset({Family.ENCODER_BLOCK}))

_LONGEST = 9  # rows of a sequence that the learner sends: eight copies of a key, and the asking row
_LEAST_WIDTH = 6
_FITS = (
    1e-9  # largest residual of the joint fit, over the size of answers, that is the block and no neighbour
)
_SAME_ORDER = 1e-9  # of the answers: sums over rows in another order are off by 1e-15
_GROWS = 30.0  # answers to rows a thousand times larger: behind a last norm they stay as they are


def _parameters(size: Size) -> int:
    """Of a layer, as torch counts them."""
    d = size.width
    return 4 * d * d + 2 * size.neurons * d + 9 * d + size.neurons


def _queries(size: Size) -> int:
    """Six times the parameters, and what small layers pay at least."""
    return 6 * _parameters(size) + 6000


def _usual(size: Size) -> int:
    """Measured: 1.8 to 2.4 times the parameters at width 16, 1.5 to 1.9 at width 32, 2,700 in all at 8."""
    return int(1.5 * _parameters(size)) + 1600


@dataclass(frozen=True)
class EncoderBlockLearner:
    """Recovers an encoder block: heads, residuals, a ReLU or smooth network, and norms before (LayerNorm or
    RMSNorm) or behind them (LayerNorm).

    Claim: exact in float64, number of heads, neurons, eps and activation unknown. Queries: 1 to 3 times the
    parameters of the layer. Assumes: see `claim`. Recovers: the canonical block. Fails when: rows are
    bounded, answers carry errors, neurons are too many for the width or, post-norm, the residual stream
    vanishes nowhere.

    attempts: starts from other random rows, where one does not arrive.
    """

    family: ClassVar[Family] = Family.ENCODER_BLOCK
    attempts: int = 3

    @property
    def claim(self) -> Claim:
        return Claim(
            title="A whole encoder block from its last row",
            source="this library",
            assumptions=(
                Assumption("rows of any size may be sent, nine in a sequence", "the asker's bounds"),
                Assumption(
                    "the residual stream passes rows on, or ends in a LayerNorm",
                    "answers to large rows, and the hyperplane that answers fill",
                ),
                Assumption(
                    "answers are exact up to rounding", "residual of the joint fit, and fresh sequences"
                ),
            ),
            queries=QueryCount(
                "6 p + 6000, p the layer's parameters", "upper", _queries, _usual, attempts=self.attempts
            ),
            recovers="norms, all heads, the network and its activation, in canonical form",
            symmetry="order of heads and neurons; gains and biases that the next map absorbs",
            departs="no theorem of the paper speaks of it",
        )

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        with asker.phase("order of norms"):
            check_asker(asker, rng)
            asks, d = sequences_of(asker), asker.width
            find = _start_of(asks, d, rng)
        reasons: list[str] = []
        for _ in range(self.attempts):
            start = begun(asker, find, reasons)
            if start is None:
                continue
            shape, state = start
            with asker.phase("joint fit"):
                state, off = refine_block(asks, shape, state, rng)
            if off > _FITS:
                reasons.append(f"the joint fit leaves {off:.1g} of the answers")
                continue
            with asker.phase("error bound"):
                bound = parameter_error(asks, shape, state, rng)
            return Learned(state.model(shape).canonical(), self.claim, error_bound=bound)
        raise Unresolved(
            f"a block was begun {self.attempts} times: {'; '.join(dict.fromkeys(reasons))}; the block may "
            "have another network, or rows and neurons of very different sizes"
        )


def begun(
    asker: Asker, find: Callable[[], tuple[BlockShape, BlockState]], reasons: list[str]
) -> tuple[BlockShape, BlockState] | None:
    """One start, or None with the reason noted: one that fails does not rule out the family."""
    try:
        with asker.phase("start"):
            return find()
    except (Unresolved, OutsideClass) as stop:
        reasons.append(stop.reason)
    except np.linalg.LinAlgError as error:
        reasons.append(f"a linear system of the start has no solution ({error})")
    return None


def obstacle(asker: Asker, rng: np.random.Generator) -> Stop | None:
    """Why a block cannot be recovered from this target, by the learner's own first tests; None where nothing
    stands in the way of trying. A few queries."""
    try:
        check_asker(asker, rng)
        _start_of(sequences_of(asker), asker.width, rng)
    except Stop as stop:
        return stop
    return None


def check_asker(asker: Asker, rng: np.random.Generator) -> None:
    """Raises where the target's answers, width or bounds leave no block to be recovered."""
    if asker.outputs != asker.width:
        raise OutsideClass(WIDTH_TEST, _too_narrow(asker, rng))
    if asker.width < _LEAST_WIDTH:
        raise Unresolved(
            f"blocks are told apart from width {_LEAST_WIDTH} on, and this one has {asker.width}"
        )
    if asker.input_bound is not None:
        raise Unresolved("a block is recovered from rows of any size; without input_bound it can be tried")
    if asker.max_length is not None and asker.max_length < _LONGEST:
        raise Unresolved(
            f"a block needs sequences of {_LONGEST} rows, and the target takes {asker.max_length}"
        )


def _too_narrow(asker: Asker, rng: np.random.Generator) -> str:
    """What is known of a target whose answers are not as wide as its rows."""
    sizes = f"rows have {asker.width} numbers, answers {asker.outputs or 1}"
    if asker.input_bound is not None:
        return sizes
    if asker.outputs is not None and not _grows(asker, rng):
        return (
            f"{sizes}, and answers to a row stay the same when it grows a thousandfold: a LayerNorm follows "
            "the attention; its block is recovered where all its columns are answered"
        )
    return sizes


def _grows(asker: Asker, rng: np.random.Generator) -> bool:
    row = rng.standard_normal(asker.width)
    near, far = asker.ask(np.stack([1e3 * row, 1e6 * row])[:, None])
    return float(np.abs(far).max()) > _GROWS * float(np.abs(near).max())


def _check_order(asks: AsksSequences, width: int, rng: np.random.Generator) -> None:
    """Raises unless answers have float64 digits, the last row asks, and the order of the others does not
    matter."""
    rows = rng.standard_normal((3, width))
    answers = asks(np.stack([rows, rows[[1, 0, 2]], rows[[0, 2, 1]]]))
    if (short := smallest_format(answers)) is not None:
        raise Unresolved(
            f"all answers are {short.value} numbers: a block is recovered from differences that their "
            "rounding hides; ask the same block in float64 (torch: module.double())"
        )
    plain, others, last = answers
    scale = _SAME_ORDER * float(np.abs(plain).max())
    moved_others, moved_last = (float(np.abs(there - plain).max()) > scale for there in (others, last))
    if moved_others and not moved_last:
        raise Unresolved(
            "the first row asks, not the last one; reverse the rows of every sequence before they reach the "
            "target"
        )
    if moved_others:
        raise Unresolved(
            "the order of the rows before the last one matters, as with positions, windows, or dropout that "
            "is on: such a block is not recovered; take positions out, or add them yourself"
        )
    if not moved_last:
        raise Unresolved(
            "answers are the same for every order of rows, as those of a mean over rows are; a block is "
            "recovered from one of its rows"
        )


def _start_of(
    asks: AsksSequences, width: int, rng: np.random.Generator
) -> Callable[[], tuple[BlockShape, BlockState]]:
    """How to begin: with a norm that comes last, or with norms that come first. Raises where large rows are
    not passed on."""
    _check_order(asks, width, rng)
    row = rng.standard_normal(width)
    far = np.stack([1e3 * row, 1e6 * row])[:, None]
    answers = asks(far)
    sizes = np.abs(answers).max(axis=1)
    if not sizes[1] > _GROWS * sizes[0]:
        return lambda: find_post_norm(asks, width, rng)
    if float(np.abs(answers[1] / 1e6 - row).max()) > 1e-3 * float(np.abs(row).max()):
        return lambda: find_without_norms(asks, width, rng)
    rows = rng.standard_normal((1, 3, width))
    moved = rows.copy()
    moved[:, -1] += 0.7
    before, after = asks(np.concatenate([rows, moved]))
    centred = float(np.abs(after - before - 0.7).max()) < 1e-9 * (1.0 + float(np.abs(before).max()))
    return lambda: find_pre_norm(asks, width, centred, rng)
