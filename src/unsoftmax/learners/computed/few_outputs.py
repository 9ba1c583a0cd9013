"""Heads whose vector answers have too few numbers to show every head's weight: one number read from every
answer gives the scores, as for scalar answers, and the same answers, whole, give the values.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.learners.computed.scalar_route import fit_heads
from unsoftmax.learners.computed.two_row_queries import Asks, Counted, Expect, TwoRowQueries, read_baseline
from unsoftmax.learners.computed.vector_route import FittedVectors, settled
from unsoftmax.models.base import softmax
from unsoftmax.solvers.head_fits.head_factors import HeadFactors, with_one
from unsoftmax.solvers.head_fits.sequence_fit import SequenceBlock, SequenceFit
from unsoftmax.solvers.head_fits.vector_heads import VectorHeads

__all__ = ["fit_few_outputs"]


class _OneNumber(Counted):
    """An asker of one number of every answer, which keeps the answers whole."""

    def __init__(self, asker: Asks, readout: Array) -> None:
        super().__init__(asker)
        self._readout = readout
        self.kept: list[tuple[Array, Array]] = []

    def ask(self, batch: Array, /) -> Array:
        answers = super().ask(batch)
        self.kept.append((np.array(batch), answers))
        return np.asarray(answers @ self._readout)

    def blocks(self) -> list[SequenceBlock]:
        """All that was asked: a block for every length of sequences and every size of rows, by powers of
        two."""
        by_kind: dict[tuple[int, int], list[tuple[Array, Array]]] = {}
        for batch, answers in self.kept:
            sizes = np.linalg.norm(batch, axis=2).max(axis=1)
            powers = np.frexp(sizes)[1]
            for power in np.unique(powers):
                of_size = powers == power
                kind = (batch.shape[1], int(power))
                by_kind.setdefault(kind, []).append((batch[of_size], answers[of_size]))
        return [
            SequenceBlock.of(
                np.concatenate([rows for rows, _ in parts]),
                np.concatenate([answers for _, answers in parts]),
                f"{length} rows below 2^{power}",
            )
            for (length, power), parts in by_kind.items()
        ]


def fit_few_outputs(
    asker: Asks, bits: int, rng: np.random.Generator, expect: Expect | None = None
) -> FittedVectors:
    """bits: significant bits of the layer's numbers. Queries: those of scalar answers, and d + 1 + d/8."""
    d, limit = asker.width, asker.input_bound or np.inf
    queries = TwoRowQueries(asker, bits)
    baseline = read_baseline(queries, rng, min(float(np.sqrt(d)), limit), spare=1 + max(4, d // 8))
    readout = rng.standard_normal(len(baseline.c)) / np.sqrt(len(baseline.c))
    one_number = _OneNumber(asker, readout)
    scores = fit_heads(one_number, bits, rng, expect).heads
    blocks = [SequenceBlock.of(baseline.rows[:, None], baseline.answers, "single rows"), *one_number.blocks()]
    values, c = _values(scores, blocks)
    heads = VectorHeads.of(
        list(scores.matrices), list(values), c, scores.ranks, [min(value.shape) for value in values]
    )
    return settled(SequenceFit.of(blocks), heads, baseline, bits)


def _values(heads: HeadFactors, blocks: list[SequenceBlock]) -> tuple[Array, Array]:
    """V of every head and c: with the weights known, answers are linear in them."""
    H, d, m = heads.heads, heads.width, blocks[0].answers.shape[1]
    normal, right = np.zeros((H * d + 1, H * d + 1)), np.zeros((H * d + 1, m))
    for design, answers in _designs(heads, blocks):
        normal += design.T @ design
        right += design.T @ answers
    found = np.linalg.solve(normal, right)
    return np.asarray(found[:-1].reshape(H, d, m)), np.asarray(found[-1])


def _designs(heads: HeadFactors, blocks: list[SequenceBlock]) -> Iterator[tuple[Array, Array]]:
    """The rows that every head mixes, weighted as the answers are, and the answers."""
    matrices = heads.matrices
    for block in blocks:
        for part in block.chunks():
            rows, weights = part.rows.astype(np.float64), part.weights[:, None].astype(np.float64)
            pulled = np.einsum("hde,be->bhd", matrices, with_one(rows[:, -1]))
            alpha = softmax(pulled @ rows.transpose(0, 2, 1))
            mixed = (alpha @ rows).reshape(len(rows), -1)
            yield with_one(mixed) * weights, part.answers * weights
