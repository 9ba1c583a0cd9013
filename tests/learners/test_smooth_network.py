"""Smooth and gated two-layer networks from values: activations × widths × seeds, and what they are not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import unsoftmax
from unsoftmax.arrays import Array
from unsoftmax.learners import Known
from unsoftmax.learners.claims import Size
from unsoftmax.learners.gated_network.find import find_gated_network
from unsoftmax.learners.smooth_network.asks import FunctionAsks
from unsoftmax.learners.smooth_network.find import find_network
from unsoftmax.learners.smooth_network.learner import GatedNetworkLearner, SmoothNetworkLearner
from unsoftmax.ledger import Ledger
from unsoftmax.models import GatedNetwork, Network
from unsoftmax.models.parts import GELU, SIGMOID, SILU, TANH, activation_named
from unsoftmax.oracles import FunctionOracle, OracleSpec
from unsoftmax.outcomes import Status, Stop


def random_network(d: int, J: int, m: int, seed: int, name: str) -> Network:
    """Weights as torch's nn.Linear draws them."""
    rng = np.random.default_rng(seed)
    A, b = rng.uniform(-1, 1, (J, d)) / np.sqrt(d), rng.uniform(-1, 1, J) / np.sqrt(d)
    U, c = rng.uniform(-1, 1, (J, m)) / np.sqrt(J), rng.standard_normal(m)
    return Network(A, U, b, c, activation=activation_named(name))


@pytest.mark.parametrize("name", ["gelu", "gelu-tanh", "silu", "tanh", "softplus"])
def test_vector_answers(name: str) -> None:
    hidden = random_network(7, 10, 6, 1, name)
    found = find_network(FunctionAsks(hidden, 7, 6), np.random.default_rng(0)).network
    assert found.activation is hidden.activation
    assert hidden.distance(found) < 1e-10
    assert found.linear is None


@pytest.mark.parametrize(("d", "J", "seed"), [(9, 7, 0), (8, 12, 1), (6, 3, 2), (3, 1, 3)])
def test_single_numbers_within_the_claim(d: int, J: int, seed: int) -> None:
    hidden = random_network(d, J, 1, seed, "gelu")
    ledger = Ledger(FunctionOracle(lambda X: hidden(X[:, 0])[:, 0], OracleSpec(width=d)))
    learner = SmoothNetworkLearner()
    found = learner.learn(ledger, Known(), np.random.default_rng(seed)).model
    assert isinstance(found, Network)
    assert found.outputs is None
    linear = None if found.linear is None else found.linear[:, None]
    whole = Network(found.A, found.U[:, None], found.b, [found.c], linear, activation=GELU)
    assert hidden.distance(whole) < 1e-9
    assert learner.claim.queries.holds(ledger.bill.total, Size(d, neurons=J))


def test_only_a_ball_may_be_asked() -> None:
    hidden = random_network(7, 9, 8, 4, "gelu")

    def bounded(x: Array) -> Array:
        assert float(np.linalg.norm(x, axis=1).max()) < 3.0
        return hidden(x)

    found = find_network(FunctionAsks(bounded, 7, 8, 3.0), np.random.default_rng(1)).network
    assert hidden.distance(found) < 1e-9


def test_a_sigmoid_network_is_a_tanh_network() -> None:
    hidden = random_network(8, 8, 4, 5, "sigmoid")
    found = find_network(FunctionAsks(hidden, 8, 4), np.random.default_rng(2)).network
    assert found.activation is TANH
    as_tanh = Network(
        hidden.A / 2,
        hidden.U / 2,
        hidden.b / 2,
        np.asarray(hidden.c) + hidden.U.sum(axis=0) / 2,
        activation=TANH,
    )
    assert hidden.activation is SIGMOID
    assert as_tanh.distance(found) < 1e-9


@pytest.mark.parametrize("biased", [0.0, 1.0])
def test_gated(biased: float) -> None:
    rng = np.random.default_rng(6)
    d, J, m = 7, 4, 6

    def draw(*shape: int) -> Array:
        return np.asarray(rng.uniform(-1, 1, shape) / np.sqrt(d))

    hidden = GatedNetwork(
        draw(J, d), draw(J, d), draw(J, m), biased * draw(J), biased * draw(J), biased * draw(m)
    )
    found = find_gated_network(FunctionAsks(hidden, d, m), np.random.default_rng(3)).network
    assert found.activation is SILU
    assert hidden.distance(found) < 1e-10
    ledger = Ledger(FunctionOracle(lambda X: hidden(X[:, 0]), OracleSpec(width=d, outputs=m)))
    learner = GatedNetworkLearner()
    learnt = learner.learn(ledger, Known(), np.random.default_rng(4)).model
    assert isinstance(learnt, GatedNetwork)
    assert hidden.distance(learnt) < 1e-10
    assert learner.claim.queries.holds(ledger.bill.total, Size(d, neurons=J))


def _one_stranger(x: Array) -> Array:
    hidden = random_network(8, 8, 6, 7, "gelu")
    return np.asarray(hidden(x) + np.sin(2.0 * x[:, :1]))


def _three_layers(x: Array) -> Array:
    hidden = random_network(8, 8, 8, 8, "tanh")
    return np.asarray(hidden(2.0 * hidden(x)))


def _too_many(x: Array) -> Array:
    return random_network(3, 12, 1, 9, "gelu")(x)


def _kinks(x: Array) -> Array:
    return random_network(8, 8, 6, 10, "relu")(x)


@pytest.mark.parametrize(
    ("function", "d", "m"), [(_one_stranger, 8, 6), (_three_layers, 8, 8), (_too_many, 3, 1), (_kinks, 8, 6)]
)
def test_what_is_no_such_network_is_not_returned(function: Callable[[Array], Array], d: int, m: int) -> None:

    ledger = Ledger(FunctionOracle(lambda X: function(X[:, 0]), OracleSpec(width=d, outputs=m)))
    for learner in (SmoothNetworkLearner(), GatedNetworkLearner()):
        with pytest.raises(Stop):
            learner.learn(ledger, Known(), np.random.default_rng(0))


@pytest.mark.parametrize("name", ["gelu", "gelu-tanh", "tanh"])
@pytest.mark.parametrize("angle", [0.2, 0.02, 0.003])
def test_nearly_parallel_neurons_are_told_apart(name: str, angle: float) -> None:
    rng = np.random.default_rng(13)
    first, second = np.linalg.qr(rng.standard_normal((3, 2)))[0].T
    A = np.array([first, 1.7 * (np.cos(angle) * first + np.sin(angle) * second)])
    hidden = Network(A, [0.4, -1.3], [0.3, -0.2], 0.5, activation=activation_named(name))
    result = unsoftmax.recover_network(hidden, seed=6)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, Network)
    assert hidden.distance(result.model) <= (result.error_bound or 0.0)


@pytest.mark.parametrize("seed", range(8))
def test_bounds_of_small_networks_cover(seed: int) -> None:
    """As many neurons as inputs, of which some are nearly parallel: what such a fit amplifies varies most."""
    rng = np.random.default_rng([seed, 14])
    d, name = 2 + seed % 4, ("gelu", "silu", "tanh")[seed % 3]
    parts = (rng.standard_normal((d, d)) / np.sqrt(d), rng.standard_normal(d), 0.5 * rng.standard_normal(d))
    hidden = Network(*parts, 1.0, activation=activation_named(name))
    result = unsoftmax.recover_network(hidden, seed=seed)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, Network)
    assert hidden.distance(result.model) <= (result.error_bound or 0.0)


@pytest.mark.parametrize("seed", range(4))
def test_neurons_that_fill_the_width_are_found_or_named(seed: int) -> None:
    """Seven neurons at width 4: the span of their second derivatives holds an eighth rank-one form."""
    hidden = random_network(4, 7, 4, 1000 + seed, "gelu")
    result = unsoftmax.recover_network(hidden, seed=seed)
    assert result.status in (Status.EXACT, Status.UNRESOLVED), result.reason
    if isinstance(result.model, Network):
        assert hidden.distance(result.model) <= (result.error_bound or 0.0)


@pytest.mark.parametrize(("name", "outputs"), [("gelu", None), ("tanh", None), ("silu", 6)])
def test_recover_network(name: str, outputs: int | None) -> None:
    hidden = random_network(9, 10, outputs or 1, 11, name)
    if outputs is None:
        hidden = Network(
            hidden.A, hidden.U[:, 0], hidden.b, np.asarray(hidden.c)[0], activation=hidden.activation
        )
    result = unsoftmax.recover_network(hidden, seed=4)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, Network)
    assert result.error_bound is not None
    assert hidden.distance(result.model) <= result.error_bound <= 1e-8


def test_recover_gated_network() -> None:
    rng = np.random.default_rng(12)
    parts = [rng.uniform(-1, 1, shape) / 3.0 for shape in ((5, 9), (5, 9), (5, 6), (5,), (5,), (6,))]
    hidden = GatedNetwork(*parts)
    result = unsoftmax.recover_network(hidden, seed=5)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, GatedNetwork)
    assert hidden.distance(result.model) <= (result.error_bound or 0.0)


@pytest.mark.parametrize("function", [_one_stranger, _three_layers])
def test_recover_network_of_another_kind_is_no_success(function: Callable[[Array], Array]) -> None:
    outputs = 6 if function is _one_stranger else 8
    result = unsoftmax.recover_network(function, 8, outputs=outputs)
    assert not result.status.recovered
