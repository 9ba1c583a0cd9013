"""Rows [a + b; b] that short arithmetic takes in without rounding them, and what a single row tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from unsoftmax.arrays import Array, longest_rows
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.head_fits.sequence_fit import SequenceBlock
from unsoftmax.solvers.head_fits.two_row_fit import AnswerBlock

__all__ = [
    "Asks",
    "Baseline",
    "Counted",
    "Expect",
    "TwoRowQueries",
    "ask_sequences",
    "random_basis",
    "random_sequences",
    "read_baseline",
    "sizes_of",
    "unit",
]

# units of the format that single rows may be off by: layers of width 8 to 384 were off by 1 to 16
_MOST_NOISE = 500.0
# right fits of readouts that cancel leave 1.0 to 1.6 of the rounding of each head, and one that stopped early
# left 17: four of it count as much as the twelve of a single row that are believed elsewhere
_OF_EACH = 1.0 / 3.0
_COARSE = 1e-4  # noise: float16 layers have 1e-3, bfloat16 ones 4e-3, float32 ones below 1e-6


Expect = Callable[[int], None]  # told how many queries are still to come, for progress


class Asks(Protocol):
    """What these learners need of a ledger or an asker."""

    @property
    def width(self) -> int: ...

    @property
    def input_bound(self) -> float | None: ...

    @property
    def max_length(self) -> int | None: ...

    def ask(self, batch: Array, /) -> Array: ...

    def batch_size(self, length: int, /) -> int: ...


class Counted:
    """An asker that counts what passes through it, for learners that keep to a price."""

    def __init__(self, asker: Asks, expect: Expect | None = None) -> None:
        self._asker, self._expect = asker, expect
        self.asked = 0

    def expect(self, more: float) -> None:
        """So many queries are still to come."""
        if self._expect is not None:
            self._expect(int(more))

    @property
    def width(self) -> int:
        return self._asker.width

    @property
    def input_bound(self) -> float | None:
        return self._asker.input_bound

    @property
    def max_length(self) -> int | None:
        return self._asker.max_length

    def ask(self, batch: Array, /) -> Array:
        self.asked += len(batch)
        return self._asker.ask(batch)

    def batch_size(self, length: int, /) -> int:
        return self._asker.batch_size(length)


def unit(rows: Array) -> Array:
    """Rows of length one."""
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def sizes_of(levels: Array) -> Array:
    """The size of every number, or of every vector."""
    return np.abs(levels) if levels.ndim == 1 else np.asarray(np.linalg.norm(levels, axis=1))


def random_basis(rng: np.random.Generator, size: int) -> Array:
    """A random orthonormal basis, as rows."""
    return np.asarray(np.linalg.qr(rng.standard_normal((size, size)))[0])


@dataclass(frozen=True)
class TwoRowQueries:
    """Asks pairs of rows. bits: significant bits of the layer's numbers; rows are rounded to them before they
    are sent.
    """

    asker: Asks
    bits: int

    @property
    def width(self) -> int:
        return self.asker.width

    def rounded(self, rows: Array) -> Array:
        """Rows as a number format with this many bits holds them.

        >>> TwoRowQueries.rounded(TwoRowQueries(None, 3), np.array([1.1, 9.0]))
        array([1., 8.])
        """
        mantissa, exponent = np.frexp(rows)
        return np.asarray(np.ldexp(np.round(mantissa * 2.0**self.bits), exponent - self.bits))

    def on_one_grid(self, A: Array, B: Array, top: float = 0.0) -> tuple[Array, Array]:
        """A and B rounded to multiples of one number, so that every sum a + b is held without rounding."""
        largest = max(top, float(np.abs(A).max(initial=0.0) + np.abs(B).max(initial=0.0)), 1e-300)
        step = 2.0 ** (np.ceil(np.log2(largest)) - self.bits + 1)
        return np.asarray(np.round(A / step) * step), np.asarray(np.round(B / step) * step)

    def ask(self, first: Array, last: Array) -> Array:
        """Answers to [first_i; last_i], in batches the asker likes."""
        size = max(1, self.asker.batch_size(2))
        parts = [
            self.asker.ask(np.stack([first[i : i + size], last[i : i + size]], axis=1))
            for i in range(0, len(first), size)
        ]
        return np.concatenate(parts)

    def grid(self, A: Array, B: Array, group: str) -> AnswerBlock:
        """Every a with every b; both must lie on one grid already."""
        sums = (A[:, None] + B[None]).reshape(-1, self.width)
        return AnswerBlock.of(A, B, self.ask(sums, np.tile(B, (len(A), 1))), group)

    def pairs(self, A: Array, B: Array, group: str) -> AnswerBlock:
        """a_i with b_i; the rows are rounded here, and the block holds what was sent."""
        last = self.rounded(B)
        first = self.rounded(A + last)
        return AnswerBlock.of(first - last, last, self.ask(first, last), group, grid=False)


@dataclass(frozen=True)
class Baseline:
    """What one row tells: c, Σ_h v_h, and the rounding of an answer relative to its size.

    Vector answers: c (m,) and v_sum (d, m). rows and answers: what was asked.
    """

    v_sum: Array
    c: Array
    noise: float
    rows: Array
    answers: Array

    @property
    def block(self) -> AnswerBlock:
        """The single rows as part of a fit of scalar answers."""
        return AnswerBlock.of(np.zeros((1, self.rows.shape[1])), self.rows, self.answers[None], "single rows")

    def excess(self, A: Array, B: Array, answers: Array) -> Array:
        """y − c − b·Σv on a grid: Σ_h σ_h (a·v_h)."""
        return np.asarray(answers - self.c - (B @ self.v_sum)[None])

    @property
    def coarse(self) -> bool:
        """Arithmetic with about eight bits: ranks cannot be read off measured matrices."""
        return self.noise > _COARSE

    @property
    def unit_rounding(self) -> float:
        """Rounding of the answer to a row of length one in a usual direction."""
        return self.noise * float(np.linalg.norm(self.v_sum) / np.sqrt(len(self.v_sum)))

    def rounding_of(self, values: Array, bits: int) -> float:
        """The same for heads with these readouts or values. Where they cancel in a single row their rounding
        may cancel, too, and several rows show more of it.
        """
        each = float(np.linalg.norm(values) / np.sqrt(len(self.v_sum)))
        return max(self.unit_rounding, _OF_EACH * 2.0**-bits * each)

    def cancelled(self, values: Array, bits: int) -> bool:
        """Whether heads with these readouts or values nearly cancel in a single row."""
        return self.rounding_of(values, bits) > self.unit_rounding

    @property
    def largest(self) -> float:
        """The largest entry of the readouts, or row of their matrix."""
        return float(sizes_of(self.v_sum).max())


def ask_sequences(queries: TwoRowQueries, batch: Array, group: str) -> SequenceBlock:
    """Vector answers to sequences, in batches the asker likes."""
    step = max(1, queries.asker.batch_size(batch.shape[1]))
    answers = [queries.asker.ask(batch[i : i + step]) for i in range(0, len(batch), step)]
    return SequenceBlock.of(batch, np.concatenate(answers), group)


def random_sequences(
    queries: TwoRowQueries,
    size: float,
    shape: tuple[int, int],
    rng: np.random.Generator,
    limit: float,
    group: str,
) -> SequenceBlock:
    """shape: (sequences, rows beside the asking one), of Gaussian rows of this size, none longer than
    limit.
    """
    batch = size * rng.standard_normal((shape[0], shape[1] + 1, queries.width))
    longest = float(longest_rows(batch).max(initial=0.0))
    batch = batch * min(1.0, 0.99 * limit / longest) if longest > 0 else batch
    return ask_sequences(queries, queries.rounded(batch), group)


def read_baseline(
    queries: TwoRowQueries, rng: np.random.Generator, radius: float, spare: int | None = None
) -> Baseline:
    """Two random orthonormal bases as single rows, or `spare` rows of the second. noise: twice the residual
    of the affine fit over the size of the answers.

    The rows are not opposite ones: a layer without biases rounds ±x alike, and would show no residual. Fails
    (Unresolved) when the readouts sum to less than their rounding, so that single rows show no signal.
    """
    d = queries.width
    rows = queries.rounded(radius * np.concatenate([random_basis(rng, d), -random_basis(rng, d)[:spare]]))
    answers = queries.asker.ask(rows[:, None])
    design = np.column_stack([rows, np.full(len(rows), radius)])
    found = np.linalg.lstsq(design, answers, rcond=None)[0]
    left = answers - design @ found
    size = float(np.sqrt(np.mean(answers**2)))
    if size == 0.0:
        raise Unresolved(
            "single rows all get the answer 0, so the layer's rounding cannot be measured on them"
        )
    outputs = answers.size / len(answers)
    freedom = max(len(rows) - d - 1, 1)
    noise = max(2.0 * float(np.sqrt((left**2).sum() / outputs / freedom)) / size, 2.0**-queries.bits)
    if noise > _MOST_NOISE * 2.0**-queries.bits:
        raise Unresolved(
            f"single rows are answered to {noise:.1g} of their size only: the readouts of the heads cancel, "
            "as opposite ones do, and their sum is mostly rounding"
        )
    return Baseline(np.asarray(found[:-1]), np.asarray(found[-1] * radius), noise, rows, answers)
