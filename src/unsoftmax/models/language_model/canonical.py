"""The one representative of all decoders with one function: gains folded, gauges of heads and neurons fixed,
parts in order.

Symmetries. A norm's gain and bias fold into the next matrix. LayerNorm sees rows without their mean, so what
is written along the mean is lost. Logits count up to a constant a prompt. Values and outputs of a group:
GL(d_h). Queries and keys of a group: GL(d_h), with rotary positions one complex factor a plane. Neurons:
order, and one factor between up and down of a gated one. Heads of a group and groups: order. Without rotary
positions a key bias cancels; a value bias is an output bias.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.models.language_model.parts import (
    Attention,
    DecoderLayer,
    FeedForward,
    LearnedPositions,
    Network,
    Positions,
    Rotary,
)
from unsoftmax.models.parts import LayerNorm, Norm, RMSNorm, centred

__all__ = [
    "all_layer_norms",
    "canonical_layer",
    "canonical_network",
    "canonical_positions",
    "canonical_unembedding",
    "fold_norm",
    "is_rotary",
    "planes",
    "without_mean",
]


def without_mean(written: Array) -> Array:
    """Columns without their mean: what LayerNorm sees of something written to the stream."""
    return np.asarray(written - written.mean(axis=0, keepdims=True))


def canonical_unembedding(norm: Norm, unembedding: Array) -> tuple[Norm, Array]:
    """The final norm with gain one and the matrix after it, logits without their mean.

    With LayerNorm the bias of the logits is kept along the mean, which the norm removes: U' = U·P + c·1ᵀ/d,
    read by a bias of ones.
    """
    norm, matrix = _folded_map(norm, unembedding)
    return norm, without_mean(matrix)


def canonical_positions(positions: Positions | None, *, mean_lost: bool) -> Positions | None:
    """Learned positions without what no norm sees."""
    if isinstance(positions, LearnedPositions) and mean_lost:
        return LearnedPositions(centred(positions.table))
    return positions


def canonical_layer(layer: DecoderLayer, *, rotary: bool, mean_lost: bool) -> DecoderLayer:
    """The layer with norms of gain one, its gauges fixed, its heads and neurons in order."""
    attention = _ordered_heads(
        _fixed_scores(_fixed_values(_folded_attention(layer, rotary=rotary, mean_lost=mean_lost)), rotary)
    )
    network_norm, network = canonical_network(layer.network_norm, layer.network, mean_lost=mean_lost)
    return DecoderLayer(_plain(layer.attention_norm), attention, network_norm, network)


def canonical_network(norm: Norm, network: Network, *, mean_lost: bool) -> tuple[Norm, Network]:
    """The norm with gain one, and the network that follows it with its neurons in order."""
    plain, read = _folded_network(norm, network, mean_lost=mean_lost)
    return plain, _ordered_neurons(read)


def planes(matrix: Array, count: int) -> Array:
    """Rows of `count` heads as complex rows, (count, d_h/2, columns): coordinate j and j + d_h/2 are one
    rotary plane.

    >>> planes(np.array([[1.0], [2.0]]), 1)
    array([[[1.+2.j]]])
    """
    first, second = np.split(matrix.reshape(count, -1, matrix.shape[1]), 2, axis=1)
    return np.asarray(first + 1j * second)


def _plain(norm: Norm) -> Norm:
    return type(norm)(np.ones(norm.width), None, norm.eps)


def fold_norm(norm: Norm, matrix: Array, bias: Array | None) -> tuple[Array, Array | None]:
    """Matrix and bias that see the norm without gain and bias."""
    folded = matrix * norm.gain
    if isinstance(norm, LayerNorm):
        folded = centred(folded)
    if norm.bias is None:
        return folded, bias
    shift = matrix @ norm.bias
    return folded, shift if bias is None else bias + shift


def _folded_map(norm: Norm, matrix: Array) -> tuple[Norm, Array]:
    """As `_folded`, for a map without a bias of its own: the bias stays in the norm as ones, its image along
    the lost mean."""
    folded, shift = fold_norm(norm, matrix, None)
    if shift is None:
        return _plain(norm), folded
    return LayerNorm(np.ones(norm.width), np.ones(norm.width), norm.eps), folded + shift[:, None] / norm.width


def _folded_attention(layer: DecoderLayer, *, rotary: bool, mean_lost: bool) -> Attention:
    part, norm = layer.attention, layer.attention_norm
    query, query_bias = fold_norm(norm, part.query, part.query_bias)
    key, key_bias = fold_norm(norm, part.key, part.key_bias)
    value, value_bias = fold_norm(norm, part.value, part.value_bias)
    output, bias = part.output, part.output_bias
    if value_bias is not None:
        shared = np.repeat(value_bias.reshape(part.groups, -1), part.shared_by, axis=0).reshape(-1)
        bias = output @ shared + (0.0 if bias is None else bias)
    if mean_lost:
        output = without_mean(output)
        bias = None if bias is None else without_mean(bias)
    return Attention(
        query,
        key,
        value,
        output,
        part.heads,
        part.groups,
        query_bias,
        key_bias if rotary else None,
        None,
        bias,
    )


def _fixed_values(part: Attention) -> Attention:
    """Values and outputs of every group as the balanced singular factors of their product."""
    width, each, d = part.head_width, part.shared_by, part.width
    values, outputs = [], []
    for group in range(part.groups):
        value = part.value[group * width : (group + 1) * width]
        output = part.output[:, group * each * width : (group + 1) * each * width]
        stacked = output.reshape(d, each, width).transpose(1, 0, 2).reshape(each * d, width)
        left, right = _balanced_factors(stacked, value)
        values.append(right)
        outputs.append(left.reshape(each, d, width).transpose(1, 0, 2).reshape(d, each * width))
    return replace(part, value=np.concatenate(values), output=np.concatenate(outputs, axis=1))


def _balanced_factors(left: Array, right: Array) -> tuple[Array, Array]:
    """(n, k) and (k, d) with the same product, orthogonal columns and rows of equal size, largest first; the
    largest entry of every row is positive."""
    q, r = np.linalg.qr(left)
    p, s = np.linalg.qr(right.T)
    u, sizes, v = np.linalg.svd(r @ s.T)
    signs = np.sign(_largest(v[: len(sizes)] @ p.T))
    root = np.sqrt(sizes) * np.where(signs == 0.0, 1.0, signs)
    return (q @ u[:, : len(sizes)]) * root, root[:, None] * (v[: len(sizes)] @ p.T)


def _largest(rows: Array) -> Array:
    """The entry of largest modulus of every row."""
    return np.asarray(np.take_along_axis(rows, np.abs(rows).argmax(axis=-1)[..., None], axis=-1)[..., 0])


def _fixed_scores(part: Attention, rotary: bool) -> Attention:
    """Queries and keys with their gauge fixed. A bias is one more column."""
    query = _with_bias(part.query, part.query_bias)
    key = _with_bias(part.key, part.key_bias)
    fixed = _fixed_planes if rotary else _fixed_products
    query, key = fixed(part, query, key)
    d = part.width
    return replace(
        part,
        query=query[:, :d],
        key=key[:, :d],
        query_bias=None if part.query_bias is None else query[:, d],
        key_bias=None if part.key_bias is None else key[:, d],
    )


def _with_bias(matrix: Array, bias: Array | None) -> Array:
    return matrix if bias is None else np.column_stack([matrix, bias])


def _fixed_planes(part: Attention, query: Array, key: Array) -> tuple[Array, Array]:
    """One complex factor a plane: keys and the queries of their group have equal size, the largest entry of a
    key is positive."""
    # (H, planes, columns), (groups, planes, columns)
    asked, offered = (planes(query, part.heads), planes(key, part.groups))
    grouped = asked.reshape(part.groups, part.shared_by, *asked.shape[1:])
    sizes = np.sqrt((np.abs(grouped) ** 2).sum(axis=(1, 3))), np.sqrt((np.abs(offered) ** 2).sum(axis=2))
    used = (sizes[0] > 0.0) & (sizes[1] > 0.0)
    factor = np.sqrt(np.divide(sizes[0], sizes[1], out=np.ones_like(sizes[0]), where=used))
    turn = _largest(offered)
    turn = np.where(np.abs(turn) > 0.0, turn / np.where(np.abs(turn) > 0.0, np.abs(turn), 1.0), 1.0)
    offered = offered * (factor * turn.conj())[..., None]
    grouped = grouped * (turn.conj() / factor)[:, None, :, None]  # a score holds conj(key)·query
    return _rows(grouped.reshape(asked.shape)), _rows(offered)


def _rows(turned: Array) -> Array:
    """Complex planes back to real rows."""
    return np.concatenate([turned.real, turned.imag], axis=1).reshape(-1, turned.shape[2])


def _fixed_products(part: Attention, query: Array, key: Array) -> tuple[Array, Array]:
    """Balanced singular factors of keyᵀ·query, group by group."""
    width, each = part.head_width, part.shared_by
    queries, keys = [], []
    for group in range(part.groups):
        own = query[group * each * width : (group + 1) * each * width].reshape(each, width, -1)
        left, right = _balanced_factors(
            own.transpose(0, 2, 1).reshape(-1, width), key[group * width : (group + 1) * width]
        )
        queries.append(left.reshape(each, -1, width).transpose(0, 2, 1).reshape(each * width, -1))
        keys.append(right)
    return np.concatenate(queries), np.concatenate(keys)


def _ordered_heads(part: Attention) -> Attention:
    """Heads of a group, then groups, by the size of what they write, largest first."""
    width, each = part.head_width, part.shared_by
    outputs = part.output.reshape(part.width, part.groups, each, width)
    values = part.value.reshape(part.groups, width, part.width)
    sizes = np.array(
        [[np.linalg.norm(outputs[:, g, h] @ values[g]) for h in range(each)] for g in range(part.groups)]
    )
    groups = np.argsort(-np.linalg.norm(sizes, axis=1), kind="stable")
    order = [(g, h) for g in groups for h in np.argsort(-sizes[g], kind="stable")]
    wide = np.concatenate([(g * each + h) * width + np.arange(width) for g, h in order])
    narrow = np.concatenate([g * width + np.arange(width) for g in groups])
    return replace(
        part,
        query=part.query[wide],
        key=part.key[narrow],
        value=part.value[narrow],
        output=part.output[:, wide],
        query_bias=None if part.query_bias is None else part.query_bias[wide],
        key_bias=None if part.key_bias is None else part.key_bias[narrow],
    )


def _folded_network(norm: Norm, network: Network, *, mean_lost: bool) -> tuple[Norm, Network]:
    if isinstance(network, FeedForward):
        inner, bias = fold_norm(norm, network.inner, network.inner_bias)
        outer, outer_bias = network.outer, network.outer_bias
        if mean_lost:
            outer, outer_bias = without_mean(outer), without_mean(outer_bias)
        assert bias is not None
        return _plain(norm), replace(
            network, inner=inner, inner_bias=bias, outer=outer, outer_bias=outer_bias
        )
    kept, gate = _folded_map(norm, network.gate)
    up = _folded_map(norm, network.up)[1]
    down = without_mean(network.down) if mean_lost else network.down
    return kept, replace(network, gate=gate, up=up, down=down)


def _ordered_neurons(network: Network) -> Network:
    """Neurons by the size of their first row, largest first; up and down of a gated one have equal size, and
    the largest entry of up is positive."""
    if isinstance(network, FeedForward):
        order = np.argsort(-np.linalg.norm(network.inner, axis=1), kind="stable")
        return replace(
            network,
            inner=network.inner[order],
            inner_bias=network.inner_bias[order],
            outer=network.outer[:, order],
        )
    read, written = np.linalg.norm(network.up, axis=1), np.linalg.norm(network.down, axis=0)
    used = (read > 0.0) & (written > 0.0)
    factor = np.sqrt(np.divide(written, read, out=np.ones_like(read), where=used))
    factor *= np.where(_largest(network.up) < 0.0, -1.0, 1.0)
    order = np.argsort(-np.linalg.norm(network.gate, axis=1), kind="stable")
    return replace(
        network,
        gate=network.gate[order],
        up=(factor[:, None] * network.up)[order],
        down=(network.down / factor)[:, order],
    )


def all_layer_norms(norms: list[Norm]) -> bool:
    """Whether no norm sees the mean of a row."""
    return all(isinstance(norm, LayerNorm) for norm in norms) and not any(
        isinstance(norm, RMSNorm) for norm in norms
    )


def is_rotary(positions: Positions | None) -> bool:
    """Whether scores turn with the distance of two rows."""
    return isinstance(positions, Rotary)
