"""How far two decoders of one shape are from each other, up to their symmetries: matched part by part, gauges
aligned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from unsoftmax.arrays import Array
from unsoftmax.late_scipy import linear_sum_assignment
from unsoftmax.models.language_model.canonical import planes
from unsoftmax.models.language_model.parts import Attention, DecoderLayer, FeedForward, GatedNetwork

__all__ = ["attention_distance", "layer_distance", "network_distance", "relative"]


def relative(found: Array | None, true: Array | None) -> float:
    """Largest difference of two arrays over the largest entry; None stands for zeros.

    >>> relative(np.array([1.0, 2.1]), np.array([1.0, 2.0])) < 0.05 + 1e-12
    True
    """
    if found is None and true is None:
        return 0.0
    a, b = (np.zeros(1) if x is None else x for x in (found, true))
    size = max(float(np.abs(a).max()), float(np.abs(b).max()))
    return float(np.abs(a - b).max()) / size if size > 0.0 else 0.0


def layer_distance(one: DecoderLayer, other: DecoderLayer, *, rotary: bool) -> float:
    """Largest relative difference of two canonical layers; infinite when their shapes differ."""
    if (one.attention.heads, one.attention.head_width) != (other.attention.heads, other.attention.head_width):
        return float("inf")
    if type(one.network) is not type(other.network) or one.network.neurons != other.network.neurons:
        return float("inf")
    if one.network.activation.name != other.network.activation.name:
        return float("inf")
    return max(
        attention_distance(one.attention, other.attention, rotary=rotary),
        network_distance(one.network, other.network),
        _eps_distance(one, other),
    )


def attention_distance(one: Attention, other: Attention, *, rotary: bool) -> float:
    """Heads matched by what they write; then values, scores and output biases."""
    written = _written(one), _written(other)
    cost = np.array([[np.linalg.norm(a - b) for b in written[1]] for a in written[0]])
    order = [int(match) for match in linear_sum_assignment(cost)[1]]
    values = relative(written[0], written[1][order])
    scores = _score_distance(one, other, order, rotary=rotary)
    outputs = [_with_bias(part.output, part.output_bias) for part in (one, other)]
    sizes = [float(np.abs(output).max()) for output in outputs]
    biases = float(np.abs(outputs[0][:, -1] - outputs[1][:, -1]).max()) / max(*sizes, 1e-300)
    return max(values, scores, biases)


def _with_bias(matrix: Array, bias: Array | None) -> Array:
    """The matrix with its bias, or zeros, as a last column: a bias counts beside the matrix that it belongs
    to."""
    return np.column_stack([matrix, np.zeros(len(matrix)) if bias is None else bias])


def _written(part: Attention) -> Array:
    """output·value of every head, (H, d, d)."""
    outputs = part.output.reshape(part.width, part.heads, part.head_width).transpose(1, 0, 2)
    return np.asarray(
        outputs @ np.repeat(part.value.reshape(part.groups, part.head_width, -1), part.shared_by, axis=0)
    )


def _score_distance(one: Attention, other: Attention, order: Sequence[int], *, rotary: bool) -> float:
    """Keys of `other` turned onto those of `one`, head by head, and the queries turned back."""
    found, true = (_queries_and_keys(part) for part in (one, other))
    turned_queries, turned_keys = [], []
    for head, match in enumerate(order):
        key, query = true[1][match], true[0][match]
        if rotary:
            mine, theirs = planes(found[1][head], 1)[0], planes(key, 1)[0]
            size = (np.abs(theirs) ** 2).sum(axis=1)
            factor = np.divide(
                (theirs.conj() * mine).sum(axis=1), size, out=np.ones(len(size), complex), where=size > 0.0
            )
            factor = np.where(factor == 0.0, 1.0, factor)
            turned_keys.append(factor[:, None] * theirs)
            turned_queries.append(planes(query, 1)[0] / factor.conj()[:, None])
        else:
            turn = np.linalg.lstsq(key.T, found[1][head].T, rcond=None)[0].T
            turned_keys.append(turn @ key)
            turned_queries.append(np.linalg.lstsq(turn.T, query, rcond=None)[0])
    queries, keys = np.array(found[0]), np.array(found[1])
    if rotary:
        queries = np.array([planes(query, 1)[0] for query in found[0]])
        keys = np.array([planes(key, 1)[0] for key in found[1]])
    return max(relative(queries, np.array(turned_queries)), relative(keys, np.array(turned_keys)))


def _queries_and_keys(part: Attention) -> tuple[list[Array], list[Array]]:
    """One matrix per head, a bias as a last column."""
    width = part.head_width
    query, key = _with_bias(part.query, part.query_bias), _with_bias(part.key, part.key_bias)
    groups = np.repeat(np.arange(part.groups), part.shared_by)
    return (
        [query[h * width : (h + 1) * width] for h in range(part.heads)],
        [key[g * width : (g + 1) * width] for g in groups],
    )


def network_distance(one: GatedNetwork | FeedForward, other: GatedNetwork | FeedForward) -> float:
    """Neurons matched by all their weights; a gated one up to the sign of up and down."""
    if isinstance(one, FeedForward) and isinstance(other, FeedForward):
        mine = np.column_stack([one.inner, one.inner_bias, one.outer.T])
        theirs = np.column_stack([other.inner, other.inner_bias, other.outer.T])
        order = linear_sum_assignment(_square_distances(mine, theirs))[1]
        outer = [_with_bias(part.outer, part.outer_bias) for part in (one, other)]
        return max(
            relative(mine[:, : one.inner.shape[1] + 1], theirs[order, : one.inner.shape[1] + 1]),
            relative(outer[0], outer[1][:, [*order, -1]]),
        )
    assert isinstance(one, GatedNetwork)
    assert isinstance(other, GatedNetwork)
    mine, theirs = np.column_stack([one.up, one.down.T]), np.column_stack([other.up, other.down.T])
    alike = mine @ theirs.T
    cost = _square_distances(one.gate, other.gate) - 2.0 * np.abs(alike)
    cost = cost + (mine**2).sum(axis=1)[:, None] + (theirs**2).sum(axis=1)[None]
    rows, order = linear_sum_assignment(cost)
    signs = np.where(alike[rows, order] < 0.0, -1.0, 1.0)
    return max(
        relative(one.gate, other.gate[order]),
        relative(one.up, signs[:, None] * other.up[order]),
        relative(one.down, signs * other.down[:, order]),
    )


def _square_distances(a: Array, b: Array) -> Array:
    return np.asarray((a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None] - 2.0 * a @ b.T)


def _eps_distance(one: DecoderLayer, other: DecoderLayer) -> float:
    pairs = ((one.attention_norm, other.attention_norm), (one.network_norm, other.network_norm))
    if any(type(a) is not type(b) for a, b in pairs):
        return float("inf")
    return max(
        max(relative(np.array([a.eps]), np.array([b.eps])), relative(a.bias, b.bias)) for a, b in pairs
    )
