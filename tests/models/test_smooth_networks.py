"""Networks with any activation and gated ones: against torch, symmetries, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

import unsoftmax
from unsoftmax.errors import UsageError
from unsoftmax.models import GatedNetwork, Network
from unsoftmax.models.parts import ACTIVATIONS, GELU, RELU, SILU, TANH, activation_named


def network(name: str, outputs: tuple[int, ...] = (3,), seed: int = 0) -> Network:
    rng = np.random.default_rng(seed)
    draw = rng.standard_normal
    return Network(
        draw((6, 4)), draw((6, *outputs)), draw(6), draw(outputs), activation=activation_named(name)
    )


def test_values_and_jacobian_are_torchs() -> None:
    ours, rng = network("gelu"), np.random.default_rng(1)
    A, U, b, c = (torch.tensor(np.asarray(part)) for part in (ours.A, ours.U, ours.b, ours.c))

    def theirs(x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x @ A.T + b) @ U + c

    x = rng.standard_normal((5, 4))
    np.testing.assert_allclose(ours(x), theirs(torch.tensor(x)).numpy(), atol=1e-13)
    jacobian = torch.func.vmap(torch.func.jacrev(theirs))(torch.tensor(x)).numpy()
    np.testing.assert_allclose(ours.jacobian(x), jacobian, atol=1e-12)


def test_gated_values_and_jacobian_are_torchs() -> None:
    rng = np.random.default_rng(2)
    parts = [rng.standard_normal(shape) for shape in ((5, 4), (5, 4), (5, 3), (5,), (5,), (3,))]
    ours = GatedNetwork(*parts, activation=SILU)
    G, U, D, g, u, c = (torch.tensor(part) for part in parts)

    def theirs(x: torch.Tensor) -> torch.Tensor:
        return (functional.silu(x @ G.T + g) * (x @ U.T + u)) @ D + c

    x = rng.standard_normal((5, 4))
    np.testing.assert_allclose(ours(x), theirs(torch.tensor(x)).numpy(), atol=1e-12)
    jacobian = torch.func.vmap(torch.func.jacrev(theirs))(torch.tensor(x)).numpy()
    np.testing.assert_allclose(ours.jacobian(x), jacobian, atol=1e-11)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("outputs", [(), (3,)])
def test_order_and_reflection_of_neurons(name: str, outputs: tuple[int, ...]) -> None:
    ours = network(name, outputs)
    there = ours.activation.reflection
    flip = np.array([True, False, True, False, False, True])
    turn = np.where(flip, -1.0, 1.0)
    # φ(z) = sign·(φ(-z) + slope·z - constant) for sign² = 1
    weight = np.where(flip, float(there.sign), 1.0)
    U = (ours.U.T * weight).T
    linear = there.sign * there.slope * ours.A[flip].T @ ours.U[flip]
    c = np.asarray(ours.c) + there.sign * (there.slope * ours.b[flip] - there.constant) @ ours.U[flip]
    other = Network(ours.A * turn[:, None], U, ours.b * turn, c, linear, activation=ours.activation)
    order = np.array([3, 1, 5, 0, 2, 4])
    other = Network(other.A[order], other.U[order], other.b[order], c, linear, activation=ours.activation)
    x = np.random.default_rng(3).standard_normal((7, 4))
    if there.sign > 0:
        other = Network(other.A, other.U, other.b, _constant(ours, flip), -linear, activation=ours.activation)
    np.testing.assert_allclose(other(x), ours(x), atol=1e-12)
    assert ours.distance(other) < 1e-13
    np.testing.assert_allclose(ours.canonical()(x), ours(x), atol=1e-12)


def _constant(ours: Network, flip: np.ndarray) -> np.ndarray:
    """c after reflections with φ(-z) = φ(z) + slope·z + constant."""
    there = ours.activation.reflection
    return np.asarray(np.asarray(ours.c) - (there.slope * ours.b[flip] + there.constant) @ ours.U[flip])


def test_merged_neurons_relu_scale_and_no_neurons() -> None:
    twice = Network([[1.0, 2.0], [1.0, 2.0]], [1.0, 2.0], [0.5, 0.5], activation=GELU)
    once = Network([[1.0, 2.0]], [3.0], [0.5], activation=GELU)
    assert twice.distance(once) < 1e-15
    steep = Network([[2.0, 4.0]], [1.5], [1.0], activation=RELU)
    assert Network([[1.0, 2.0]], [3.0], [0.5], activation=RELU).distance(steep) < 1e-15
    assert once.distance(Network([[1.0, 2.0]], [3.0], [0.5], activation=TANH)) == 1.0
    empty = Network(np.zeros((1, 2)), [2.0], [0.5], 1.0, activation=GELU)
    assert empty.canonical().neurons == 0
    assert (
        empty.distance(
            Network(np.zeros((0, 2)), np.zeros(0), None, float(empty(np.zeros((1, 2)))[0]), activation=GELU)
        )
        < 1e-15
    )


def test_a_linear_part_is_explained_by_reflections() -> None:
    ours = network("gelu", (4,))
    form = ours.canonical()
    assert form.linear is not None
    plain = form.without_linear()
    assert plain is not None
    assert plain.linear is None
    assert ours.distance(plain) < 1e-12
    skip = Network(form.A, form.U, form.b, form.c, form.linear + 0.1, activation=GELU)
    assert skip.without_linear() is None


def test_affine_maps_around_a_network() -> None:
    rng = np.random.default_rng(4)
    M, s, x = rng.standard_normal((4, 4)), rng.standard_normal(4), rng.standard_normal((5, 4))
    after = rng.standard_normal((3, 3))
    skip = Network(*(rng.standard_normal(n) for n in ((6, 4), (6, 3), 6, 3, (4, 3))), activation=GELU)
    gated = GatedNetwork(*(rng.standard_normal(n) for n in ((6, 4), (6, 4), (6, 3), 6, 6, 3)))
    for ours in (skip, gated):
        np.testing.assert_allclose(ours.after(M, s)(x), ours(x @ M.T + s), atol=1e-11)
        np.testing.assert_allclose(ours.followed(after)(x), ours(x) @ after.T, atol=1e-11)
        np.testing.assert_allclose(ours.shifted(2.0)(x), ours(x) + 2.0, atol=1e-12)


def test_gated_symmetries() -> None:
    rng = np.random.default_rng(5)
    parts = [rng.standard_normal(shape) for shape in ((5, 4), (5, 4), (5, 3), (5,), (5,), (3,))]
    scale = np.array([2.0, -1.0, 0.5, 1.0, -3.0])
    for activation in (SILU, TANH):
        ours = GatedNetwork(*parts, activation=activation)
        turn = scale / np.abs(scale) if activation is TANH else np.ones(5)
        other = GatedNetwork(
            turn[::-1, None] * ours.gate[::-1],
            ours.up[::-1] * scale[::-1, None],
            (turn / scale)[::-1, None] * ours.down[::-1],
            (turn * ours.gate_bias)[::-1],
            (ours.up_bias * scale)[::-1],
            ours.c,
            activation=activation,
        )
        x = rng.standard_normal((6, 4))
        np.testing.assert_allclose(other(x), ours(x), atol=1e-11)
        assert ours.distance(other) < 1e-13
        assert ours.canonical().distance(other.canonical()) < 1e-13
    assert ours.distance(GatedNetwork(1.001 * ours.gate, *parts[1:], activation=TANH)) > 1e-4


def test_files_and_refusals(tmp_path: Path) -> None:
    gated = GatedNetwork(np.ones((2, 4)), np.eye(4)[:2], np.ones((2, 3)))
    for model in (network("silu"), network("tanh", ()), network("gelu").canonical(), gated):
        there = unsoftmax.load(model.save(tmp_path / "network.safetensors"))
        assert type(there) is type(model)
        x = np.random.default_rng(0).standard_normal((3, 4))
        np.testing.assert_array_equal(there(x), model(x))
    with pytest.raises(UsageError, match="b must be"):
        Network(np.eye(2), np.ones(2), np.ones(3))
    with pytest.raises(UsageError, match="NaN"):
        Network([[np.nan]], [1.0])
    with pytest.raises(UsageError, match="up must be"):
        GatedNetwork(np.eye(2), np.eye(3), np.ones(2))
    with pytest.raises(UsageError, match="takes"):
        network("gelu")(np.zeros((2, 3)))
