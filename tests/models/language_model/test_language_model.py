"""Decoders: the forward pass against `transformers`, every gauge a symmetry, canonical form, distance,
files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unsoftmax
from tests.models.language_model.float64_llama import in_float64, log_probabilities
from unsoftmax.errors import ModelFileError, UsageError
from unsoftmax.models.language_model import (
    Attention,
    DecoderLayer,
    FeedForward,
    GatedNetwork,
    LanguageModel,
    LearnedPositions,
    Rotary,
    random_gpt2,
    random_language_model,
)
from unsoftmax.models.parts import GELU, LayerNorm, RMSNorm

transformers = pytest.importorskip("transformers")


def _llama(layers: int = 2, seed: int = 0, **sizes: Any) -> LanguageModel:
    return random_language_model(
        12, 10, heads=6 if sizes.get("groups") == 2 else 2, layers=layers, seed=seed, **sizes
    )


def _prompts(model: LanguageModel, length: int = 5, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((4, length, model.width))


@pytest.mark.parametrize(("layers", "groups", "seed"), [(1, None, 0), (1, 2, 1), (3, 2, 2)])
def test_llama_as_transformers_computes_it(
    tmp_path: Path, layers: int, groups: int | None, seed: int
) -> None:
    model = _llama(layers, seed, groups=groups)
    theirs = in_float64(transformers.LlamaForCausalLM.from_pretrained(model.to_transformers(tmp_path)))
    X = _prompts(model, 9)
    np.testing.assert_allclose(model(X), log_probabilities(theirs, X), atol=1e-13)


@pytest.mark.parametrize(("layers", "activation"), [(1, "gelu_new"), (3, "gelu")])
def test_gpt2_as_transformers_computes_it(tmp_path: Path, layers: int, activation: str) -> None:
    model = random_gpt2(12, 20, heads=3, layers=layers, seed=layers)
    if activation == "gelu":
        layer = model.layers[0]
        network = layer.network
        assert isinstance(network, FeedForward)
        exact = [replace(each, network=replace(each.network, activation=GELU)) for each in model.layers]
        model = LanguageModel(exact, model.final_norm, model.unembedding, model.positions, model.embedding)
    theirs = transformers.GPT2LMHeadModel.from_pretrained(model.to_transformers(tmp_path)).double().eval()
    X = _prompts(model, 7)
    np.testing.assert_allclose(model(X), log_probabilities(theirs, X), atol=1e-13)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("draw", [random_language_model, random_gpt2])
def test_tied_embeddings_are_one_matrix_for_transformers(tmp_path: Path, draw: Any, tied: bool) -> None:
    model = draw(8, 6, tied=tied, seed=3)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(model.to_transformers(tmp_path))
    theirs = in_float64(theirs) if _rotary(model) else theirs.double().eval()
    assert theirs.config.tie_word_embeddings is tied
    ids = np.random.default_rng(0).integers(model.outputs, size=(4, 5))
    rows = theirs.get_input_embeddings().weight.detach().numpy()[ids]
    np.testing.assert_array_equal(rows, model.embed(ids))
    np.testing.assert_allclose(model(rows), log_probabilities(theirs, rows), atol=1e-13)
    again = LanguageModel.from_transformers(tmp_path)
    assert again.embedding is not None
    assert np.array_equal(again.embedding, again.unembedding) is tied
    assert again.distance(model) < 1e-14


@pytest.mark.parametrize("tied", [False, True])
def test_from_transformers_gives_the_model_back(tmp_path: Path, tied: bool) -> None:
    config = transformers.LlamaConfig(
        vocab_size=17,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        rms_norm_eps=1e-4,
    )
    theirs = transformers.LlamaForCausalLM(config)
    ours = LanguageModel.from_transformers(theirs)
    X = _prompts(ours)
    np.testing.assert_allclose(ours(X), log_probabilities(in_float64(theirs), X), atol=1e-13)
    ours.to_transformers(tmp_path)
    again = LanguageModel.from_transformers(transformers.LlamaForCausalLM.from_pretrained(tmp_path))
    assert again.distance(ours) < 1e-14
    assert again.layers[0].attention_norm.eps == 1e-4


def test_a_saved_gpt2_folder_is_read_without_transformers(tmp_path: Path) -> None:
    config = transformers.GPT2Config(vocab_size=13, n_embd=8, n_layer=2, n_head=2, n_positions=16)
    theirs = transformers.GPT2LMHeadModel(config)
    theirs.save_pretrained(tmp_path)
    ours = LanguageModel.from_transformers(tmp_path)
    X = _prompts(ours)
    np.testing.assert_allclose(ours(X), log_probabilities(theirs.double().eval(), X), atol=1e-13)
    assert ours.embedding is not None
    np.testing.assert_allclose(ours.unembedding, ours.embedding)


@pytest.mark.parametrize(
    "model", [_llama(2, 3, groups=2), _llama(1, 4), random_gpt2(12, 20, heads=3, layers=2, seed=5)]
)
def test_the_canonical_form_is_the_same_function_and_a_fixed_point(model: LanguageModel) -> None:
    X, form = _prompts(model), model.canonical()
    np.testing.assert_allclose(form(X), model(X), atol=1e-12)
    again = form.canonical().tensors()
    for name, array in form.tensors().items():
        np.testing.assert_allclose(again[name], array, atol=1e-11, err_msg=name)
    assert model.distance(form) < 1e-13


def _gauges(model: LanguageModel) -> dict[str, LanguageModel]:
    """The same function with other parameters, one symmetry each."""
    rng = np.random.default_rng(7)
    layer, d = model.layers[0], model.width
    part, width, each = layer.attention, layer.attention.head_width, layer.attention.shared_by

    def changed(attention: Attention = part, **changes: Any) -> LanguageModel:
        first = replace(layer, attention=attention, **changes)
        return LanguageModel([first, *model.layers[1:]], model.final_norm, model.unembedding, model.positions)

    def blocks(squares: list[np.ndarray]) -> np.ndarray:
        whole = np.zeros((len(squares) * width, len(squares) * width))
        for i, square in enumerate(squares):
            whole[i * width : (i + 1) * width, i * width : (i + 1) * width] = square
        return whole

    mixes = [rng.standard_normal((width, width)) + 3.0 * np.eye(width) for _ in range(part.groups)]
    spread = [mix for mix in mixes for _ in range(each)]
    half = width // 2
    turns = []
    for _ in range(part.groups):
        c, s = np.diag(rng.standard_normal(half)), np.diag(rng.standard_normal(half))
        turns.append(np.block([[c, -s], [s, c]]))
    scores = turns if _rotary(model) else mixes
    all_scores = [turn for turn in scores for _ in range(each)]
    order = np.concatenate([np.arange(width) + width * h for h in reversed(range(part.heads))])
    shared = np.concatenate([np.arange(width) + width * g for g in reversed(range(part.groups))])
    gain = 0.5 + rng.random(d)
    norm = layer.attention_norm

    def bias(values: Any, rows: Any) -> Any:
        return None if values is None else values[rows]

    def plain(values: Any, mix: Any) -> Any:
        return None if values is None else mix @ values

    back = np.linalg.inv(blocks(all_scores)).T
    found = {
        "values and outputs of a group": changed(
            replace(
                part,
                value=blocks(mixes) @ part.value,
                output=part.output @ np.linalg.inv(blocks(spread)),
                value_bias=plain(part.value_bias, blocks(mixes)),
            )
        ),
        "queries and keys of a group": changed(
            replace(
                part,
                key=blocks(scores) @ part.key,
                query=back @ part.query,
                key_bias=plain(part.key_bias, blocks(scores)),
                query_bias=plain(part.query_bias, back),
            )
        ),
        "order of heads and groups": changed(
            replace(
                part,
                query=part.query[order],
                output=part.output[:, order],
                key=part.key[shared],
                value=part.value[shared],
                query_bias=bias(part.query_bias, order),
                key_bias=bias(part.key_bias, shared),
                value_bias=bias(part.value_bias, shared),
            )
        ),
        "gain of a norm": changed(
            replace(part, query=part.query / gain, key=part.key / gain, value=part.value / gain),
            attention_norm=type(norm)(
                norm.gain * gain, None if norm.bias is None else norm.bias * gain, norm.eps
            ),
        ),
        "a constant in all logits": LanguageModel(
            model.layers, model.final_norm, model.unembedding + rng.standard_normal(d), model.positions
        ),
    }
    network, neurons = layer.network, rng.permutation(layer.network.neurons)
    if isinstance(network, GatedNetwork):
        factor = rng.standard_normal(network.neurons)
        found["order and factors of gated neurons"] = changed(
            network=GatedNetwork(
                network.gate[neurons],
                (factor[:, None] * network.up)[neurons],
                (network.down / factor)[:, neurons],
            )
        )
    else:
        found["order of neurons"] = changed(
            network=FeedForward(
                network.inner[neurons],
                network.inner_bias[neurons],
                network.outer[:, neurons],
                network.outer_bias,
            )
        )
        found["a key bias"] = changed(replace(part, key_bias=rng.standard_normal(len(part.key))))
        found["what is written along the mean"] = changed(
            replace(part, output=part.output + rng.standard_normal(part.output.shape[1]))
        )
        value_bias = rng.standard_normal(len(part.value))
        assert part.value_bias is not None
        assert part.output_bias is not None
        found["a value bias is an output bias"] = changed(
            replace(
                part,
                value_bias=value_bias,
                output_bias=part.output_bias + part.output @ (part.value_bias - value_bias),
            )
        )
    return found


def _rotary(model: LanguageModel) -> bool:
    return not isinstance(model.positions, LearnedPositions)


@pytest.mark.parametrize("model", [_llama(2, 6, groups=2), random_gpt2(12, 20, heads=3, layers=2, seed=7)])
def test_every_gauge_changes_neither_the_function_nor_the_distance(model: LanguageModel) -> None:
    X = _prompts(model)
    for name, other in _gauges(model).items():
        np.testing.assert_allclose(other(X), model(X), atol=1e-10, err_msg=name)
        assert other.distance(model) < 1e-11, name
        assert any(
            not np.array_equal(a, b)
            for a, b in zip(other.tensors().values(), model.tensors().values(), strict=False)
        ), name


@pytest.mark.parametrize("part", ["query", "key", "value", "output"])
def test_a_changed_attention_shows_in_the_distance(part: str) -> None:
    model = _llama(1, 8)
    layer = model.layers[0]
    matrix = getattr(layer.attention, part).copy()
    matrix[1, 2] += 1e-5
    other = LanguageModel(
        [replace(layer, attention=replace(layer.attention, **{part: matrix}))],
        model.final_norm,
        model.unembedding,
        model.positions,
    )
    assert 1e-7 < other.distance(model) < 1e-3


def test_changed_norms_networks_and_shapes_show_in_the_distance() -> None:
    model = _llama(1, 9)
    layer = model.layers[0]
    eps = replace(layer, network_norm=RMSNorm(layer.network_norm.gain, None, 2e-6))
    assert LanguageModel([eps], model.final_norm, model.unembedding, model.positions).distance(
        model
    ) == pytest.approx(0.5)
    fewer = random_language_model(12, 9, heads=2, seed=9, vocabulary=18)
    assert fewer.distance(model) == float("inf")
    turned = LanguageModel(model.layers, model.final_norm, model.unembedding, Rotary(500.0))
    assert turned.distance(model) > 0.1


def test_degrees_of_freedom_are_the_rank_of_the_jacobian() -> None:
    """At a small size: answers on many prompts, differentiated by every entry of every tensor."""
    model = random_language_model(4, 3, heads=2, groups=1, vocabulary=6, seed=3)
    rng, step = np.random.default_rng(0), 1e-6
    X = [rng.standard_normal((40, length, 4)) for length in (1, 2, 4)]

    def answers(other: LanguageModel) -> np.ndarray:
        return np.concatenate([other(x).ravel() for x in X])

    tensors, columns = model.tensors(), []
    for name, array in tensors.items():
        if array.ndim == 0 or name == "embedding":
            continue
        for index in np.ndindex(array.shape):
            moved = []
            for sign in (1.0, -1.0):
                other = array.copy()
                other[index] += sign * step
                moved.append(answers(LanguageModel.from_tensors(tensors | {name: other})))
            columns.append((moved[0] - moved[1]) / (2 * step))
    values = np.linalg.svd(np.array(columns), compute_uv=False)
    assert int((values > 1e-7 * values[0]).sum()) == model.parameters


@pytest.mark.parametrize("model", [_llama(2, 10, groups=2), random_gpt2(12, 20, heads=3, layers=2, seed=11)])
def test_saved_and_loaded(tmp_path: Path, model: LanguageModel) -> None:
    again = unsoftmax.load(model.save(tmp_path / "model.safetensors"))
    assert isinstance(again, LanguageModel)
    np.testing.assert_array_equal(again(_prompts(model)), model(_prompts(model)))


def test_files_that_are_none(tmp_path: Path) -> None:
    tensors = _llama(1, 12).tensors()
    for name in tensors:
        if name in ("embedding", "positions.theta"):
            continue
        with pytest.raises(ModelFileError):
            LanguageModel.from_tensors({other: array for other, array in tensors.items() if other != name})
    with pytest.raises(ModelFileError, match="surplus"):
        LanguageModel.from_tensors(tensors | {"surplus": np.zeros(2)})
    with pytest.raises(ModelFileError, match=r"config\.json"):
        LanguageModel.from_transformers(tmp_path)


def test_misuse_is_told() -> None:
    model = random_gpt2(8, 8, length=4)
    with pytest.raises(UsageError, match="positions for 4"):
        model(np.zeros((1, 5, 8)))
    with pytest.raises(UsageError, match="groups"):
        Attention(np.eye(4), np.eye(4), np.eye(4), np.eye(4), 4, 3)
    with pytest.raises(UsageError, match="RMSNorm with a bias"):
        LanguageModel([], RMSNorm(np.ones(4), np.ones(4)), np.ones((5, 4)))
    with pytest.raises(UsageError, match="neither"):
        LanguageModel([], LayerNorm(np.ones(4)), np.ones((5, 4))).to_transformers("nowhere")


def test_embeddings_make_rows_of_tokens() -> None:
    model = random_gpt2(8, 8, seed=2)
    assert model.embedding is not None
    np.testing.assert_array_equal(model.embed([[3, 1]])[0], model.embedding[[3, 1]])
    layer = model.layers[0]
    assert isinstance(layer, DecoderLayer)
