"""From and to torch's nn.MultiheadAttention: merged heads on this side, projections on the other. torch is
imported when first used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.errors import UsageError
from unsoftmax.float_formats import FloatFormat
from unsoftmax.models.multi_head import MultiHead
from unsoftmax.models.single_head import SingleHead

if TYPE_CHECKING:
    import torch
    from torch.nn import MultiheadAttention

__all__ = ["from_torch", "to_torch"]

_NEGLIGIBLE = 1e-9  # relative size of what a rank above d/H may hold before the layer cannot carry it
# of the rounding of a weight in a short format, the same: what a recovery from such a layer holds beyond its
# rank was 0.59 at most (six layers in bfloat16)
_ROUNDINGS = 4.0


def from_torch(layer: MultiheadAttention, readout: object = None) -> MultiHead:
    """The model of a self-attention layer whose last row is answered: all d outputs, or their weighted sum by
    `readout` (d,).

    >>> import torch
    >>> layer = torch.nn.MultiheadAttention(4, 2, batch_first=True, dtype=torch.float64)
    >>> X = torch.ones(1, 3, 4, dtype=torch.float64)
    >>> there = layer(X, X, X)[0][:, -1].detach().numpy()
    >>> bool(np.allclose(from_torch(layer)(X.numpy()), there, rtol=1e-12))
    True
    """
    projections = getattr(layer, "in_proj_weight", None)
    if projections is None or not hasattr(layer, "out_proj"):
        raise UsageError(
            "from_torch reads nn.MultiheadAttention with one width for queries, keys and values, not "
            f"{type(layer).__name__}"
        )
    if layer.bias_k is not None or layer.add_zero_attn:
        raise UsageError(
            "from_torch does not read add_bias_kv and add_zero_attn: they add rows to the sequence; build "
            "the layer without them"
        )
    d, n_heads = layer.embed_dim, layer.num_heads
    r = d // n_heads
    W_in = _array(projections)
    b_in = np.zeros(3 * d) if layer.in_proj_bias is None else _array(layer.in_proj_bias)
    W_out = _array(layer.out_proj.weight)
    b_out = np.zeros(d) if layer.out_proj.bias is None else _array(layer.out_proj.bias)
    if readout is not None:
        weights = np.asarray(readout, dtype=np.float64)
        if weights.shape != (d,):
            raise UsageError(f"readout must be ({d},) to weigh the outputs, not {weights.shape}")
        W_out, b_out = weights @ W_out, weights @ b_out
    heads = []
    c = b_out
    for h in range(n_heads):
        part = slice(h * r, (h + 1) * r)
        query, key, value = (W_in[i * d : (i + 1) * d][part] for i in range(3))
        output = W_out[..., part]
        heads.append(_head(query, key, value, output, b_in[:d][part]))
        c = c + output @ b_in[2 * d :][part]
    return MultiHead(heads, c)


def to_torch(
    model: MultiHead | SingleHead, n_heads: int | None = None, *, dtype: torch.dtype | str = "float64"
) -> MultiheadAttention:
    """An nn.MultiheadAttention (batch_first) in `dtype` whose rows are answered like the model's last row.

    The model needs vector answers of its own width, at most `n_heads` heads, and W and V of rank at most d /
    n_heads each, up to what `dtype` rounds away. What torch computes for every row of a sequence is what the
    model answers when that row asks.

    >>> from unsoftmax import random_multi_head
    >>> to_torch(random_multi_head(8, 4, outputs=8)).num_heads
    4
    """
    import torch

    from unsoftmax.models.conversions.torch_formats import torch_format

    held = torch_format(dtype)
    heads = model.heads if isinstance(model, MultiHead) else (model,)
    d, count = model.width, len(heads) if n_heads is None else n_heads
    if isinstance(model, MultiHead) and model.skip is not None:
        raise UsageError(
            "nn.MultiheadAttention has no skip connection, and this model has one; model.to_torch() gives a "
            "module with it"
        )
    if model.outputs != d:
        raise UsageError(
            f"nn.MultiheadAttention answers with {d} numbers, this model with {model.outputs or 1}; recover "
            "it from all outputs"
        )
    if count < len(heads) or d % count:
        raise UsageError(
            f"{len(heads)} heads of width {d} do not fit {count} heads of a layer; pass n_heads, a "
            f"divisor of {d}"
        )
    r = d // count
    W_in, b_in, W_out = np.zeros((3 * d, d)), np.zeros(3 * d), np.zeros((d, d))
    negligible = _NEGLIGIBLE if held is torch.float64 else _ROUNDINGS * FloatFormat(str(held)[6:]).unit
    for h, head in enumerate(heads):
        part = slice(h * r, (h + 1) * r)
        bias = np.zeros(d) if head.w0 is None else head.w0
        matrices = {"W": np.column_stack([head.W, bias]), "V": head.v}
        _refuse_higher_ranks(matrices, r, h, negligible)
        key, query = _halves(matrices["W"], r)
        scale = float(r) ** 0.25
        W_in[part], b_in[part] = scale * query[:d].T, scale * query[d]
        W_in[d : 2 * d][part] = scale * key.T
        value, output = _halves(matrices["V"], r)
        W_in[2 * d :][part], W_out[:, part] = value.T, output
    layer = torch.nn.MultiheadAttention(d, count, batch_first=True, dtype=torch.float64).eval()
    with torch.no_grad():
        for parameter, array in (
            (layer.in_proj_weight, W_in),
            (layer.in_proj_bias, b_in),
            (layer.out_proj.weight, W_out),
            (layer.out_proj.bias, np.broadcast_to(np.asarray(model.c), (d,)).copy()),
        ):
            parameter.copy_(torch.from_numpy(array))
    return layer.to(held)


def _array(parameter: Any) -> Array:
    return np.asarray(parameter.detach().cpu().double().numpy())


def _head(query: Array, key: Array, value: Array, output: Array, b_query: Array) -> SingleHead:
    """One head from torch's transposed projections (r, d)."""
    r, d = query.shape
    scale = 1.0 / np.sqrt(r)
    W = (scale * key.T, query.T) if r < d else scale * key.T @ query
    w0 = scale * key.T @ b_query
    return SingleHead(W, (output @ value).T, w0 if w0.any() else None)


def _halves(matrix: Array, r: int) -> tuple[Array, Array]:
    """left (rows × r) and right (columns × r) whose product left rightᵀ is nearest to the matrix, singular
    values shared between them."""
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    root = np.sqrt(values[:r])
    return left[:, :r] * root, right[:r].T * root


def _refuse_higher_ranks(matrices: Mapping[str, Array], r: int, head: int, negligible: float) -> None:
    for name, matrix in matrices.items():
        values = np.linalg.svd(matrix, compute_uv=False)
        if len(values) > r and values[r] > negligible * values[0]:
            raise UsageError(
                f"head {head} has {name} of rank above {r}, which a layer with heads of size {r} cannot "
                f"carry: {values[r] / values[0]:.1e} of it is left over; model.to_torch() gives a module for "
                "any rank, and dtype= that of the target drops what its rounding left over"
            )
