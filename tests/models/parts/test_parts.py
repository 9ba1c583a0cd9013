"""Norms and activations against torch, their derivatives against torch's autograd."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import functional

from unsoftmax.errors import UsageError
from unsoftmax.models.parts import ACTIVATIONS, LayerNorm, Norm, RMSNorm, activation_named

Torch = Callable[[torch.Tensor], torch.Tensor]
REFERENCE: dict[str, Torch] = {
    "relu": torch.relu,
    "gelu": functional.gelu,
    "gelu-tanh": partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
    "tanh": torch.tanh,
    "softplus": functional.softplus,
    "sigmoid": torch.sigmoid,
}


def _points() -> torch.Tensor:
    return torch.linspace(-9.0, 9.0, 400, dtype=torch.float64, requires_grad=True)


def test_every_activation_has_a_reference() -> None:
    assert set(ACTIVATIONS) == set(REFERENCE)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations_and_their_derivatives_are_torchs(name: str) -> None:
    ours, z = activation_named(name), _points()
    value = REFERENCE[name](z)
    (first,) = torch.autograd.grad(value.sum(), z, create_graph=True)
    points = z.detach().numpy()
    np.testing.assert_allclose(ours(points), value.detach().numpy(), rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(ours.first(points), first.detach().numpy(), rtol=1e-11, atol=1e-14)
    if ours.smooth:
        (second,) = torch.autograd.grad(first.sum(), z)
        np.testing.assert_allclose(ours.second(points), second.numpy(), rtol=1e-10, atol=1e-12)
    else:
        assert not ours.second(points).any()


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_reflections(name: str) -> None:
    ours, z = activation_named(name), np.linspace(-6.0, 6.0, 101)
    there = ours.reflection
    np.testing.assert_allclose(ours(-z), there.sign * ours(z) + there.slope * z + there.constant, atol=1e-14)


def _norms(rng: np.random.Generator, width: int, eps: float) -> list[tuple[Norm, Torch]]:
    gain, bias = rng.normal(1.0, 0.4, width), rng.normal(0.0, 0.4, width)
    weight, shift = torch.tensor(gain), torch.tensor(bias)
    return [
        (LayerNorm(gain, bias, eps), lambda x: functional.layer_norm(x, (width,), weight, shift, eps)),
        (LayerNorm(gain, None, eps), lambda x: functional.layer_norm(x, (width,), weight, None, eps)),
        (RMSNorm(gain, None, eps), lambda x: functional.rms_norm(x, (width,), weight, eps)),
    ]


@pytest.mark.parametrize("eps", [1e-12, 1e-5, 0.3])
@pytest.mark.parametrize("width", [3, 8])
def test_norms_and_their_jacobians_are_torchs(width: int, eps: float) -> None:
    rng = np.random.default_rng(width)
    for ours, theirs in _norms(rng, width, eps):
        for size in (1e-3, 1.0, 50.0):
            x = size * rng.standard_normal((3, width))
            np.testing.assert_allclose(ours(x), theirs(torch.tensor(x)).numpy(), rtol=1e-11, atol=1e-11)
            jacobian = torch.func.vmap(torch.func.jacrev(theirs))(torch.tensor(x)).numpy()
            scale = np.abs(jacobian).max()
            np.testing.assert_allclose(ours.jacobian(x), jacobian, rtol=1e-8, atol=1e-10 * scale)
            direction, weights = rng.standard_normal((2, 3, width))
            there = np.einsum("nij,nj->ni", jacobian, direction)
            back = np.einsum("nij,ni->nj", jacobian, weights)
            np.testing.assert_allclose(ours.forward(x, direction), there, rtol=1e-8, atol=1e-10 * scale)
            np.testing.assert_allclose(ours.backward(x, weights), back, rtol=1e-8, atol=1e-10 * scale)


def test_wrong_parts_are_refused() -> None:
    with pytest.raises(UsageError, match="choose one of"):
        activation_named("gleu")
    with pytest.raises(UsageError, match="bias must be"):
        LayerNorm(np.ones(3), np.ones(2))
    with pytest.raises(UsageError, match="eps must be"):
        RMSNorm(np.ones(3), eps=-1.0)
    with pytest.raises(UsageError, match="NaN"):
        RMSNorm(np.array([np.nan]))
    with pytest.raises(UsageError, match="gain must be"):
        LayerNorm(np.ones((2, 2)))
