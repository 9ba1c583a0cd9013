"""Every meter with both solvers: columns from forms, and the range finder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.cases.answers import hard_head
from unsoftmax import Labels, Ledger, LowPrecision, Rounded, SingleHead, WithinTolerance, as_oracle
from unsoftmax.meters import MeasuredReadout, Meter, ToleranceMeter
from unsoftmax.meters.one_head.labels import Labeller, LabelMeter
from unsoftmax.meters.one_head.low_precision import ZeroCentredMeter
from unsoftmax.meters.one_head.rounded import RoundingMeter
from unsoftmax.meters.probes.bisection import Bisection
from unsoftmax.models.matrices import Dense
from unsoftmax.solvers import Columns, RangeFinder


def _tolerance(head: SingleHead, rng: np.random.Generator) -> Meter:
    return ToleranceMeter(
        Ledger(WithinTolerance(as_oracle(head), 1e-3)), MeasuredReadout(head.v, 0.0, 1e-3, 1e6), rng
    )


def _rounding(head: SingleHead, rng: np.random.Generator) -> Meter:
    near = Dense(head.W + 1e-4 * rng.standard_normal(head.W.shape))
    return RoundingMeter(Ledger(Rounded(as_oracle(head), 1)), head.v, 1e3, 0.1, near, 1e-3, rng)


def _zero_centred(head: SingleHead, rng: np.random.Generator) -> Meter:
    return ZeroCentredMeter(Ledger(LowPrecision(as_oracle(head), "float32")), head.v, rng, "float32")


def _labels(head: SingleHead, rng: np.random.Generator) -> Meter:
    return LabelMeter(Labeller(Ledger(Labels(as_oracle(head)))), head.v, rng, Bisection(40))


METERS: dict[str, tuple[Callable[[SingleHead, np.random.Generator], Meter], float]] = {
    "tolerance": (_tolerance, 1e-7),
    "rounding": (_rounding, 1e-11),
    "zero-centred": (_zero_centred, 1e-11),
    "labels": (_labels, 1e-8),
}


@pytest.mark.parametrize("name", METERS)
@pytest.mark.parametrize("r", [None, 2])
def test_range_finder(name: str, r: int | None) -> None:
    make, accuracy = METERS[name]
    head = hard_head(7, r, seed=5)
    rng = np.random.default_rng(1)
    meter = make(head, rng)
    found = RangeFinder().solve(meter, rng).matrix
    assert np.linalg.norm(found.dense() - head.W) <= accuracy * np.linalg.norm(head.W)


@pytest.mark.parametrize("name", METERS)
def test_columns(name: str) -> None:
    make, accuracy = METERS[name]
    head = hard_head(4, seed=6)
    rng = np.random.default_rng(2)
    found = Columns(lambda d, rng: np.eye(d) + 0.25).solve(make(head, rng), rng).matrix.dense()
    assert np.linalg.norm(found - head.W) <= 100 * accuracy * np.linalg.norm(head.W)


def test_the_bars_of_the_tolerance_meter_cover_every_column() -> None:
    for seed in range(10):
        head = hard_head(9, seed=seed)
        rng = np.random.default_rng(seed)
        ledger = Ledger(WithinTolerance(as_oracle(head), 0.05, seed))
        meter = ToleranceMeter(ledger, MeasuredReadout(head.v, 0.0, 0.05, 50.0), rng)
        W, errors = meter.measure(None, np.eye(9))
        actual = np.linalg.norm(W - head.W, axis=0)
        assert (actual <= errors).all()
        assert np.median(actual / errors) > 0.1
