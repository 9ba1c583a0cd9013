"""Llama models of the package `transformers` in float64: it computes RMSNorm and rotary angles in float32
whatever the weights are."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


class _Norm(torch.nn.Module):
    def __init__(self, weight: Any, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = weight, eps

    def forward(self, x: Any) -> Any:
        return self.weight * x / torch.sqrt((x * x).mean(-1, keepdim=True) + self.eps)


class _Rotary(torch.nn.Module):
    def __init__(self, theta: float, width: int) -> None:
        super().__init__()
        self.frequencies = torch.tensor(theta ** (-np.arange(0, width, 2) / width))

    def forward(self, x: Any, position_ids: Any) -> Any:
        angles = position_ids[..., None] * self.frequencies
        angles = torch.cat([angles, angles], -1)
        return torch.cos(angles), torch.sin(angles)


def in_float64(llama: Any) -> Any:
    """The model with every step in float64."""
    llama = llama.double().eval()
    eps = llama.config.rms_norm_eps
    for layer in llama.model.layers:
        layer.input_layernorm = _Norm(layer.input_layernorm.weight, eps)
        layer.post_attention_layernorm = _Norm(layer.post_attention_layernorm.weight, eps)
    llama.model.norm = _Norm(llama.model.norm.weight, eps)
    llama.model.rotary_emb = _Rotary(llama.config.rope_parameters["rope_theta"], llama.config.head_dim)
    return llama


def log_probabilities(model: Any, X: np.ndarray) -> np.ndarray:
    with torch.no_grad():
        answers = (
            model(inputs_embeds=torch.tensor(X, dtype=model.dtype)).logits[:, -1].double().log_softmax(-1)
        )
    return np.asarray(answers.numpy())
