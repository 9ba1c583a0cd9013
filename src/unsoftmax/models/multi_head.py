"""Several heads that add up: f(X) = c + Σ_h Σ_i α_i^h (x_i·v_h), α^h = softmax_i(x_iᵀ(W_h x_N + w0_h)). A
skip connection adds x_N·o. x_N is the last row, or the first where that one asks."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from unsoftmax.arrays import EPS, Array
from unsoftmax.errors import UsageError
from unsoftmax.models.asking_row import AskingRow
from unsoftmax.models.base import WithConstant, as_batch, check_finite, softmax
from unsoftmax.models.head_sums import constant_distance, matched_heads, numbered_heads
from unsoftmax.models.matrices import Factors, difference_norm
from unsoftmax.models.single_head import SingleHead

__all__ = ["MultiHead", "same_scores"]

_SAME = 64 * EPS  # scores that differ by less are equal up to rounding
_FIRST_ROW = "first_row"  # an empty tensor of a file whose heads are asked by the first row
_CHUNK = 1 << 21  # numbers held at a time while a large batch is answered


class MultiHead(WithConstant):
    """A sum of heads and a constant. The heads' own constants belong to the sum: `c` is all of it.

    heads: `SingleHead`s of one width, all with v (d,), or all with v (d, m) for vector answers. c: a number,
    or (m,). skip: what the asking row adds by itself, of the shape of v; None where it adds nothing. asking:
    the row that asks, the last one unless `asked_by` told another.

    >>> head = SingleHead(np.eye(2), np.ones(2))
    >>> both = MultiHead([head, head])
    >>> both(np.ones((1, 3, 2))), len(both.canonical().heads)
    (array([4.]), 1)
    """

    family: ClassVar[str] = "multi-head"

    def __init__(self, heads: Sequence[SingleHead], c: object = 0.0, skip: object = None) -> None:
        self.heads: tuple[SingleHead, ...] = tuple(heads)
        if not self.heads:
            raise UsageError("a multi-head model needs at least one head; a constant is one head with v = 0")
        if strange := [head for head in self.heads if not isinstance(head, SingleHead)]:
            raise UsageError(f"heads must be SingleHead models, not {type(strange[0]).__name__}")
        shapes = {head.v.shape for head in self.heads}
        if len(shapes) > 1:
            raise UsageError(
                f"all heads need one shape of v, not {' and '.join(str(shape) for shape in sorted(shapes))}"
            )
        constant = np.array(c, dtype=np.float64)
        if constant.shape not in ((), self.heads[0].v.shape[1:]):
            raise UsageError(
                f"c must be a number or of shape {self.heads[0].v.shape[1:]}, not {constant.shape}"
            )
        beside = None if skip is None else np.array(skip, dtype=np.float64)
        if beside is not None and beside.shape != self.heads[0].v.shape:
            raise UsageError(f"skip must have the shape of v, {self.heads[0].v.shape}, not {beside.shape}")
        check_finite(c=constant, skip=beside)
        self.skip: Array | None = beside if beside is not None and beside.any() else None
        self._c: Array = np.asarray(
            constant + sum(np.asarray(head.c) for head in self.heads), dtype=np.float64
        )
        self.asking = AskingRow.LAST

    def asked_by(self, row: AskingRow) -> Self:
        """The same heads, asked by the first row of a sequence, or by the last."""
        if row is AskingRow.MEAN:
            raise UsageError("heads are asked by the first row or the last, not by all of them")
        model = copy(self)
        model.asking = row
        return model

    @property
    def first_row(self) -> bool:
        """Whether the first row asks."""
        return self.asking is AskingRow.FIRST

    def _asking_last(self, batch: object) -> Array:
        """The sequences with the row that asks at their end."""
        X = as_batch(batch, self.width)
        return X[:, ::-1] if self.first_row else X

    @property
    def width(self) -> int:
        return self.heads[0].width

    @property
    def outputs(self) -> int | None:
        return self.heads[0].outputs

    @property
    def ranks(self) -> list[int]:
        return [head.rank for head in self.heads]

    @property
    def v(self) -> Array:
        """Σ_h v_h: all that one row can show."""
        return np.asarray(sum(head.v for head in self.heads))

    @cached_property
    def parameters(self) -> int:
        """Degrees of freedom: a rank-r matrix [W w0] a head (W alone without a bias), v or a rank-s V a head,
        the constant and the skip connection."""
        count = int(np.count_nonzero(self._c)) + (0 if self.skip is None else self.skip.size)
        for head in self.heads:
            d = head.width
            biased = head.w0 is not None and bool(head.w0.any())
            r = _rank(np.column_stack([head.W, head.w0])) if biased and head.w0 is not None else head.rank
            count += r * (2 * d + biased - r)
            s = _rank(head.v) if head.v.ndim == 2 else 1
            count += s * (d + head.v.shape[1] - s) if head.v.ndim == 2 else d
        return count

    @cached_property
    def _joined(self) -> tuple[Array, Array, list[int]] | None:
        """Keys and queries of all heads side by side, when all are held as factors."""
        if not all(isinstance(head.matrix, Factors) and head.matrix.left.shape[1] > 0 for head in self.heads):
            return None
        matrices = [head.matrix for head in self.heads if isinstance(head.matrix, Factors)]
        widths = [m.left.shape[1] for m in matrices]
        return (
            np.hstack([m.left for m in matrices]),
            np.hstack([m.right for m in matrices]),
            [0, *np.cumsum(widths)[:-1].tolist()],
        )

    @cached_property
    def _readouts(self) -> tuple[Array, Array]:
        """Query biases (d, H) and values (d, H·m)."""
        d = self.width
        biases = np.column_stack([np.zeros(d) if head.w0 is None else head.w0 for head in self.heads])
        return biases, np.hstack([head.v.reshape(d, -1) for head in self.heads])

    def scores(self, batch: Array) -> Array:
        """Scores of every head, shape (B, N, H)."""
        scores = self._scores(self._asking_last(batch))
        return scores[:, ::-1] if self.first_row else scores

    def _scores(self, X: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            asking = X[:, -1]
            if self._joined is not None:
                keys, queries, starts = self._joined
                products = (X.reshape(-1, self.width) @ keys).reshape(*X.shape[:2], -1) * (asking @ queries)[
                    :, None
                ]
                scores = np.add.reduceat(products, starts, axis=2)
            else:
                scores = np.stack(
                    [np.einsum("bnd,bd->bn", X, head.matrix.apply(asking)) for head in self.heads], axis=2
                )
            biases = self._readouts[0]
            return scores + X @ biases if biases.any() else scores

    def __call__(self, batch: Array, /) -> Array:
        X = self._asking_last(batch)
        outputs = () if self.outputs is None else (self.outputs,)
        answers = np.empty((len(X), *outputs))
        widest = max(self.width, sum(self.ranks_held), self._readouts[1].shape[1])
        step = max(1, _CHUNK // (X.shape[1] * widest))
        for start in range(0, len(X), step):
            part = X[start : start + step]
            weights = softmax(np.moveaxis(self._scores(part), 2, 1))  # (B, H, N)
            if self.outputs is None:
                values = (part.reshape(-1, self.width) @ self._readouts[1]).reshape(*part.shape[:2], -1)
                answers[start : start + step] = np.einsum("bhn,bnh->b", weights, values)
            else:
                mixed = (weights @ part).reshape(len(part), -1)  # (B, H·d)
                answers[start : start + step] = mixed @ np.vstack([head.v for head in self.heads])
        return np.asarray(answers + self._c + (0.0 if self.skip is None else X[:, -1] @ self.skip))

    @property
    def ranks_held(self) -> list[int]:
        """Columns of the factors a head is held in (d when dense)."""
        return [
            head.matrix.left.shape[1] if isinstance(head.matrix, Factors) else head.width
            for head in self.heads
        ]

    def sensitivity(self, batch: Array) -> Array:
        X = self._asking_last(batch)
        beside = 0.0 if self.skip is None else np.linalg.norm(X[:, -1], axis=1) * np.linalg.norm(self.skip)
        return np.asarray(sum(head.sensitivity(X) for head in self.heads) + beside)

    @cached_property
    def _without_constants(self) -> list[SingleHead]:
        return [SingleHead(head.matrix, head.v, head.w0) for head in self.heads]

    def score_strength(self) -> float:
        return float(np.median([head.score_strength() for head in self.heads]))

    def canonical(self) -> Self:
        """Heads with equal scores merge, heads with v = 0 vanish, and the head with the longest v comes
        first; the constant and the skip connection stand alone.

        >>> W = np.diag([1.0, 2.0])
        >>> zero = SingleHead(np.eye(2), np.zeros(2))
        >>> merged = MultiHead([SingleHead(W, [1.0, 0.0]), zero, SingleHead(W, [0.0, 1.0])]).canonical()
        >>> len(merged.heads), merged.heads[0].v
        (1, array([1., 1.]))
        """
        groups: list[list[SingleHead]] = []
        for head in self._without_constants:
            for group in groups:
                if same_scores(group[0], head):
                    group.append(head)
                    break
            else:
                groups.append([head])
        merged = []
        for group in groups:
            v = np.asarray(sum(head.v for head in group))
            if np.linalg.norm(v) > _SAME * sum(float(np.linalg.norm(head.v)) for head in group):
                merged.append(SingleHead(group[0].matrix, v, group[0].w0).canonical())
        if not merged:
            d = self.width
            merged = [SingleHead(np.zeros((d, d)), np.zeros_like(self.heads[0].v))]
        merged.sort(key=_order)
        return type(self)(merged, self._c, self.skip).asked_by(self.asking)

    def distance(self, other: Self) -> float:
        """Largest relative difference over heads matched best, at least 1 when their numbers differ;
        canonical forms are compared.

        >>> first, second = SingleHead(np.eye(2), np.ones(2)), SingleHead(-np.eye(2), np.ones(2))
        >>> MultiHead([first, second]).distance(MultiHead([second, first]))
        0.0
        """
        self._same_family(other)
        if self.asking is not other.asking:
            return 1.0
        mine, theirs = self.canonical(), other.canonical()
        costs = np.array([[a.distance(b) for b in theirs.heads] for a in mine.heads])
        values = [head.v for head in mine.heads]
        constant = constant_distance(mine._c, theirs._c, values)
        ours, other_skip = (np.zeros(1) if each.skip is None else each.skip for each in (mine, theirs))
        return max(matched_heads(costs), constant, constant_distance(ours, other_skip, values))

    def tensors(self) -> dict[str, Array]:
        parts: dict[str, Array] = {"c": self._c} | ({} if self.skip is None else {"skip": self.skip})
        if self.first_row:
            parts[_FIRST_ROW] = np.zeros(0)
        for index, head in enumerate(self._without_constants):
            parts |= {f"heads.{index}.{name}": part for name, part in head.tensors().items() if name != "c"}
        return parts

    @classmethod
    def from_tensors(cls, tensors: dict[str, Array]) -> Self:
        numbered = {name: part for name, part in tensors.items() if name not in ("skip", _FIRST_ROW)}
        heads = numbered_heads(numbered, "multi-head")
        constant = tensors.get("c", 0.0)
        model = cls([SingleHead.from_tensors(head) for head in heads], constant, tensors.get("skip"))
        return model.asked_by(AskingRow.FIRST) if _FIRST_ROW in tensors else model

    def __repr__(self) -> str:
        beside = ("" if self.skip is None else ", skip") + (", first row asks" if self.first_row else "")
        return f"MultiHead(width={self.width}, heads={len(self.heads)}, ranks {self.ranks}{beside})"


def same_scores(first: SingleHead, second: SingleHead) -> bool:
    """Whether two heads have the same W and w0 up to rounding."""
    sizes = first.matrix.norm(), second.matrix.norm()
    size = max(sizes)
    if abs(sizes[0] - sizes[1]) > 2 * _SAME * size:  # cheaper than their difference
        return False
    biases = [np.zeros(head.width) if head.w0 is None else head.w0 for head in (first, second)]
    bias_size = max(float(np.linalg.norm(bias)) for bias in biases)
    return (
        difference_norm(first.matrix, second.matrix) <= _SAME * size
        and float(np.linalg.norm(biases[0] - biases[1])) <= _SAME * bias_size
    )


def _order(head: SingleHead) -> tuple[float, float]:
    """The longest v first; those of equal length by the size of their scores."""
    return (-float(f"{np.linalg.norm(head.v):.9e}"), -head.matrix.norm())


def _rank(array: Array) -> int:
    values = np.linalg.svd(array, compute_uv=False)
    return int((values > values.max(initial=0.0) * max(array.shape) * EPS).sum())
