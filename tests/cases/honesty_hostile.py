"""Boxes for the honesty fuzzer as a clever tester writes them: rows rounded in many ways, answers of odd
types, extreme scales, other sequences of the batch that count, a second head that appears somewhere."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial

import numpy as np

import unsoftmax
from tests.cases.honesty_case import Case, Function, Maker
from unsoftmax import MultiHead, SingleHead, Transformer
from unsoftmax.arrays import Array
from unsoftmax.float_formats import FloatFormat
from unsoftmax.models import Model

__all__ = ["KINDS", "SLOW"]

_LONGER = 6  # rows from which on a box may be another function
_LEVELS = 127  # of weights in eight bits


def _heads(d: int, seed: int, outputs: int | None = None) -> MultiHead:
    return unsoftmax.random_multi_head(d, 2, seed=seed, outputs=outputs, biases=seed % 2 == 1)


def _simplest(model: MultiHead) -> Model:
    """One head as such, which is how it is recovered."""
    head = model.heads[0]
    return model if len(model.heads) > 1 else SingleHead(head.matrix, head.v, head.w0, model.c)


def _warmer(model: MultiHead, factor: float) -> MultiHead:
    return MultiHead(
        [
            SingleHead(factor * head.W, head.v, None if head.w0 is None else factor * head.w0)
            for head in model.heads
        ],
        model.c,
    )


def _told(model: Model) -> dict[str, object]:
    return {} if model.outputs is None else {"outputs": model.outputs}


# Rows that are rounded before anything else.


def _to_digits(digits: int, rows: Array) -> Array:
    sizes = np.floor(np.log10(np.abs(np.where(rows == 0.0, 1.0, rows))))
    step = 10.0 ** (digits - 1 - sizes)
    return np.asarray(np.round(rows * step) / step)


def _to_grid(step: float, rows: Array) -> Array:
    return np.asarray(np.round(rows / step) * step)


def _to_bits(bits: int, rows: Array) -> Array:
    """So many bits of every entry, as short floats keep them."""
    mantissa, exponent = np.frexp(rows)
    return np.asarray(np.ldexp(np.round(mantissa * 2.0**bits) / 2.0**bits, exponent))


def _normalised_then_cast(rows: Array) -> Array:
    """Every row in units of its largest entry, in float16 (as tensors are sent in short formats)."""
    largest = np.maximum(np.abs(rows).max(axis=-1, keepdims=True), 1e-300)
    return np.asarray(largest * FloatFormat.FLOAT16.store(rows / largest))


_HALF = FloatFormat.FLOAT16.store
_ROUNDED_ROWS: dict[str, Callable[[Array], Array]] = {
    **{f"{digits} digits": partial(_to_digits, digits) for digits in (3, 4, 5, 7, 9)},
    "a grid of 2^-10": partial(_to_grid, 2.0**-10),
    "four decimals": partial(_to_grid, 1e-4),
    "eight decimals": partial(_to_grid, 1e-8),
    "cast to bfloat16": FloatFormat.BFLOAT16.store,
    "cast to float16": _HALF,
    "four bits": partial(_to_bits, 4),
    "normalised, then float16": _normalised_then_cast,
}


def _behind_rows(change: Callable[[Array], Array], d: int, seed: int) -> Case:
    """One or two heads behind rounded rows; another temperature from six rows on in every third."""
    model = unsoftmax.random_multi_head(d, 1 + seed % 2, seed=seed, biases=seed % 4 > 1)
    # entries beyond 65504 overflow in float16
    options: dict[str, object] = {"input_bound": 1000.0} if seed % 2 or change is _HALF else {}
    if seed % 3:
        return Case(lambda X: model(change(X)), d, model, _simplest(model), exact=False, options=options)
    other = _warmer(model, 1.0 + 10.0 ** -(1 + seed % 4))

    def function(X: Array) -> Array:
        return (model if X.shape[1] < _LONGER else other)(X)

    return Case(
        lambda X: function(change(X)),
        d,
        function,
        _simplest(model),
        exact=False,
        options=options,
        also=_simplest(other),
    )


# Members as they come.


def _scaled(d: int, seed: int) -> Case:
    """Scores and values of extreme sizes: 1e-8 to 1e8 each."""
    rng = np.random.default_rng([seed, d, 41])
    drawn = unsoftmax.random_single_head(d, seed=seed, biases=seed % 2 == 1)
    in_scores, in_values = 10.0 ** rng.uniform(-8.0, 8.0, 2)
    w0 = None if drawn.w0 is None else np.sqrt(in_scores) * drawn.w0
    head = SingleHead(in_scores * drawn.W, in_values * drawn.v, w0, in_values * drawn.c)
    return Case(lambda X: head(X), d, head, head)


def _scaled_heads(vectors: bool, d: int, seed: int) -> Case:
    """All scores larger by one factor, all values by another."""
    rng = np.random.default_rng([seed, d, 42])
    in_scores, in_values = 10.0 ** rng.uniform(-8.0, 8.0, 2)
    drawn = _heads(d, seed, d + 1 if vectors else None)
    model = MultiHead(
        [
            SingleHead(
                in_scores * head.W,
                in_values * head.v,
                None if head.w0 is None else np.sqrt(in_scores) * head.w0,
            )
            for head in drawn.heads
        ],
        in_values * np.asarray(drawn.c),
    )
    return Case(lambda X: model(X), d, model, model, options=_told(model))


def _crowded(d: int, seed: int) -> Case:
    """More heads than the rows are wide, read by numbers."""
    model = unsoftmax.random_multi_head(d, d + 1, seed=seed) if d <= 3 else _heads(d, seed)
    return Case(lambda X: model(X), d, model, model)


def _eight_bits(vectors: bool, d: int, seed: int) -> Case:
    """Weights of eight bits: many entries are alike, some are zero."""
    drawn = _heads(d, seed, d if vectors else None)

    def quantised(part: Array) -> Array:
        step = float(np.abs(part).max()) / _LEVELS
        return np.asarray(np.round(part / step) * step)

    model = MultiHead(
        [
            SingleHead(quantised(head.W), quantised(head.v), None if head.w0 is None else quantised(head.w0))
            for head in drawn.heads
        ],
        drawn.c,
    )
    return Case(lambda X: model(X), d, model, model, options=_told(model))


def _of_type(dtype: str, d: int, seed: int) -> Case:
    """Answers as a read-only column of this type."""
    head = unsoftmax.random_single_head(d, seed=seed)

    def box(X: Array) -> Array:
        answers = head(X)[:, None].astype(dtype)
        answers.flags.writeable = False
        return np.asarray(answers)

    return Case(box, d, head, head, exact=dtype in ("float64", "longdouble"))


def _whole_numbers(d: int, seed: int) -> Case:
    head = unsoftmax.random_single_head(d, seed=seed)
    return Case(lambda X: np.rint(head(X)).astype(np.int64), d, head, head, exact=False)


# Answers that are spoilt.


def _rounded_by_chance(d: int, seed: int) -> Case:
    """float32 by stochastic rounding."""
    head = unsoftmax.random_single_head(d, seed=seed)
    rng = np.random.default_rng([seed, 43])

    def box(X: Array) -> Array:
        values = head(X)
        unit = np.spacing(np.abs(values).astype(np.float32)).astype(np.float64)
        return np.asarray(np.floor(values / unit + rng.uniform(size=len(values))) * unit)

    return Case(box, d, head, head, exact=False)


def _flushed(d: int, seed: int) -> Case:
    """float32 without subnormal numbers, for the scores' weights too."""
    head = unsoftmax.random_single_head(d, seed=seed)
    W, v = np.float32(head.W), np.float32(head.v)
    truth = SingleHead(W.astype(np.float64), v.astype(np.float64))
    smallest = np.float32(2.0**-126)

    def box(X: Array) -> Array:
        short = X.astype(np.float32)
        short[np.abs(short) < smallest] = 0
        scores = np.einsum("bnd,bd->bn", short, short[:, -1] @ W.T)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights[weights < smallest] = 0
        weights /= weights.sum(axis=1, keepdims=True)
        return np.asarray(np.einsum("bn,bnd->bd", weights, short) @ v).astype(np.float64)

    return Case(box, d, truth, truth, exact=False)


# Other functions.


def _batch_counts(size: float, d: int, seed: int) -> Case:
    """A part of the mean over all sequences of the call is taken away, as a norm over the batch does."""
    head = unsoftmax.random_single_head(d, seed=seed)

    def box(X: Array) -> Array:
        values = head(X)
        return np.asarray(values - size * values.mean() * (len(values) > 1))

    return Case(box, d, head, steady=False)


def _others_of_the_batch(d: int, seed: int) -> Case:
    """Sequences attend to the first row of the call's first sequence as well, a little."""
    model = _heads(d, seed, d)

    def box(X: Array) -> Array:
        return np.asarray(model(X) + 1e-3 * X[:1, 0])

    return Case(box, d, model, steady=False, options=_told(model))


def _by_hash(share: float, d: int, seed: int) -> Case:
    """Another head where a hash of the sequence says so."""
    usual = unsoftmax.random_single_head(d, seed=seed)
    other = SingleHead(1.1 * usual.W, usual.v)

    def picked(sequence: Array) -> bool:
        digest = hashlib.blake2b(np.ascontiguousarray(sequence).tobytes(), digest_size=4).digest()
        return int.from_bytes(digest, "big") < share * 2**32

    def box(X: Array) -> Array:
        return np.where([picked(sequence) for sequence in X], other(X), usual(X))

    return Case(box, d, box)


def _beyond_norm(vectors: bool, d: int, seed: int) -> Case:
    """A further head, for sequences with a long row only."""
    model = _heads(d, seed, d if vectors else None)
    more = MultiHead([*model.heads, *_heads(d, seed + 1, d if vectors else None).heads], model.c)
    longest = 10.0 ** (seed % 4 - 1)

    def box(X: Array) -> Array:
        beyond = np.linalg.norm(X, axis=2).max(axis=1) > longest
        return np.where(beyond if model.outputs is None else beyond[:, None], more(X), model(X))

    return Case(box, d, box, options=_told(model))


def _collinear(d: int, seed: int) -> Case:
    """A further term for sequences whose rows are multiples of one another."""
    d = max(d, 2)
    head = unsoftmax.random_single_head(d, seed=seed)

    def box(X: Array) -> Array:
        sizes = np.linalg.svd(X, compute_uv=False)
        alone = sizes[:, 1] <= 1e-9 * sizes[:, 0] if X.shape[1] > 1 else np.zeros(len(X), dtype=bool)
        return np.asarray(head(X) + 0.1 * alone * X[:, 0, 0])

    return Case(box, d, box)


def _by_length(how: Callable[[int], float], d: int, seed: int) -> Case:
    """A temperature that depends on the number of rows, for numbers, vectors and networks in turns."""
    d = max(d, 2)
    model: Model
    if seed % 3 == 2:
        drawn = unsoftmax.random_transformer(d, 4, seed=seed, biases=True)

        def warm(n: int) -> Function:
            return Transformer(how(n) * drawn.W, drawn.network, drawn.w0, drawn.residual)

        model = drawn
    else:
        layer = _heads(d, seed, d if seed % 3 else None)

        def warm(n: int) -> Function:
            return _warmer(layer, how(n))

        model = layer

    def box(X: Array) -> Array:
        return np.asarray(warm(X.shape[1])(X))

    return Case(box, d, box, options=_told(model))


def _sink(d: int, seed: int) -> Case:
    """Softmax with one more in the denominator, as attention sinks have it; faint in every second."""
    head = unsoftmax.random_single_head(d, seed=seed)
    size = (1.0, 1e-6)[seed % 2]

    def box(X: Array) -> Array:
        scores = head.scores(X)
        top = np.maximum(scores.max(axis=1, keepdims=True), 0.0)
        weights = np.exp(scores - top)
        total = weights.sum(axis=1) + size * np.exp(-top[:, 0])
        return np.asarray((weights * (X @ head.v)).sum(axis=1) / total)

    return Case(box, d, box)


def _sigmoid_told_in_digits(digits: int, d: int, seed: int) -> Case:
    """Probabilities with so many digits, which are more decimals for small ones."""
    head = unsoftmax.random_single_head(d, seed=seed)

    def box(X: Array) -> Array:
        return _to_digits(digits, 1.0 / (1.0 + np.exp(-head(X))))

    return Case(box, d, head, head, exact=False, options={"probabilities": True})


KINDS: dict[str, Maker] = {
    **{f"rows: {name}": partial(_behind_rows, change) for name, change in _ROUNDED_ROWS.items()},
    "head: extreme scales": _scaled,
    "heads: extreme scales": partial(_scaled_heads, False),
    "vector: extreme scales": partial(_scaled_heads, True),
    "heads: more than the width": _crowded,
    "heads: weights of eight bits": partial(_eight_bits, False),
    "vector: weights of eight bits": partial(_eight_bits, True),
    **{
        f"box: a column of {dtype}": partial(_of_type, dtype)
        for dtype in ("float64", "float32", "float16", "longdouble")
    },
    "box: whole numbers": _whole_numbers,
    "box: stochastic rounding": _rounded_by_chance,
    "box: no subnormal numbers": _flushed,
    "outside: a part of the batch's mean": partial(_batch_counts, 0.1),
    "outside: a millionth of the batch's mean": partial(_batch_counts, 1e-6),
    "outside: the call's first row": _others_of_the_batch,
    "outside: by hash, a tenth": partial(_by_hash, 0.1),
    "outside: by hash, a hundredth": partial(_by_hash, 0.01),
    "outside: one more head beyond a norm": partial(_beyond_norm, False),
    "outside: vector, one more head beyond a norm": partial(_beyond_norm, True),
    "outside: collinear rows": _collinear,
    "outside: temperature as log of the length": partial(_by_length, lambda n: 1.0 + np.log(n) / 3.0),
    "outside: temperature, slightly": partial(_by_length, lambda n: 1.0 + 1e-5 * n),
    "outside: attention sink": _sink,
    **{f"probabilities: {digits} digits": partial(_sigmoid_told_in_digits, digits) for digits in (3, 4, 6)},
}
SLOW = frozenset(kind for kind in KINDS if "rows" in kind or "temperature" in kind or "scales" in kind)
