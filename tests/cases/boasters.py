"""Learners that return a wrong model and claim what they like of it, behind every kind of answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np

import unsoftmax
from unsoftmax import (
    BoundedInputs,
    Claim,
    FunctionOracle,
    Known,
    Learned,
    Model,
    Network,
    Oracle,
    OracleSpec,
    SingleHeadLearner,
    as_oracle,
)
from unsoftmax.arrays import Array
from unsoftmax.families import Family
from unsoftmax.ledger import Asker
from unsoftmax.models.parts.activations import ACTIVATIONS

__all__ = ["CLAIMS", "KINDS", "Boaster", "attacks", "targets", "wrong_models"]

CLAIMS: tuple[float | None, ...] = (None, 0.0, 1e-6, 0.01, 0.02, 0.05, 0.09, 0.1)
FAR = 0.5  # distance from which a model counts as wrong
_OF_VECTORS = ("exact", "float32", "3 decimals")  # answers that are not of single numbers only

KINDS: dict[str, Callable[[Oracle, int], tuple[Oracle, float | None]]] = {
    "exact": lambda o, s: (o, None),
    "tolerance 0.001": lambda o, s: (unsoftmax.WithinTolerance(o, 1e-3, s), None),
    "tolerance 0.001, told": lambda o, s: (unsoftmax.WithinTolerance(o, 1e-3, s), 1e-3),
    "tolerance 0.05, told": lambda o, s: (unsoftmax.WithinTolerance(o, 0.05, s), 0.05),
    "tolerance 0.05, told, rows up to 8": lambda o, s: (
        BoundedInputs(unsoftmax.WithinTolerance(o, 0.05, s), 8.0),
        0.05,
    ),
    "noise 0.01": lambda o, s: (unsoftmax.Noisy(o, 1e-2, s), None),
    "1 decimal": lambda o, s: (unsoftmax.Rounded(o, 1), None),
    "3 decimals": lambda o, s: (unsoftmax.Rounded(o, 3), None),
    "float32": lambda o, s: (unsoftmax.LowPrecision(o, "float32"), None),
    "float16": lambda o, s: (unsoftmax.LowPrecision(o, "float16"), None),
    "bfloat16": lambda o, s: (unsoftmax.LowPrecision(o, "bfloat16"), None),
    "labels": lambda o, s: (unsoftmax.Labels(o), None),
    "flipped labels": lambda o, s: (unsoftmax.FlippedLabels(o, 0.05, s), None),
    "clipped": lambda o, s: (unsoftmax.Clipped(o, 20.0), None),
    "clipped, tolerance": lambda o, s: (unsoftmax.Clipped(unsoftmax.WithinTolerance(o, 1e-3, s), 5.0), None),
}


@dataclass(frozen=True)
class Boaster:
    """Asks four rows, so that the answers are looked at, returns a model, and says what it likes of it."""

    model: Model
    error_bound: float | None
    constant_bound: float | None = None
    family: Family = Family.SINGLE_HEAD

    @property
    def claim(self) -> Claim:
        return SingleHeadLearner().claim

    def learn(self, asker: Asker, known: Known, rng: np.random.Generator) -> Learned:
        asker.ask(rng.standard_normal((4, 1, asker.width)))
        return Learned(
            self.model, self.claim, error_bound=self.error_bound, constant_bound=self.constant_bound
        )


def targets(width: int, seed: int) -> dict[str, Model]:
    """One target a family."""
    head = unsoftmax.random_single_head(width, seed=seed)
    bias = unsoftmax.random_single_head(width, seed=seed, biases=True)
    return {
        "single-head": head,
        "single-head with biases": bias,
        "single-head of rank 1": unsoftmax.random_single_head(width, 1, seed=seed),
        "multi-head": unsoftmax.random_multi_head(width, 2, 2, seed=seed),
        "transformer": unsoftmax.random_transformer(width, 6, seed=seed, biases=True),
        "relu-network": unsoftmax.random_relu_network(width, 6, seed=seed, biases=True),
        "multi-head, vectors": unsoftmax.random_multi_head(width, 2, 2, seed=seed, outputs=width),
        "network, vectors": _network(width, seed),
    }


def _network(width: int, seed: int) -> Network:
    rng = np.random.default_rng([seed, width, 78])
    shapes = ((6, width), (6, 2), (6,), (2,))
    return Network(*(rng.standard_normal(shape) for shape in shapes), activation=ACTIVATIONS["gelu"])


def wrong_models(truth: Model, seed: int) -> Iterator[tuple[str, Model]]:
    """Models far from the truth: one of its arrays doubled, halved, negated, gone, or another of this size;
    all of them; the heads' matrices exchanged."""
    rng = np.random.default_rng([seed, 77])
    tensors = truth.tensors()
    changes: dict[str, Callable[[Array], Array]] = {
        "twice": lambda a: 2.0 * a,
        "half": lambda a: 0.5 * a,
        "negative": lambda a: -a,
        "no": lambda a: 0.0 * a,
        "random": lambda a: _like(a, rng),
        "more": lambda a: a + _like(a, rng),
    }
    for name in tensors:
        for change, make in changes.items():
            yield from _if_far(truth, f"{change} {name}", tensors | {name: make(tensors[name])})
    yield from _if_far(truth, "another model", {name: _like(part, rng) for name, part in tensors.items()})
    if "heads.0.W.left" in tensors:
        swapped = dict(tensors)
        for part in ("W.left", "W.right"):
            swapped[f"heads.0.{part}"], swapped[f"heads.1.{part}"] = (
                tensors[f"heads.1.{part}"],
                tensors[f"heads.0.{part}"],
            )
        yield from _if_far(truth, "exchanged scores", swapped)
    if "W" in tensors:
        left, values, right = np.linalg.svd(tensors["W"])
        low = (left[:, :1] * values[:1]) @ right[:1]
        yield from _if_far(truth, "W of rank 1", tensors | {"W": low})


def _like(part: Array, rng: np.random.Generator) -> Array:
    drawn = rng.standard_normal(part.shape)
    return np.asarray(drawn * np.linalg.norm(part) / max(float(np.linalg.norm(drawn)), 1e-300))


def _if_far(truth: Model, name: str, tensors: dict[str, Array]) -> Iterator[tuple[str, Model]]:
    try:
        model = type(truth).from_tensors(tensors)
        far = truth.distance(model) >= FAR
    except unsoftmax.UsageError:
        return
    if far:
        yield name, model


def hides(kind: str, name: str) -> bool:
    """Whether the answers say nothing of what was changed: labels know v and c only up to a factor, and c
    alone may be hidden."""
    return "labels" in kind and name.split()[-1] in ("v", "c", "u", "output_bias")


def _oracle(truth: Model) -> Oracle:
    if isinstance(truth, Network):
        return FunctionOracle(truth, OracleSpec(width=truth.width, max_length=1, outputs=truth.outputs))
    return as_oracle(truth)


def _of_rows(oracle: Oracle, rows: Array) -> Array:
    return oracle(rows[:, None])


def attacks(
    family: str,
    kind: str,
    width: int,
    seed: int,
    claims: tuple[float | None, ...] = CLAIMS,
    constants: tuple[float | None, ...] = (None, 1e9),
    some: tuple[int, int] = (0, 1),
) -> Iterator[tuple[str, bool]]:
    """Every wrong model with every claim: its name, and whether it succeeded. some: the first that is tried,
    and how many further on the next one is."""
    truth = targets(width, seed)[family]
    if truth.outputs is not None and kind not in _OF_VECTORS:
        return
    for name, model in islice(wrong_models(truth, seed), some[0], None, some[1]):
        if hides(kind, name):
            continue
        for claim in claims:
            for constant in constants if kind != "exact" else (None,):
                oracle, told = KINDS[kind](_oracle(truth), seed)
                learner = Boaster(model, claim, constant)
                if isinstance(truth, unsoftmax.ReluNetwork):
                    if told is not None or oracle.spec.input_bound is not None:
                        continue
                    rows = partial(_of_rows, oracle)
                    result = unsoftmax.recover_network(rows, width=width, learner=learner, seed=seed)
                else:
                    result = unsoftmax.recover(oracle, learner=learner, seed=seed, tolerance=told)
                bound = result.error_bound if result.error_bound is not None else 0.0
                yield f"{name}, claim {claim}", result.status.recovered and bound < FAR
