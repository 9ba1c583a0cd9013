"""How the error fell as queries were paid: what the first n answers determine, judged by the final, certified
model.

Near the final model an answer is a linear measurement of the parameters: its gradient. After n answers the
best estimate (least norm, weighing the answers' own errors) is the projection of the final parameters onto
the first n gradients; what is left over is the error after n queries. Nothing is asked for it, and no run is
repeated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unsoftmax.answers import Answers, Clipped, Computed, Labels, Noisy, Rounded, Stored, Within
from unsoftmax.arrays import Array
from unsoftmax.ledger import VERIFICATION
from unsoftmax.models import Model, MultiHead, SingleHead, Transformer
from unsoftmax.models.base import softmax

__all__ = ["LearningCurve", "Recorder", "learning_curve"]

_MOST_NUMBERS = 8_000_000  # of kept sequences: 64 MB
_MOST_QUERIES = 4_500  # the Gram matrix of the gradients has this many rows
_POINTS = 48  # of a curve: more than a page can show apart
_JITTER = 1e-13  # keeps the Gram matrix of dependent gradients positive


@dataclass(frozen=True)
class LearningCurve:
    """`error[i]`: the relative error after `queries[i]` queries, those of verification left out. `why_not`:
    the reason when there is no curve."""

    queries: tuple[int, ...] = ()
    error: tuple[float, ...] = ()
    parts: str = ""
    why_not: str = ""

    @property
    def method(self) -> str:
        """How it is derived, in plain words."""
        return (
            "Derived after the run from the queries it asked: each answer is taken as a linear measurement "
            f"of {self.parts} near the final certified model, of its rank, weighted by the answers' own "
            "error; the curve is the part of those parameters that the first n answers leave undetermined. "
            "The learner itself may need more queries until it knows as much."
        )


class Recorder:
    """Keeps the queries of a run, as far as a curve of them can be drawn."""

    def __init__(self) -> None:
        self.batches: list[Array] = []
        self.numbers = 0
        self.queries = 0
        self.full = False

    def __call__(self, phase: str, batch: Array, answers: Array) -> None:
        if phase == VERIFICATION:
            return
        self.queries += len(batch)
        self.numbers += batch.size
        if self.queries > _MOST_QUERIES or self.numbers > _MOST_NUMBERS:
            self.full = True
            self.batches.clear()
        if not self.full:
            self.batches.append(batch.copy())


def learning_curve(recorder: Recorder, model: Model, answers: Answers | None) -> LearningCurve:
    """The curve of a finished run, or the reason why there is none."""
    if recorder.full:
        return LearningCurve(
            why_not=f"the run asked more than {_MOST_QUERIES:,} queries, too many for this figure"
        )
    if isinstance(answers, Labels):
        return LearningCurve(
            why_not="an answer of one bit is not a linear measurement; each entry is bisected, a bit a query"
        )
    if (
        not recorder.batches
        or model.outputs is not None
        or not isinstance(model, SingleHead | MultiHead | Transformer)
    ):
        return LearningCurve(why_not="it needs gradients, which this family of models does not offer")
    factors = [_gradients(model, batch) for batch in recorder.batches]
    asking = np.concatenate([ask for ask, _, _ in factors])
    slopes = np.concatenate([slope for _, slope, _ in factors], axis=1)  # (heads, n, d)
    means = np.concatenate([mean for _, _, mean in factors], axis=1)
    noise = np.concatenate([_errors_of(answers, model, batch) for batch in recorder.batches])
    parts = model.heads if isinstance(model, MultiHead) else (model,)
    shares = [_Share.of(part, asking, p, mean) for part, p, mean in zip(parts, slopes, means, strict=True)]
    return LearningCurve(
        *_project(shares, noise),
        parts="W and the query bias" if isinstance(model, Transformer) else "W, v and the query bias",
    )


def _gradients(model: Model, batch: Array) -> tuple[Array, Array, Array]:
    """For every query: the asking row with a one, and for every head p (the gradient of W̃ is p ⊗ asking row)
    and Σ α x (the gradient of v)."""
    asking = np.column_stack([batch[:, -1], np.ones(len(batch))])
    slopes, means = [], []
    if isinstance(model, Transformer):
        weights = softmax(model.scores(batch))
        mean = np.einsum("bn,bnd->bd", weights, batch)
        direction = _network_gradient(model, batch)
        relevance = weights * np.einsum("bnd,bd->bn", batch - mean[:, None], direction)
        return asking, np.einsum("bn,bnd->bd", relevance, batch)[None], np.zeros((1, *mean.shape))
    heads = model.heads if isinstance(model, MultiHead) else (model,)
    for head in heads:
        assert isinstance(head, SingleHead)
        weights = softmax(head.scores(batch))
        mean = np.einsum("bn,bnd->bd", weights, batch)
        relevance = weights * ((batch - mean[:, None]) @ head.v)
        # Σ relevance = 0, so any common row may be taken off
        slopes.append(np.einsum("bn,bnd->bd", relevance, batch - batch[:, -1:]))
        means.append(mean)
    return asking, np.stack(slopes), np.stack(means)


def _network_gradient(model: Transformer, batch: Array) -> Array:
    """∇g at what the network gets, from the signs of its folds."""
    folds = model.network.folds
    mixed = model.mixed(batch)
    return np.asarray(
        folds.linear + (folds.signs * np.sign(mixed @ folds.normals.T + folds.offsets)) @ folds.normals
    )


@dataclass(frozen=True, eq=False)
class _Share:
    """One head's part of the gradients: p ⊗ b within the matrices of W's rank near W, p for a free query
    bias, Σ α x for v.

    All is against parameters of norm one. left, right: orthonormal bases of the range and the domain of W, or
    of [W w0] when the bias lies in the range.
    """

    p: Array
    b: Array
    mean: Array
    left: Array
    right: Array
    free_bias: bool
    W: Array
    w0: Array
    v: Array

    @classmethod
    def of(cls, part: Model, asking: Array, p: Array, mean: Array) -> _Share:
        assert isinstance(part, SingleHead | Transformer)
        W, w0 = part.W, np.zeros(part.width) if part.w0 is None else part.w0
        v = part.v if isinstance(part, SingleHead) else np.zeros(part.width)
        left, _, right = np.linalg.svd(W)
        r = part.rank
        inside = float(np.linalg.norm(w0 - left[:, :r] @ (left[:, :r].T @ w0))) <= 1e-6 * float(
            np.linalg.norm(w0)
        )
        if w0.any() and inside and r < part.width:
            joint = np.column_stack([W, w0])
            left, _, right = np.linalg.svd(joint)
            W, w0, b = joint, np.zeros(part.width), asking
        else:
            b = asking[:, :-1]
        size = float(np.hypot(np.linalg.norm(W), np.linalg.norm(w0))) or 1.0
        length = float(np.linalg.norm(v)) or 1.0
        return cls(
            p * size,
            b,
            mean * length,
            left[:, :r],
            right[:r].T,
            bool(w0.any()),
            W / size,
            w0 / size,
            v / length,
        )

    def gram(self) -> Array:
        """Inner products of the gradients of all queries."""
        inner_p, inner_b = self.p @ self.left, self.b @ self.right
        seen_p, seen_b, whole_p, whole_b = (
            inner_p @ inner_p.T,
            inner_b @ inner_b.T,
            self.p @ self.p.T,
            self.b @ self.b.T,
        )
        gram = seen_p * whole_b + whole_p * seen_b - seen_p * seen_b + self.mean @ self.mean.T
        return np.asarray(gram + whole_p if self.free_bias else gram)

    def forms(self) -> Array:
        """What each gradient measures of the parameters."""
        bias = self.p @ self.w0 if self.free_bias else 0.0
        return np.asarray(np.einsum("nd,de,ne->n", self.p, self.W, self.b) + bias + self.mean @ self.v)

    def missing(self, weights: Array) -> float:
        """Squared distance of the parameters from the first gradients, weighted."""
        n = len(weights)
        scaled = self.p[:n] * weights[:, None]
        raw = scaled.T @ self.b[:n]
        from_left = self.left @ (self.left.T @ raw)
        estimate = from_left + (raw - from_left) @ self.right @ self.right.T
        bias = scaled.sum(axis=0) if self.free_bias else np.zeros_like(self.w0)
        parts = (self.W - estimate, self.w0 - bias, self.v - weights @ self.mean[:n])
        return float(sum(np.linalg.norm(part) ** 2 for part in parts))

    @property
    def whole(self) -> float:
        """Squared norm of the parameters."""
        return float(sum(np.linalg.norm(part) ** 2 for part in (self.W, self.w0, self.v)))


def _errors_of(answers: Answers | None, model: Model, batch: Array) -> Array:
    """The size of the answers' own errors, never below their last digit."""
    sizes = np.abs(model(batch))
    rounding = 2.0**-52 * sizes
    kind = answers.inner if isinstance(answers, Clipped) else answers
    match kind:
        case Stored(short) | Computed(short):
            return np.asarray(rounding + short.unit * sizes)
        case Noisy(sigma):
            return np.asarray(rounding + sigma)
        case Rounded() | Within():
            return np.asarray(rounding + kind.tolerance)
        case _:
            return np.asarray(rounding)


def _project(shares: list[_Share], noise: Array) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Relative error after n queries at about 48 points, from one Cholesky factor of the gradients' Gram
    matrix."""
    from scipy.linalg import solve_triangular

    gram = np.asarray(sum(share.gram() for share in shares))
    seen = np.asarray(sum(share.forms() for share in shares))
    n = len(seen)
    diagonal = np.diag_indices(n)
    gram[diagonal] += noise**2
    scale = np.sqrt(np.maximum(gram[diagonal], np.finfo(float).tiny))
    gram /= scale[:, None] * scale[None]
    factor = _factor(gram)
    white = solve_triangular(factor, seen / scale, lower=True)
    whole = sum(share.whole for share in shares) or 1.0
    points = np.unique(np.round(np.linspace(1, n, min(n, _POINTS))).astype(int))
    errors = []
    for count in points:
        weights = (
            solve_triangular(factor[:count, :count], white[:count], lower=True, trans="T") / scale[:count]
        )
        errors.append(min(1.0, float(np.sqrt(sum(share.missing(weights) for share in shares) / whole))))
    return tuple(int(count) for count in points), tuple(errors)


def _factor(gram: Array) -> Array:
    """The Cholesky factor of a matrix with ones on its diagonal; of many nearly equal queries with more added
    to it, until there is one."""
    from scipy.linalg import LinAlgError, cholesky

    diagonal = np.diag_indices(len(gram))
    jitter = _JITTER
    while True:
        gram[diagonal] = 1.0 + jitter
        try:
            return np.asarray(cholesky(gram, lower=True, check_finite=False))
        except LinAlgError:
            jitter *= 100.0  # at the latest when it exceeds the number of queries there is one
