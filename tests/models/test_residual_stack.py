"""Stacks as models: against torch, symmetries, files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import unsoftmax
from unsoftmax.errors import UsageError
from unsoftmax.models import ResidualStack, StackLayer, random_residual_stack
from unsoftmax.models.language_model.parts import FeedForward, GatedNetwork
from unsoftmax.models.parts import TANH

KINDS: list[dict[str, Any]] = [
    {},
    {"gated": True, "paths": True, "final_norm": False},
    {"layer_norm": True, "output_biases": True},
    {"activation": TANH},
]


def _torch(stack: ResidualStack, rows: torch.Tensor) -> torch.Tensor:
    def norm(x: torch.Tensor, part: Any) -> torch.Tensor:
        gain, eps = torch.tensor(part.gain), part.eps
        if type(part).__name__ == "LayerNorm":
            return torch.nn.functional.layer_norm(x, (len(gain),), gain, None, eps)
        return torch.nn.functional.rms_norm(x, (len(gain),), gain, eps)

    names: dict[str, Any] = {
        "gelu": torch.nn.functional.gelu,
        "silu": torch.nn.functional.silu,
        "tanh": torch.tanh,
    }
    x = rows
    for layer in stack.layers:
        if layer.path is not None:
            x = x + norm(x, layer.path_norm) @ torch.tensor(layer.path).T
        n, part = norm(x, layer.network_norm), layer.network
        act = names[part.activation.name]
        if isinstance(part, GatedNetwork):
            gate, up, down = (torch.tensor(a) for a in (part.gate, part.up, part.down))
            x = x + (act(n @ gate.T) * (n @ up.T)) @ down.T
        else:
            arrays = (part.inner, part.inner_bias, part.outer, part.outer_bias)
            inner, bias, outer, outer_bias = (torch.tensor(a) for a in arrays)
            x = x + act(n @ inner.T + bias) @ outer.T + outer_bias
    return x if stack.final_norm is None else norm(x, stack.final_norm)


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_torch(kind: dict[str, Any]) -> None:
    stack = random_residual_stack(8, 5, layers=3, seed=1, **kind)
    rows = np.random.default_rng(0).standard_normal((6, 2, 8))
    assert np.abs(stack(rows) - _torch(stack, torch.tensor(rows[:, -1])).numpy()).max() < 1e-13


@pytest.mark.parametrize("kind", KINDS)
def test_canonical_form_and_file_keep_the_function(kind: dict[str, Any], tmp_path: Path) -> None:
    stack = random_residual_stack(8, 5, layers=3, seed=1, **kind)
    rows = np.random.default_rng(0).standard_normal((6, 1, 8))
    assert np.abs(stack.canonical()(rows) - stack(rows)).max() < 1e-13
    loaded = unsoftmax.load(stack.save(tmp_path / "stack.safetensors"))
    assert isinstance(loaded, ResidualStack)
    assert np.array_equal(loaded(rows), stack(rows))
    assert stack.distance(loaded) == 0.0
    assert stack.distance(random_residual_stack(8, 5, layers=3, seed=2, **kind)) > 0.1


def test_distance_knows_order_factors_and_signs() -> None:
    rng = np.random.default_rng(3)
    gated = random_residual_stack(6, 4, gated=True, paths=True, seed=1)
    layers = []
    for layer in gated.layers:
        order, factor = rng.permutation(4), rng.uniform(-2.0, 2.0, 4)
        part = layer.network
        assert isinstance(part, GatedNetwork)
        turned = replace(
            part,
            gate=part.gate[order],
            up=(factor[:, None] * part.up)[order],
            down=(part.down / factor)[:, order],
        )
        layers.append(StackLayer(layer.network_norm, turned, layer.path_norm, layer.path))
    assert gated.distance(ResidualStack(layers, gated.final_norm)) < 1e-14
    odd = random_residual_stack(6, 4, activation=TANH, seed=1)
    layers = []
    for layer in odd.layers:
        net = layer.network
        assert isinstance(net, FeedForward)
        turned_net = replace(net, inner=-net.inner, inner_bias=-net.inner_bias, outer=-net.outer)
        layers.append(StackLayer(layer.network_norm, turned_net))
    assert odd.distance(ResidualStack(layers, odd.final_norm)) < 1e-14
    assert odd.distance(ResidualStack(odd.layers[::-1], odd.final_norm)) > 0.1
    assert odd.distance(ResidualStack(odd.layers[:1] * 2, odd.final_norm)) > 0.1
    assert odd.distance(random_residual_stack(6, 5, activation=TANH, seed=1)) == float("inf")


def test_misfits_are_refused() -> None:
    stack = random_residual_stack(6, 4, seed=1)
    with pytest.raises(UsageError, match="at least one layer"):
        ResidualStack([])
    with pytest.raises(UsageError, match="needs its norm"):
        StackLayer(stack.layers[0].network_norm, stack.layers[0].network, None, np.eye(6))
    with pytest.raises(UsageError, match="widths"):
        ResidualStack([stack.layers[0], random_residual_stack(5, 4).layers[0]])
    with pytest.raises(UsageError, match="scale"):
        ResidualStack(stack.layers, None, 0.0)
