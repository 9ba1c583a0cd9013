"""The collapsed layer against its definition, computed sublayer by sublayer."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from unsoftmax.arrays import Array, rms
from unsoftmax.float_formats import FloatFormat
from unsoftmax.meters.deep.collapsed_layer import CollapsedLayer, Scales
from unsoftmax.meters.deep.last_norm import StreamAnswers, read_last_norm
from unsoftmax.meters.deep.sphere_curvature import SphereStencil, measure_curvature
from unsoftmax.meters.language_model.hidden_state import HiddenState
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.models import (
    LanguageModel,
    ResidualStack,
    StackLayer,
    random_language_model,
    random_residual_stack,
)
from unsoftmax.models.parts import RMSNorm
from unsoftmax.outcomes import OutsideClass, Unresolved


class _Streams:
    """Streams of a stack, in a float format of its own."""

    def __init__(self, stack: ResidualStack, dtype: type = np.float64) -> None:
        self.stack, self.width, self.dtype = stack, stack.width, dtype
        self.held = FloatFormat.FLOAT32 if dtype is np.float32 else None

    def __call__(self, rows: Array, /) -> Array:
        return self.stack(rows[:, None]).astype(self.dtype).astype(np.float64)


def _plain(stack: ResidualStack) -> ResidualStack:
    """With a final norm of gain one."""
    return ResidualStack(stack.layers, RMSNorm(np.ones(stack.width), None, 1e-6))


def _beside(values: Array, n: Array) -> Array:
    return np.asarray(values - n * (values * n).mean(axis=1, keepdims=True))


def _network(layer: StackLayer, x: Array) -> Array:
    return layer.network(layer.network_norm.gain * x)


def _path(layer: StackLayer, x: Array) -> Array:
    assert layer.path is not None
    assert layer.path_norm is not None
    return np.asarray((layer.path_norm.gain * x) @ layer.path.T)


def _definition(stack: ResidualStack, n: Array, step: float = 1e-4) -> tuple[Array, Array]:
    """c0 and c1 by the formulas, derivatives of sublayers by differences."""
    before, order = np.zeros_like(n), np.zeros_like(n)
    for layer in stack.layers:
        parts = [partial(_network, layer)]
        if layer.path is not None:
            parts.insert(0, partial(_path, layer))
        for part in parts:
            along = _beside(before, n)
            order = order + (part(n + step * along) - part(n - step * along)) / (2.0 * step)
            before = before + part(n)
    first = _beside(before, n)
    return first, _beside(order, n) - (n * before).mean(axis=1, keepdims=True) * first


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("final", [False, True])
def test_both_orders_are_those_of_the_definition(gated: bool, final: bool) -> None:
    stack = random_residual_stack(10, 6, layers=3, gated=gated, paths=gated, final_norm=False, seed=3)
    stack = _plain(stack) if final else stack
    rng = np.random.default_rng(1)
    layer = CollapsedLayer.measured(_Streams(stack), rng, terms=6, order=1)
    n = unit_rows(rng, 20, 10)
    found, true = layer.jets(n), _definition(stack, n)
    for each, value, bar, limit in zip(found, true, layer.errors, (1e-9, 1e-5), strict=True):
        off = rms(each - value) / rms(value)
        assert off < limit
        assert off < 10.0 * bar + 1e-7  # the definition's own differences leave 1e-8


def test_scales_follow_the_arithmetic() -> None:
    stack = _plain(random_residual_stack(10, 6, seed=1))
    long, short = (
        CollapsedLayer.measured(_Streams(stack, kind), np.random.default_rng(0), terms=3)
        for kind in (np.float64, np.float32)
    )
    assert short.scales.top > 4.0 * long.scales.top
    assert long.errors[0] < 1e-8 < short.errors[0] < 1e-2
    n = unit_rows(np.random.default_rng(5), 20, 10)
    off = rms(short(n) - _definition(stack, n)[0]) / rms(short(n))
    assert off < 5.0 * short.errors[0]


def test_one_scale_is_a_worse_reading_than_five() -> None:
    stack = _plain(random_residual_stack(10, 6, seed=1))
    one, five = (
        CollapsedLayer.measured(_Streams(stack), np.random.default_rng(0), terms=terms) for terms in (1, 5)
    )
    n = unit_rows(np.random.default_rng(5), 20, 10)
    true = _definition(stack, n)[0]
    assert rms(five(n) - true) < 1e-3 * rms(one(n) - true)


def test_a_bound_on_rows_keeps_scales_above_it() -> None:
    stack = _plain(random_residual_stack(9, 6, seed=1))
    layer = CollapsedLayer.measured(_Streams(stack), np.random.default_rng(0), terms=4, bound=3000.0)
    assert (3.0 / layer.scales.nodes).max() <= 3000.0
    with pytest.raises(Unresolved, match="too short"):
        CollapsedLayer.measured(_Streams(stack), np.random.default_rng(0), terms=4, bound=5.0)


def test_scales_solve_polynomials() -> None:
    scales = Scales(0.3, 4)
    coefficients = np.array([2.0, -1.0, 0.5, 3.0])
    values = np.vander(scales.nodes, 4, increasing=True) @ coefficients
    assert np.allclose(scales.weights(4) @ values, coefficients)


def test_log_probabilities_are_read_through_the_unembedding() -> None:
    model = random_language_model(8, 5, layers=2, seed=2)

    class Prompts:
        width, outputs = 8, model.outputs

        def ask(self, batch: Array) -> Array:
            return model(batch)

    matrix = model.canonical().unembedding
    state = HiddenState(Prompts(), matrix)  # type: ignore[arg-type]

    class States:
        width, held = 8, None

        def __call__(self, rows: Array, /) -> Array:
            return state(rows[:, None])

    layer = CollapsedLayer.measured(States(), np.random.default_rng(0), terms=5, order=1)
    n = unit_rows(np.random.default_rng(1), 10, 8)
    assert rms(layer(n) - _written_alone(model, n)) < 1e-8 * rms(layer(n))


def _written_alone(model: LanguageModel, n: Array) -> Array:
    """P·F of a decoder's single rows: value paths and networks of all layers side by side."""
    total = np.zeros_like(n)
    for layer in model.layers:
        part = layer.attention
        value = np.repeat(part.value.reshape(part.groups, part.head_width, -1), part.shared_by, axis=0)
        total += (layer.attention_norm.gain * n) @ (part.output @ value.reshape(-1, part.width)).T
        total += layer.network(layer.network_norm.gain * n)
    return _beside(total, n)


def test_hessians_hold_one_square_a_neuron() -> None:
    rng = np.random.default_rng(2)
    inner, outer = rng.standard_normal((3, 9)) / 3.0, rng.standard_normal((3, 9))

    def function(n: Array) -> Array:
        return _beside(np.tanh(n @ inner.T) @ outer, n)

    frame = np.linalg.qr(rng.standard_normal((9, 9)))[0]
    points = rng.standard_normal((5, 4))
    points *= 3.0 / np.linalg.norm(points, axis=1, keepdims=True)
    found = measure_curvature(function, frame, points, 5, SphereStencil(1e-3, 4))
    squares = np.einsum("ja,jb->jab", inner @ found.along, inner @ found.along)
    span = np.concatenate([squares, np.eye(5)[None]]).reshape(4, -1)
    forms = found.forms.reshape(-1, 25)
    left = forms - forms @ np.linalg.pinv(span) @ span
    assert np.abs(left).max() < 1e-7 * np.abs(forms).max()


@pytest.mark.parametrize("layer_norm", [False, True])
def test_the_last_norm_is_read_through_any_depth(layer_norm: bool) -> None:
    stack = random_residual_stack(7, 5, layers=3, layer_norm=layer_norm, seed=4)
    found = read_last_norm(lambda rows: stack(rows[:, None]), 7, np.random.default_rng(0))
    assert stack.final_norm is not None
    assert found.norm is not None
    assert type(found.norm) is type(stack.final_norm)
    assert np.abs(found.norm.gain - stack.final_norm.gain).max() < 1e-10
    streams = StreamAnswers(lambda rows: stack(rows[:, None]), found, 7)
    assert streams.width == 7 - layer_norm


def test_a_stream_behind_nothing_has_a_scale() -> None:
    stack = random_residual_stack(7, 5, final_norm=False, seed=4)
    found = read_last_norm(lambda rows: -2.0 * stack(rows[:, None]), 7, np.random.default_rng(0))
    assert found.norm is None
    assert abs(found.scale + 2.0) < 1e-10
    with pytest.raises(OutsideClass, match="as they are"):
        read_last_norm(lambda rows: stack(rows[:, None]) ** 2, 7, np.random.default_rng(0))
