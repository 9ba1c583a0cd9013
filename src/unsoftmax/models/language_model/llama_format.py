"""Llama's names for the parts of a decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.models.language_model.hidden_activations import from_hidden_act, to_hidden_act
from unsoftmax.models.language_model.model import LanguageModel
from unsoftmax.models.language_model.one_eps import round_eps, same_eps
from unsoftmax.models.language_model.parts import Attention, DecoderLayer, GatedNetwork, Rotary
from unsoftmax.models.parts import RMSNorm

__all__ = ["read", "write"]

_PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")


def read(config: Mapping[str, Any], weights: Mapping[str, Array]) -> LanguageModel:
    """The decoder of a configuration and its weights."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise UsageError(f"scaled rotary positions ({rope}) are not supported; only rope_type 'default' is")
    theta = float(rope.get("rope_theta", config.get("rope_theta", 10_000.0)))
    heads = int(config["num_attention_heads"])
    groups = int(config.get("num_key_value_heads") or heads)
    eps, activation = float(config["rms_norm_eps"]), from_hidden_act(config["hidden_act"])
    layers = []
    for number in range(int(config["num_hidden_layers"])):
        name = f"model.layers.{number}."
        query, key, value, output = (weights[f"{name}self_attn.{part}.weight"] for part in _PROJECTIONS)
        biases = (weights.get(f"{name}self_attn.{part}.bias") for part in _PROJECTIONS)
        gate, up, down = (weights[f"{name}mlp.{part}_proj.weight"] for part in ("gate", "up", "down"))
        if f"{name}mlp.gate_proj.bias" in weights:
            raise UsageError("a gated network with biases (mlp_bias) is not supported")
        layers.append(
            DecoderLayer(
                RMSNorm(weights[f"{name}input_layernorm.weight"], None, eps),
                Attention(query, key, value, output, heads, groups, *biases),
                RMSNorm(weights[f"{name}post_attention_layernorm.weight"], None, eps),
                GatedNetwork(gate, up, down, activation),
            )
        )
    embedding = weights["model.embed_tokens.weight"]
    unembedding = weights.get("lm_head.weight", embedding)
    return LanguageModel(
        layers, RMSNorm(weights["model.norm.weight"], None, eps), unembedding, Rotary(theta), embedding
    )


def write(model: LanguageModel) -> tuple[dict[str, Any], dict[str, Array]]:
    """Configuration and weights of a decoder of Llama's shape. Without an embedding its rows are zero."""
    assert isinstance(model.positions, Rotary)
    first = model.layers[0] if model.layers else None
    if first is None or not isinstance(first.network, GatedNetwork):
        raise UsageError("Llama has at least one layer, and gated networks; save this model with .save")
    sizes = {
        (layer.attention.heads, layer.attention.groups, layer.attention.head_width, layer.network.neurons)
        for layer in model.layers
    }
    norms = model.norms
    if len(sizes) > 1 or not same_eps(norms) or not all(isinstance(norm, RMSNorm) for norm in norms):
        raise UsageError("Llama has RMSNorm with one eps and layers of one shape; save this model with .save")
    part = first.attention
    biased = any(bias is not None for layer in model.layers for bias in _biases(layer.attention))
    embedding, tied = model.known_embedding
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": model.width,
        "intermediate_size": first.network.neurons,
        "num_hidden_layers": len(model.layers),
        "num_attention_heads": part.heads,
        "num_key_value_heads": part.groups,
        "head_dim": part.head_width,
        "vocab_size": model.outputs,
        "max_position_embeddings": 2048,
        "rms_norm_eps": round_eps(norms),
        "rope_theta": model.positions.theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": model.positions.theta},
        "hidden_act": to_hidden_act(first.network.activation),
        "attention_bias": biased,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "dtype": "float64",
    }
    weights = {"model.embed_tokens.weight": embedding, "model.norm.weight": model.final_norm.gain}
    if not tied:
        weights["lm_head.weight"] = model.unembedding
    for number, layer in enumerate(model.layers):
        weights |= _layer_weights(layer, f"model.layers.{number}.", biased)
    return config, weights


def _biases(part: Attention) -> tuple[Array | None, ...]:
    return part.query_bias, part.key_bias, part.value_bias, part.output_bias


def _layer_weights(layer: DecoderLayer, name: str, biased: bool) -> dict[str, Array]:
    part, network = layer.attention, layer.network
    assert isinstance(network, GatedNetwork)
    matrices = (part.query, part.key, part.value, part.output)
    out = {
        f"{name}input_layernorm.weight": layer.attention_norm.gain,
        f"{name}post_attention_layernorm.weight": layer.network_norm.gain,
        f"{name}mlp.gate_proj.weight": network.gate,
        f"{name}mlp.up_proj.weight": network.up,
        f"{name}mlp.down_proj.weight": network.down,
    }
    for projection, matrix, bias in zip(_PROJECTIONS, matrices, _biases(part), strict=True):
        out[f"{name}self_attn.{projection}.weight"] = matrix
        if biased:
            out[f"{name}self_attn.{projection}.bias"] = np.zeros(len(matrix)) if bias is None else bias
    return out
