"""Networks whose neurons differ by orders of magnitude, nearly cancel or nearly coincide: whatever is
reported as success is within its bound."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from tests.cases.awkward_networks import AWKWARD, nearly_coinciding
from tests.cases.networks import gaussian
from tests.cases.spread_networks import PARTS, spread_network, spread_transformer
from unsoftmax import ReluNetwork, Result, Status, Transformer

SIZES = ((3, 4), (6, 8))


def _is_honest(result: Result, hidden: ReluNetwork | Transformer) -> bool:
    """No success, or one within its bound; EXACT only where it is."""
    if result.model is None:
        return True
    assert result.error_bound is not None
    distance = hidden.distance(result.model)  # type: ignore[arg-type]
    return distance <= result.error_bound and (
        result.status is not Status.EXACT or distance <= result.model.exact_at
    )


@pytest.mark.parametrize("decades", [4.0, 9.0, 12.0])
@pytest.mark.parametrize("parts", [PARTS, *((part,) for part in PARTS)], ids="-".join)
def test_neurons_of_very_different_sizes(parts: tuple[str, ...], decades: float) -> None:
    for d, m in SIZES:
        for seed in range(3):
            hidden = spread_network(d, m, decades, np.random.default_rng([21, seed, d]), parts)
            result = unsoftmax.recover_network(hidden, seed=seed)
            assert _is_honest(result, hidden), result.reason
            assert result.status.recovered or decades > 4.0


@pytest.mark.parametrize("decades", [9.0, 12.0])
def test_faint_neurons_without_biases(decades: float) -> None:
    for seed in range(4):
        hidden = spread_network(
            6, 8, decades, np.random.default_rng([22, seed]), ("rows", "outputs"), biased=False
        )
        result = unsoftmax.recover_network(hidden, seed=seed)
        assert result.status is Status.EXACT, result.reason
        assert _is_honest(result, hidden)


@pytest.mark.parametrize("decades", [6.0, 12.0])
def test_transformers_before_such_networks(decades: float) -> None:
    for seed in range(3):
        hidden = spread_transformer(4, 5, decades, np.random.default_rng([23, seed]))
        result = unsoftmax.recover(hidden, family="transformer", seed=seed)
        assert _is_honest(result, hidden), result.reason


@pytest.mark.parametrize("decades", [3.0, 6.0, 9.0])
@pytest.mark.parametrize("name", sorted(AWKWARD))
def test_awkward_networks(name: str, decades: float) -> None:
    for seed in range(3):
        hidden = AWKWARD[name](4, 6, decades, np.random.default_rng([24, seed]))
        result = unsoftmax.recover_network(hidden, seed=seed)
        assert _is_honest(result, hidden), result.reason
        assert result.status is not Status.OUTSIDE_CLASS, result.reason


def test_a_neuron_too_faint_to_be_seen_is_said_to_be() -> None:
    base = gaussian(4, 6, np.random.default_rng(1), True)
    hidden = ReluNetwork(base.A, np.append(base.u[:-1], 1e-14), base.b, base.c)
    result = unsoftmax.recover_network(hidden)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, ReluNetwork)
    assert result.model.folds.count == 5
    assert result.certificate is not None
    stated = float(result.certificate.caveat.split("folds smaller than ")[1].split()[0])
    assert hidden.folds.sizes.min() < stated < 1e-6 * hidden.folds.sizes.max()


def test_a_neuron_known_to_few_digits_is_said_to_be() -> None:
    base = gaussian(4, 6, np.random.default_rng(1), False)
    hidden = ReluNetwork(base.A, np.append(base.u[:-1], 1e-8))
    result = unsoftmax.recover_network(hidden)
    assert result.certificate is not None
    assert "one of 6 folds is so faint beside the others" in result.certificate.statement


@pytest.mark.parametrize("decades", [8.0, 9.0, 10.0])
def test_twins_that_the_line_hardly_shows_are_within_the_bound(decades: float) -> None:
    for seed in range(3):
        hidden = nearly_coinciding(5, 6, decades, np.random.default_rng([25, seed]))
        result = unsoftmax.recover_network(hidden, seed=seed)
        assert _is_honest(result, hidden), result.reason
        if isinstance(result.model, ReluNetwork) and result.model.folds.count < hidden.folds.count:
            assert result.certificate is not None
            told = "too close to tell them apart" in result.certificate.statement
            assert told or "nor gaps between hyperplanes" in result.certificate.statement
