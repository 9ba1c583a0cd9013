"""Decoders of two layers through log-probabilities: whole, or in parts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import unsoftmax
from unsoftmax.arrays import Array
from unsoftmax.learners.deep_decoder.decoder_fit import DecoderFit, DecoderState
from unsoftmax.meters.deep.collapsed_attention import CollapsedAttention
from unsoftmax.meters.deep.collapsed_layer import Scales
from unsoftmax.meters.language_model.hidden_state import HiddenState
from unsoftmax.meters.language_model.prompts import unit_rows
from unsoftmax.models import LanguageModel, ResidualStack, random_language_model
from unsoftmax.models.language_model import Attention, Rotary
from unsoftmax.models.language_model.forward import attend, decode
from unsoftmax.models.residual_stack import one_row_stack
from unsoftmax.outcomes import Status


def _one_head_a_layer(model: LanguageModel) -> LanguageModel:
    layers = []
    for layer in model.layers:
        part, width = layer.attention, layer.attention.head_width
        first = Attention(
            part.query[:width], part.key[:width], part.value[:width], part.output[:, :width], 1, 1
        )
        layers.append(replace(layer, attention=first))
    return LanguageModel(layers, model.final_norm, model.unembedding, model.positions)


def test_a_whole_decoder_of_two_layers_is_recovered() -> None:
    model = _one_head_a_layer(random_language_model(12, 4, heads=3, layers=2, seed=1))
    result = unsoftmax.recover(model, family="language-model")
    assert result.status is Status.EXACT, result.reason
    assert isinstance(result.model, LanguageModel)
    fresh = np.random.default_rng(7).standard_normal((10, 20, 12))
    assert np.abs(result.model(fresh) - model(fresh)).max() < 1e-8
    assert len(result.model.layers) == 2


def test_layers_are_a_part_where_heads_are_too_many() -> None:
    model = random_language_model(12, 4, heads=3, layers=2, seed=1)  # six heads need 19 columns
    result = unsoftmax.recover(model, family="language-model")
    assert result.status is Status.UNRESOLVED
    assert "layers" in result.parts, result.reason
    stack = result.parts["layers"].value
    assert isinstance(stack, ResidualStack)
    assert one_row_stack(model).distance(stack) < 1e-9


def test_layers_are_a_part_of_decoders_in_float32() -> None:
    model = random_language_model(12, 3, heads=2, layers=2, seed=2)

    def short(X: Array) -> Array:
        return model(X.astype(np.float32).astype(np.float64)).astype(np.float32).astype(np.float64)

    result = unsoftmax.recover(short, width=12, outputs=model.outputs, family="language-model")
    assert result.status is Status.UNRESOLVED
    assert "float32" in result.reason
    part = result.parts["layers"]
    distance = one_row_stack(model).distance(part.value)
    assert distance < 1e-5
    assert distance <= part.error_bound < 1e-4
    rng = np.random.default_rng(3)
    faint = 10.0 ** -rng.uniform(0.0, 14.0, (100, 1, 1)) * rng.standard_normal((100, 1, 12))
    assert np.abs(part.value(faint) - one_row_stack(model)(faint)).max() < 1e-3


def test_heads_of_all_layers_act_side_by_side() -> None:
    model = random_language_model(8, 3, heads=2, layers=3, seed=4).canonical()

    class Prompts:
        width, outputs = 8, model.outputs

        def ask(self, batch: Array) -> Array:
            return model(batch)

    state = HiddenState(Prompts(), model.unembedding)  # type: ignore[arg-type]

    def networks(n: Array) -> Array:
        return np.asarray(sum(layer.network(n) for layer in model.layers))

    rows = unit_rows(np.random.default_rng(0), 12, 8).reshape(4, 3, 8)
    found = CollapsedAttention(state, networks, Scales(4.0**-2, 6))(2, rows[:, :2], rows[:, 2])
    prompt = np.concatenate([np.zeros((4, 2, 8)), rows], axis=1)
    parts = [attend(layer.attention, prompt, model.positions, last_only=True)[:, 0] for layer in model.layers]
    total = np.asarray(sum(parts))
    last = rows[:, 2]
    assert np.abs(found - (total - last * (total * last).mean(axis=1, keepdims=True))).max() < 1e-6


@pytest.mark.parametrize(("heads", "groups", "layers"), [(1, 1, 1), (4, 2, 2), (2, 1, 3)])
def test_derivatives_by_heads_of_all_layers_are_exact(heads: int, groups: int, layers: int) -> None:
    model = random_language_model(8, 3, heads=heads, groups=groups, layers=layers, seed=layers).canonical()
    assert isinstance(model.positions, Rotary)
    rng = np.random.default_rng(heads)
    prompts = [rng.standard_normal((2, length, 8)) for length in (1, 2, 5)]
    seen = [model.final_norm(decode(model.layers, rows, model.positions)) for rows in prompts]
    fit = DecoderFit(model.layers, model.final_norm.eps, prompts, np.concatenate(seen))
    state = DecoderState(
        tuple(layer.attention for layer in model.layers), float(np.log(model.positions.theta))
    )
    assert np.abs(fit.residual(state)).max() < 1e-14
    step = rng.standard_normal(len(state.flat))
    either = [fit.residual(fit.moved(state, size * step)) for size in (1e-5, -1e-5, 2e-5, -2e-5)]
    slope = (8.0 * (either[0] - either[1]) - (either[2] - either[3])) / 12e-5
    exact = fit.linearise(state).forward(step)
    assert np.abs(slope - exact).max() < 1e-8 * np.abs(exact).max()
