"""Deep stacks through `recover`: small ones of every kind, and targets that are none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import unsoftmax
from unsoftmax.arrays import Array
from unsoftmax.learners.deep_stack.stack_fit import StackFit
from unsoftmax.learners.deep_stack.stack_state import start_state
from unsoftmax.learners.deep_stack.too_many_neurons import NeuronLimit
from unsoftmax.meters.deep.collapsed_layer import CollapsedLayer
from unsoftmax.meters.deep.sphere_curvature import SphereStencil
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.models import ResidualStack, random_residual_stack
from unsoftmax.models.parts import GELU, RELU, SILU, TANH, Norm
from unsoftmax.outcomes import Status, Unresolved
from unsoftmax.recovery.result import Result
from unsoftmax.solvers.deep_stack.layer_order import layers_of
from unsoftmax.solvers.deep_stack.neurons import Collapsed, GatedNeurons, Neurons, PlainNeurons
from unsoftmax.solvers.deep_stack.soft_layers import _Fit


def _recover(f: Callable[[Array], Array], d: int, **options: Any) -> Result:
    return unsoftmax.recover(lambda X: f(X), width=d, outputs=d, family="network", **options)


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"final_norm": False},
        {"output_biases": True, "layers": 3},
        {"layer_norm": True, "activation": SILU},
        {"activation": TANH},
        {"activation": RELU},
        {"activation": RELU, "output_biases": True, "layers": 3, "final_norm": False},
        {"activation": RELU, "layer_norm": True},
        {"gated": True, "paths": True},
    ],
    ids=str,
)
def test_stacks_of_every_kind_are_recovered(kind: dict[str, Any]) -> None:
    stack = random_residual_stack(11, 3, **{"layers": 2, "seed": 5, **kind})
    result = _recover(stack, 11)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, ResidualStack)
    assert result.error_bound is not None
    assert stack.distance(result.model) <= min(1e-9, result.error_bound)
    assert result.queries.total < 9000


@pytest.mark.parametrize("kind", [{}, {"gated": True, "paths": True}], ids=str)
def test_eps_of_every_norm_may_be_another(kind: dict[str, Any]) -> None:
    stack = random_residual_stack(11, 3, seed=8, **kind)
    several = iter([1e-5, 1e-12, 3e-7, 1e-3, 1e-9])

    def changed(norm: Norm) -> Norm:
        return replace(norm, eps=next(several))

    layers = []
    for layer in stack.layers:
        first = None if layer.path_norm is None else changed(layer.path_norm)
        layers.append(replace(layer, path_norm=first, network_norm=changed(layer.network_norm)))
    assert stack.final_norm is not None
    target = ResidualStack(layers, changed(stack.final_norm))
    result = _recover(target, 11)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, ResidualStack)
    assert target.distance(result.model) < 1e-10
    rng = np.random.default_rng(3)
    faint = 10.0 ** -rng.uniform(0.0, 14.0, (100, 1, 1)) * rng.standard_normal((100, 1, 11))
    assert np.abs(result.model(faint) - target(faint)).max() < 1e-9


def test_widths_may_differ_and_skips_may_be_scaled() -> None:
    narrow, wide = random_residual_stack(10, 2, seed=1), random_residual_stack(10, 4, seed=2)
    mixed = ResidualStack([narrow.layers[0], wide.layers[0]], wide.final_norm)
    result = _recover(mixed, 10)
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, ResidualStack)
    assert result.model.neurons == [2, 4]
    layers = narrow.layers

    def scaled(X: Array) -> Array:
        x = X[:, -1]
        for layer in layers:
            x = 0.8 * x + layer.network(layer.network_norm(x))
        return x

    result = _recover(scaled, 10)
    assert result.status is Status.EXACT, result.reason
    rows = np.random.default_rng(9).standard_normal((5, 1, 10))
    assert result.model is not None
    assert np.abs(result.model(rows) - scaled(rows)).max() < 1e-10


def test_it_is_found_without_being_told() -> None:
    stack = random_residual_stack(10, 3, seed=7)
    result = unsoftmax.recover(lambda X: stack(X), width=10, outputs=10)
    assert result.status is Status.EXACT, result.reason
    assert result.family == "residual-stack"


def _post_norm(X: Array) -> Array:
    stack = random_residual_stack(8, 4, seed=3)
    x = X[:, -1]
    for layer in stack.layers:
        x = layer.network_norm(x + layer.network(x))
    return x


def _two_activations(X: Array) -> Array:
    one, two = random_residual_stack(9, 2, seed=3), random_residual_stack(9, 2, activation=TANH, seed=4)
    return ResidualStack([one.layers[0], two.layers[0]], one.final_norm)(X)


def _too_many(X: Array) -> Array:
    return random_residual_stack(8, 12, layers=3, gated=True, seed=3)(X)


class _Dropout:
    """A stack that forgets a tenth of its hidden units at every call."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.stack = random_residual_stack(8, 4, seed=3)

    def __call__(self, X: Array) -> Array:
        x = X[:, -1]
        for layer in self.stack.layers:
            x = x + layer.network(layer.network_norm(x)) * (self.rng.uniform(size=x.shape) > 0.1)
        return x


def _bounded_input(X: Array) -> Array:
    stack = random_residual_stack(8, 4, seed=3)
    norms = np.linalg.norm(X, axis=2, keepdims=True)
    return stack(X * np.minimum(1.0, 50.0 / np.maximum(norms, 1e-300)))


def _kinked_and_smooth(X: Array) -> Array:
    one, two = random_residual_stack(9, 2, activation=RELU, seed=3), random_residual_stack(9, 2, seed=4)
    return ResidualStack([one.layers[0], two.layers[0]], one.final_norm)(X)


def _with_a_sine(X: Array) -> Array:
    x = X[:, -1]
    return np.asarray(random_residual_stack(9, 3, activation=RELU, seed=3)(X) + 1e-6 * np.sin(3.0 * x))


@pytest.mark.parametrize(
    ("target", "d"),
    [
        (_post_norm, 8),
        (_two_activations, 9),
        (_too_many, 8),
        (_Dropout(), 8),
        (_bounded_input, 8),
        (_kinked_and_smooth, 9),
        (_with_a_sine, 9),
    ],
    ids=[
        "post-norm",
        "two activations",
        "beyond capacity",
        "dropout",
        "bounded input",
        "ReLU and GELU",
        "ReLU and a faint sine",
    ],
)
def test_what_is_no_such_stack_is_never_said_to_be_one(target: Callable[[Array], Array], d: int) -> None:
    result = _recover(target, d)
    assert not result.status.recovered
    assert result.model is None
    assert result.reason


def test_beyond_capacity_the_final_norm_is_a_part() -> None:
    result = _recover(_too_many, 8)
    assert result.status is Status.UNRESOLVED
    part = result.parts["final-norm"].value
    truth = random_residual_stack(8, 12, layers=3, gated=True, seed=3).final_norm
    assert truth is not None
    assert np.abs(part.norm.gain - truth.gain).max() < 1e-9


def test_far_beyond_capacity_it_ends_early_and_says_how_many_neurons_there_are() -> None:
    stack = random_residual_stack(24, 48, layers=4, gated=True, paths=True, seed=1)
    result = _recover(stack, 24)
    assert result.status is Status.UNRESOLVED
    assert "at least 87 gated or 174 plain" in result.reason
    assert result.queries.total < 16_000  # all second derivatives would take 38,000
    assert "final-norm" in result.parts


@pytest.mark.parametrize(("neurons", "more"), [(12, False), (16, False), (32, True), (64, True)])
def test_neurons_are_counted_before_they_are_looked_for(neurons: int, more: bool) -> None:
    for seed in range(3):
        stack = random_residual_stack(16, neurons, layers=2, gated=True, paths=True, seed=seed)

        class Stream:
            width, held = 16, None

            def __call__(self, rows: Array, stack: ResidualStack = stack) -> Array:
                assert stack.final_norm is not None
                return np.asarray(stack(rows[:, None]) / stack.final_norm.gain)

        rng = np.random.default_rng(seed)
        fine = CollapsedLayer.measured(Stream(), rng, terms=2)
        layer = fine.single(fine.jitter(rng))
        limit = NeuronLimit.of(16, 66)
        assert limit is not None
        stencil = SphereStencil.for_jitter(layer.jitter(rng), 2)
        with pytest.raises(Unresolved, match="at least 34 gated") if more else nullcontext():
            limit.refuse_more(layer, stencil, rng)


def test_a_torch_stack_is_recovered() -> None:
    class Stack(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(10) for _ in range(3)])
            self.read = torch.nn.ModuleList([torch.nn.Linear(10, 3) for _ in range(2)])
            self.write = torch.nn.ModuleList([torch.nn.Linear(3, 10) for _ in range(2)])

        def forward(self, X: torch.Tensor) -> torch.Tensor:
            x = X[:, -1]
            for norm, read, write in zip(self.norms, self.read, self.write, strict=False):
                x = x + write(torch.nn.functional.gelu(read(norm(x))))
            last: torch.Tensor = self.norms[-1](x)
            return last

    torch.manual_seed(0)
    module = Stack().double()

    def answers(X: Array, dtype: torch.dtype) -> Array:
        with torch.no_grad():
            return np.asarray(module.to(dtype)(torch.from_numpy(X).to(dtype)).double())

    rows = np.random.default_rng(1).standard_normal((4, 1, 10))
    exact = answers(rows, torch.float64)
    result = _recover(lambda X: answers(X, torch.float64), 10)
    assert result.status is Status.EXACT, result.reason
    assert np.abs(result.unwrap()(rows) - exact).max() < 1e-10
    short = _recover(lambda X: answers(X, torch.float32), 10)
    assert short.status is Status.WITHIN_BOUND, short.reason
    assert np.abs(short.unwrap()(rows) - exact).max() < 5e-6
    assert isinstance(result.model, ResidualStack)
    assert isinstance(short.model, ResidualStack)
    assert short.error_bound is not None
    assert result.model.distance(short.model) <= short.error_bound < 1e-4


@pytest.mark.parametrize("gated", [False, True])
def test_jacobians_are_derivatives(gated: bool) -> None:
    rng = np.random.default_rng(0)
    layers = np.array([0, 0, 1, 1, 1])

    def draw(*shape: int) -> Array:
        return np.asarray(rng.standard_normal(shape))

    neurons: Neurons
    neurons = GatedNeurons(draw(5, 4), draw(5, 4)) if gated else PlainNeurons(draw(5, 4), draw(5), GELU)
    paths = draw(2, 4, 4) if gated else None
    state = start_state(neurons, draw(5, 4), layers, paths, draw(2, 4), 0.1, normed=True)
    fit = StackFit(draw(6, 4), draw(6, 4), np.full((6, 1), 0.5))
    jacobian = fit.linearise(state)
    step = 1e-6 * rng.standard_normal(state.unknowns)
    # residuals do not depend on the gauge that `moved` fixes
    seen = (fit.residual(state.moved(step)) - fit.residual(state.moved(-step))) / 2.0
    assert np.abs(jacobian.forward(step) - seen).max() < 1e-9 * np.abs(seen).max() + 1e-13
    weights = rng.standard_normal(24)
    assert np.isclose(weights @ jacobian.forward(step), step @ jacobian.backward(weights))
    soft = _Fit(
        Collapsed(neurons, draw(5, 4), paths[0] if paths is not None else None, draw(4), 0.0),
        unit_rows(rng, 7, 4),
        draw(7, 4),
        3,
    )
    place = soft.start(rng)
    step = 1e-6 * rng.standard_normal(len(place))
    seen = (soft.residual(place + step) - soft.residual(place - step)) / 2.0
    assert np.abs(soft.linearise(place).forward(step) - seen).max() < 1e-8 * np.abs(seen).max()


def test_an_order_that_is_none_of_layers_is_refused() -> None:
    with pytest.raises(Unresolved, match="do not fall into layers"):
        layers_of(np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]))
