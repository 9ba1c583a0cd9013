"""Networks and Transformers as models: canonical form, distance, equivalence, the way back, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unsoftmax
from tests.cases.networks import HARD, gaussian
from unsoftmax import (
    CanonicalNetwork,
    ModelFileError,
    ReluNetwork,
    Transformer,
    UsageError,
    plain_network,
    random_relu_network,
    random_transformer,
)


@given(seed=st.integers(0, 10_000), biased=st.booleans())
@settings(max_examples=30, deadline=None)
def test_the_canonical_form_is_the_same_function_and_forgets_order_scale_and_splitting(
    seed: int, biased: bool
) -> None:
    rng = np.random.default_rng(seed)
    network = gaussian(4, 6, rng, biased)
    scales = rng.uniform(0.1, 10.0, 6)
    order = rng.permutation(6)
    A, u = network.A * scales[:, None], network.u / scales
    b = None if network.b is None else network.b * scales
    moved = ReluNetwork(
        np.vstack([A[order], A[:1]]),
        np.concatenate([u[order] - 0.3 * u[0] * (order == 0), 0.3 * u[:1]]),
        None if b is None else np.concatenate([b[order], b[:1]]),
        network.c,
    )
    X = rng.standard_normal((50, 4))
    assert np.allclose(network(X), network.canonical()(X), rtol=1e-12, atol=1e-12)
    assert network.distance(moved) < 1e-12
    assert moved.folds.count == network.folds.count == 6


@pytest.mark.parametrize("name", sorted(HARD))
@pytest.mark.parametrize("biased", [False, True])
def test_folds_are_the_function(name: str, biased: bool) -> None:
    network = HARD[name](5, 9, np.random.default_rng(3), biased)
    X = network.folds.reach * np.random.default_rng(4).standard_normal((100, 5))
    assert np.allclose(network(X), network.folds(X), rtol=1e-9, atol=1e-11 * np.abs(network(X)).max())


def test_cancelled_and_dead_neurons_vanish() -> None:
    network = ReluNetwork(
        [[1.0, 2.0], [1.0, 2.0], [0.0, 0.0], [3.0, 0.0]], [1.0, -1.0, 2.0, 0.0], [0.5, 0.5, 1.0, 1.0]
    )
    assert network.folds.count == 0
    assert network.folds.constant == 2.0
    assert not network.folds.linear.any()


def test_torch_computes_the_same_function() -> None:
    torch = pytest.importorskip("torch")
    network = random_relu_network(5, 7, seed=2, biases=True)
    X = np.random.default_rng(0).standard_normal((20, 5))
    hidden = torch.relu(torch.tensor(X) @ torch.tensor(network.A).T + torch.tensor(network.b))
    assert np.allclose(
        (hidden @ torch.tensor(network.u)).numpy() + network.c, network(X), rtol=1e-13, atol=1e-13
    )


@pytest.mark.parametrize(
    ("m", "d", "method"), [(5, 8, "least squares"), (12, 8, "search"), (24, 5, "lattice reduction")]
)
def test_back_to_a_plain_network_with_as_many_neurons_as_kinks(m: int, d: int, method: str) -> None:
    network = random_relu_network(d, m, seed=m, biases=True)
    plain = plain_network(network.canonical())
    assert (plain.neurons, plain.method) == (m, method)
    assert plain.network.linear is None
    assert network.distance(plain.network) < 1e-12


def test_two_extra_neurons_where_no_signs_fit() -> None:
    network = ReluNetwork([[1.0, 0.0]], [1.0], linear=[0.3, 0.7])
    plain = plain_network(network)
    assert (plain.neurons, plain.method) == (3, "two extra neurons")
    assert network.distance(plain.network) < 1e-15


def test_distance_counts_a_missing_fold_whole() -> None:
    network = random_relu_network(4, 5, seed=1)
    less = ReluNetwork(network.A[:-1], network.u[:-1])
    assert network.distance(less) > 0.1


def test_distance_does_not_depend_on_units() -> None:
    network, other = (gaussian(4, 6, np.random.default_rng(seed), True) for seed in (1, 2))
    assert network.b is not None
    assert other.b is not None
    scaled = [
        ReluNetwork(one.A / 1e6, 1e-3 * one.u, one.b, 1e-3 * one.c)
        for one in (network, other)
        if one.b is not None
    ]
    assert scaled[0].distance(scaled[1]) == pytest.approx(network.distance(other), rel=1e-6)


@pytest.mark.parametrize("gap", [1e-10, 1e-7, 1e-5])
def test_two_hyperplanes_given_as_one_count_by_the_gap_between_them(gap: float) -> None:
    network = gaussian(4, 5, np.random.default_rng(1), True)
    assert network.b is not None
    length = float(np.linalg.norm(network.A[0]))
    A, b = np.vstack([network.A, network.A[:1]]), np.append(network.b, network.b[0] + gap * length)
    twins = ReluNetwork(A, np.append(network.u, 0.5), b, network.c)
    one = ReluNetwork(network.A, np.append(network.u[0] + 0.5, network.u[1:]), network.b, network.c)
    assert twins.folds.count == 6
    assert 1e-2 * gap < twins.distance(one) < 10.0 * gap


def test_a_faint_fold_far_out_counts_little_and_hyperplanes_far_out_stay_apart() -> None:
    network = gaussian(3, 4, np.random.default_rng(2), True)
    assert network.b is not None
    far = np.vstack([network.A, [[1e-9, 0.0, 0.0], [0.0, 1e-9, 0.0]]])
    more = ReluNetwork(far, np.append(network.u, [1.0, 1.0]), np.append(network.b, [-10.0, -10.0]), network.c)
    assert more.folds.count == 6
    assert 1e-11 < more.distance(network) < 1e-8


@pytest.mark.parametrize("residual", [0.0, 1.0, 0.5])
def test_a_transformer_is_its_parts(residual: float) -> None:
    model = random_transformer(4, 6, seed=3, biases=True, residual=residual)
    X = np.random.default_rng(1).standard_normal((10, 5, 4))
    weights = np.exp(np.einsum("bnd,de,be->bn", X, model.W, X[:, -1]))
    weights /= weights.sum(axis=1, keepdims=True)
    assert np.allclose(
        model(X), model.network(np.einsum("bn,bnd->bd", weights, X) + residual * X[:, -1]), rtol=1e-12
    )
    assert np.allclose(model(X[:, -1:]), model.one_row(X[:, -1]), rtol=1e-12)


def test_files_keep_every_bit(tmp_path: Path) -> None:
    for model in (
        random_relu_network(3, 4, seed=0, biases=True),
        random_transformer(5, 4, 2, seed=1, biases=True, residual=1.0),
    ):
        back = unsoftmax.load(model.save(tmp_path / "model.safetensors"))
        assert type(back) is type(model)
        for name, part in model.tensors().items():
            assert (back.tensors()[name] == part).all()
    with pytest.raises(ModelFileError):
        Transformer.from_tensors({"network.A": np.eye(2), "network.u": np.ones(2)})


def test_equivalence_decides_networks_and_transformers() -> None:
    model = random_transformer(4, 5, seed=0, biases=True)
    same = Transformer(model.W, plain_network(model.network.canonical()).network)
    assert unsoftmax.equivalent(model, same)
    other = Transformer(model.W * (1 + 1e-5), model.network)
    answer = unsoftmax.equivalent(model, other)
    assert not answer
    assert answer.separating is not None
    assert model(answer.separating[None]) != other(answer.separating[None])
    assert unsoftmax.equivalent(model.network, model.network.canonical())
    linear = Transformer(model.W, ReluNetwork(np.zeros((0, 4)), np.zeros(0), c=1.0, linear=np.ones(4)))
    assert unsoftmax.equivalent(linear, unsoftmax.SingleHead(model.W, np.ones(4), None, 1.0))
    with pytest.raises(UsageError):
        unsoftmax.equivalent(model, model.network)


def test_wrong_shapes_are_said() -> None:
    with pytest.raises(UsageError, match="u must be"):
        ReluNetwork(np.eye(2), np.ones(3))
    with pytest.raises(UsageError, match="NaN"):
        ReluNetwork([[np.nan]], [1.0])
    with pytest.raises(UsageError, match="takes"):
        random_relu_network(3, 2)(np.zeros((2, 4)))
    with pytest.raises(UsageError, match="ReluNetwork"):
        folds = CanonicalNetwork(np.zeros((0, 2)), np.zeros(0), np.zeros(0), np.zeros(2))
        Transformer(np.eye(2), folds)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="residual"):
        Transformer(np.eye(2), random_relu_network(2, 2), residual=-1.0)
