"""All scores of all heads at once: n rows per query, solved for every head's weights, over asking rows that
all heads share."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from unsoftmax.arrays import Array
from unsoftmax.learners.several_heads.attempt import Restart
from unsoftmax.learners.vector_answers.plateau_rows import Separation
from unsoftmax.learners.vector_answers.row_answers import VectorResponses

__all__ = ["ScoreBook", "Unmixing", "measure_scores"]

_ROUNDING = 1e2  # roundings of an answer that two scores of usual rows may differ by; about ten were seen
_TARGET = 1.0  # largest score aimed at
_LARGEST = 4.0  # score of a pair that is read: the odds lose two digits beyond
_TRIES = 40  # changes of a size, before a row is given up
_SPARE_COLUMNS = 3  # columns that must add nothing before a rank is believed
_FILLED = 0.75  # rows a query, as a part of what the smallest head can tell apart


class Unmixing:
    """Takes responses apart: V_hᵀ = T_h G_h, so that T's pseudo-inverse gives every head its own small system
    for its weights."""

    def __init__(self, separation: Separation, V: Array) -> None:
        self.separation = separation
        self.values = separation.values(V)
        self._unmix = separation.unmix()
        self._solved: dict[
            int, tuple[Array, list[Array]]
        ] = {}  # by identity of the rows, which are kept alive here

    def _inverses(self, rows: Array) -> list[Array]:
        """For every head, what takes its part of a response to the weights of these rows."""
        if id(rows) not in self._solved:
            self._solved[id(rows)] = (
                rows,
                [np.asarray(np.linalg.pinv(G @ rows.T), dtype=np.float64) for G in self.values],
            )
        return self._solved[id(rows)][1]

    @property
    def heads(self) -> int:
        return len(self.values)

    def scores(self, rows: Array, scales: Array, responses: Array) -> tuple[Array, NDArray[np.bool_]]:
        """(scores (H, n, Q), readable (Q,)) for rows (n, d) sent at `scales` (Q,): aᵀ(Wb + w0) of the rows as
        sent."""
        parts = self._unmix @ responses.T
        found = np.empty((self.heads, len(rows), len(responses)))
        good = np.ones(len(responses), dtype=bool)
        for h, (inverse, part) in enumerate(zip(self._inverses(rows), self.separation.slices, strict=True)):
            weights = inverse @ parts[part] / scales
            rest = 1.0 - weights.sum(axis=0)
            positive = (weights > 0).all(axis=0) & (rest > 0)
            with np.errstate(divide="ignore", invalid="ignore"):
                found[h] = np.log(weights) - np.log(rest)
                good &= positive & (np.abs(found[h]).max(axis=0) < _LARGEST)
        return found, good


@dataclass
class _Page:
    """The answers for one group of rows on some asking rows."""

    rows: Array
    columns: NDArray[np.intp]
    scales: Array
    responses: Array


@dataclass
class ScoreBook:
    """Everything that was asked about scores: a better unmixing reads it again without new queries."""

    asking: Array
    full: int = 0
    pages: list[_Page] = field(default_factory=list)

    def close_column(self) -> None:
        """One more asking row is measured in full."""
        self.full += 1

    def solve(self, unmixing: Unmixing, tolerance: float) -> tuple[list[Array], list[Array], list[int]]:
        """(W, w0, rank of [W w0]) of every head."""
        d = self.asking.shape[1]
        outer = [page for page in self.pages if page.columns[0] < self.full]
        inner = [page for page in self.pages if page.columns[0] >= self.full]
        everything, columns = _stack(outer[: _first_round(outer)], outer, unmixing, self.full)
        homogeneous = np.column_stack([self.asking, np.ones(len(self.asking))])
        matrices, biases, ranks = [], [], []
        for h in range(unmixing.heads):
            C = np.linalg.solve(everything, columns[h])
            rank = d
            if inner:
                span = _span(C, tolerance)
                rank = span.shape[1]
                rows = np.concatenate([page.rows for page in inner])
                seen = np.concatenate([_read(page, unmixing)[h] for page in inner])
                C = np.column_stack(
                    [span @ (span.T @ C), span @ np.linalg.lstsq(rows @ span, seen, rcond=None)[0]]
                )
            joint = np.linalg.solve(homogeneous, C.T).T
            matrices.append(joint[:, :d])
            biases.append(joint[:, d])
            ranks.append(rank)
        return matrices, biases, ranks


def measure_scores(
    respond: VectorResponses, unmixing: Unmixing, rng: np.random.Generator, tolerance: float
) -> ScoreBook:
    """Scores on d + 1 asking rows: on a whole basis of rows until no head shows a new direction, then only
    inside what they showed."""
    d = respond.width
    size, scale = _sizes(respond, unmixing, rng)
    bound = respond.asker.input_bound
    if bound is not None:
        size = min(size, bound / 3)
    longest = np.inf if bound is None else bound / 3
    scale = min(scale, longest)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0].T
    book = ScoreBook(np.vstack([size * basis[:1], np.zeros((1, d)), size * basis[1:]]))
    groups = _groups(unmixing, d, _most_rows(respond), rng)
    columns: list[Array] = []
    while book.full < d + 1:
        found = [
            _ask(respond, unmixing, book, rows, np.array([book.full]), scale)[:, :, 0] for rows in groups
        ]
        columns.append(np.concatenate(found, axis=1))
        book.close_column()
        largest = max(float(np.abs(column).max()) for column in columns[-4:])
        scale = min(_TARGET / largest, longest) if largest > 0 else scale
        if book.full > _SPARE_COLUMNS and _settled(np.array(columns), tolerance):
            break
    if book.full <= d:
        everything = np.concatenate(groups)
        spans = [
            _span(np.linalg.solve(everything, np.array([c[h] for c in columns]).T), tolerance)
            for h in range(unmixing.heads)
        ]
        rest = np.arange(book.full, d + 1)
        for rows in _inner_groups(unmixing, spans, groups, _most_rows(respond), rng):
            _ask(respond, unmixing, book, rows, rest, scale)
    return book


def _ask(
    respond: VectorResponses,
    unmixing: Unmixing,
    book: ScoreBook,
    rows: Array,
    columns: NDArray[np.intp],
    scale: float,
) -> Array:
    """aᵀ(Wb + w0) of all heads (H, n, Q), asked smaller until every score is moderate; the answers go into
    the book."""
    scales = np.full(len(columns), scale)
    responses = np.empty((len(columns), len(respond.c)))
    todo = np.arange(len(columns))
    for _ in range(_TRIES):
        responses[todo] = respond(scales[todo, None, None] * rows, book.asking[columns[todo]])
        good = unmixing.scores(rows, scales[todo], responses[todo])[1]
        todo = todo[~good]
        if len(todo) == 0:
            page = _Page(rows, columns, scales, responses)
            book.pages.append(page)
            return _read(page, unmixing)
        scales[todo] /= 4
    raise Restart("the heads' weights cannot be solved for, however small the rows")


def _read(page: _Page, unmixing: Unmixing) -> Array:
    return unmixing.scores(page.rows, page.scales, page.responses)[0] / page.scales


def _stack(groups: list[_Page], pages: list[_Page], unmixing: Unmixing, full: int) -> tuple[Array, Array]:
    """All rows of a basis, and the scores (H, d, full) on them."""
    rows = np.concatenate([page.rows for page in groups])
    found = np.empty((unmixing.heads, len(rows), full))
    per_column = len(groups)
    for j in range(full):
        found[:, :, j] = np.concatenate(
            [_read(page, unmixing)[:, :, 0] for page in pages[j * per_column : (j + 1) * per_column]], axis=1
        )
    return rows, found


def _first_round(pages: list[_Page]) -> int:
    return sum(1 for page in pages if page.columns[0] == pages[0].columns[0])


def _sizes(respond: VectorResponses, unmixing: Unmixing, rng: np.random.Generator) -> tuple[float, float]:
    """Size of the asking rows at which the query biases do not hide W, and a first size of the rows a."""
    d = respond.width
    a, b = (x / np.linalg.norm(x) for x in rng.standard_normal((2, d)))
    bound = respond.asker.input_bound
    unit = 1.0 if bound is None else min(1.0, bound / 3)
    look = ScoreBook(np.vstack([np.zeros(d), unit * b]))
    bias = float(np.abs(_ask(respond, unmixing, look, a[None], np.array([0]), unit)).max())
    with_b = _ask(respond, unmixing, look, a[None], np.array([1]), unit)[:, 0, 0]
    weight = float(np.abs(with_b - _read(look.pages[0], unmixing)[:, 0, 0]).max()) / unit
    if weight <= _ROUNDING * respond.rounding * max(1.0, bias):  # no W, as far as rows of this size show
        return 1.0, 0.25 * _TARGET / max(bias, 1e-30)
    sizes = 2.0 ** np.arange(-20.0, 21.0, 0.5) / np.sqrt(weight)
    both = bias + sizes * weight  # scores of unit rows; rows are sent at 1 / both
    rounding = (1.0 + sizes * both) * both / (sizes * weight)
    good = np.flatnonzero(rounding <= 1.2 * rounding.min())
    size = float(sizes[good[-1]])
    return size, 0.25 * _TARGET / max(bias + size * weight, 1e-30)


def _settled(columns: Array, tolerance: float) -> bool:
    """Whether in every head the last spare columns added nothing. columns: (k, H, d)."""
    for h in range(columns.shape[1]):
        sizes = np.linalg.svd(columns[:, h], compute_uv=False)
        if sizes[0] > 0 and int((sizes > tolerance * sizes[0]).sum()) > len(columns) - _SPARE_COLUMNS:
            return False
    return True


def _span(columns: Array, tolerance: float) -> Array:
    left, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(left[:, : int((sizes > tolerance * sizes[0]).sum())] if sizes[0] > 0 else left[:, :0])


def _most_rows(respond: VectorResponses) -> int:
    """Rows that fit into a sequence beside the asking one."""
    longest = respond.asker.max_length
    return respond.width if longest is None else max(1, longest - 1)


def _groups(unmixing: Unmixing, d: int, most: int, rng: np.random.Generator) -> list[Array]:
    """A basis of rows in groups of at most so many that every head can tell apart; for one head from the
    singular vectors of its readout."""
    smallest = min(len(G) for G in unmixing.values)
    if unmixing.heads == 1:
        seen, unseen = _seen_and_unseen(unmixing.values[0])
        n = min(smallest, most)
        groups = [seen[:, start : start + n].T for start in range(0, seen.shape[1], n)]
        for start in range(0, unseen.shape[1], n):
            part = unseen[:, start : start + n]
            groups.append((seen[:, : part.shape[1]] + part).T)
        return groups
    n = min(max(1, int(_FILLED * smallest)), most)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0].T
    return [basis[start : start + n] for start in range(0, d, n)]


def _inner_groups(
    unmixing: Unmixing, spans: list[Array], groups: list[Array], most_rows: int, rng: np.random.Generator
) -> list[Array]:
    """Rows that show every head's span, in groups that every head can tell apart."""
    most = max(span.shape[1] for span in spans)
    if most == 0:
        return []
    if unmixing.heads == 1:
        seen, unseen = _seen_and_unseen(unmixing.values[0])
        n = min(seen.shape[1], most_rows)
        span = spans[0]
        parts = [span[:, start : start + n] for start in range(0, most, n)]
        return [part.T if unseen.shape[1] == 0 else (part + seen[:, : part.shape[1]]).T for part in parts]
    n = len(groups[0])
    wanted = int(np.ceil(1.25 * most))
    rows = np.linalg.qr(rng.standard_normal((len(spans[0]), min(len(spans[0]), n * -(-wanted // n)))))[0].T
    return [rows[start : start + n] for start in range(0, len(rows), n)]


def _seen_and_unseen(G: Array) -> tuple[Array, Array]:
    """Orthonormal directions that the readout sees, and those it does not."""
    right = np.linalg.svd(G)[2]
    return right[: len(G)].T, right[len(G) :].T
