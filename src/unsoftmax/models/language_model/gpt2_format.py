"""GPT-2's names for the parts of a decoder. Its matrices map rows from the left, so they are stored
transposed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.models.language_model.hidden_activations import from_hidden_act, to_hidden_act
from unsoftmax.models.language_model.model import LanguageModel
from unsoftmax.models.language_model.one_eps import round_eps, same_eps
from unsoftmax.models.language_model.parts import Attention, DecoderLayer, FeedForward, LearnedPositions
from unsoftmax.models.parts import LayerNorm, Norm

__all__ = ["read", "write"]


def read(config: Mapping[str, Any], weights: Mapping[str, Array]) -> LanguageModel:
    """The decoder of a configuration and its weights."""
    if not config.get("scale_attn_weights", True) or config.get("scale_attn_by_inverse_layer_idx", False):
        raise UsageError("GPT-2 with scores that are not divided by √d_h is not supported")
    eps, heads = float(config["layer_norm_epsilon"]), int(config["n_head"])
    activation = from_hidden_act(config["activation_function"])

    def norm(name: str) -> LayerNorm:
        return LayerNorm(weights[f"{name}.weight"], weights[f"{name}.bias"], eps)

    layers = []
    for number in range(int(config["n_layer"])):
        name = f"transformer.h.{number}."
        query, key, value = np.split(weights[f"{name}attn.c_attn.weight"].T, 3)
        query_bias, key_bias, value_bias = np.split(weights[f"{name}attn.c_attn.bias"], 3)
        output, output_bias = weights[f"{name}attn.c_proj.weight"].T, weights[f"{name}attn.c_proj.bias"]
        network = FeedForward(
            weights[f"{name}mlp.c_fc.weight"].T,
            weights[f"{name}mlp.c_fc.bias"],
            weights[f"{name}mlp.c_proj.weight"].T,
            weights[f"{name}mlp.c_proj.bias"],
            activation,
        )
        attention = Attention(
            query, key, value, output, heads, heads, query_bias, key_bias, value_bias, output_bias
        )
        layers.append(DecoderLayer(norm(f"{name}ln_1"), attention, norm(f"{name}ln_2"), network))
    embedding = weights["transformer.wte.weight"]
    positions = LearnedPositions(weights["transformer.wpe.weight"])
    return LanguageModel(
        layers, norm("transformer.ln_f"), weights.get("lm_head.weight", embedding), positions, embedding
    )


def write(model: LanguageModel) -> tuple[dict[str, Any], dict[str, Array]]:
    """Configuration and weights of a decoder of GPT-2's shape. Without an embedding its rows are zero."""
    assert isinstance(model.positions, LearnedPositions)
    sizes = {(layer.attention.heads, layer.network.neurons) for layer in model.layers}
    shaped = all(
        isinstance(layer.network, FeedForward)
        and layer.attention.groups == layer.attention.heads
        and len(layer.attention.query) == model.width
        for layer in model.layers
    )
    if (
        len(sizes) != 1
        or not shaped
        or not same_eps(model.norms)
        or not all(isinstance(n, LayerNorm) for n in model.norms)
    ):
        raise UsageError(
            "GPT-2 has LayerNorm with one eps, plain networks and no shared keys; save this model with .save"
        )
    first = model.layers[0]
    embedding, tied = model.known_embedding
    config = {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "n_embd": model.width,
        "n_inner": first.network.neurons,
        "n_layer": len(model.layers),
        "n_head": first.attention.heads,
        "n_positions": len(model.positions.table),
        "vocab_size": model.outputs,
        "layer_norm_epsilon": round_eps(model.norms),
        "activation_function": to_hidden_act(first.network.activation),
        "bos_token_id": None,
        "eos_token_id": None,
        "tie_word_embeddings": tied,
        "dtype": "float64",
    }
    weights = {"transformer.wte.weight": embedding, "transformer.wpe.weight": model.positions.table}
    weights |= _norm_weights("transformer.ln_f", model.final_norm)
    if not tied:
        weights["lm_head.weight"] = model.unembedding
    for number, layer in enumerate(model.layers):
        weights |= _layer_weights(layer, f"transformer.h.{number}.")
    return config, weights


def _norm_weights(name: str, norm: Norm) -> dict[str, Array]:
    return {
        f"{name}.weight": norm.gain,
        f"{name}.bias": np.zeros(norm.width) if norm.bias is None else norm.bias,
    }


def _layer_weights(layer: DecoderLayer, name: str) -> dict[str, Array]:
    part, network = layer.attention, layer.network
    assert isinstance(network, FeedForward)
    projections = (part.query, part.query_bias), (part.key, part.key_bias), (part.value, part.value_bias)
    biases = [np.zeros(len(matrix)) if bias is None else bias for matrix, bias in projections]
    return {
        f"{name}attn.c_attn.weight": np.concatenate([matrix for matrix, _ in projections]).T,
        f"{name}attn.c_attn.bias": np.concatenate(biases),
        f"{name}attn.c_proj.weight": part.output.T,
        f"{name}attn.c_proj.bias": np.zeros(part.width) if part.output_bias is None else part.output_bias,
        f"{name}mlp.c_fc.weight": network.inner.T,
        f"{name}mlp.c_fc.bias": network.inner_bias,
        f"{name}mlp.c_proj.weight": network.outer.T,
        f"{name}mlp.c_proj.bias": network.outer_bias,
        **_norm_weights(f"{name}ln_1", layer.attention_norm),
        **_norm_weights(f"{name}ln_2", layer.network_norm),
    }
