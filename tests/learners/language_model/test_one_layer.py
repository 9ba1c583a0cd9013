"""The whole one-layer decoder, and the parts of models that are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.learners.language_model.asking import asked
from tests.models.language_model.float64_llama import in_float64, log_probabilities
from unsoftmax.arrays import Array
from unsoftmax.learners.language_model.gated_network import learn_gated_network
from unsoftmax.learners.language_model.one_layer import learn_language_model
from unsoftmax.meters.language_model.hidden_state import HiddenState
from unsoftmax.meters.language_model.precision import Precision
from unsoftmax.meters.language_model.value_path import measure_value_path
from unsoftmax.models.language_model import (
    GatedNetwork,
    LanguageModel,
    Rotary,
    random_gpt2,
    random_language_model,
)
from unsoftmax.models.language_model.distance import network_distance, relative
from unsoftmax.models.parts import GELU, GELU_TANH, TANH, Activation
from unsoftmax.outcomes import Status, Unresolved

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize(
    ("d", "m", "heads", "groups", "seed"),
    [(12, 8, 2, 1, 0), (12, 8, 3, 3, 1), (10, 5, 1, 1, 2), (16, 12, 4, 2, 3)],
)
def test_all_parameters_of_one_layer(d: int, m: int, heads: int, groups: int, seed: int) -> None:
    model = random_language_model(d, m, heads=heads, groups=groups, seed=seed)
    ledger = asked(model)
    found = learn_language_model(ledger, np.random.default_rng(seed))
    assert found.status is Status.EXACT, found.reason
    assert found.model is not None
    assert found.error_bound is not None
    distance = found.model.distance(model)
    assert distance <= 1e-10
    assert distance <= found.error_bound <= 1e-8
    fresh = np.random.default_rng(9).standard_normal((5, 30, d))
    np.testing.assert_allclose(found.model(fresh), model(fresh), atol=1e-10)
    assert set(found.parts) == {"unembedding", "value-path", "network", "eps", "heads", "rotary-base"}
    assert all(part.certificate.max_error <= 1e-9 for part in found.parts.values())


def test_another_eps_and_base(tmp_path: Path) -> None:
    """Held against `transformers`, not against our own forward pass. The embedding is the unembedding."""
    config = transformers.LlamaConfig(
        vocab_size=20,
        hidden_size=12,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        rms_norm_eps=3e-5,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        initializer_range=0.3,
    )
    transformers.set_seed(4)
    theirs = in_float64(transformers.LlamaForCausalLM(config))
    truth = LanguageModel.from_transformers(theirs)
    found = learn_language_model(
        asked(truth, lambda X: log_probabilities(theirs, X)), np.random.default_rng(0)
    )
    assert found.model is not None, found.reason
    assert found.model.distance(truth) <= 1e-9
    again = transformers.LlamaForCausalLM.from_pretrained(found.model.to_transformers(tmp_path))
    assert again.config.rms_norm_eps == pytest.approx(3e-5)


def _rounded(model: LanguageModel) -> Callable[[np.ndarray], np.ndarray]:
    return lambda X: np.round(model(X), 4)


def _float32(model: LanguageModel) -> Callable[[np.ndarray], np.ndarray]:
    return lambda X: model(X).astype(np.float32).astype(np.float64)


ONE = random_language_model(12, 8, heads=2, groups=1, seed=1)


@pytest.mark.parametrize(
    ("model", "function", "status", "word"),
    [
        (random_language_model(12, 8, heads=2, layers=2, seed=1), None, Status.OUTSIDE_CLASS, "deeper"),
        (random_gpt2(12, 8, layers=2, seed=1), None, Status.OUTSIDE_CLASS, "deeper"),
        (random_language_model(12, 8, vocabulary=9, seed=1), None, Status.NOT_IDENTIFIABLE, "9 tokens"),
        (ONE, _rounded(ONE), Status.UNRESOLVED, "shorter arithmetic"),
    ],
)
def test_what_is_no_such_layer_leaves_its_unembedding(
    model: LanguageModel, function: Callable[[np.ndarray], np.ndarray] | None, status: Status, word: str
) -> None:
    found = learn_language_model(asked(model, function), np.random.default_rng(0))
    assert found.model is None
    assert found.status is status
    assert word in found.reason
    part = found.parts["unembedding"]
    error = relative(part.value.matrix, model.canonical().unembedding)  # type: ignore[attr-defined]
    assert error <= part.error_bound <= 1e-3


def test_answers_in_float32_give_the_whole_layer_within_a_bound() -> None:
    model = random_language_model(12, 8, heads=2, groups=1, seed=1)
    found = learn_language_model(asked(model, _float32(model)), np.random.default_rng(0))
    assert found.status is Status.WITHIN_BOUND, found.reason
    assert found.model is not None
    assert found.error_bound is not None
    assert found.model.distance(model) <= found.error_bound <= 1e-3


def _rows_in_float32(model: LanguageModel) -> Callable[[np.ndarray], np.ndarray]:
    return lambda X: model(X.astype(np.float32).astype(np.float64))


@pytest.mark.parametrize("seed", [3, 4, 6])
def test_eps_of_a_narrow_layer_whose_rows_are_rounded(seed: int) -> None:
    """What tells the last eps apart from the first is below the rounding, and both are one."""
    model = random_language_model(8, 6, heads=2, groups=1, seed=seed).canonical()
    ledger = asked(model, _rows_in_float32(model))
    state = HiddenState(ledger, model.unembedding)
    path = measure_value_path(state, np.random.default_rng(seed), Precision(3e-8))
    assert path.first_eps == pytest.approx(1e-6, rel=1e-2)
    assert path.last_eps == pytest.approx(1e-6, rel=1e-2)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_narrow_layer_whose_rows_are_rounded(seed: int) -> None:
    """One circle bends the profile of a neuron; a first fit follows a bent valley for ten steps."""
    model = random_language_model(8, 6, heads=2, groups=1, seed=seed)
    found = learn_language_model(asked(model, _rows_in_float32(model)), np.random.default_rng(1))
    assert found.model is not None, found.reason
    assert found.model.distance(model) <= 1e-12


def test_one_wide_head_in_float32() -> None:
    """Weak directions of what it writes are not noise, and planes that hardly turn are told apart."""
    model = random_language_model(12, 8, heads=1, seed=42)
    found = learn_language_model(asked(model, _float32(model)), np.random.default_rng(1))
    assert found.status is Status.WITHIN_BOUND, found.reason
    assert found.model is not None
    assert found.error_bound is not None
    assert found.model.distance(model) <= found.error_bound <= 1e-2


def test_planes_that_turn_alike_are_not_identifiable() -> None:
    drawn = random_language_model(12, 8, heads=1, seed=41)
    model = LanguageModel(drawn.layers, drawn.final_norm, drawn.unembedding, Rotary(1.0))
    found = learn_language_model(asked(model), np.random.default_rng(1))
    assert found.status is Status.NOT_IDENTIFIABLE
    assert "turn alike" in found.reason


@pytest.mark.parametrize("base", [5e5, 1e7])
def test_planes_that_turn_by_a_hundred_thousandth_of_a_radian_are_told_apart(base: float) -> None:
    """One head of six planes, the slowest of which turns by 2e-5 or 1e-6 a row."""
    drawn = random_language_model(12, 8, heads=1, seed=1)
    model = LanguageModel(drawn.layers, drawn.final_norm, drawn.unembedding, Rotary(base))
    found = learn_language_model(asked(model), np.random.default_rng(1))
    assert found.model is not None, found.reason
    assert found.error_bound is not None
    assert found.model.distance(model) <= found.error_bound <= 1e-8


def _with_gates(activation: Activation) -> LanguageModel:
    layer = ONE.layers[0]
    assert isinstance(layer.network, GatedNetwork)
    other = replace(layer, network=replace(layer.network, activation=activation))
    return LanguageModel([other], ONE.final_norm, ONE.unembedding, ONE.positions)


@pytest.mark.parametrize("activation", [GELU, GELU_TANH], ids=str)
def test_which_activation_gates_have_is_found(activation: Activation) -> None:
    model = _with_gates(activation)
    found = learn_language_model(asked(model), np.random.default_rng(0))
    assert found.model is not None, found.reason
    network = found.model.layers[0].network
    assert isinstance(network, GatedNetwork)
    assert network.activation.name == activation.name
    assert found.model.distance(model) < 1e-10


def test_another_network_is_never_a_success() -> None:
    found = learn_language_model(asked(_with_gates(TANH)), np.random.default_rng(0))
    assert found.model is None
    assert found.status in (Status.OUTSIDE_CLASS, Status.UNRESOLVED)


def test_a_spent_budget_keeps_what_was_certified_before() -> None:
    found = learn_language_model(asked(ONE, budget=100), np.random.default_rng(0))
    assert found.model is None
    assert found.status is Status.BUDGET_SPENT
    assert "unembedding" in found.parts


@pytest.mark.parametrize("seed", range(3))
def test_value_path_and_eps(seed: int) -> None:
    model = random_language_model(12, 8, heads=2, groups=1, seed=seed).canonical()
    ledger = asked(model)
    path = measure_value_path(HiddenState(ledger, model.unembedding), np.random.default_rng(seed))
    part = model.layers[0].attention
    true = sum(part.output[:, 6 * h : 6 * h + 6] @ part.value for h in range(2))
    assert relative(path.matrix, np.asarray(true)) < 1e-8
    assert path.first_eps == pytest.approx(1e-6, rel=1e-5)
    assert path.last_eps == pytest.approx(1e-6, rel=1e-5)
    assert ledger.bill.total <= 4 * 12 + 60 + 24 + 24


@pytest.mark.parametrize(("d", "m", "seed"), [(10, 4, 0), (12, 12, 1)])
def test_gated_network_from_its_values_on_the_sphere(d: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    gate, up, down = (rng.standard_normal(shape) / np.sqrt(d) for shape in ((m, d), (m, d), (d, m)))
    true = GatedNetwork(gate, up, down)
    found, misfit = learn_gated_network(true, d, np.random.default_rng(seed))[0]
    assert found.neurons == m
    assert misfit < 1e-3

    def balanced(network: GatedNetwork) -> GatedNetwork:
        factor = np.sqrt(np.linalg.norm(network.down, axis=0) / np.linalg.norm(network.up, axis=1))
        return GatedNetwork(network.gate, factor[:, None] * network.up, network.down / factor)

    assert network_distance(balanced(found), balanced(true)) < 0.05


@pytest.mark.parametrize("seed", [0, 1])
def test_a_neuron_that_one_circle_hides_is_found_on_another(seed: int) -> None:
    """Where gate and up of a neuron are orthogonal to the plane of a circle, its second derivatives do not
    tell the two apart."""
    d, m, noise = 10, 6, 3e-7
    rng = np.random.default_rng(seed)
    gate, up, down = (rng.standard_normal(shape) / np.sqrt(d) for shape in ((m, d), (m, d), (d, m)))
    plane = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0][:, :2]  # the first circle's
    gate[0] -= plane @ (plane.T @ gate[0])
    up[0] -= plane @ (plane.T @ up[0])
    true = GatedNetwork(gate, up, down)

    def rounded(n: Array) -> Array:
        return true(n) + noise * rng.standard_normal(n.shape)

    found, _ = learn_gated_network(rounded, d, np.random.default_rng(seed), Precision(noise))[0]
    assert found.neurons == m
    cosines = (found.gate @ gate.T) / np.outer(
        np.linalg.norm(found.gate, axis=1), np.linalg.norm(gate, axis=1)
    )
    assert (np.sort(cosines.max(axis=0)) > 0.98).all()


def test_too_many_neurons_for_the_width() -> None:
    rng = np.random.default_rng(0)
    gate, up, down = (rng.standard_normal(shape) / 3.0 for shape in ((40, 8), (40, 8), (8, 40)))
    true = GatedNetwork(gate, up, down)
    with pytest.raises(Unresolved, match="more neurons"):
        learn_gated_network(true, 8, rng)
