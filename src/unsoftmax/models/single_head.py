"""One attention head: f(X) = c + Σ_i α_i (x_i·v), α = softmax_i(x_iᵀ(W x_N + w0))."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from unsoftmax.arrays import EPS, Array, all_finite, longest_rows
from unsoftmax.errors import ModelFileError, UsageError
from unsoftmax.models.base import WithConstant, as_batch, check_finite, relative, softmax
from unsoftmax.models.matrices import (
    MATRIX_TENSORS,
    Factors,
    Matrix,
    as_matrix,
    difference_norm,
    matrix_of_tensors,
    tensors_of_matrix,
)

__all__ = ["SingleHead"]


class SingleHead(WithConstant):
    """A single attention head whose last row asks; v may be (d,) for one number a query, or (d, m) for
    vectors.

    W: (d, d), or factors (left, right) with W = left @ right.T. w0: (d,) query bias. c: constant. A key bias
    cancels in the softmax, so there is none. clip: (lowest, highest) answer, when answers stop there.

    >>> head = SingleHead([[1.0, 0.0], [0.0, 1.0]], [1.0, 2.0])
    >>> head(np.zeros((1, 3, 2)) + 1.0)
    array([3.])
    >>> head.parameters
    6
    """

    family: ClassVar[str] = "single-head"

    def __init__(
        self,
        W: object,
        v: object,
        w0: object = None,
        c: object = 0.0,
        *,
        clip: tuple[float, float] | None = None,
    ) -> None:
        self.matrix: Matrix = as_matrix(W)
        self.v: Array = np.array(v, dtype=np.float64)
        self.w0: Array | None = None if w0 is None else np.array(w0, dtype=np.float64)
        self._c: Array = np.array(c, dtype=np.float64)
        self.clip: tuple[float, float] | None = None if clip is None else (float(clip[0]), float(clip[1]))
        d = self.matrix.width
        if d < 1:
            raise UsageError("W is empty; a head has width at least 1")
        if self.v.ndim not in (1, 2) or self.v.shape[0] != d:
            raise UsageError(f"v must be ({d},) or ({d}, m) to fit W, not {self.v.shape}")
        if self.w0 is not None and self.w0.shape != (d,):
            raise UsageError(f"w0 must be ({d},) to fit W, not {self.w0.shape}")
        if self.clip is not None and not self.clip[0] < self.clip[1]:
            raise UsageError(f"clip must be (lowest, highest), not {self.clip}")
        if self._c.shape not in ((), self.v.shape[1:]):
            raise UsageError(f"c must be a number or of shape {self.v.shape[1:]}, not {self._c.shape}")
        check_finite(v=self.v, w0=self.w0, c=self._c)

    @classmethod
    def from_projections(
        cls,
        W_Q: Array,
        W_K: Array,
        W_V: Array,
        output: Array,
        *,
        b_Q: Array | None = None,
        b_K: Array | None = None,
        b_V: Array | None = None,
        b_out: float = 0.0,
        scale: float | None = None,
    ) -> Self:
        """The head of queries x W_Q + b_Q, keys x W_K + b_K, values x W_V + b_V, read out by `output`.

        Scores are key·query·scale, with 1/sqrt(r) as the default scale. `b_K` is accepted and has no effect.

        >>> eye = np.eye(2)
        >>> SingleHead.from_projections(eye, eye, eye, np.array([1.0, 0.0]), scale=1.0).v
        array([1., 0.])
        """
        query, key, value = (np.asarray(p, dtype=np.float64) for p in (W_Q, W_K, W_V))
        readout = np.asarray(output, dtype=np.float64)
        if query.ndim != 2 or query.shape != key.shape:
            raise UsageError(f"W_Q and W_K must both be (d, r), not {query.shape} and {key.shape}")
        if value.ndim != 2 or value.shape[0] != query.shape[0] or readout.shape[:1] != value.shape[1:]:
            raise UsageError(
                f"W_V (d, s) and output (s,) do not fit: {value.shape} and {readout.shape}, d = "
                f"{query.shape[0]}"
            )
        if b_K is not None and np.shape(b_K) != (key.shape[1],):
            raise UsageError(f"b_K must be ({key.shape[1]},), not {np.shape(b_K)}")
        d, r = query.shape
        factor = 1.0 / np.sqrt(r) if scale is None else float(scale)
        W = (factor * key, query) if r < d else factor * key @ query.T
        w0 = None if b_Q is None else factor * key @ np.asarray(b_Q, dtype=np.float64)
        c = b_out + (0.0 if b_V is None else np.asarray(b_V, dtype=np.float64) @ readout)
        return cls(W, value @ readout, w0, c)

    @property
    def W(self) -> Array:
        """The dense (d, d) array."""
        return self.matrix.dense()

    @property
    def width(self) -> int:
        return self.matrix.width

    @property
    def outputs(self) -> int | None:
        return None if self.v.ndim == 1 else self.v.shape[1]

    @cached_property
    def rank(self) -> int:
        """Numerical rank of W."""
        values = self.matrix.svd()[1]
        return int((values > values.max(initial=0.0) * self.width * EPS).sum())

    @property
    def ranks(self) -> list[int]:
        return [self.rank]

    @property
    def score_parameters(self) -> int:
        """Degrees of freedom of W and w0."""
        r, d = self.rank, self.width
        return r * (2 * d - r) + (0 if self.w0 is None or not self.w0.any() else d)

    @property
    def parameters(self) -> int:
        return self.score_parameters + self.v.size + int(np.count_nonzero(self._c))

    @cached_property
    def _per_token(self) -> Array:
        """Everything that is linear in a single row, as one matrix: one pass over the tokens."""
        keys = self.matrix.left if isinstance(self.matrix, Factors) else np.empty((self.width, 0))
        bias = np.zeros(self.width) if self.w0 is None else self.w0
        return np.column_stack([keys, bias, self.v])

    def scores(self, batch: Array) -> Array:
        """Scores x_iᵀ(W x_N + w0), shape (B, N)."""
        return self._scores_and_values(as_batch(batch, self.width))[0]

    def __call__(self, batch: Array, /) -> Array:
        scores, values = self._scores_and_values(as_batch(batch, self.width))
        weights = softmax(scores)
        answers = self._c + (
            np.einsum("bn,bn->b", weights, values[..., 0])
            if self.v.ndim == 1
            else np.einsum("bn,bnm->bm", weights, values)
        )
        return np.asarray(answers if self.clip is None else np.clip(answers, *self.clip))

    def _scores_and_values(self, X: Array) -> tuple[Array, Array]:
        with np.errstate(over="ignore", invalid="ignore"):
            tokens = X.reshape(-1, self.width) @ self._per_token
            tokens = tokens.reshape(*X.shape[:2], tokens.shape[1])
            asking = X[:, -1]
            if isinstance(self.matrix, Factors):
                r = self.matrix.left.shape[1]
                scores = np.einsum("bnr,br->bn", tokens[..., :r], asking @ self.matrix.right)
            else:
                r = 0
                scores = np.einsum("bnd,bd->bn", X, self.matrix.apply(asking))
            if self.w0 is not None:
                scores = scores + tokens[..., r]
            if not all_finite(scores):
                scores = self._wide_scores(X)
        return scores, tokens[..., r + 1 :]

    def _wide_scores(self, X: Array) -> Array:
        """Scores beyond the range of float64, relative to each sequence's largest, by arithmetic with a wider
        exponent."""
        tokens = X.astype(np.longdouble)
        against = np.einsum("de,be->bd", self.W.astype(np.longdouble), tokens[:, -1])
        if self.w0 is not None:
            against = against + self.w0
        scores = np.einsum("bnd,bd->bn", tokens, against)
        return np.asarray(np.maximum(scores - scores.max(axis=1, keepdims=True), -1e4), dtype=np.float64)

    def sensitivity(self, batch: Array) -> Array:
        X = as_batch(batch, self.width)
        longest = longest_rows(X)
        against = self.matrix.apply(X[:, -1]) + (0.0 if self.w0 is None else self.w0)
        scored = np.sqrt(np.einsum("bd,bd->b", against, against))
        return np.asarray(longest * self._size * (1.0 + longest * scored))

    @cached_property
    def _size(self) -> float:
        return float(np.linalg.norm(self.v))

    def score_strength(self) -> float:
        """Where a query bias alone makes the scores: that of a W with which rows of its usual size score as
        much."""
        size = self.matrix.norm()
        if size == 0.0 and self.w0 is not None:
            return float(self.w0 @ self.w0) / self.width
        return size / self.width

    @property
    def scores_anything(self) -> bool:
        """Whether any row gets another score than any other."""
        return self.matrix.norm() > 0.0 or (self.w0 is not None and bool(self.w0.any()))

    def canonical(self) -> Self:
        """W at its numerical rank; no w0 when it is zero; W and w0 zero when v is, because they are then
        invisible."""
        d = self.width
        if not self.v.any():
            return type(self)(np.zeros((d, d)), self.v, None, self._c, clip=self.clip)
        w0 = self.w0 if self.w0 is not None and self.w0.any() else None
        if self.rank == d:
            return type(self)(self.W, self.v, w0, self._c, clip=self.clip)
        left, values, right = self.matrix.svd()
        left, right, values = left[:, : self.rank], right[:, : self.rank], values[: self.rank]
        signs = np.sign(left[np.abs(left).argmax(axis=0), np.arange(self.rank)])
        return type(self)((left * signs * values, right * signs), self.v, w0, self._c, clip=self.clip)

    def on_rows(self, rows: object) -> SingleHead:
        """The head in coordinates of the directions in which `rows` (n, d) differ, from their mean.

        Sequences of such rows show nothing else: `head.on_rows(E).distance(other.on_rows(E))` is how far two
        heads differ there.

        >>> head = SingleHead([[1.0, 5.0], [7.0, 2.0]], [3.0, 4.0])
        >>> head.on_rows([[-1.0, 0.0], [1.0, 0.0]]).W
        array([[1.]])
        """
        table = np.asarray(rows, dtype=np.float64)
        if table.ndim != 2 or table.shape[1] != self.width:
            raise UsageError(f"rows must be (n, {self.width}), not {table.shape}")
        mean = table.mean(axis=0)
        _, sizes, right = np.linalg.svd(table - mean, full_matrices=False)
        span = right[sizes > 1e-10 * sizes.max(initial=0.0)]
        if not len(span):
            raise UsageError("all rows are equal, so they span no direction")
        span = span * np.sign(span[np.arange(len(span)), np.abs(span).argmax(axis=1)])[:, None]
        shifted = self.W @ mean + (0.0 if self.w0 is None else self.w0)
        return SingleHead(span @ self.W @ span.T, span @ self.v, span @ shifted, self._c + mean @ self.v)

    def distance(self, other: Self) -> float:
        """Largest of the relative differences of W, v, w0 (against W) and c (against v); absolute where self
        is zero.

        Where answers stop (clip) is not a parameter of the head and does not count.

        >>> head = SingleHead(np.eye(2), np.ones(2))
        >>> head.distance(SingleHead(2 * np.eye(2), np.ones(2)))
        1.0
        """
        self._same_family(other)
        mine, theirs = self.canonical(), other.canonical()
        v_norm = float(np.linalg.norm(mine.v))
        return max(
            mine.score_distance(theirs),
            relative(float(np.linalg.norm(mine.v - theirs.v)), v_norm),
            relative(float(np.linalg.norm(mine._c - theirs._c)), max(v_norm, float(np.linalg.norm(mine._c)))),
        )

    def score_distance(self, other: SingleHead) -> float:
        """The larger of the relative differences of W and of w0 (against W)."""
        size, zero = self.matrix.norm(), np.zeros(self.width)
        mine, theirs = (zero if head.w0 is None else head.w0 for head in (self, other))
        return max(
            relative(difference_norm(self.matrix, other.matrix), size),
            relative(float(np.linalg.norm(mine - theirs)), max(size, float(np.linalg.norm(mine)))),
        )

    def tensors(self) -> dict[str, Array]:
        parts: dict[str, Array] = {"v": self.v, "c": self._c} | tensors_of_matrix(self.matrix)
        if self.w0 is not None:
            parts["w0"] = self.w0
        if self.clip is not None:
            parts["clip"] = np.array(self.clip)
        return parts

    @classmethod
    def from_tensors(cls, tensors: dict[str, Array]) -> Self:
        if strange := set(tensors) - MATRIX_TENSORS - {"v", "c", "w0", "clip"}:
            raise ModelFileError(f"a single-head file has no tensor {sorted(strange)[0]!r}")
        if "v" not in tensors:
            raise ModelFileError("a single-head file holds v")
        W = matrix_of_tensors(tensors, "single-head")
        clip = tensors.get("clip")
        if clip is not None and clip.shape != (2,):
            raise ModelFileError(f"clip holds the lowest and the highest answer, not {clip.shape}")
        return cls(
            W,
            tensors["v"],
            tensors.get("w0"),
            tensors.get("c", 0.0),
            clip=None if clip is None else (clip[0], clip[1]),
        )

    def __repr__(self) -> str:
        held = f"factors of rank {self.matrix.left.shape[1]}" if isinstance(self.matrix, Factors) else "dense"
        return (
            f"SingleHead(width={self.width}, W {held}, query bias {'yes' if self.w0 is not None else 'no'})"
        )
