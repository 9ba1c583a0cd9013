"""Boxes that are no single attention head, many of them nearly. Each is made from (d, seed) and must never be
'recovered'."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Box = Callable[[Array], Array]


def _parts(d: int, seed: int) -> tuple[Array, Array, Box]:
    rng = np.random.default_rng([seed, d, 77])
    W, v = rng.standard_normal((d, d)) / np.sqrt(d), rng.standard_normal(d)
    return W, v, _attention(W, v)


def _attention(W: Array, v: Array) -> Box:
    """Written out here, so that the boxes do not share code with the library."""

    def attend(X: Array) -> Array:
        scores = np.einsum("bnd,de,be->bn", X, W, X[:, -1])
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        return np.asarray(np.einsum("bn,bnd,d->b", weights, X, v))

    return attend


def max_pooling(d: int, seed: int) -> Box:
    _, v, _ = _parts(d, seed)
    return lambda X: (X @ v).max(axis=1)


def tanh_on_top(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    return lambda X: np.tanh(attend(X))


def positional_term(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    return lambda X: attend(X + 0.01 * np.arange(X.shape[1])[:, None])


def hard_max(d: int, seed: int) -> Box:
    W, v, _ = _parts(d, seed)

    def box(X: Array) -> Array:
        best = np.einsum("bnd,de,be->bn", X, W, X[:, -1]).argmax(axis=1)
        return np.asarray(X[np.arange(len(X)), best] @ v)

    return box


def small_sine(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    return lambda X: attend(X) + 1e-4 * np.sin(10 * X.sum(axis=(1, 2)))


def tiny_sine(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    return lambda X: attend(X) + 1e-7 * np.sin(3 * X[:, 0, 0])


def scale_grows_with_length(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    return lambda X: attend(X) * (1 + 0.01 * X.shape[1])


def scale_changes_beyond_two_rows(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    return lambda X: attend(X) * (1.0 if X.shape[1] <= 2 else 1.001)


def temperature_changes_beyond_three_rows(d: int, seed: int) -> Box:
    W, v, attend = _parts(d, seed)
    cold = _attention(1.01 * W, v)
    return lambda X: attend(X) if X.shape[1] <= 3 else cold(X)


def sees_last_sixteen_rows(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    return lambda X: attend(X[:, -16:])


def drifts(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    calls = [0]

    def box(X: Array) -> Array:
        calls[0] += 1
        return np.asarray(attend(X) + 1e-6 * calls[0])

    return box


def scale_drifts(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    calls = [0]

    def box(X: Array) -> Array:
        calls[0] += 1
        return np.asarray(attend(X) * (1 + 1e-7 * calls[0]))

    return box


def cache_by_rounded_input(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    seen: dict[bytes, float] = {}

    def box(X: Array) -> Array:
        answers = attend(X)
        return np.array(
            [seen.setdefault(np.round(x, 2).tobytes(), float(y)) for x, y in zip(X, answers, strict=True)]
        )

    return box


def cache_by_first_row(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    seen: dict[bytes, float] = {}

    def box(X: Array) -> Array:
        answers = attend(X)
        return np.array([seen.setdefault(x[0].tobytes(), float(y)) for x, y in zip(X, answers, strict=True)])

    return box


def repeats_answered_worse(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    seen: set[bytes] = set()

    def box(X: Array) -> Array:
        answers = attend(X)
        for i, x in enumerate(X):
            answers[i] += 1e-3 if x.tobytes() in seen else 0.0
            seen.add(x.tobytes())
        return answers

    return box


def every_fiftieth_answer_stale(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    state = {"count": 0, "last": 0.0}

    def box(X: Array) -> Array:
        answers = attend(X)
        for i in range(len(X)):
            state["count"] += 1
            if state["count"] % 50 == 0:
                answers[i] = state["last"]
            state["last"] = float(answers[i])
        return answers

    return box


def batch_normalised(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    return lambda X: attend(X) - 1e-3 * attend(X).mean()


def float32_answers(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    return lambda X: attend(X).astype(np.float32).astype(np.float64) + 3e-6 * np.sign(attend(X))


def labels_of_wrong_thing(d: int, seed: int) -> Box:
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((d, d))
    return lambda X: (np.einsum("bnd,de,bne->b", X, M, X) > 0).astype(float)


def quadratic_values(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    return lambda X: attend(X) + 1e-3 * X[:, -1, 0] ** 2


def mean_of_two_powers(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    return lambda X: attend(X) + 1e-5 * np.abs(X).mean(axis=(1, 2))


def key_norms_matter(d: int, seed: int) -> Box:
    W, v, _ = _parts(d, seed)

    def box(X: Array) -> Array:
        scores = np.einsum("bnd,de,be->bn", X, W, X[:, -1]) - 0.01 * (X**2).sum(axis=2)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        return np.asarray(np.einsum("bn,bnd,d->b", weights, X, v))

    return box


def linear_attention(d: int, seed: int) -> Box:
    W, v, _ = _parts(d, seed)

    def box(X: Array) -> Array:
        scores = np.logaddexp(0.0, np.einsum("bnd,de,be->bn", X, W, X[:, -1])) + 1e-12
        return np.asarray(np.einsum("bn,bnd,d->b", scores / scores.sum(axis=1, keepdims=True), X, v))

    return box


def sigmoid_attention(d: int, seed: int) -> Box:
    W, v, _ = _parts(d, seed)

    def box(X: Array) -> Array:
        scores = 1 / (1 + np.exp(-np.clip(np.einsum("bnd,de,be->bn", X, W, X[:, -1]), -500, 500)))
        return np.asarray(np.einsum("bn,bnd,d->b", scores, X, v))

    return box


def residual_stream(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    return lambda X: attend(X) + 0.1 * X[:, 0, 0]


def score_cap(d: int, seed: int) -> Box:
    W, v, _ = _parts(d, seed)

    def box(X: Array) -> Array:
        scores = 30 * np.tanh(np.einsum("bnd,de,be->bn", X, W, X[:, -1]) / 30)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        return np.asarray(np.einsum("bn,bnd,d->b", weights, X, v))

    return box


def causal_dropout(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    return lambda X: attend(X[:, 1:]) if X.shape[1] > 8 else attend(X)


def shifted_at_seven_rows(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    return lambda X: attend(X) + (0.01 if X.shape[1] == 7 else 0.0)


def shifted_beyond_sixty_four_rows(d: int, seed: int) -> Box:
    *_, attend = _parts(d, seed)
    return lambda X: attend(X) + (0.01 if X.shape[1] > 64 else 0.0)


BOXES: dict[str, Callable[[int, int], Box]] = {
    box.__name__: box
    for box in (
        max_pooling, tanh_on_top, positional_term, hard_max, small_sine, tiny_sine,
        scale_grows_with_length, scale_changes_beyond_two_rows, temperature_changes_beyond_three_rows,
        sees_last_sixteen_rows,
        drifts, scale_drifts, cache_by_rounded_input, cache_by_first_row, repeats_answered_worse,
        every_fiftieth_answer_stale,
        batch_normalised, float32_answers, labels_of_wrong_thing, quadratic_values, mean_of_two_powers,
        key_norms_matter,
        linear_attention, sigmoid_attention, residual_stream, score_cap, causal_dropout,
        shifted_at_seven_rows, shifted_beyond_sixty_four_rows,
    )
}  # fmt: skip
# their answers depend on more than the sequence: on calls before, on the batch, on the time
UNSTEADY = frozenset(
    (
        "batch_normalised", "cache_by_first_row", "cache_by_rounded_input", "drifts",
        "every_fiftieth_answer_stale", "repeats_answered_worse", "scale_drifts",
    )
)  # fmt: skip
