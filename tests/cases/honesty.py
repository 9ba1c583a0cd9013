"""Boxes inside and outside the class for the honesty fuzzer: each is made from (width, seed) and knows the
function behind its answers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import unsoftmax
from tests.cases import (
    answers,
    heads,
    honesty_adverse,
    honesty_corner_families,
    honesty_corners,
    honesty_engine_networks,
    honesty_engines,
    honesty_families,
    honesty_hostile,
    honesty_near,
    honesty_odd,
    honesty_services,
    honesty_shapes,
    honesty_short_floats,
    honesty_twists,
    multi_heads,
    networks,
    outside,
    outside_networks,
)
from tests.cases.honesty_case import Case, Function, Maker
from unsoftmax import MultiHead, OracleSpec, ReluNetwork, SingleHead, Transformer, as_oracle
from unsoftmax.arrays import Array
from unsoftmax.certify.sample import draw_sample
from unsoftmax.models import Model
from unsoftmax.oracles.domain import Space

__all__ = ["KINDS", "LIARS", "SLOW", "liar", "lying_on_a_share", "three_or_more_otherwise"]


def _member(make: Callable[[int, int], Model], **options: object) -> Maker:
    def case(d: int, seed: int) -> Case:
        model = make(d, seed)
        outputs = {} if model.outputs is None else {"outputs": model.outputs}
        return Case(lambda X: model(X), model.width, model, model, options={**outputs, **options})

    return case


def _behind(kind: str, make: Callable[[int, int], Model]) -> Maker:
    """A member, or a box near the class, behind answers of this kind."""

    def case(d: int, seed: int) -> Case:
        model = make(d, seed)
        return Case(
            answers.ANSWERS[kind](as_oracle(model), seed),
            d,
            _before_errors(kind, model),
            model,
            exact=False,
            labels="labels" in kind,
        )

    return case


def _before_errors(kind: str, function: Function) -> Function:
    """The function that a model must have: limits of answers are part of it, errors of answers are not."""
    return (lambda X: np.clip(function(X), -20.0, 20.0)) if kind == "clipped" else function


def _outsider(make: Callable[[int, int], Function], *, steady: bool = True) -> Maker:
    def case(d: int, seed: int) -> Case:
        box = make(d, seed)
        return Case(box, d, box, steady=steady)

    return case


def _outsider_behind(kind: str, make: Callable[[int, int], Function]) -> Maker:
    def case(d: int, seed: int) -> Case:
        box = make(d, seed)
        inner = unsoftmax.FunctionOracle(box, OracleSpec(width=d))
        function = _before_errors(kind, box)
        return Case(answers.ANSWERS[kind](inner, seed), d, function, exact=False, labels="labels" in kind)

    return case


def _rng(d: int, seed: int, part: int) -> np.random.Generator:
    return np.random.default_rng([seed, d, part])


def _beside_a_constant(d: int, seed: int) -> SingleHead:
    head = unsoftmax.random_single_head(d, seed=seed)
    return SingleHead(head.matrix, head.v, None, 10.0 ** (seed % 11))


def _vectors(d: int, seed: int) -> SingleHead:
    rng = _rng(d, seed, 1)
    m = int(rng.integers(1, d + 3))
    return SingleHead(rng.standard_normal((d, d)) / np.sqrt(d), rng.standard_normal((d, m)), None, 0.0)


def _vectors_with_biases(d: int, seed: int) -> SingleHead:
    rng = _rng(d, seed, 2)
    m = int(rng.integers(1, d + 3))
    return SingleHead(
        rng.standard_normal((d, d)) / np.sqrt(d),
        rng.standard_normal((d, m)),
        rng.standard_normal(d),
        rng.standard_normal(m),
    )


def _several_vectors(d: int, seed: int) -> MultiHead:
    rng = _rng(d, seed, 3)
    return unsoftmax.random_multi_head(
        d, int(rng.integers(2, 4)), seed=seed, outputs=int(rng.integers(2, d + 3)), biases=seed % 2 == 1
    )


def _full_rank_vectors(d: int, seed: int) -> MultiHead:
    rng = _rng(d, seed, 4)
    return unsoftmax.random_multi_head(d, 2, d, seed=seed, outputs=int(rng.integers(2, d + 2)))


def _trained_layer(d: int, seed: int) -> MultiHead:
    """Heads as in trained layers: small W beside query biases, values of uneven size."""
    rng = _rng(d, seed, 5)
    layer = unsoftmax.random_multi_head(d, 2, seed=seed, outputs=d, biases=True, scale=0.2)
    return MultiHead(
        [
            SingleHead(head.matrix, head.v * np.exp(rng.normal(0.0, 1.0, d)), 3.0 * np.asarray(head.w0))
            for head in layer.heads
        ],
        layer.c,
    )


def _transformer(d: int, seed: int) -> Transformer:
    return unsoftmax.random_transformer(
        d, int(_rng(d, seed, 6).integers(1, 7)), seed=seed, biases=True, residual=float(seed % 2)
    )


def _transformer_without_biases(d: int, seed: int) -> Transformer:
    return unsoftmax.random_transformer(d, int(_rng(d, seed, 7).integers(2, 7)), seed=seed)


def _off_near_the_origin(d: int, seed: int) -> Transformer:
    """Every neuron is off around the origin."""
    rng = _rng(d, seed, 8)
    m = int(rng.integers(2, 7))
    A = rng.standard_normal((m, d))
    network = ReluNetwork(A, rng.standard_normal(m), -rng.uniform(0.3, 1.5, m) * np.linalg.norm(A, axis=1))
    return Transformer(rng.standard_normal((d, d)) / np.sqrt(d), network)


def _linear_after_skip(d: int, seed: int) -> Transformer:
    """Attention with a skip connection, read by a vector."""
    rng = _rng(d, seed, 9)
    network = ReluNetwork(np.empty((0, d)), np.empty(0), linear=rng.standard_normal(d))
    return Transformer(rng.standard_normal((d, d)) / np.sqrt(d), network, residual=1.0)


def _large_output_bias(d: int, seed: int) -> Transformer:
    model = unsoftmax.random_transformer(d, 4, seed=seed, biases=True)
    n = model.network
    return Transformer(model.matrix, ReluNetwork(n.A, n.u, n.b, 10.0 ** (seed % 7), n.linear))


def _network(d: int, seed: int) -> Case:
    hidden = unsoftmax.random_relu_network(
        d, int(_rng(d, seed, 10).integers(1, 9)), seed=seed, biases=seed % 2 == 1
    )
    oracle = unsoftmax.FunctionOracle(lambda X: hidden(X[:, 0]), OracleSpec(width=d, max_length=1))
    return Case(oracle, d, hidden, hidden, options={"family": "relu-network"})


def _hard_network(d: int, seed: int) -> Case:
    names = sorted(networks.HARD)
    hidden = networks.HARD[names[seed % len(names)]](d, 4, _rng(d, seed, 11), seed % 2 == 1)
    oracle = unsoftmax.FunctionOracle(lambda X: hidden(X[:, 0]), OracleSpec(width=d, max_length=1))
    return Case(oracle, d, hidden, hidden, options={"family": "relu-network"})


def _denominator(d: int, seed: int) -> Function:
    """A softmax whose denominator has a little more in it."""
    rng = _rng(d, seed, 12)
    W, v = rng.standard_normal((d, d)) / np.sqrt(d), rng.standard_normal(d)
    v /= np.linalg.norm(v)

    def box(X: Array) -> Array:
        scores = np.einsum("bnd,de,be->bn", X, W, X[:, -1])
        top = scores.max(axis=1, keepdims=True)
        weights = np.exp(scores - top)
        return np.asarray(np.einsum("bn,bnd,d->b", weights, X, v) / (weights.sum(axis=1) + 1e-3))

    return box


def _warmer_for_three(d: int, seed: int) -> Function:
    return three_or_more_otherwise(answers.hard_head(d, seed=seed), 1.05)


def three_or_more_otherwise(head: SingleHead, factor: float) -> Function:
    """The head, with another W for three and more rows."""
    other = SingleHead(factor * head.W, head.v, head.w0, head.c)
    return lambda X: head(X) if X.shape[1] < 3 else other(X)


def _vector_warmer(d: int, seed: int) -> Case:
    head = _vectors(d, seed)
    box = three_or_more_otherwise(head, 1.01)
    return Case(box, d, box, options={"outputs": head.outputs})


def _vector_sine(d: int, seed: int) -> Case:
    layer = _several_vectors(d, seed)

    def box(X: Array) -> Array:
        return np.asarray(layer(X) + 1e-5 * np.sin(X.sum(axis=(1, 2)))[:, None])

    return Case(box, d, box, options={"outputs": layer.outputs})


def _vector_normalised(d: int, seed: int) -> Case:
    layer = _several_vectors(d, seed)

    def box(X: Array) -> Array:
        return np.asarray(layer(X) / np.sqrt(1.0 + np.square(layer(X)).mean(axis=1, keepdims=True)))

    return Case(box, d, box, options={"outputs": layer.outputs})


def _constant_and_warmer(d: int, seed: int) -> Function:
    head = _beside_a_constant(d, seed)
    return three_or_more_otherwise(head, 3.0 if seed % 2 else 1.001)


def _faint_head_changes(d: int, seed: int) -> Function:
    """The faint one of two heads is another for three and more rows."""
    layer = unsoftmax.random_multi_head(d, 2, seed=seed)
    first, second = layer.heads
    faint = 10.0 ** -(seed % 6)
    usual = MultiHead([first, SingleHead(second.matrix, faint * second.v)])
    other = MultiHead([first, SingleHead(2.0 * second.W, faint * second.v)])
    return lambda X: usual(X) if X.shape[1] < 3 else other(X)


def _transformer_warmer(d: int, seed: int) -> Function:
    usual = _large_output_bias(d, seed)
    other = Transformer(1.001 * usual.W, usual.network, usual.w0, usual.residual)
    return lambda X: usual(X) if X.shape[1] < 3 else other(X)


def _last_digits_by_batch(d: int, seed: int) -> Case:
    """A float32 server: how sums are ordered depends on the size of the batch."""
    head = answers.hard_head(d, seed=seed)

    def box(X: Array) -> Array:
        exact = head(X)
        step = np.float64(2.0**-23) * (1 + len(X) % 3)
        return np.asarray((exact * (1 + step * ((len(X) % 3) - 1))).astype(np.float32).astype(np.float64))

    return Case(box, d, head, head, exact=False)


def _bounded(make: Callable[[int, int], Model]) -> Maker:
    def case(d: int, seed: int) -> Case:
        model = make(d, seed)
        outputs = {} if model.outputs is None else {"outputs": model.outputs}
        bound = (1.0, 10.0, 100.0, 1000.0)[seed % 4]
        return Case(lambda X: model(X), d, model, model, options={"input_bound": bound, **outputs})

    return case


def _bounded_warmer(d: int, seed: int) -> Case:
    """Several heads with another W beyond two rows, where rows may only be short."""
    layer = _several(d, seed)
    factor = 1.0 + 10.0 ** -(1 + seed % 5)
    other = MultiHead([SingleHead(factor * head.W, head.v, head.w0) for head in layer.heads], layer.c)

    def box(X: Array) -> Array:
        return (layer if X.shape[1] < 3 else other)(X)

    return Case(box, d, box, options={"input_bound": (0.03, 0.1, 0.3, 1.0)[seed % 4]})


def _as_single(d: int, seed: int) -> SingleHead:
    return unsoftmax.random_single_head(d, seed=seed, biases=seed % 2 == 1)


def _several(d: int, seed: int) -> MultiHead:
    return unsoftmax.random_multi_head(max(d, 1), 2 + seed % 2, seed=seed, biases=seed % 3 == 0)


def _of_several(kind: str, d: int, seed: int) -> MultiHead:
    return multi_heads.KINDS[kind](max(d, 3), seed)


KINDS: dict[str, Maker] = {
    **{f"head: {name}": _member(partial(heads.make, name)) for name in sorted(heads.ALL)},
    "head: beside a constant": _member(_beside_a_constant),
    "head: bounded rows": _bounded(_as_single),
    "heads: bounded rows": _bounded(_several),
    "outside: bounded rows, another W": _bounded_warmer,
    "head: rank one": _member(lambda d, s: unsoftmax.random_single_head(d, 1, seed=s)),
    **{
        f"heads: {name}": _member(partial(_of_several, name))
        for name in ("full_rank", "low_rank", "biases_and_constant", "shared_keys", "one_averages")
    },
    "heads: any width": _member(_several),
    "vector: one head": _member(_vectors),
    "vector: one head, biases": _member(_vectors_with_biases),
    "vector: several heads": _member(_several_vectors),
    "vector: full rank": _member(_full_rank_vectors),
    "vector: as trained": _member(_trained_layer),
    "vector: bounded rows": _bounded(_several_vectors),
    "vector: one head, bounded rows": _bounded(_vectors),
    "transformer: biases": _member(_transformer),
    "transformer: no biases": _member(_transformer_without_biases),
    "transformer: off near the origin": _member(_off_near_the_origin),
    "transformer: skip, then a vector": _member(_linear_after_skip),
    "transformer: large output bias": _member(_large_output_bias),
    "network: Gaussian": _network,
    "network: hard": _hard_network,
    **{
        f"answers: {kind}": _behind(kind, lambda d, s: answers.hard_head(d, seed=s))
        for kind in answers.ANSWERS
        if kind != "exact"
    },
    **{
        f"answers: {kind}, query bias and constant": _behind(
            kind, lambda d, s: unsoftmax.random_single_head(d, seed=s, biases=True)
        )
        for kind in ("rounded to 4 decimals", "noise", "float32", "tolerance")
    },
    "answers: last digits by batch": _last_digits_by_batch,
    **{
        f"answers: {kind}, several heads": _behind(
            kind, lambda d, s: unsoftmax.random_multi_head(d, 2, seed=s)
        )
        for kind in ("rounded to 4 decimals", "noise", "float32", "labels", "tolerance")
    },
    **{
        f"outside: {name}": _outsider(make)
        for name, make in outside.BOXES.items()
        if name not in outside.UNSTEADY
    },
    **{f"outside: {name}": _outsider(outside.BOXES[name], steady=False) for name in sorted(outside.UNSTEADY)},
    **{f"outside: network, {name}": _outsider(make) for name, make in outside_networks.BOXES.items()},
    "outside: constant and another W": _outsider(_constant_and_warmer),
    "outside: a faint head changes": _outsider(_faint_head_changes),
    "outside: transformer with another W": _outsider(_transformer_warmer),
    "outside: vector, another W": _vector_warmer,
    "outside: vector, sine": _vector_sine,
    "outside: vector, normalised": _vector_normalised,
    **{
        f"outside: denominator, {kind}": _outsider_behind(kind, _denominator)
        for kind in (
            "bfloat16",
            "float16",
            "float32",
            "rounded to 2 decimals",
            "tolerance",
            "noise",
            "labels",
        )
    },
    **{
        f"outside: another W, {kind}": _outsider_behind(kind, _warmer_for_three)
        for kind in ("bfloat16", "rounded to 4 decimals", "tolerance", "noise", "labels", "clipped")
    },
    **honesty_families.KINDS,
    **honesty_short_floats.KINDS,
    **honesty_hostile.KINDS,
    **honesty_near.KINDS,
    **honesty_twists.KINDS,
    **honesty_odd.KINDS,
    **honesty_corners.KINDS,
    **honesty_corner_families.KINDS,
    **honesty_shapes.KINDS,
    **honesty_adverse.KINDS,
    **honesty_engines.KINDS,
    **honesty_engine_networks.KINDS,
    **honesty_services.KINDS,
}
# half a second to three seconds each, where others take a tenth
SLOW = (
    honesty_families.SLOW
    | honesty_short_floats.SLOW
    | honesty_hostile.SLOW
    | honesty_near.SLOW
    | honesty_twists.SLOW
    | honesty_odd.SLOW
    | honesty_corners.SLOW
    | honesty_corner_families.SLOW
    | honesty_shapes.SLOW
    | honesty_adverse.SLOW
    | honesty_engines.SLOW
    | honesty_engine_networks.SLOW
    | honesty_services.SLOW
    | {
        "outside: scale_changes_beyond_two_rows",
        "outside: constant and another W",
        "outside: vector, another W",
        "outside: a faint head changes",
        "outside: bounded rows, another W",
        "outside: network, float32_answers",
        "outside: cache_by_first_row",
        "answers: labels",
        "answers: flipped labels",
        "heads: bounded rows",
        "network: gated",
        "language model: one layer",
        "rows: six digits",
        "outside: by hash, a tenth",
        "heads: more than the width",
        "heads: weights of eight bits",
        "outside: quadratic_values",
        "outside: float32, another W and a skip",
    }
)


def _norms(X: Array) -> Array:
    return np.asarray(np.linalg.norm(X, axis=2))


# a number for every sequence; a liar lies where it is above a threshold, which sets the share
LIARS: dict[str, Callable[[Array], Array]] = {
    "length": lambda X: np.full(len(X), float(X.shape[1])) + 1e-6 * X[:, 0, 0],
    "longest row": lambda X: _norms(X).max(axis=1),
    "shortest row": lambda X: -_norms(X).min(axis=1),
    "uneven rows": lambda X: _norms(X).max(axis=1) / (1e-3 + _norms(X).min(axis=1)),
    "mean of the rows": lambda X: np.linalg.norm(X.mean(axis=1), axis=1) / (1e-9 + _norms(X).mean(axis=1)),
    "an entry": lambda X: X[:, -1, 0] / (1e-9 + _norms(X)[:, -1]),
    "a mixture": lambda X: np.sin(37.0 * X.sum(axis=(1, 2))),
}


def liar(name: str, threshold: float, usual: Model, other: Model, shortest: int = 3) -> Function:
    """The model, and another one for sequences of so many and more rows whose number is above the
    threshold."""

    def box(X: Array) -> Array:
        found = np.array(usual(X))
        picked = LIARS[name](X) > threshold
        if X.shape[1] >= shortest and picked.any():
            found[picked] = other(X[picked])
        return found

    return box


def lying_on_a_share(name: str, d: int, seed: int) -> tuple[Case, float]:
    """A head, a layer with vector answers, a Transformer or a network of single rows that is another one on a
    part of the certificate's distribution; and the share of that."""
    rng = _rng(d, seed, 815)
    wanted = float(np.exp(rng.uniform(np.log(0.005), np.log(0.5))))
    factor = 1.0 + float(np.exp(rng.uniform(np.log(1e-4), np.log(3.0))))
    usual = (_as_hard, _vectors, _transformer_without_biases, _network_of_rows)[int(rng.integers(4))](d, seed)
    alone = isinstance(usual, ReluNetwork)
    other: Model
    if isinstance(usual, ReluNetwork):
        other = ReluNetwork(factor * usual.A, usual.u, usual.b, usual.c, usual.linear)
    elif isinstance(usual, Transformer):
        other = Transformer(factor * usual.W, usual.network, usual.w0, usual.residual)
    else:
        other = SingleHead(factor * usual.W, usual.v, usual.w0, usual.c)
    numbers = np.concatenate(
        [
            LIARS[name](batch) if alone or batch.shape[1] > 2 else np.full(len(batch), -np.inf)
            for draw in range(12)
            for batch in draw_sample(
                usual, Space(d), np.random.default_rng([seed, draw]), max_length=1 if alone else None
            ).batches
        ]
    )
    threshold = float(np.quantile(numbers, 1.0 - wanted))
    share = float(np.mean(numbers > threshold))
    box = liar(name, threshold, usual, other, shortest=1 if alone else 3)
    if alone:
        oracle = unsoftmax.FunctionOracle(box, OracleSpec(width=d, max_length=1))
        return Case(oracle, d, lambda rows: box(rows[:, None]), options={"family": "relu-network"}), share
    outputs = {} if usual.outputs is None else {"outputs": usual.outputs}
    return Case(box, d, box, options=dict(outputs)), share


def _network_of_rows(d: int, seed: int) -> ReluNetwork:
    return unsoftmax.random_relu_network(d, 2 + seed % 4, seed=seed, biases=seed % 2 == 1)


def _as_hard(d: int, seed: int) -> SingleHead:
    return answers.hard_head(d, seed=seed)
