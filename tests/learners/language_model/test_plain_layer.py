"""One-layer decoders of GPT-2's shape: LayerNorm, learned positions, biases, a plain network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import unsoftmax
from tests.learners.language_model.asking import asked
from unsoftmax.learners.encoder_block.pre_norm_rows import PreNormRows
from unsoftmax.learners.encoder_block.state import BlockShape, BlockState
from unsoftmax.learners.language_model.one_layer import learn_language_model
from unsoftmax.learners.language_model.plain_fit import Answered, PlainFit, PlainState
from unsoftmax.meters.language_model.differences import jacobian
from unsoftmax.models.language_model import FeedForward, LanguageModel, LearnedPositions, random_gpt2
from unsoftmax.models.parts import GELU, GELU_TANH, RELU, SILU, Activation
from unsoftmax.outcomes import Status

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def _with(model: LanguageModel, activation: Activation, eps: float) -> LanguageModel:
    """The model with another activation and another eps of all norms."""
    layer = model.layers[0]
    assert isinstance(layer.network, FeedForward)
    layer = replace(
        layer,
        attention_norm=replace(layer.attention_norm, eps=eps),
        network_norm=replace(layer.network_norm, eps=eps),
        network=replace(layer.network, activation=activation),
    )
    final = replace(model.final_norm, eps=eps)
    return LanguageModel([layer], final, model.unembedding, model.positions)


@pytest.mark.parametrize(
    ("d", "m", "heads", "activation", "eps", "seed"),
    [(8, 10, 2, GELU_TANH, 1e-5, 5), (8, 6, 2, GELU, 1e-6, 6), (9, 6, 3, SILU, 3e-5, 7)],
)
def test_all_parameters_of_one_layer(
    d: int, m: int, heads: int, activation: Activation, eps: float, seed: int
) -> None:
    """Activation, eps, number of heads and neurons are not told."""
    model = _with(random_gpt2(d, m, heads=heads, length=16, seed=seed), activation, eps)
    ledger = asked(model)
    found = learn_language_model(ledger, np.random.default_rng(seed))
    assert found.status is Status.EXACT, found.reason
    assert found.model is not None
    assert found.error_bound is not None
    assert found.model.distance(model) <= min(found.error_bound, 1e-9)
    fresh = np.random.default_rng(9).standard_normal((5, 16, d))
    np.testing.assert_allclose(found.model(fresh), model(fresh), atol=1e-11)
    assert set(found.parts) == {"unembedding", "heads", "network", "eps", "positions"}


def test_a_model_of_transformers_is_recovered_and_loads_again(tmp_path: Path) -> None:
    config = transformers.GPT2Config(
        vocab_size=16, n_positions=16, n_embd=8, n_layer=1, n_head=2, n_inner=8, initializer_range=0.3
    )
    transformers.set_seed(2)
    theirs = transformers.GPT2LMHeadModel(config).double().eval()
    result = unsoftmax.recover(theirs, seed=0)
    assert result.status.recovered, result.reason
    assert isinstance(result.model, LanguageModel)
    assert LanguageModel.from_transformers(theirs).distance(result.model) <= 1e-8
    again = transformers.GPT2LMHeadModel.from_pretrained(result.model.to_transformers(tmp_path))
    assert again.config.n_layer == 1


def test_a_decoder_of_opts_shape_is_recovered() -> None:
    """ReLU, which rows of every size may cross, and a table of positions with an offset."""
    config = transformers.OPTConfig(
        vocab_size=16,
        hidden_size=8,
        word_embed_proj_dim=8,
        ffn_dim=10,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=16,
        init_std=0.3,
    )
    transformers.set_seed(5)
    theirs = transformers.OPTForCausalLM(config).double().eval()
    with torch.no_grad():
        for values in theirs.parameters():
            if values.dim() == 1:
                values.add_(0.5 * torch.randn_like(values))
    result = unsoftmax.recover(theirs, seed=0)
    assert isinstance(result.model, LanguageModel), result.reason
    assert isinstance(result.model.layers[0].network, FeedForward)
    assert result.model.layers[0].network.activation is RELU
    table = theirs.model.decoder.embed_positions.weight.detach().numpy()[2:]
    assert isinstance(result.model.positions, LearnedPositions)
    seen = table - table.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(result.model.positions.table, seen, atol=1e-8)


def test_without_positions_none_are_made_up() -> None:
    model = random_gpt2(8, 6, heads=2, length=16, seed=2)
    plain = LanguageModel(model.layers, model.final_norm, model.unembedding, None)
    found = learn_language_model(asked(plain), np.random.default_rng(0))
    assert found.model is not None, found.reason
    assert found.model.positions is None
    assert found.model.distance(plain) <= 1e-9


def _bent(model: LanguageModel):  # type: ignore[no-untyped-def]
    return lambda X: model(X + 1e-3 * np.sin(X))


def _far_key(model: LanguageModel):  # type: ignore[no-untyped-def]
    """Rows two places back count a little more, which learned positions cannot do."""

    def answer(X: np.ndarray) -> np.ndarray:
        moved = X.copy()
        if X.shape[1] > 2:
            moved[:, -3] *= 1.0 + 0.02 * np.tanh(moved[:, -1:, 0])
        return model(moved)

    return answer


@pytest.mark.parametrize("function", [_bent, _far_key, lambda model: lambda X: np.round(model(X), 6)])
def test_what_is_no_such_layer_is_never_a_success(function) -> None:  # type: ignore[no-untyped-def]
    model = random_gpt2(8, 6, heads=2, length=10, seed=4)
    result = unsoftmax.recover(function(model), width=8, outputs=model.outputs, family="language-model")
    assert result.model is None


def test_derivatives_of_the_fit() -> None:
    rng = np.random.default_rng(0)
    k, heads, r, m = 5, 2, 2, 4
    shape = BlockShape(True, False, GELU, k)
    block = BlockState(
        rng.standard_normal((heads, r, k + 1)),
        rng.standard_normal((heads, r, k)),
        rng.standard_normal((heads, r, k)),
        rng.standard_normal((k, heads * r + 1)),
        rng.standard_normal((m, k + 1)),
        rng.standard_normal((k, m + 1)),
        np.log([0.1, 0.2]),
        np.empty((3, 0)),
    )
    state = PlainState(block, rng.standard_normal((3, k)), float(np.log(0.3)))
    data = [Answered(rng.standard_normal((4, n, k)), 0.1 * rng.standard_normal((4, k)), 0.3) for n in (1, 3)]
    fit = PlainFit(shape, data)
    linear = fit.linearise(state)
    columns = jacobian(
        lambda steps: np.array([fit.residual(state.moved(step)) for step in steps]),
        np.zeros(state.unknowns),
        1e-3,
    )
    step, weights = rng.standard_normal(state.unknowns), rng.standard_normal(len(columns))
    np.testing.assert_allclose(linear.forward(step), columns @ step, atol=1e-6)
    np.testing.assert_allclose(linear.backward(weights), columns.T @ weights, atol=1e-6)
    np.testing.assert_allclose(linear.normal(), columns.T @ columns, atol=1e-5)
    np.testing.assert_allclose(linear.diagonal(), (columns**2).sum(axis=0), atol=1e-5)


@pytest.mark.parametrize(("k", "seed"), [(6, 11), (12, 8)])
def test_rows_are_found_where_what_attention_adds_nearly_cancels_them(k: int, seed: int) -> None:
    """Behind them the stream nearly vanishes; they are as large as what attention adds."""
    rng = np.random.default_rng(seed)
    path, constant = 1.2 * rng.standard_normal((k, k)) / np.sqrt(k), 0.6 * rng.standard_normal(k)
    rows = PreNormRows(BlockShape(True, False, GELU, k), path, constant, 1e-5, 1e-5)
    wanted = 3e-3 * rng.standard_normal((40, k))
    found = rows.all_rows_of(wanted, np.zeros(k), rng)
    np.testing.assert_allclose(rows.stream(found), wanted, atol=1e-12)
