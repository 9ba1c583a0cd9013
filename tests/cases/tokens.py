"""Functions of token ids that are not one attention head, and must not be recovered as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import unsoftmax

__all__ = ["OUTSIDE", "VOCABULARY"]

VOCABULARY = 60
_RNG = np.random.default_rng(5)
_E = _RNG.standard_normal((VOCABULARY, 8))
_A = _RNG.standard_normal((8, 8)) / 3.0
_U = _RNG.standard_normal(VOCABULARY)
_PAIRS = _RNG.standard_normal((VOCABULARY, VOCABULARY))
_HEAD = unsoftmax.random_token_heads(VOCABULARY, 4, seed=2)


def _softmax(scores: Any) -> Any:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _bigrams(ids: Any) -> Any:
    return _PAIRS[ids[:, -2], ids[:, -1]] if ids.shape[1] > 1 else _PAIRS[ids[:, 0], ids[:, 0]]


def _mean_of_bigrams(ids: Any) -> Any:
    return _PAIRS[ids[:, :-1], ids[:, 1:]].mean(axis=1) if ids.shape[1] > 1 else _U[ids[:, 0]]


def _convolution(ids: Any) -> Any:
    rows = np.pad(_E[ids], ((0, 0), (1, 1), (0, 0)))
    windows = rows[:, :-2] + 2.0 * rows[:, 1:-1] - rows[:, 2:]
    return np.tanh(windows @ _A).max(axis=1) @ _A[0]


def _two_layers(ids: Any) -> Any:
    rows = _E[ids]
    rows = rows + _softmax(rows @ _A @ rows.transpose(0, 2, 1)) @ rows
    weights = _softmax(np.einsum("bnd,bd->bn", rows @ _A, rows[:, -1]))
    return np.einsum("bn,bnd,d->b", weights, rows, _A[0])


def _mean_pooled(ids: Any) -> Any:
    rows = _E[ids]
    return (_softmax(rows @ _A @ rows.transpose(0, 2, 1)) @ _U[ids][:, :, None]).mean(axis=(1, 2))


def _hash_of_set(ids: Any) -> Any:
    return np.array([np.sin(float(np.unique(row).sum() ** 2)) for row in ids])


_TWO_HEADS = unsoftmax.random_token_heads(VOCABULARY, 3, heads=2, seed=4)
_FIVE_HEADS = unsoftmax.random_token_heads(VOCABULARY, 2, heads=5, seed=4)
_PLACES = 0.5 * _RNG.standard_normal((64, 8))


def _attended(keys: Any, queries: Any, values: Any) -> Any:
    return (_softmax(np.einsum("bnd,bd->bn", keys, queries)) * values).sum(axis=1)


def _turned(rows: Any) -> Any:
    angles = np.arange(rows.shape[1])[:, None] / 10.0 ** np.arange(4)
    left, right = rows[..., :4], rows[..., 4:]
    return np.concatenate(
        [left * np.cos(angles) - right * np.sin(angles), left * np.sin(angles) + right * np.cos(angles)], -1
    )


def _rotary(ids: Any) -> Any:
    return _attended(_turned(_E[ids] @ _A), _turned(_E[ids])[:, -1], _U[ids])


def _relative_bias(ids: Any) -> Any:
    bias = np.sin(0.7 * np.arange(ids.shape[1])[::-1])
    scores = np.einsum("bnd,bd->bn", _E[ids] @ _A, _E[ids][:, -1]) + bias
    return (_softmax(scores) * _U[ids]).sum(axis=1)


def _two_causal_layers(ids: Any) -> Any:
    rows, length = _E[ids] + _PLACES[: ids.shape[1]], ids.shape[1]
    mask = np.where(np.tril(np.ones((length, length))) > 0.0, 0.0, -np.inf)
    rows = rows + _softmax(rows @ _A @ rows.transpose(0, 2, 1) + mask) @ rows
    return _attended(rows @ _A, rows[:, -1], rows @ _A[0])


def _positions(ids: Any, temperature: float = 1.0, *, normed: bool = False) -> Any:
    rows = _E[ids] + _PLACES[: ids.shape[1]]
    if normed:
        rows = (rows - rows.mean(axis=-1, keepdims=True)) / rows.std(axis=-1, keepdims=True)
    return _attended(rows @ _A / temperature, rows[:, -1], rows @ _A[0])


def _with_a_silent_token(ids: Any) -> Any:
    weights = np.exp(np.einsum("bnd,bd->bn", _E[ids] @ _A, _E[ids][:, -1]))
    return (weights * _U[ids]).sum(axis=1) / (1.0 + weights.sum(axis=1))


def _scores(ids: Any) -> Any:
    return np.einsum("bnd,bd->bn", _E[ids] @ _A, _E[ids][:, -1])


def _weighed(weights: Any, ids: Any) -> Any:
    return (weights * _U[ids]).sum(axis=1) / weights.sum(axis=1)


def _sparse_weights(ids: Any) -> Any:
    """Sparsemax: the nearest point of the simplex, so that faint tokens get no weight at all."""
    scores = _scores(ids)
    ordered = -np.sort(-scores, axis=1)
    sums = np.cumsum(ordered, axis=1) - 1.0
    count = np.arange(1, ids.shape[1] + 1)
    kept = (ordered * count > sums).sum(axis=1)
    level = sums[np.arange(len(ids)), kept - 1] / kept
    return _weighed(np.maximum(scores - level[:, None], 0.0), ids)


def _strongest_four(ids: Any) -> Any:
    scores = _scores(ids)
    fourth = -np.sort(-scores, axis=1)[:, min(3, ids.shape[1] - 1)]
    return _weighed(np.where(scores >= fourth[:, None], np.exp(scores), 0.0), ids)


def _every_token_once(ids: Any) -> Any:
    weights = np.exp(_scores(ids))
    first = np.stack(
        [(ids[:, :place] != ids[:, place, None]).all(axis=1) for place in range(ids.shape[1])], 1
    )
    return _weighed(weights * first, ids)


def _coarse_weights(ids: Any) -> Any:
    weights = _softmax(_scores(ids))
    return _weighed(np.round(256.0 * weights) + 1e-12, ids)


def _in_float32(ids: Any) -> Any:
    scores = _scores(ids).astype(np.float32)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return (weights * _U.astype(np.float32)[ids]).sum(axis=1) / weights.sum(axis=1)


OUTSIDE: dict[str, Callable[[Any], Any]] = {
    "bag of words, summed": lambda ids: _U[ids].sum(axis=1),
    "bag of words, through tanh": lambda ids: np.tanh(_U[ids].mean(axis=1)),
    "bag of words, weighted by the asking token": lambda ids: _U[ids].mean(axis=1) * _U[ids[:, -1]],
    "bigrams": _bigrams,
    "mean of bigrams": _mean_of_bigrams,
    "convolution": _convolution,
    "two layers": _two_layers,
    "mean of all rows of a layer": _mean_pooled,
    "maximum": lambda ids: _U[ids].max(axis=1),
    "median": lambda ids: np.median(_U[ids], axis=1),
    "hash of the sequence": lambda ids: np.sin((ids * np.arange(1, ids.shape[1] + 1)).sum(axis=1) * 12.9898),
    "hash of the counts": lambda ids: np.sin((ids**2).sum(axis=1) * 1.7),
    "hash of the set": _hash_of_set,
    "a head and a little of the maximum": lambda ids: _HEAD(ids) + 1e-6 * _U[ids].max(axis=1),
    "a head whose answer is bent": lambda ids: np.tanh(_HEAD(ids)),
    "a head with one token unlike the others": lambda ids: _HEAD(ids) + 1e-3 * ((ids == 17).sum(axis=1) > 2),
    "a head whose long sequences are cut": lambda ids: _HEAD(ids[:, -16:]),
    "a head that answers single tokens otherwise": lambda ids: _HEAD(ids) + 0.1 * (ids.shape[1] == 1),
    "a head with labels": lambda ids: (_HEAD(ids) > 0.0).astype(float),
    "a head beyond float64": unsoftmax.random_token_heads(VOCABULARY, 4, seed=3, scale=300.0),
    "rotary positions": _rotary,
    "a bias by distance": _relative_bias,
    "two causal layers": _two_causal_layers,
    "positions under a norm": lambda ids: _positions(ids, normed=True),
    "positions, a temperature by length": lambda ids: _positions(ids, float(np.sqrt(ids.shape[1]))),
    "positions, bent": lambda ids: np.tanh(_positions(ids)),
    "a window of four tokens": lambda ids: _attended(_E[ids[:, -4:]] @ _A, _E[ids[:, -1]], _U[ids[:, -4:]]),
    "softmax over one more than the tokens": _with_a_silent_token,
    "five heads": _FIVE_HEADS,
    "two heads, bent": lambda ids: np.tanh(_TWO_HEADS(ids) / 4.0),
    "two heads and a little of the maximum": lambda ids: _TWO_HEADS(ids) + 1e-6 * _U[ids].max(axis=1),
    "two heads that change at length 40": lambda ids: _TWO_HEADS(ids) + 1e-4 * (ids.shape[1] > 40),
    "weights that do not add up to one": lambda ids: (np.exp(_scores(ids)) * _U[ids]).sum(axis=1),
    "sigmoids instead of a softmax": lambda ids: (_U[ids] / (1.0 + np.exp(-_scores(ids)))).mean(axis=1),
    "sparse weights": _sparse_weights,
    "only the four strongest tokens": _strongest_four,
    "every token counts once": _every_token_once,
    "weights in steps of 1/256": _coarse_weights,
    "the first token asks beside the last": lambda ids: _HEAD(ids) + _HEAD(ids[:, ::-1]),
    "a head that knows a pair": lambda ids: (
        _HEAD(ids) + 1e-2 * ((ids == 5).any(axis=1) & (ids == 9).any(axis=1))
    ),
    "a head that grows with the length": lambda ids: _HEAD(ids) * (1.0 + 2e-6 * ids.shape[1]),
    "a head sharper on long sequences": lambda ids: _weighed(
        np.exp(_scores(ids) * (1.0 + 1e-3 * (ids.shape[1] > 8))), ids
    ),
    "logarithm of a sum": lambda ids: np.log(np.exp(_U[ids]).sum(axis=1)),
    "float32 and a little of the maximum": lambda ids: _in_float32(ids) + 1e-3 * _U[ids].max(axis=1),
    "float32 and another length": lambda ids: _in_float32(ids) + np.float32(1e-3) * (ids.shape[1] > 20),
    "two heads and the last token": lambda ids: _TWO_HEADS(ids) + 0.3 * _U[ids[:, -1]],
}
