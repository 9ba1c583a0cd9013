"""The learner of whole encoder blocks that compute in float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np

from unsoftmax.answers.probabilities import probabilities
from unsoftmax.families import Family
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.encoder_block.asking import AsksSequences
from unsoftmax.learners.encoder_block.learner import begun, check_asker
from unsoftmax.learners.encoder_block.row_roles import RowRoles, row_roles
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.ledger import Asker
from unsoftmax.models import AskingRow
from unsoftmax.outcomes import Stop, Unresolved

__all__ = ["ComputedBlockLearner", "refuse_other_blocks"]

_ATTEMPTS = 2  # a cap: the second attempt meets other rows
_SAME = 1e-5  # of the answers: rounding
_FAR = 1e3  # size of rows that a residual connection passes on
_LARGE, _ODD = 1e4, 1e-2  # size of rows, and of answers to them: constants before a norm leave 1e-4
_GROWS = 30.0  # answers to rows a hundred times larger: behind a last norm they stay as they are

Start: TypeAlias = Callable[[], tuple[BlockShape, BlockState]]


def _queries(size: Size) -> int:
    """Most queries go into circles that find kinks: 16 points per kink, and as many circles as it takes."""
    d, J = size.width, size.neurons
    return 48 * max(512, 32 * J) + 8 * J * d + 12 * (4 * d * d + 2 * J * d) + 6000


_CLAIM = Claim(
    title="A whole encoder block behind arithmetic that rounds at every step",
    source="this library; no published work recovers a block through float32 arithmetic",
    assumptions=(
        Assumption("every step inside rounds", "second differences of rows nearby against their last digits"),
        Assumption("rows of any size may be sent, nine in a sequence", "the asker's bounds"),
        Assumption(
            "the block is one of the family",
            "residual of the joint fit, and of fresh sequences, over the rounding",
        ),
    ),
    queries=QueryCount("7,000 to 16,000 at width 16 and 32 neurons", "upper", _queries, attempts=_ATTEMPTS),
    recovers="norms, all heads, the network and its activation, up to the block's own rounding; a 99 % bound",
    symmetry="order of heads and neurons; gains and biases that the next map absorbs",
    rows=17,
)


@dataclass(frozen=True)
class ComputedBlockLearner:
    """Recovers an encoder block that computes in float32: heads, residuals, norms first or last, and a ReLU
    or smooth network.

    Claim: the deviation from the block's float64 copy is about that of the block itself. Queries: see
    `claim`. Recovers: the canonical block with a 99 % bound; the eps of a second norm is known less well than
    the rest, and the note says how well. Fails when: rows are bounded, or ReLU neurons have no kink on the
    sphere; it says so (Unresolved).
    """

    family: ClassVar[Family] = Family.ENCODER_BLOCK
    claim: ClassVar[Claim] = _CLAIM
    format: FloatFormat = FloatFormat.FLOAT32

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        from unsoftmax.learners.computed_block.asking import stored_sequences
        from unsoftmax.learners.computed_block.joint import fit_block

        asks = stored_sequences(asker, self.format)
        with asker.phase("order of norms"):
            _check_block(asker, self.format)
            roles = _roles(asks, asker.width, self.format, rng)
            asks = roles.last_asks(asks)
            begin = _start_of(asks, asker.width, self.format, rng)
        reasons: list[str] = []
        for _ in range(_ATTEMPTS):
            start = begun(asker, begin, reasons)
            if isinstance(start, Stop):
                continue
            shape, state = start
            with asker.phase("joint fit"):
                found = fit_block(asks, shape, state, self.format, rng)
            if found.why_not is None:
                return Learned(
                    found.model.asked_by(roles.asking),
                    _CLAIM,
                    error_bound=found.bound,
                    answers_bound=found.weights_bound,
                    note=f"computed in {self.format}: answers to rows of size one are off by "
                    f"{found.rounding:.1g}, weights and gains are known to {found.weights_bound:.1g}, the "
                    f"eps of norms to {found.bound:.1g}, with 99 % confidence",
                )
            reasons.append(found.why_not)
        raise Unresolved(
            f"the block computes in {self.format}, and was begun {_ATTEMPTS} times: "
            f"{'; '.join(dict.fromkeys(reasons))}. Float64 arithmetic would help (torch: module.double())"
        )


def refuse_other_blocks(asker: Asker, held: FloatFormat, rng: np.random.Generator) -> None:
    """Raises a stop where the learner's own first tests say that no block can be recovered. A few queries."""
    from unsoftmax.learners.computed_block.asking import stored_sequences

    _check_block(asker, held)
    asks = stored_sequences(asker, held)
    _start_of(_roles(asks, asker.width, held, rng).last_asks(asks), asker.width, held, rng)


def _check_block(asker: Asker, held: FloatFormat) -> None:
    """Raises where format, width or bounds leave no block to be recovered."""
    if held is not FloatFormat.FLOAT32:
        raise Unresolved(
            f"a block that computes in {held} is not recovered; ask the same block in float32 or float64 "
            "(torch: module.double())"
        )
    check_asker(asker)
    if asker.input_bound is not None:
        raise Unresolved(
            f"the block computes in {held}, and rows are bounded (input_bound); such blocks are recovered in "
            "float64 only (torch: module.double())"
        )
    if asker.outputs != asker.width:
        raise Unresolved(
            f"the block computes in {held}, answers hold {asker.outputs or 1} numbers where rows have "
            f"{asker.width}; such blocks are recovered in float64 only (torch: module.double())"
        )


def _norm_last(asks: AsksSequences, width: int, rng: np.random.Generator) -> bool:
    """Whether answers stay as they are when rows grow."""
    row = rng.standard_normal(width)
    near, far = asks(np.stack([0.01 * _FAR * row, _FAR * row])[:, None])
    return not float(np.abs(far).max()) > _GROWS * float(np.abs(near).max())


def _roles(asks: AsksSequences, width: int, held: FloatFormat, rng: np.random.Generator) -> RowRoles:
    """Raises Unresolved where all rows ask."""
    roles = row_roles(asks, width, rng, short=True)
    if roles.asking is AskingRow.MEAN:
        raise Unresolved(
            f"the block computes in {held}, and the mean over rows is answered; such blocks are recovered in "
            "float64 only (torch: module.double())"
        )
    return roles


def _start_of(asks: AsksSequences, width: int, held: FloatFormat, rng: np.random.Generator) -> Start:
    """How to begin where the last row asks: with a norm that comes last, or with norms that come first.
    Raises Unresolved where large rows are not passed on."""
    from unsoftmax.learners.computed_block.post_norm_start import find_post_norm_start
    from unsoftmax.learners.computed_block.pre_norm_start import find_pre_norm_start

    rows = rng.standard_normal((3, width))
    plain, moved = asks(np.stack([rows, rows + 0.75]))
    size = float(np.abs(plain).max())
    if _norm_last(asks, width, rng):
        if (stop := probabilities(plain)) is not None:
            raise stop
        large = _LARGE * rows[:2]
        sums = asks(np.concatenate([large, -large])[:, None]).reshape(2, 2, -1).sum(axis=0)
        if float(np.abs(sums[0] - sums[1]).max()) <= _ODD * size:
            raise Unresolved(
                "a norm follows the attention, or precedes it without a residual connection, and no network "
                "follows: opposite large rows have opposite answers; such a layer is not recovered whole"
            )
        return lambda: find_post_norm_start(asks, width, held, rng)
    row = rng.standard_normal(width)
    if float(np.abs(asks(_FAR * row[None, None])[0] / _FAR - row).max()) > 0.1 * float(np.abs(row).max()):
        raise Unresolved(
            "a large last row is not passed on by a residual connection: this is not a pre-norm block"
        )
    centred = float(np.abs(moved - plain - 0.75).max()) < _SAME * (1.0 + size)
    return lambda: find_pre_norm_start(asks, width, centred, held, rng)
