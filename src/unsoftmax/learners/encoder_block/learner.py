"""Whole encoder blocks from the answers of one row, the last or the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unsoftmax.families import Family
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.encoder_block.asking import AsksSequences, sequences_of, within
from unsoftmax.learners.encoder_block.kind_of_block import BehindNorm, Starts, bounded_start, start_of
from unsoftmax.learners.encoder_block.mean_heads import LONGEST_MEAN
from unsoftmax.learners.encoder_block.positions import (
    BEHIND_POSITIONS,
    PLACES,
    find_positions,
    norm_comes_last,
    positions_part,
)
from unsoftmax.learners.encoder_block.refine_block import parameter_error, refine_block
from unsoftmax.learners.encoder_block.row_roles import OrderMatters, row_roles
from unsoftmax.learners.encoder_block.single_row_parts import (
    block_part,
    one_row_parts,
    path_parts,
    with_one_head,
)
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.ledger import Asker
from unsoftmax.models import AskingRow, EncoderBlock
from unsoftmax.outcomes import OutsideClass, Stop, Unresolved

__all__ = ["EncoderBlockLearner", "begun", "check_asker", "refuse_other_blocks"]

_LONGEST = 9  # rows of a sequence that the learner sends: eight copies of a key, and the asking row
_LEAST_WIDTH = 6  # the smallest width that this learner's tests recover
_USEFUL = 0.1  # error of the parameters from which a fit is none, and another start may arrive
# largest residual of the joint fit, over the size of answers, that is the block and no neighbour
_FITS = 1e-9
_ROUNDED = 1e-12  # the same where nothing but rounding is left, with room for the largest of all answers
_OPEN = 1.0  # relative error of an eps that may be anything
_POSITIONS = (
    "positions are added to rows, which no model here holds; what each of the first places adds is a part of "
    "the result, and, where a norm comes last, the block behind them too"
)
_BENT = 1e-10  # of what a neuron adds: how far one that is taken for straight may bend where few rows lead
_STRAIGHT = 1e-13  # the same where smooth neurons stand for a linear part: one that bends leaves more


def _parameters(size: Size) -> int:
    """How many parameters a layer has, as torch counts them."""
    d = size.width
    return 4 * d * d + 2 * size.neurons * d + 9 * d + size.neurons


def _queries(size: Size) -> int:
    """Six times the parameters, and what small layers pay at least."""
    return 6 * _parameters(size) + 6000


def _usual(size: Size) -> int:
    """Measured: 1.8 to 2.4 times the parameters at width 16, 1.5 to 1.9 at width 32, 2,700 in all at 8."""
    return int(1.5 * _parameters(size)) + 1600


@dataclass(frozen=True)
class _Found:
    """error: of all parameters; weights_error: of those but both eps."""

    model: EncoderBlock
    error: float
    weights_error: float


@dataclass(frozen=True)
class EncoderBlockLearner:
    """Recovers an encoder block: heads, residuals, a ReLU or smooth network, and norms before (LayerNorm or
    RMSNorm) or behind them (LayerNorm).

    Claim: exact in float64, number of heads, neurons, eps and activation unknown. Queries: 1 to 3 times the
    parameters of the layer. Assumes: see `claim`. Recovers: the canonical block, with a linear readout behind
    it where norms come first or are missing; behind a readout of few numbers, what it leaves visible. Fails
    when: answers carry errors, neurons are too many for the width, rows are bounded and norms are no
    LayerNorms, or, post-norm, the residual stream vanishes nowhere.

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
                Assumption(
                    "nine rows may be sent in a sequence, of any size or of norms that are not tiny",
                    "the asker's bounds",
                ),
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
        )

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        bound = asker.input_bound
        with asker.phase("order of norms"):
            check_asker(asker)
            asks = sequences_of(asker) if bound is None else within(sequences_of(asker), bound)
        try:
            with asker.phase("order of norms"):
                roles = row_roles(asks, asker.width, rng, bound=bound)
        except OrderMatters as stop:
            parts = self._behind_positions(asks, asker, rng)
            raise (Unresolved(_POSITIONS).with_parts(parts) if parts else stop) from None
        asks = roles.last_asks(asks)
        found = self._recovered(asks, asker, roles.asking, rng)
        if roles.skips_zeros:
            raise _padded(asks, found.model, found.error, rng)
        model = found.model.asked_by(roles.asking)
        by_eps = found.error > max(found.weights_error, EncoderBlock.exact_at)
        note = _note_on_eps(found.error, found.weights_error) if by_eps else ""
        return Learned(
            model, self.claim, error_bound=found.error, answers_bound=found.weights_error, note=note
        )

    def _behind_positions(
        self, asks: AsksSequences, asker: Asker, rng: np.random.Generator
    ) -> Mapping[str, Any]:
        """Positions and, where a norm comes last, the block behind them; empty where there are none."""
        longest = asker.max_length
        if asker.outputs != asker.width or asker.input_bound is not None:
            return {}
        if longest is not None and longest <= PLACES:
            return {}
        with asker.phase("positions"):
            try:
                positions = find_positions(asks, asker.width, rng)
            except Unresolved:
                return {}
            plain = positions.taken_off(asks)
            parts = positions_part(plain, positions, rng)
            if not parts or not norm_comes_last(asks, asker.width, rng):
                return parts
        try:
            found = self._recovered(plain, asker, AskingRow.LAST, rng)
        except (Unresolved, OutsideClass):
            return parts
        return {**parts, **block_part(plain, found.model, found.error, BEHIND_POSITIONS, rng)}

    def _recovered(
        self, asks: AsksSequences, asker: Asker, asking: AskingRow, rng: np.random.Generator
    ) -> _Found:
        """The block that answers these sequences, whose last row asks."""
        bound = asker.input_bound
        with asker.phase("order of norms"):
            _check_length(asker, asking)
            try:
                starts = _starts(asks, asker, asking, rng)
            except BehindNorm as stop:
                raise stop.with_parts(path_parts(asks, asker.width, rng)) from None
        reasons: list[str] = []
        parts: Mapping[str, Any] = {}
        for attempt in range(self.attempts):
            start = begun(asker, starts.again if attempt else starts.first, reasons)
            if isinstance(start, Stop):
                if start.parts:  # another start would find no more
                    raise start
                continue
            shape, begin = start
            with asker.phase("joint fit"):
                state, off = refine_block(asks, shape, begin, rng, bound=bound)
            straight = shape.activation.smooth and bool(state.always_on(shape).any())
            if off > (_STRAIGHT if straight else _FITS):
                reasons.append(
                    f"the joint fit leaves up to {10 ** np.ceil(np.log10(off)):.0e} of the answers"
                )
                continue
            if shape.activation.smooth and state.spare_neurons(shape):
                reasons.append("the joint fit holds neurons that are not needed")
                continue
            with asker.phase("error bound"):
                error, weights_error = parameter_error(asks, shape, state, rng, bound=bound)
            if straight:
                error, weights_error = max(error, _BENT), max(weights_error, _BENT)
            if off > _ROUNDED:  # something hardly shows, and the step that bounds errors may not see it
                error = max(error, _OPEN)
            if weights_error > _USEFUL:
                reasons.append("the joint fit leaves some parameters open")
                continue
            return _Found(state.model(shape).canonical(), error, weights_error)
        if isinstance(start, tuple) and start[0].norm_first and bound is None:
            with asker.phase("parts"):
                parts = one_row_parts(asks, start[0], with_one_head(start[1]), rng)
        raise Unresolved(
            f"a block was begun {self.attempts} times: {'; '.join(dict.fromkeys(reasons))}; the block may "
            "have another network, cross attention to a memory, as a decoder layer has, or rows and neurons "
            "of very different sizes"
        ).with_parts(parts)


def _note_on_eps(error: float, weights_error: float) -> str:
    """What is known of eps that usual rows hardly tell, and of everything else."""
    if error < 1.0:
        return f"the eps of norms are known to {error:.1g}"
    return (
        "the eps of norms are too small for answers to determine them, and the error bound is theirs; all "
        f"other parameters are known to {weights_error:.1g}"
    )


def _padded(asks: AsksSequences, model: EncoderBlock, bound: float, rng: np.random.Generator) -> Unresolved:
    """The end of a block that leaves rows of zeros out: it is a part of the target."""
    part = block_part(asks, model, bound, "rows of zeros are not for it", rng)
    return Unresolved(
        "rows of zeros are left out, as padding is, which no model here does; the block that answers all "
        "other sequences is a part of the result"
    ).with_parts(part)


def begun(
    asker: Asker, find: Callable[[], tuple[BlockShape, BlockState]], reasons: list[str]
) -> tuple[BlockShape, BlockState] | Stop:
    """One start, or why there is none, which is noted: one that fails does not rule out the family."""
    try:
        with asker.phase("start"):
            return find()
    except (Unresolved, OutsideClass) as stop:
        failed: Stop = stop
    except np.linalg.LinAlgError as error:
        failed = Unresolved(f"a linear system of the start has no solution ({error})")
    reasons.append(failed.reason)
    return failed


def refuse_other_blocks(asker: Asker, rng: np.random.Generator) -> None:
    """Raises a stop where the learner's own first tests say that no block can be recovered. A few queries."""
    check_asker(asker)
    asks = sequences_of(asker)
    roles = row_roles(asks, asker.width, rng, bound=asker.input_bound)
    _check_length(asker, roles.asking)
    _starts(roles.last_asks(asks), asker, roles.asking, rng)


def _starts(asks: AsksSequences, asker: Asker, asking: AskingRow, rng: np.random.Generator) -> Starts:
    if asker.input_bound is not None:
        return bounded_start(asks, asker.width, asker.input_bound, rng, asking=asking)
    return start_of(asks, asker.width, rng, pooled=asking is AskingRow.MEAN)


def check_asker(asker: Asker) -> None:
    """Raises where the target's width or bounds leave no block to be recovered."""
    if asker.width < _LEAST_WIDTH:
        raise Unresolved(
            f"blocks are told apart from width {_LEAST_WIDTH} on, and this one has {asker.width}"
        )
    _check_length(asker, AskingRow.LAST)


def _check_length(asker: Asker, asking: AskingRow) -> None:
    mean = asking is AskingRow.MEAN
    needed = LONGEST_MEAN if mean else _LONGEST
    if asker.max_length is not None and asker.max_length < needed:
        raise Unresolved(
            f"a block{' behind a mean over rows' if mean else ''} needs sequences of {needed} rows, and the "
            f"target takes {asker.max_length}"
        )
