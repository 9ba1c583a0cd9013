"""Targets of every family, with the learner whose claim their bill is held against. Shared by tests and
benchmarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

import unsoftmax
from tests.cases import answers, heads, multi_heads, networks
from tests.cases.awkward_networks import AWKWARD
from tests.cases.spread_networks import spread_network, spread_transformer
from tests.learners.computed.float_layers import random_layer
from unsoftmax import (
    Learner,
    LowPrecision,
    MultiHeadLearner,
    ReluNetwork,
    ReluNetworkLearner,
    Result,
    SingleHead,
    SingleHeadLearner,
    Size,
    Transformer,
    TransformerLearner,
    VectorOutputsLearner,
    as_oracle,
    random_multi_head,
    random_single_head,
    random_transformer,
)
from unsoftmax.float_formats import FloatFormat
from unsoftmax.learners.computed.learner import ComputedHeadsLearner
from unsoftmax.oracles.torch_module import TorchOracle
from unsoftmax.recovery.network import rows_oracle

LEARNERS: dict[str, Learner] = {
    "rounded to 2 decimals": unsoftmax.rounded(2),
    "rounded to 4 decimals": unsoftmax.rounded(4),
    "tolerance": unsoftmax.within_tolerance(1e-3),
    "noise": unsoftmax.noisy(1e-2),
    "float32": unsoftmax.low_precision("float32"),
    "float16": unsoftmax.low_precision("float16"),
    "bfloat16": unsoftmax.low_precision("bfloat16"),
    "labels": unsoftmax.from_labels(),
    "flipped labels": unsoftmax.from_labels(24, 0.05),
    "clipped": unsoftmax.clipped(20.0),
}


@dataclass(frozen=True)
class Bill:
    """A target, its learner, and what a recovery with them paid."""

    name: str
    target: object
    learner: Learner
    seed: int = 0
    options: dict[str, Any] = field(default_factory=dict)

    def paid(self) -> Result:
        return unsoftmax.recover(self.target, learner=self.learner, seed=self.seed, **self.options)


def learning(result: Result) -> int:
    """What the claim counts: neither verification nor the look at what kind of answers they are."""
    return result.queries.learning - result.queries.by_phase.get("identify", 0)


def claimed(result: Result) -> int:
    return result.claim.queries(Size.of(result.unwrap()))


def of_single_heads(d: int, seed: int) -> Iterator[Bill]:
    kinds = {kind: heads.make(kind, d, seed) for kind in heads.ALL}
    for r in {1, 2, d // 2} & set(range(1, d)):
        for v in ("random", "orthogonal", "inside"):
            kinds[f"rank {r}, v {v}"] = heads.low_rank(d, r, seed, v=v, decades=2.0 * (seed % 3))
        kinds[f"rank {r}, biases"] = random_single_head(d, r, seed=seed, biases=True)
    for kind, head in kinds.items():
        yield Bill(f"{kind} d={d}", as_oracle(head), SingleHeadLearner(), seed)
    bounded = as_oracle(kinds["biases"])
    yield Bill(f"short rows d={d}", bounded, SingleHeadLearner(), seed, {"input_bound": 1.0})


def of_several_heads(d: int, seed: int) -> Iterator[Bill]:
    for kind, make in multi_heads.KINDS.items():
        yield Bill(f"{kind} d={d}", as_oracle(make(d, seed)), MultiHeadLearner(), seed)
    for count, r, biases in ((2, d, True), (4, 2, False), (4, 2, True), (2, 1, True)):
        hidden = random_multi_head(d, count, r, seed=seed, biases=biases)
        yield Bill(f"H={count} r={r} biases={biases} d={d}", as_oracle(hidden), MultiHeadLearner(), seed)
    stored = LowPrecision(as_oracle(random_multi_head(d, 2, d // 2, seed=seed)), "float32")
    yield Bill(f"float32 H=2 d={d}", stored, MultiHeadLearner(), seed)


def of_networks(d: int, m: int, seed: int) -> Iterator[Bill]:
    for name, network in _networks(d, m, seed):
        target = rows_oracle(network, network.width)
        yield Bill(f"{name} d={d} m={m}", target, ReluNetworkLearner(), seed)


def of_transformers(d: int, m: int, seed: int) -> Iterator[Bill]:
    W = random_single_head(d, seed=seed).W
    for r, biases in ((d, False), (d, True), (1, True), (d // 2, False)):
        hidden = random_transformer(d, m, max(1, r), seed=seed, biases=biases)
        yield Bill(f"r={r} biases={biases} d={d} m={m}", as_oracle(hidden), TransformerLearner(), seed)
    for name, network in _networks(d, m, seed):
        if network.width == d:
            model = Transformer(W, network)
            yield Bill(f"{name} d={d} m={m}", as_oracle(model), TransformerLearner(), seed)
    spread = spread_transformer(d, m, 3.0, np.random.default_rng([seed, d, m]))
    yield Bill(f"spread d={d} m={m}", as_oracle(spread), TransformerLearner(), seed)


def of_vector_answers(d: int, seed: int) -> Iterator[Bill]:
    rng = np.random.default_rng([seed, d])
    for m in sorted({1, 2, d // 2, d, 2 * d}):
        for r, biases in ((d, False), (2, True), (d // 2, False)):
            head = random_single_head(d, r, seed=seed, biases=biases)
            c = rng.standard_normal(m) * float(biases)
            one = SingleHead(head.matrix, rng.standard_normal((d, m)), head.w0, c)
            yield Bill(f"one head m={m} r={r} d={d}", as_oracle(one), VectorOutputsLearner(), seed)
        for count, rank in ((2, None), (3, None), (2, d)):
            hidden = random_multi_head(d, count, rank, seed=seed, outputs=m, biases=bool(seed % 2))
            name = f"H={count} m={m} r={rank} d={d}"
            yield Bill(name, as_oracle(hidden), VectorOutputsLearner(), seed)


def of_computed_heads(d: int, heads: int, seed: int) -> Iterator[Bill]:
    """Layers of torch that compute in each short format, with numbers and with vectors."""
    readout = np.random.default_rng([seed, d]).standard_normal(d)
    for held in FloatFormat:
        layer = random_layer(d, heads, seed).to(getattr(torch, held))
        for kind, read in (("numbers", readout), ("vectors", None)):
            target = TorchOracle(layer, readout=read)
            yield Bill(f"{held} {kind} H={heads} d={d}", target, ComputedHeadsLearner(held), seed)


def of_answers_with_errors(
    d: int, r: int | None, seed: int, bounds: tuple[float | None, ...] = (None, 10.0, 1e3)
) -> Iterator[Bill]:
    for bias in (0.0, 0.1, 5.0):
        head = answers.hard_head(d, r, seed=seed)
        if bias:
            head = answers.biased_head(d, r, seed=seed, bias=bias)
        for kind, learner in LEARNERS.items():
            if bias and kind == "flipped labels":
                continue  # refused by name
            for bound in bounds:
                target = answers.ANSWERS[kind](as_oracle(head), seed)
                options: dict[str, Any] = {} if bound is None else {"input_bound": bound}
                yield Bill(f"{kind} d={d} r={r} bias={bias} R={bound}", target, learner, seed, options)


def _networks(d: int, m: int, seed: int) -> Iterator[tuple[str, ReluNetwork]]:
    for biased in (False, True):
        rng = np.random.default_rng([seed, d, m])
        yield f"gaussian, biased={biased}", networks.gaussian(d, m, rng, biased)
        for kind, make in networks.HARD.items():
            yield f"{kind}, biased={biased}", make(d, m, np.random.default_rng([seed, d, m]), biased)
    for kind, awkward in AWKWARD.items():
        width = 1 if kind == "one dimension" else d
        yield kind, awkward(width, m, 2.0, np.random.default_rng([seed, d, m]))
    rng = np.random.default_rng([seed, d, m])
    yield "spread over three decades", spread_network(d, m, 3.0, rng)
    yield "with a bump", networks.with_bump(d, m, 0.1, rng)
