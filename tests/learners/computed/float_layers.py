"""Layers of torch whose arithmetic is short, their scalar or vector answers, and what they hold."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from unsoftmax.arrays import Array
from unsoftmax.models import MultiHead, SingleHead


def random_layer(
    d: int, heads: int, seed: int, *, gain: float = 1.0, bias: float = 0.3
) -> torch.nn.MultiheadAttention:
    """As torch makes it, but for drawn biases. gain: of the query weights."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    layer = torch.nn.MultiheadAttention(d, heads, batch_first=True)
    with torch.no_grad():
        layer.in_proj_bias.copy_(bias * torch.randn(3 * d, generator=generator))
        layer.out_proj.bias.copy_(bias * torch.randn(d, generator=generator))
        layer.in_proj_weight[:d] *= gain
    return layer.eval()


@dataclass
class FloatLayer:
    """An asker: readout · layer(X)[last], every step in `dtype`. readout None: vector answers."""

    layer: torch.nn.MultiheadAttention
    dtype: torch.dtype
    readout: Array | None
    asked: int = 0
    input_bound: float | None = None
    max_length: int | None = None

    @classmethod
    def scalar(
        cls, layer: torch.nn.MultiheadAttention, seed: int, dtype: torch.dtype = torch.float32
    ) -> FloatLayer:
        d = layer.embed_dim
        readout = np.random.default_rng(seed + 991).standard_normal(d) / np.sqrt(d)
        return cls(layer, dtype, readout).stored()

    def stored(self) -> FloatLayer:
        """With the weights as the format holds them."""
        layer = copy.deepcopy(self.layer).to(self.dtype)
        readout = None
        if self.readout is not None:
            readout = torch.as_tensor(self.readout).to(self.dtype).double().numpy()
        return FloatLayer(layer, self.dtype, readout, input_bound=self.input_bound)

    @property
    def width(self) -> int:
        return int(self.layer.embed_dim)

    @property
    def outputs(self) -> int | None:
        return self.width if self.readout is None else None

    def batch_size(self, length: int, /) -> int:
        return max(1, (1 << 19) // (length * self.width))

    def ask(self, batch: Array, /) -> Array:
        self.asked += len(batch)
        return self.answer(batch, self.dtype)

    def answer(self, batch: Array, dtype: torch.dtype) -> Array:
        layer = self.layer if dtype == self.dtype else copy.deepcopy(self.layer).to(dtype)
        with torch.no_grad():
            X = torch.as_tensor(batch).to(dtype)
            out = layer(X[:, -1:], X, X, need_weights=False)[0][:, 0]
            if self.readout is not None:
                out = out @ torch.as_tensor(self.readout).to(dtype)
        return np.asarray(out.double().numpy())

    def truth(self) -> MultiHead:
        """The heads, merged in float64."""
        d, H = self.width, int(self.layer.num_heads)
        r = d // H
        named = {name: part.detach().double().numpy() for name, part in self.layer.named_parameters()}
        weights, biases = named["in_proj_weight"], named["in_proj_bias"]
        out, readout = named["out_proj.weight"].T, self.readout
        constant = named["out_proj.bias"]
        if readout is not None:
            out, constant = out @ readout, constant @ readout
        heads = []
        for h in range(H):
            part = slice(h * r, (h + 1) * r)
            keys, queries, values = weights[d : 2 * d][part], weights[:d][part], weights[2 * d :][part]
            scale = 1.0 / np.sqrt(r)
            W, w0 = scale * keys.T @ queries, scale * keys.T @ biases[:d][part]
            heads.append(SingleHead(W, values.T @ out[part], w0=w0))
        return MultiHead(heads, constant + biases[2 * d :] @ out)

    def deviation_over_own(self, model: Callable[[Array], Array], seed: int = 77) -> float:
        """Deviation of a model from the layer's float64 copy, over the layer's own deviation from it."""
        rng = np.random.default_rng(seed)
        mine, own = [], []
        for length in (2, 8, 32, 64):
            X = rng.standard_normal((64, length, self.width))
            X = torch.as_tensor(X).to(self.dtype).double().numpy()
            right = self.answer(X, torch.float64)
            mine.append(np.ravel(model(X) - right))
            own.append(np.ravel(self.answer(X, self.dtype) - right))
        return float(np.linalg.norm(np.concatenate(mine)) / np.linalg.norm(np.concatenate(own)))
