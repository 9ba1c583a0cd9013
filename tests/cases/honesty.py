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
    networks,
    outside,
    outside_networks,
)
from tests.cases.honesty_case import Case, Function, Maker
from tests.cases.honesty_members import (
    beside_a_constant,
    full_rank_vectors,
    large_output_bias,
    linear_after_skip,
    off_near_the_origin,
    one_head,
    rng_of,
    several_heads,
    several_of_kind,
    several_vectors,
    trained_layer,
    transformer,
    transformer_without_biases,
    vectors,
    vectors_with_biases,
)
from tests.cases.honesty_outside import (
    bounded_warmer,
    constant_and_warmer,
    denominator,
    faint_head_changes,
    transformer_warmer,
    vector_normalised,
    vector_sine,
    vector_warmer,
    warmer_for_three,
)
from unsoftmax import OracleSpec, as_oracle
from unsoftmax.arrays import Array
from unsoftmax.models import Model

__all__ = ["KINDS", "SLOW"]


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


def _bounded(make: Callable[[int, int], Model]) -> Maker:
    def case(d: int, seed: int) -> Case:
        model = make(d, seed)
        outputs = {} if model.outputs is None else {"outputs": model.outputs}
        bound = (1.0, 10.0, 100.0, 1000.0)[seed % 4]
        return Case(lambda X: model(X), d, model, model, options={"input_bound": bound, **outputs})

    return case


def _network(d: int, seed: int) -> Case:
    hidden = unsoftmax.random_relu_network(
        d, int(rng_of(d, seed, 10).integers(1, 9)), seed=seed, biases=seed % 2 == 1
    )
    oracle = unsoftmax.FunctionOracle(lambda X: hidden(X[:, 0]), OracleSpec(width=d, max_length=1))
    return Case(oracle, d, hidden, hidden, options={"family": "relu-network"})


def _hard_network(d: int, seed: int) -> Case:
    names = sorted(networks.HARD)
    hidden = networks.HARD[names[seed % len(names)]](d, 4, rng_of(d, seed, 11), seed % 2 == 1)
    oracle = unsoftmax.FunctionOracle(lambda X: hidden(X[:, 0]), OracleSpec(width=d, max_length=1))
    return Case(oracle, d, hidden, hidden, options={"family": "relu-network"})


def _last_digits_by_batch(d: int, seed: int) -> Case:
    """A float32 server: how sums are ordered depends on the size of the batch."""
    head = answers.hard_head(d, seed=seed)

    def box(X: Array) -> Array:
        exact = head(X)
        step = np.float64(2.0**-23) * (1 + len(X) % 3)
        return np.asarray((exact * (1 + step * ((len(X) % 3) - 1))).astype(np.float32).astype(np.float64))

    return Case(box, d, head, head, exact=False)


KINDS: dict[str, Maker] = {
    **{f"head: {name}": _member(partial(heads.make, name)) for name in sorted(heads.ALL)},
    "head: beside a constant": _member(beside_a_constant),
    "head: bounded rows": _bounded(one_head),
    "heads: bounded rows": _bounded(several_heads),
    "outside: bounded rows, another W": bounded_warmer,
    "head: rank one": _member(lambda d, s: unsoftmax.random_single_head(d, 1, seed=s)),
    **{
        f"heads: {name}": _member(partial(several_of_kind, name))
        for name in ("full_rank", "low_rank", "biases_and_constant", "shared_keys", "one_averages")
    },
    "heads: any width": _member(several_heads),
    "vector: one head": _member(vectors),
    "vector: one head, biases": _member(vectors_with_biases),
    "vector: several heads": _member(several_vectors),
    "vector: full rank": _member(full_rank_vectors),
    "vector: as trained": _member(trained_layer),
    "vector: bounded rows": _bounded(several_vectors),
    "vector: one head, bounded rows": _bounded(vectors),
    "transformer: biases": _member(transformer),
    "transformer: no biases": _member(transformer_without_biases),
    "transformer: off near the origin": _member(off_near_the_origin),
    "transformer: skip, then a vector": _member(linear_after_skip),
    "transformer: large output bias": _member(large_output_bias),
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
    "outside: constant and another W": _outsider(constant_and_warmer),
    "outside: a faint head changes": _outsider(faint_head_changes),
    "outside: transformer with another W": _outsider(transformer_warmer),
    "outside: vector, another W": vector_warmer,
    "outside: vector, sine": vector_sine,
    "outside: vector, normalised": vector_normalised,
    **{
        f"outside: denominator, {kind}": _outsider_behind(kind, denominator)
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
        f"outside: another W, {kind}": _outsider_behind(kind, warmer_for_three)
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
