"""The conformance suites over all models and learners of the library; and what they say of bad ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pytest

import unsoftmax
from unsoftmax import (
    Learner,
    Model,
    MultiHead,
    ReluNetwork,
    SingleHead,
    Transformer,
    random_multi_head,
    random_relu_network,
    random_single_head,
    random_token_heads,
    random_transformer,
)
from unsoftmax.arrays import Array
from unsoftmax.families import Family
from unsoftmax.models.language_model import random_language_model
from unsoftmax.testing import NonConformance, check_learner, check_model


def _permuted_heads(model: MultiHead) -> MultiHead:
    return MultiHead(model.heads[::-1], model.c)


def _split_head(model: MultiHead) -> MultiHead:
    """The first head as two of equal W, a third and two thirds of its readout, and one with none."""
    first, *rest = model.heads
    parts = [SingleHead(first.matrix, share * first.v, first.w0) for share in (1 / 3, 2 / 3, 0.0)]
    return MultiHead([*rest, *parts], model.c)


def _rescaled_neurons(network: ReluNetwork) -> ReluNetwork:
    order = np.arange(len(network.u))[::-1]
    scale = np.linspace(0.5, 2.0, len(order))
    b = None if network.b is None else scale * network.b[order]
    return ReluNetwork(
        scale[:, None] * network.A[order], network.u[order] / scale, b, network.c, network.linear
    )


def _twins(model: Model) -> Sequence[Model]:
    match model:
        case MultiHead():
            return _permuted_heads(model), _split_head(model)
        case ReluNetwork():
            return (_rescaled_neurons(model),)
        case Transformer():
            return (Transformer(model.W, _rescaled_neurons(model.network), model.w0, model.residual),)
        case _:
            return ()


MODELS: dict[str, Callable[[int], Model]] = {
    "one head": lambda seed: random_single_head(5, seed=seed),
    "one head of low rank with biases": lambda seed: random_single_head(5, 2, seed=seed, biases=True),
    "several heads": lambda seed: random_multi_head(6, 3, seed=seed, biases=True),
    "several heads, vector answers": lambda seed: random_multi_head(6, 2, seed=seed, outputs=4),
    "ReLU network": lambda seed: random_relu_network(4, 7, seed=seed),
    "ReLU network with biases": lambda seed: random_relu_network(4, 7, seed=seed, biases=True),
    "Transformer": lambda seed: random_transformer(4, 6, 2, seed=seed, biases=True),
    "language model": lambda seed: random_language_model(8, 12, vocabulary=9, layers=2, seed=seed),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_conforms(name: str) -> None:
    for seed in range(3):
        model = MODELS[name](seed)
        rows = _single_rows if isinstance(model, ReluNetwork) else None
        check_model(model, same=_twins(model), others=[MODELS[name](seed + 10)], batch=rows, seed=seed)


def _single_rows(rng: np.random.Generator, count: int, length: int) -> Array:
    return rng.standard_normal((count, 4))


@pytest.mark.parametrize("options", [{}, {"outputs": 3}, {"longest": 8}, {"heads": 3}])
def test_token_models_conform(options: dict[str, Any]) -> None:
    def ids(rng: np.random.Generator, count: int, length: int) -> Array:
        return np.asarray(rng.integers(0, 11, (count, length)))

    for seed in range(2):
        model = random_token_heads(11, 3, seed=seed, **options)
        check_model(model, others=[random_token_heads(11, 3, seed=seed + 5, **options)], batch=ids)


class _Careless(SingleHead):
    """Breaks one promise after another."""

    def __init__(self, head: SingleHead, promise: str) -> None:
        super().__init__(head.matrix, head.v, head.w0, head.c)
        self.promise = promise

    def __call__(self, batch: Array, /) -> Array:
        if self.promise == "writes into its batch":
            batch *= 2.0
        answers = super().__call__(batch)
        return answers[:, None] if self.promise == "of shape" else answers

    def canonical(self) -> Self:
        return (
            self if self.promise != "another function" else type(self)(SingleHead(2.0 * self.W, self.v), "")
        )

    def distance(self, other: Model) -> float:
        return 0.0 if self.promise == "another function is 0" else float(self.promise == "to itself is 1")

    @property
    def parameters(self) -> int:
        return 0 if self.promise == "parameters is 0" else super().parameters


@pytest.mark.parametrize(
    "promise",
    [
        "writes into its batch",
        "of shape",
        "another function",
        "to itself is 1",
        "another function is 0",
        "parameters is 0",
        "loaded as a SingleHead",
    ],
)
def test_a_careless_model_is_named(promise: str) -> None:
    model = _Careless(random_single_head(4, seed=1), promise)
    with pytest.raises(NonConformance, match=promise):
        check_model(model, others=[_Careless(random_single_head(4, seed=2), promise)])


LEARNERS: dict[str, tuple[Callable[[], Learner], Callable[[int], Model]]] = {
    "one head": (unsoftmax.SingleHeadLearner, lambda seed: random_single_head(5, 2, seed=seed, biases=True)),
    "Theorem 4.1": (unsoftmax.theorem_4_1, lambda seed: random_single_head(4, seed=seed)),
    "several heads": (unsoftmax.MultiHeadLearner, lambda seed: random_multi_head(4, 2, seed=seed)),
    "Transformer": (
        unsoftmax.TransformerLearner,
        lambda seed: random_transformer(4, 3, seed=seed, biases=True),
    ),
    "vector answers": (
        unsoftmax.VectorOutputsLearner,
        lambda seed: random_multi_head(6, 2, seed=seed, outputs=6),
    ),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_conforms(name: str) -> None:
    make, truth = LEARNERS[name]
    check_learner(make, truth(1), seed=1)


@dataclass(frozen=True)
class _Changed:
    """A good learner with one vice."""

    vice: str
    family: ClassVar[Family] = Family.SINGLE_HEAD

    @property
    def claim(self) -> unsoftmax.Claim:
        return unsoftmax.SingleHeadLearner().claim

    def learn(self, *known: Any) -> Any:
        asker, *_, rng = known
        match self.vice:
            case "other queries":
                known = (*known[:-1], np.random.default_rng())
            case "queries are billed":
                asker.ask(rng.standard_normal((500, 1, asker.width)))
            case "raised ValueError":
                raise ValueError("a defect")
        learned = unsoftmax.SingleHeadLearner().learn(*known)
        if self.vice == "not recovered":
            head = learned.model
            assert isinstance(head, SingleHead)
            return replace(learned, model=SingleHead(1.01 * head.W, head.v, head.w0, head.c))
        return learned


@pytest.mark.parametrize(
    "vice", ["other queries", "queries are billed", "raised ValueError", "not recovered"]
)
def test_a_careless_learner_is_named(vice: str) -> None:
    with pytest.raises(NonConformance, match=vice):
        check_learner(lambda: _Changed(vice), random_single_head(4, 2, seed=3))
