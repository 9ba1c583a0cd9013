"""The learner of heads whose layer computes in a short format, for scalar and for vector answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.answers import Answers, Computed
from unsoftmax.families import Family
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Claim
from unsoftmax.learners.computed.attempts import is_coarse
from unsoftmax.learners.computed.counts import CLAIM, COARSE_CLAIM
from unsoftmax.learners.row_tests import refuse_other_sequences
from unsoftmax.ledger import Asker
from unsoftmax.models import Model, MultiHead, SingleHead

__all__ = ["ComputedHeadsLearner", "rounding_of"]

# length of rows over √d up to which float16 layers are compared: scores 64 times those of tokens are still
# far below 65504
_SAFE_ROWS = 8.0
_ROUNDINGS = 16.0  # of the format, in one answer, where they were not measured


@dataclass(frozen=True)
class ComputedHeadsLearner:
    """Recovers one or several heads of a layer that computes in float32, bfloat16 or float16.

    Claim: the deviation from the layer's float64 copy is about that of the layer itself. Queries: see
    `claim`, by format. Assumes: see `claim`. Recovers:
    all heads up to their order, with a 99 % bound. Fails when: readouts are equal, opposite or dependent, or
    rows may not be long; it says so (Unresolved).
    """

    family: ClassVar[Family] = Family.MULTI_HEAD
    format: FloatFormat = FloatFormat.FLOAT32

    @property
    def claim(self) -> Claim:
        """What is promised: bfloat16 and float16 take more queries, and more attempts."""
        return COARSE_CLAIM if is_coarse(self._bits) else CLAIM

    @property
    def _bits(self) -> int:
        return self.format.mantissa_bits + 1

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        from unsoftmax.learners.computed.several_heads import recover_heads
        from unsoftmax.learners.computed.vector_heads import recover_vector_heads

        recover = recover_heads if asker.outputs is None else recover_vector_heads
        with asker.phase("class tests"):
            refuse_other_sequences(asker, rounding_of(known.answers, self.format), rng.spawn(1)[0])
        with asker.phase("heads"):
            found = recover(asker, self._bits, rng, expect=lambda more: asker.expect(asker.bill.total + more))
        return Learned(
            _plain(found.model),
            self.claim,
            error_bound=found.errors.overall,
            constant_bound=found.errors.constant,
            within=_SAFE_ROWS * float(np.sqrt(asker.width)) if self.format is FloatFormat.FLOAT16 else None,
            note=f"computed in {self.format}: answers are off by {found.noise:.1g} relative, and the "
            "error bound holds with 99 % confidence",
        )


def rounding_of(answers: Answers | None, held: FloatFormat) -> float:
    """How far one answer may be off, relative to its size."""
    return answers.rounding if isinstance(answers, Computed) else _ROUNDINGS * held.unit


def _plain(model: MultiHead) -> Model:
    """One head as a head."""
    if len(model.heads) > 1:
        return model.canonical()
    head = model.heads[0]
    return SingleHead(head.matrix, head.v, head.w0, c=model.c)
