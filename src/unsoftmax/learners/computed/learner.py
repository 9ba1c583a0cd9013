"""The learner of heads whose layer computes in a short format, for scalar and for vector answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unsoftmax.answers import Answers, Computed
from unsoftmax.families import Family
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.base import Known, Learned
from unsoftmax.learners.claims import Assumption, Claim, QueryCount, Size
from unsoftmax.learners.computed.attempts import ATTEMPTS
from unsoftmax.learners.computed.prices import (
    FRESH_QUERIES,
    first_pairs,
    pairs_for_all,
    price_of_start,
    price_of_vectors,
)
from unsoftmax.learners.row_tests import QUERIES_OF_HEAD_TESTS, refuse_other_sequences
from unsoftmax.learners.skip import QUERIES_WITHOUT_SKIP
from unsoftmax.ledger import Asker
from unsoftmax.models import Model, MultiHead, SingleHead

__all__ = ["ComputedHeadsLearner", "rounding_of"]

# queries beyond a multiple of the parameters: the search for plateaus, which small layers notice
_SEARCH = 1500
# length of rows over √d up to which float16 layers are compared: scores 64 times those of tokens are still
# far below 65504
_SAFE_ROWS = 8.0
_ROUNDINGS = 16.0  # of the format, in one answer, where they were not measured


def _parameters(size: Size) -> int:
    """Degrees of freedom of all heads: [W w0], the readout or V, the constant."""
    d, m = size.width, size.outputs
    ranks = size.ranks or (d,)
    scores = sum(r * (2 * d + 1 - r) for r in ranks)
    if m is None:
        return scores + len(ranks) * d + 1
    return scores + sum(s * (d + m - s) for s in _value_ranks(size, m)) + m


def _value_ranks(size: Size, outputs: int) -> tuple[int, ...]:
    """Those of a usual layer, where none are given."""
    heads = len(size.ranks or (size.width,))
    return size.value_ranks or (max(1, min(size.width // heads, outputs)),) * heads


def _usual(size: Size) -> int:
    """What the routes keep to where no attempt is repeated: see `scalar_route` and `vector_route`."""
    tests = QUERIES_WITHOUT_SKIP + QUERIES_OF_HEAD_TESTS
    p, d, beside = _parameters(size), size.width, tests + FRESH_QUERIES
    if size.outputs is not None:
        unknowns = p + sum(r * r for r in (*(size.ranks or (d,)), *_value_ranks(size, size.outputs)))
        return int(price_of_vectors(unknowns) * p / size.outputs) + QUERIES_WITHOUT_SKIP
    start, heads = price_of_start(d, size.ranks or (d,)), max(1, size.heads)
    return int(start + p * pairs_for_all(heads, start / p) + first_pairs(heads, size.rank, p)) + beside


def _most(size: Size) -> int:
    """More heads than half the width make the start dearer: their readouts leave few rows that show one."""
    if size.outputs is None:
        return int((6.0 + 6.0 * max(1, size.heads) / size.width) * _parameters(size)) + _SEARCH
    return int(16.0 * _parameters(size) / size.outputs) + _SEARCH


def _identification(size: Size) -> int:
    """Numbers are first asked whether they are rounded, stored short or noisy; vectors only how they are
    computed."""
    return 102 if size.outputs is None else 61


def _verification(size: Size) -> int:
    """Measured; sharper sequences for every head."""
    return 189 + 48 * max(1, size.heads)


_CLAIM = Claim(
    title="Heads behind arithmetic that rounds at every step",
    source="this library; no published work recovers attention through float32 arithmetic",
    assumptions=(
        Assumption("every step inside rounds", "second differences of single rows against their last digits"),
        Assumption(
            "every head is one softmax over the rows", "fresh sequences of 2, 5 and 17 rows; certificate"
        ),
        Assumption(
            "rows may be long enough to saturate the scores", "levels that stay when rows grow fourfold"
        ),
        Assumption("the heads' readouts are independent", "the part of each outside the span of the others"),
    ),
    queries=QueryCount(
        "4.5 p, or 7.5 p/m for vector answers (14 p/m in wide layers), p the parameters",
        "upper",
        _most,
        _usual,
        attempts=ATTEMPTS,
    ),
    recovers="W, v and w0 of every head, and c, up to the layer's own rounding; the bound is a 99 % one",
    symmetry="order of heads",
    verification=_verification,
    identification=_identification,
)


@dataclass(frozen=True)
class ComputedHeadsLearner:
    """Recovers one or several heads of a layer that computes in float32, bfloat16 or float16.

    Claim: the deviation from the layer's float64 copy is about that of the layer itself. Queries: 3.5 to 5
    times the parameters, 7.7 times those over the outputs for vector answers. Assumes: see `claim`. Recovers:
    all heads up to their order, with a 99 % bound. Fails when: readouts are equal, opposite or dependent, or
    rows may not be long; it says so (Unresolved).
    """

    family: ClassVar[Family] = Family.MULTI_HEAD
    claim: ClassVar[Claim] = _CLAIM
    format: FloatFormat = FloatFormat.FLOAT32

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        from unsoftmax.learners.computed.several_heads import recover_heads
        from unsoftmax.learners.computed.vector_heads import recover_vector_heads

        bits = self.format.mantissa_bits + 1
        recover = recover_heads if asker.outputs is None else recover_vector_heads
        with asker.phase("class tests"):
            refuse_other_sequences(asker, rounding_of(known.answers, self.format), rng.spawn(1)[0])
        with asker.phase("heads"):
            found = recover(asker, bits, rng, expect=lambda more: asker.expect(asker.bill.total + more))
        return Learned(
            _plain(found.model),
            _CLAIM,
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
