"""Liars for the honesty fuzzer: members that are another function on a part of the sequences sent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import unsoftmax
from tests.cases import answers
from tests.cases.honesty_case import Case, Function
from tests.cases.honesty_members import rng_of, transformer_without_biases, vectors
from unsoftmax import OracleSpec, ReluNetwork, SingleHead, Transformer
from unsoftmax.arrays import Array
from unsoftmax.certify.sample import draw_sample
from unsoftmax.models import Model
from unsoftmax.oracles.domain import Space

__all__ = ["LIARS", "liar", "lying_on_a_share"]


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
    rng = rng_of(d, seed, 815)
    wanted = float(np.exp(rng.uniform(np.log(0.005), np.log(0.5))))
    factor = 1.0 + float(np.exp(rng.uniform(np.log(1e-4), np.log(3.0))))
    usual = (_as_hard, vectors, transformer_without_biases, _network_of_rows)[int(rng.integers(4))](d, seed)
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
