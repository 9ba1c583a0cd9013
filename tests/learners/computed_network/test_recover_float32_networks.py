"""ReLU networks that compute in float32, through `recover_network`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unsoftmax
from unsoftmax.arrays import Array, rms
from unsoftmax.float_formats import FloatFormat
from unsoftmax.models import ReluNetwork
from unsoftmax.outcomes import Status


def _short(network: ReluNetwork, bend: Callable[[Array], Array] | None = None) -> Callable[[Array], Array]:
    """The network with every step in float32; bend: another activation of its first neuron."""
    A, u = network.A.astype(np.float32), network.u.astype(np.float32)
    b = np.zeros(len(A), np.float32) if network.b is None else network.b.astype(np.float32)

    def answer(X: Array) -> Array:
        hidden = X.astype(np.float32) @ A.T + b
        active = np.maximum(hidden, 0)
        if bend is not None:
            active[:, 0] = bend(hidden[:, 0].astype(np.float64))
        return np.asarray((active @ u + np.float32(network.c)).astype(np.float64))

    return answer


def _stored(network: ReluNetwork) -> ReluNetwork:
    """The network whose parameters are float32 numbers."""
    A, u, c = (np.float64(np.float32(part)) for part in (network.A, network.u, network.c))
    return ReluNetwork(A, u, None if network.b is None else np.float64(np.float32(network.b)), c)


@pytest.mark.parametrize(("width", "neurons", "biases", "seed"), [(6, 8, True, 21), (9, 14, False, 22)])
def test_a_float32_network_is_recovered_to_its_own_rounding(
    width: int, neurons: int, biases: bool, seed: int
) -> None:
    hidden = unsoftmax.random_relu_network(width, neurons, seed=seed, biases=biases)
    short, exact = _short(hidden), _stored(hidden)
    result = unsoftmax.recover_network(short, width=width, seed=seed)
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert "indistinguishable from a float32 reimplementation" in result.reason
    assert isinstance(result.model, ReluNetwork)
    assert result.model.neurons == neurons
    assert result.error_bound is not None
    assert exact.distance(result.model) <= result.error_bound < 1e-4
    X = np.random.default_rng(seed).standard_normal((300, width)).astype(np.float32).astype(np.float64)
    assert rms(result.model(X) - exact(X)) < 2.0 * rms(short(X) - exact(X))


@pytest.mark.parametrize("bend", [np.tanh, lambda z: np.maximum(z, 0.001 * z)])
def test_another_activation_in_one_neuron_is_never_recovered_wrongly(bend: Callable[[Array], Array]) -> None:
    hidden = unsoftmax.random_relu_network(6, 8, seed=23, biases=True)
    short = _short(hidden, bend)
    result = unsoftmax.recover_network(short, width=6, seed=1)
    if result.status.recovered:  # a leaky neuron is a fold and a linear part
        assert result.model is not None
        X = np.random.default_rng(0).standard_normal((300, 6))
        assert rms(result.model(X) - short(X)) < 1e-5 * rms(short(X))


@pytest.mark.parametrize(
    ("width", "neurons", "seed"), [(1, 3, 8010), (1, 6, 8000), (1, 6, 8046), (2, 4, 8011), (2, 4, 8028)]
)
def test_kinks_that_crowd_are_told_apart(width: int, neurons: int, seed: int) -> None:
    """Two kinks that lie close together look like one everywhere but between them; networks of few numbers
    often have such, or regions where no neuron is active."""
    hidden = unsoftmax.random_relu_network(width, neurons, seed=seed, biases=seed % 2 == 0)
    result = unsoftmax.recover_network(_short(hidden), width=width, seed=seed)
    assert result.status is Status.WITHIN_BOUND, result.reason
    assert isinstance(result.model, ReluNetwork)
    assert _stored(hidden).distance(result.model) <= (result.error_bound or 0.0) < 1e-3


def test_small_networks_are_recovered_or_unresolved() -> None:
    for seed in (8025, 12046, 12047, 12048):
        hidden = unsoftmax.random_relu_network(1 + seed % 2, 7, seed=seed, biases=seed % 2 == 0)
        result = unsoftmax.recover_network(_short(hidden), width=hidden.width, seed=seed)
        assert result.status in (Status.WITHIN_BOUND, Status.UNRESOLVED), result.reason
        if isinstance(result.model, ReluNetwork) and result.status is Status.WITHIN_BOUND:
            assert _stored(hidden).distance(result.model) <= (result.error_bound or 0.0)


def test_two_neurons_that_nearly_agree_are_two() -> None:
    hidden = unsoftmax.random_relu_network(6, 8, seed=24, biases=True)
    assert hidden.b is not None
    A, b = hidden.A.copy(), hidden.b.copy()
    A[1], b[1] = A[0] + 3e-3 * A[1], b[0] + 3e-3 * b[1]
    close = ReluNetwork(A, hidden.u, b, hidden.c)
    result = unsoftmax.recover_network(_short(close), width=6, seed=1)
    if result.status is Status.WITHIN_BOUND:
        assert isinstance(result.model, ReluNetwork)
        assert _stored(close).distance(result.model) <= (result.error_bound or 0.0)
    else:
        assert result.status is Status.UNRESOLVED
        assert "close" in result.reason or "rounding" in result.reason


@pytest.mark.parametrize("held", [FloatFormat.FLOAT16, FloatFormat.BFLOAT16])
@pytest.mark.parametrize("answered", [None, FloatFormat.FLOAT32])
def test_coarser_arithmetic_is_named_and_nothing_is_claimed(
    held: FloatFormat, answered: FloatFormat | None
) -> None:
    """answered: the format of a readout beyond the steps in `held`."""
    hidden = unsoftmax.random_relu_network(3, 6, seed=25, biases=True)
    assert hidden.b is not None
    A, b, u = held.store(hidden.A), held.store(hidden.b), held.store(hidden.u)

    def short(X: Array) -> Array:
        active = np.maximum(held.store(held.store(X) @ A.T + b), 0.0)
        return (answered or held).store(active @ u + hidden.c)

    result = unsoftmax.recover_network(short, width=3, seed=1)
    assert result.status is Status.UNRESOLVED, result.reason
    assert str(held) in result.reason
    assert "smooth" not in result.reason
    assert result.queries.total < 500
