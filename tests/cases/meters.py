"""Every meter of the library by name, over a head that it can measure: what the conformance suites run on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.cases.answers import biased_head, hard_head
from unsoftmax import (
    FunctionOracle,
    Labels,
    Ledger,
    LowPrecision,
    Oracle,
    Rounded,
    SingleHead,
    WithinTolerance,
    as_oracle,
    random_multi_head,
    random_transformer,
)
from unsoftmax.arrays import Array
from unsoftmax.meters import (
    ConeMeter,
    FormMeter,
    MeasuredReadout,
    SigmoidMeter,
    ToleranceMeter,
    antisymmetric_meter,
)
from unsoftmax.meters.one_head.labels import Labeller, LabelMeter
from unsoftmax.meters.one_head.low_precision import ZeroCentredMeter
from unsoftmax.meters.one_head.rounded import RoundingMeter
from unsoftmax.meters.paper.scaled_pairs import ScaledPairs
from unsoftmax.meters.paper.sign_bisection import SignBisection
from unsoftmax.meters.paper.two_rows import TwoRowMeter
from unsoftmax.meters.probes.bisection import Bisection
from unsoftmax.meters.query_bias.within_tolerance import BiasedToleranceMeter
from unsoftmax.meters.several_heads.excess_answers import Responses
from unsoftmax.meters.several_heads.isolated_head import IsolatedHeadMeter
from unsoftmax.meters.several_heads.isolating_rows import Isolation
from unsoftmax.meters.several_heads.other_heads import SaturatedBackground
from unsoftmax.models.matrices import Dense

__all__ = ["METERS", "Measured"]


@dataclass(frozen=True)
class Measured:
    """A meter, the ledger that it asks, and the matrix that it should measure."""

    meter: FormMeter
    ledger: Ledger
    W: Array


def _one_head(
    wrap: Callable[[Oracle], Oracle], make: Callable[[Ledger, SingleHead, np.random.Generator], FormMeter]
) -> Callable[[int, int | None, int], Measured]:
    def measured(d: int, r: int | None, seed: int) -> Measured:
        head = hard_head(d, r, seed=seed)
        ledger = Ledger(wrap(as_oracle(head)))
        return Measured(make(ledger, head, np.random.default_rng(seed)), ledger, head.W)

    return measured


def _exact_with_biases(d: int, r: int | None, seed: int) -> Measured:
    head = biased_head(d, r, seed=seed)
    ledger = Ledger(as_oracle(SingleHead(head.W, head.v, head.w0, 3.0)))
    return Measured(SigmoidMeter(ledger, head.v, 3.0, head.w0), ledger, head.W)


def _biased_tolerance(d: int, r: int | None, seed: int) -> Measured:
    head = biased_head(d, r, seed=seed)
    ledger = Ledger(WithinTolerance(as_oracle(head), 1e-3, seed))
    readout = MeasuredReadout(head.v, 0.0, 1e-3, 1e6)
    return Measured(BiasedToleranceMeter(ledger, readout, np.random.default_rng(seed)), ledger, head.W)


def _isolated(d: int, r: int | None, seed: int) -> Measured:
    model = random_multi_head(d, 2, d if r is None else r, seed=seed)
    rng = np.random.default_rng(seed)
    ledger = Ledger(as_oracle(model))
    respond = Responses(ledger, np.asarray(model.v))
    a = rng.standard_normal(d) * 2.0**16 / np.sqrt(d)
    rows = np.array([head.W.T @ a for head in model.heads])
    points = Isolation(rows, respond.rounding).points(1, rng)
    reach = float((np.abs(rows @ points[0]) / np.linalg.norm(rows, axis=1)).min())
    others = SaturatedBackground(a, np.empty((0, d)), np.empty((0, len(points))))
    meter = IsolatedHeadMeter(respond, a, model.heads[1].v, points, reach, others, row=rows[1])
    return Measured(meter, ledger, model.heads[1].W)


def _sign_bisection(d: int, r: int | None, seed: int) -> Measured:
    head = SingleHead(hard_head(d, r, seed=seed).W, np.resize([1.0, -1.0], d) / np.sqrt(d))
    ledger = Ledger(Labels(as_oracle(head)))
    return Measured(SignBisection(ledger, head.v, 0.02, reach=1.0, steps=48), ledger, head.W)


def _transformer(kind: str) -> Callable[[int, int | None, int], Measured]:
    def measured(d: int, r: int | None, seed: int) -> Measured:
        model = random_transformer(d, 6, r, seed=seed)
        ledger = Ledger(FunctionOracle(model), width=d)
        meter = ConeMeter if kind == "cone" else antisymmetric_meter
        return Measured(meter(ledger, model.one_row.folds, np.random.default_rng(seed)), ledger, model.W)

    return measured


def _rounding(ledger: Ledger, head: SingleHead, rng: np.random.Generator) -> FormMeter:
    near = Dense(head.W + 1e-4 * rng.standard_normal(head.W.shape))
    return RoundingMeter(ledger, head.v, 1e3, 0.1, near, 1e-3, rng)


def _low_precision(precision: str) -> Callable[[int, int | None, int], Measured]:
    return _one_head(
        lambda oracle: LowPrecision(oracle, precision),
        lambda ledger, head, rng: ZeroCentredMeter(ledger, head.v, rng, precision),
    )


METERS: dict[str, tuple[Callable[[int, int | None, int], Measured], float]] = {
    # how a meter of width d and rank r is made from a seed, and how well it measures a form of unit vectors
    "exact": (_one_head(lambda o: o, lambda ledger, head, rng: SigmoidMeter(ledger, head.v)), 1e-12),
    "exact, with biases": (_exact_with_biases, 1e-11),
    "within a tolerance": (
        _one_head(
            lambda o: WithinTolerance(o, 1e-3),
            lambda ledger, head, rng: ToleranceMeter(ledger, MeasuredReadout(head.v, 0.0, 1e-3, 1e6), rng),
        ),
        1e-7,
    ),
    "within a tolerance, with a query bias": (_biased_tolerance, 1e-6),
    "rounded": (_one_head(lambda o: Rounded(o, 1), _rounding), 1e-10),
    "float32": (_low_precision("float32"), 1e-10),
    "float16": (_low_precision("float16"), 1e-4),
    "bfloat16": (_low_precision("bfloat16"), 1e-10),
    "labels": (
        _one_head(Labels, lambda ledger, head, rng: LabelMeter(Labeller(ledger), head.v, rng, Bisection(46))),
        1e-9,
    ),
    "one of two heads": (_isolated, 1e-8),
    "inside a linear piece": (_transformer("cone"), 1e-8),
    "antisymmetric pairs": (_transformer("antisymmetric"), 1e-9),
    "the paper's two rows": (
        _one_head(lambda o: o, lambda ledger, head, rng: TwoRowMeter(ledger, head.v)),
        1e-6,
    ),
    "the paper's pairs, scaled": (
        _one_head(lambda o: o, lambda ledger, head, rng: ScaledPairs(ledger, head.v, rng)),
        1e-8,
    ),
    "the paper's sign bisection": (_sign_bisection, 1e-6),
}
