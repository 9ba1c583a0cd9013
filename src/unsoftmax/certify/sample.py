"""Which sequences does a certificate ask? Every length class at every size, rows alike and unlike, and the
user's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.models import Model
from unsoftmax.oracles.domain import FiniteRows, TokenIds

__all__ = ["LONGEST", "OwnSequences", "Sample", "draw_sample", "length_class", "sizes_for"]

LONGEST = 128  # rows of a sequence, where the target sets no limit of its own
_QUERIES = 176  # with the checks of a learner and its error bound at most 256
# sequences of 1, 2 and 3 rows; of 4 to 16 rows, each; of the lengths from 17 to 64; of the one beyond
_COUNTS = {1: 18, 2: 30, 3: 30}
# Sequences of every length in that range; more where there are more sizes than sequences in a class: with an
# input bound up to eight.
_EACH_TO_16, _EACH_TO_64, _BEYOND_64 = 6, 3, 6
_WIDE = 256  # columns from which drawing normal numbers takes longer than asking
# Rows drawn at once. At d = 1536 all rows of a sample are 26 MB, and fresh memory for them took longer (30 to
# 57 ms) than all that is computed with them.
_BYTES_AT_ONCE = 2 << 20
_SHORTEST_ROW = 1 / 8  # of the smallest size
_OWN_SHARE = 4  # one sequence in four is the user's, where there are any
_COMPANIONS_AT = (1, 2, 3, 4, 6, 9, 12)  # lengths at which some sequences are made from others
_NEVER_SPLIT = max(_COMPANIONS_AT)  # sequences of such a length are drawn together
_NEAR = 1e-6  # how far near copies are moved, against the size of the rows

_SHAPES: tuple[tuple[str, float], ...] = (
    ("independent rows", 0.40),
    ("rows with a common part", 0.20),  # half of them without a negative entry, as behind a ReLU
    ("collinear rows", 0.10),
    ("repeated rows", 0.12),
    ("rows of zeros", 0.08),
    ("unit rows", 0.10),
)
_MOVED, _PERMUTED = "rows moved by a millionth", "the same rows in another order"
_ENDS, _AGAIN = "ends of another sequence", "the user's own, drawn again"
_COPIES = frozenset({_MOVED, _PERMUTED, _ENDS, _AGAIN})
_INDEX = {name: place for place, (name, _) in enumerate(_SHAPES)}
_DISTRIBUTION = (
    "every length class at every size; half of the sequences have rows within a factor of two of the size, "
    "in the others the norms are log-uniform from an eighth of the smallest size to the size; two in five "
    "have independent rows, the others rows with a common part (half of these without a negative entry), "
    "collinear, repeated, zero or unit rows; a few are another's rows in another order or moved by a "
    "millionth, or share its last row or both ends"
)


@dataclass(frozen=True)
class OwnSequences:
    """Sequences (n, N, d) of the user's, asked as they are, or rows (n, d), of which sequences of every
    length are drawn."""

    rows: Array


@dataclass(frozen=True)
class Sample:
    """Batches of sequences, one a length and a few of one sequence.

    batches: to be gone through once; rows are drawn when their turn comes, so few are in memory at a time.
    lengths: the numbers of rows that occur. lengths_of, shapes_of: the names of every sequence's class of
    lengths and of its shape. sizes: the longest row of a sequence, by class. sizes_of: that of every sequence
    that is not the user's. distribution: how the sequences were drawn, in words.
    """

    batches: Iterable[Array]
    lengths: tuple[int, ...]
    lengths_of: tuple[str, ...]
    shapes_of: tuple[str, ...]
    sizes: tuple[float, ...]
    distribution: str
    sizes_of: tuple[float, ...] = ()

    @property
    def independent(self) -> int:
        """How many sequences are no copies of others, in another order, a millionth away or with their
        ends."""
        return sum(shape not in _COPIES for shape in self.shapes_of)


def sizes_for(model: Model, bound: float | None) -> tuple[float, ...]:
    """Norms of rows: plain unit ones, those at which the model's scores are weak, moderate and saturated, and
    the longest allowed."""
    strength = model.score_strength()
    natural = 1.0 / np.sqrt(strength) if strength > 0 else 1.0
    sizes = {1.0, np.sqrt(model.width), 0.3 * natural, natural, 2.0 * natural, 6.0 * natural}
    if bound is not None:
        sizes = {min(size, bound) for size in (*sizes, bound / 4, bound)}
    return tuple(sorted(float(size) for size in sizes))


def draw_sample(
    model: Model,
    domain: object,
    rng: np.random.Generator,
    *,
    max_length: int | None = None,
    own: OwnSequences | None = None,
) -> Sample:
    """Fresh sequences for this model, at most 185 of them.

    A box that differs on a share p of this distribution is met with probability at least 1 - (1 - p)^n, n the
    independent ones: the classes are strata, drawn from in the proportions in which they are stated.
    """
    limit = min(max_length or LONGEST, LONGEST)
    if isinstance(domain, TokenIds):
        return _of_ids(domain.vocabulary, _lengths(limit, rng), rng)
    if isinstance(domain, FiniteRows):
        return _of_rows(domain.rows, _lengths(limit, rng), rng)
    sizes = sizes_for(model, getattr(domain, "bound", None))
    parts = _lengths(limit, rng) if limit > 1 else {1: model.certified_rows}
    if own is None:
        return _in_space(parts, sizes, model.width, rng)
    fewer = {length: max(1, count * (_OWN_SHARE - 1) // _OWN_SHARE) for length, count in parts.items()}
    drawn = _in_space(fewer, sizes, model.width, rng)
    theirs = _own_batches(own.rows, _QUERIES // _OWN_SHARE, limit, rng)
    shapes = _own_shapes(theirs, "the user's own sequences" if own.rows.ndim == 3 else "rows of the user's")
    n = len(shapes)
    return replace(
        drawn,
        batches=chain(drawn.batches, theirs),
        lengths=tuple(sorted({*drawn.lengths, *(int(batch.shape[1]) for batch in theirs)})),
        lengths_of=drawn.lengths_of + tuple(length_class(len(x)) for batch in theirs for x in batch),
        shapes_of=drawn.shapes_of + shapes,
        distribution=f"{n} are the user's own; of the others, {drawn.distribution}",
    )


def _lengths(limit: int, rng: np.random.Generator) -> dict[int, int]:
    """How many sequences of each length: 1 to 17, 33 and 64 rows, and one length from each of the two ranges
    beyond. Where the target takes fewer rows, there are more of the other lengths."""
    counts = dict(_COUNTS)
    counts |= dict.fromkeys(range(4, 17), _EACH_TO_16)
    between, beyond = int(rng.integers(18, 64)), int(rng.integers(65, LONGEST + 1))
    counts |= dict.fromkeys((17, 33, 64, between), _EACH_TO_64)
    counts[beyond] = _BEYOND_64
    kept = {length: count for length, count in sorted(counts.items()) if length <= limit}
    times = max(1, _QUERIES // sum(kept.values()))
    return {length: times * count for length, count in kept.items()}


def _in_space(
    counts: dict[int, int], sizes: tuple[float, ...], width: int, rng: np.random.Generator
) -> Sample:
    """Length and size by strata, shapes at random."""
    counts = _enough(counts, len(sizes))
    alone = [length for length in (2, 2, 5) if length in counts]  # one sequence a call
    lengths = np.concatenate([np.repeat(list(counts), list(counts.values())), alone]).astype(np.int64)
    n = len(lengths)
    size = np.array(sizes)[_strata(lengths, len(sizes), rng)]
    shape = rng.choice(len(_SHAPES), n, p=[share for _, share in _SHAPES])
    shapes = [_SHAPES[each][0] for each in shape]
    for i, kind in _companions(lengths).items():
        shapes[i] = kind
    for length, members in _families(lengths):
        size[members[1 : 3 if length > 2 else 2]] = size[members[0]]  # copies are as long as what they copy
    shapes[n - len(alone) :] = ["one sequence a call"] * len(alone)
    ends = np.cumsum([*counts.values(), *(1 for _ in alone)])
    plan = _Plan(lengths, size, shape, sizes[0], width)
    return Sample(
        plan.batches(ends, rng),
        tuple(sorted(counts)),
        tuple(length_class(int(each)) for each in lengths),
        tuple(shapes),
        sizes,
        _DISTRIBUTION,
        tuple(size.tolist()),
    )


def _enough(counts: dict[int, int], n_sizes: int) -> dict[int, int]:
    """In every class of lengths as many sequences as there are sizes, at least."""
    enough = dict(counts)
    for name in dict.fromkeys(map(length_class, counts)):
        members = [length for length in counts if length_class(length) == name]
        missing = n_sizes - sum(counts[length] for length in members)
        for turn in range(missing):
            enough[members[turn % len(members)]] += 1
    return enough


@dataclass(frozen=True)
class _Plan:
    """The length, the size and the shape of every sequence, whose rows are yet to be drawn."""

    lengths: NDArray[np.int64]
    size: Array
    shape: NDArray[np.int64]
    smallest: float
    width: int

    def batches(self, ends: NDArray[np.int64], rng: np.random.Generator) -> Iterator[Array]:
        """Batches that end before these sequences; long ones come in parts."""
        for start, stop in self._groups(ends):
            rows = self._rows(slice(start, stop), rng)
            place = 0
            for end in [*(int(end) for end in ends if start < end < stop), stop]:
                length = int(self.lengths[start])
                taken = (end - start) * length
                yield rows[place : place + taken].reshape(end - start, length, self.width)
                start, place = end, place + taken

    def _groups(self, ends: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
        """Sequences from `start` to `stop` whose rows are drawn at once."""
        rows = np.concatenate([[0], np.cumsum(self.lengths)])
        splits = {int(end) for end in ends} | {int(i) for i in np.flatnonzero(self.lengths > _NEVER_SPLIT)}
        start = stop = 0
        for end in sorted(splits | {len(self.lengths)}):
            if stop > start and 8 * self.width * (rows[end] - rows[start]) > _BYTES_AT_ONCE:
                yield start, stop
                start = stop
            stop = end
        yield start, stop

    def _rows(self, which: slice, rng: np.random.Generator) -> Array:
        """All rows of these sequences, one sequence after the other."""
        lengths, size, shape = self.lengths[which], self.size[which], self.shape[which]
        first = np.concatenate([[0], np.cumsum(lengths)])
        owner = np.repeat(np.arange(len(lengths)), lengths)
        rows = _directions(shape, first, self.width, rng)
        drawn_lengths = np.sqrt(np.einsum("rd,rd->r", rows, rows))
        rows *= (_norms(size, self.smallest, shape, owner, rng) / drawn_lengths)[:, None]
        _copy_within(rows, np.flatnonzero(shape == _INDEX["repeated rows"]), first, rng)
        _make_companions(rows, lengths, first, size, rng)
        return rows


def _strata(lengths: NDArray[np.int64], n_sizes: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """A size class for every sequence, as even as can be within each class of lengths."""
    classes = np.searchsorted([1, 2, 3, 16, 64], lengths)
    chosen = np.empty(len(lengths), dtype=np.int64)
    for each in np.unique(classes):
        members = np.flatnonzero(classes == each)
        turns = (np.arange(len(members)) + int(rng.integers(n_sizes))) % n_sizes
        chosen[members] = turns
    return chosen


def _directions(
    shape: NDArray[np.int64], first: NDArray[np.int64], width: int, rng: np.random.Generator
) -> Array:
    """Rows of any length, none of them zero; those of sequence i are first[i] to first[i + 1]."""
    rows = _random_entries((int(first[-1]), width), rng)
    kinds = [_INDEX[name] for name in ("rows with a common part", "collinear rows", "unit rows")]
    starts = first.tolist()
    for i, kind in enumerate(shape.tolist()):
        if kind not in kinds:
            continue
        block = rows[starts[i] : starts[i + 1]]
        heads = rng.integers(0, 2, len(block))
        if kind == kinds[0]:
            common = rng.uniform(0.5, 5.0) * _random_entries((1, width), rng)
            block += common
            if common[0, 0] > 0.0:  # in half of them, and no further draw
                np.abs(block, out=block)
        elif kind == kinds[1]:
            np.multiply((2.0 * heads - 1.0)[:, None], _random_entries((1, width), rng), out=block)
        else:
            block[:] = 0.0
            block[np.arange(len(block)), rng.integers(0, width, len(block))] = 2.0 * heads - 1.0
    return rows


def _random_entries(shape: tuple[int, int], rng: np.random.Generator) -> Array:
    """Rows in random directions: normal entries, and in wide rows uniform ones of 16 bits, which cost a tenth
    and are never zero. Their products with any vector of many entries are as good as normal, too."""
    if shape[1] <= _WIDE:
        return rng.standard_normal(shape)
    entries = shape[0] * shape[1]
    words = rng.integers(0, 2**64, -(-entries // 4), dtype=np.uint64)
    return np.add(words.view(np.int16)[:entries].reshape(shape), 0.5)


def _norms(
    size: Array, smallest: float, shape: NDArray[np.int64], owner: NDArray[np.int64], rng: np.random.Generator
) -> Array:
    """Norms of rows, within a factor of two or log-uniform, by sequence; a third of the rows of some are
    zero."""
    uneven = rng.random(len(size)) < 0.5
    low = np.where(uneven, smallest * _SHORTEST_ROW / size, 0.5)
    draw = rng.random(len(owner))
    part = low[owner]
    norms = size[owner] * np.where(uneven[owner], part ** (1.0 - draw), part + (1.0 - part) * draw)
    gone = (shape == _INDEX["rows of zeros"])[owner] & (rng.random(len(owner)) < 1 / 3)
    norms[gone] = 0.0
    return np.asarray(norms)


def _copy_within(
    rows: Array, sequences: NDArray[np.int64], first: NDArray[np.int64], rng: np.random.Generator
) -> None:
    """About half of the rows of these sequences become copies of others of the same sequence."""
    for i in sequences:
        block = rows[first[i] : first[i + 1]]
        source = rng.integers(0, max(1, len(block) // 2), len(block))
        block[:] = block[np.where(rng.random(len(block)) < 0.7, source, np.arange(len(block)))]


def _companions(lengths: NDArray[np.int64]) -> dict[int, str]:
    """Which sequences are made from others, and how: moved by a millionth, in another order (the last row
    stays), with the first and the last row, or with the last row only."""
    changed: dict[int, str] = {}
    for length, members in _families(lengths):
        changed[int(members[1])] = _MOVED
        if length > 2:
            changed[int(members[2])] = _PERMUTED
        if length > 1:
            changed[int(members[3])] = changed[int(members[4])] = _ENDS
    return changed


def _families(lengths: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Six sequences of the same length each: the first one, of which the others are made, and the last, left
    as it is."""
    for length in _COMPANIONS_AT:
        members = np.flatnonzero(lengths == length)[:6]
        if len(members) == 6:
            yield length, members


def _make_companions(
    rows: Array, lengths: NDArray[np.int64], first: NDArray[np.int64], size: Array, rng: np.random.Generator
) -> None:
    for length, members in _families(lengths):
        original, near, permuted, begun, ended, _ = (rows[first[i] : first[i + 1]] for i in members)
        longest = size[members[0]]
        near[:] = original + _NEAR * longest * rng.standard_normal(original.shape) / np.sqrt(rows.shape[1])
        near *= np.minimum(1.0, longest / np.linalg.norm(near, axis=1, keepdims=True))
        if length > 2:
            permuted[:] = original[np.append(rng.permutation(length - 1), length - 1)]
        if length > 1:
            begun[0], ended[-1] = original[0], original[-1]
        if length > 2:  # a target may remember sequences by both ends
            begun[-1] = original[-1]


def _own_batches(rows: Array, n: int, limit: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """Sequences of the user's as they are, or such made of their rows."""
    if rows.ndim == 3:
        return (rows[rng.permutation(len(rows))[:n], -limit:],)
    lengths = [length for length in (1, 2, 3, 8, 32) if length <= limit]
    each = n // len(lengths)
    return tuple(rows[rng.integers(0, len(rows), (each, length))] for length in lengths)


def _own_shapes(batches: tuple[Array, ...], name: str) -> tuple[str, ...]:
    """The name for sequences that occur for the first time; few rows give some of them again."""
    seen: set[tuple[int, bytes]] = set()
    shapes = []
    for batch in batches:
        for sequence in batch:
            key = (len(sequence), sequence.tobytes())
            shapes.append(_AGAIN if key in seen else name)
            seen.add(key)
    return tuple(shapes)


def _of_rows(table: Array, counts: dict[int, int], rng: np.random.Generator) -> Sample:
    """Sequences whose rows come from a list."""
    norms = np.linalg.norm(table, axis=1)
    drawn = _of_ids(len(table), counts, rng)
    return replace(
        drawn,
        batches=tuple(table[places] for places in drawn.batches),
        sizes=tuple(sorted({float(norms.min()), float(norms.max())})),
    )


def _of_ids(vocabulary: int, counts: dict[int, int], rng: np.random.Generator) -> Sample:
    """Sequences of tokens, or of places in a list of rows."""
    batches = tuple(_places(vocabulary, count, length, rng) for length, count in counts.items())
    names = tuple(length_class(length) for length, count in counts.items() for _ in range(count))
    return Sample(
        batches,  # type: ignore[arg-type]
        tuple(sorted(counts)),
        names,
        names,
        (),
        "tokens uniformly from the vocabulary; in a third of the sequences at most three different ones",
    )


def _places(n_rows: int, count: int, length: int, rng: np.random.Generator) -> NDArray[np.int64]:
    places = rng.integers(0, n_rows, (count, length))
    few = rng.integers(0, n_rows, (count, 3))
    some = np.take_along_axis(few, rng.integers(0, 3, (count, length)), axis=1)
    return np.where((rng.random(count) < 1 / 3)[:, None], some, places)


def length_class(length: int) -> str:
    """The class of lengths to which sequences of so many rows belong, in words."""
    if length <= 3:
        return ("one row", "two rows", "three rows")[length - 1]
    return "4 to 16 rows" if length <= 16 else "17 to 64 rows" if length <= 64 else "more than 64 rows"
