"""One-layer Transformers that compute in float32, through `recover`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unsoftmax
from unsoftmax.arrays import Array, rms
from unsoftmax.float_formats import FloatFormat
from unsoftmax.models import ReluNetwork, Transformer
from unsoftmax.outcomes import Status


def _stored(model: Transformer, w0: Array | None = None) -> Transformer:
    """With parameters that float32 holds."""
    network = model.network
    A, u, c, W = (np.float64(np.float32(part)) for part in (network.A, network.u, network.c, model.W))
    b = None if network.b is None else np.float64(np.float32(network.b))
    bias = None if w0 is None else np.float64(np.float32(w0))
    return Transformer(W, ReluNetwork(A, u, b, float(c)), bias, model.residual)


def _short(model: Transformer, scored: Callable[[Array], Array] | None = None) -> Callable[[Array], Array]:
    """The Transformer with every step in float32. scored: what becomes of its scores."""
    network = model.network
    A, u, W = (np.float32(part) for part in (network.A, network.u, model.W))
    b, w0 = (np.float32(0.0 if part is None else part) for part in (network.b, model.w0))

    def answer(batch: Array) -> Array:
        X = batch.astype(np.float32)
        scores = np.einsum("bnd,bd->bn", X, X[:, -1] @ W.T + w0)
        if scored is not None:
            scores = scored(scores).astype(np.float32)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        mixed = np.einsum("bn,bnd->bd", weights, X) + np.float32(model.residual) * X[:, -1]
        return np.asarray(np.maximum(mixed @ A.T + b, 0) @ u + np.float32(network.c)).astype(np.float64)

    return answer


@pytest.mark.parametrize(
    ("width", "neurons", "rank", "biases", "residual", "seed"),
    [(6, 8, None, True, 0.0, 31), (8, 8, None, False, 1.0, 32), (7, 12, 2, True, 0.3, 33)],
)
def test_a_float32_transformer_is_recovered_to_its_own_rounding(
    width: int, neurons: int, rank: int | None, biases: bool, residual: float, seed: int
) -> None:
    drawn = unsoftmax.random_transformer(
        width, neurons, rank, seed=seed, biases=biases, residual=residual, scale=0.5
    )
    exact = _stored(drawn, np.random.default_rng(seed).standard_normal(width) if biases else None)
    short = _short(exact)
    result = unsoftmax.recover(short, width=width, seed=seed)
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert isinstance(result.model, Transformer)
    assert (result.model.w0 is None) == (exact.w0 is None)
    assert result.error_bound is not None
    assert exact.distance(result.model) <= result.error_bound < 1e-4
    for length in (1, 2, 7, 30):
        X = np.random.default_rng(seed).standard_normal((300, length, width))
        X = X.astype(np.float32).astype(np.float64)
        assert rms(result.model(X) - exact(X)) < 3.0 * rms(short(X) - exact(X))


@pytest.mark.parametrize(
    "scored",
    [
        lambda scores: scores + 0.01 * np.tanh(scores),
        lambda scores: scores * (1.001 if scores.shape[1] > 2 else 1.0),
    ],
)
def test_other_scores_are_never_recovered(scored: Callable[[Array], Array]) -> None:
    exact = _stored(unsoftmax.random_transformer(6, 8, seed=34, biases=True, scale=0.5))
    result = unsoftmax.recover(_short(exact, scored), width=6, seed=2)
    assert not result.status.recovered, result.reason


@pytest.mark.parametrize("held", [FloatFormat.FLOAT16, FloatFormat.BFLOAT16])
def test_coarser_arithmetic_is_named(held: FloatFormat) -> None:
    short = _short(_stored(unsoftmax.random_transformer(5, 6, seed=35, biases=True, scale=0.5)))
    result = unsoftmax.recover(
        lambda batch: held.store(short(held.store(batch))), width=5, seed=2, input_bound=16.0
    )
    assert result.status is Status.UNRESOLVED, result.reason
    assert str(held) in result.reason
    assert "exact answers only" not in result.reason
