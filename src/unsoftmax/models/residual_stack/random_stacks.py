"""Seeded random stacks for demos, tests and benchmarks."""

from __future__ import annotations

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.language_model.parts import FeedForward, GatedNetwork, Network
from unsoftmax.models.parts import GELU, SILU, Activation, LayerNorm, Norm, RMSNorm
from unsoftmax.models.residual_stack.model import ResidualStack, StackLayer

__all__ = ["random_residual_stack"]


def random_residual_stack(  # noqa: PLR0913 - an entry point
    d: int,
    m: int,
    *,
    layers: int = 2,
    gated: bool = False,
    paths: bool = False,
    layer_norm: bool = False,
    output_biases: bool = False,
    final_norm: bool = True,
    activation: Activation | None = None,
    seed: int = 0,
) -> ResidualStack:
    """Networks of m neurons with entries of size 1/√d, gains near one, eps 1e-6.

    gated: SwiGLU, without biases. paths: a square matrix before every network.

    >>> random_residual_stack(8, 5, layers=3, gated=True, paths=True).neurons
    [5, 5, 5]
    """
    rng = np.random.default_rng(seed)
    kind: type[Norm] = LayerNorm if layer_norm else RMSNorm

    def matrix(*shape: int) -> Array:
        return np.asarray(rng.standard_normal(shape) / np.sqrt(d))

    def norm() -> Norm:
        return kind(1.0 + 0.2 * rng.standard_normal(d), None, 1e-6)

    def network() -> Network:
        if gated:
            return GatedNetwork(matrix(m, d), matrix(m, d), matrix(d, m), activation or SILU)
        bias = matrix(d) if output_biases else np.zeros(d)
        return FeedForward(matrix(m, d), 0.3 * rng.standard_normal(m), matrix(d, m), bias, activation or GELU)

    stack = [
        StackLayer(norm(), network(), norm(), matrix(d, d)) if paths else StackLayer(norm(), network())
        for _ in range(layers)
    ]
    return ResidualStack(stack, norm() if final_norm else None)
