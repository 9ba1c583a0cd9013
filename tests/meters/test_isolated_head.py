"""The meter of one head among several serves any solver."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax import Ledger, random_multi_head
from unsoftmax.meters.several_heads.excess_answers import Responses
from unsoftmax.meters.several_heads.isolated_head import IsolatedHeadMeter
from unsoftmax.meters.several_heads.isolating_rows import Isolation
from unsoftmax.meters.several_heads.other_heads import SaturatedBackground
from unsoftmax.recovery.inputs.targets import as_oracle
from unsoftmax.solvers import Columns, RangeFinder


def _meter(d: int, heads: int, r: int, which: int) -> tuple[IsolatedHeadMeter, np.ndarray]:
    model = random_multi_head(d, heads, r, seed=4)
    rng = np.random.default_rng(0)
    respond = Responses(Ledger(as_oracle(model)), model.v)
    a = rng.standard_normal(d) * 2.0**16 / np.sqrt(d)
    rows = np.array([head.W.T @ a for head in model.heads])
    points = Isolation(rows, respond.rounding).points(which, rng)
    reach = float((np.abs(rows @ points[0]) / np.linalg.norm(rows, axis=1)).min())
    quiet = SaturatedBackground(a, np.empty((0, d)), np.empty((0, len(points))))
    return IsolatedHeadMeter(
        respond, a, model.heads[which].v, points, reach, quiet, row=rows[which]
    ), model.heads[which].W


@pytest.mark.parametrize("which", range(3))
def test_range_finder_reads_one_head_of_three(which: int) -> None:
    meter, W = _meter(12, 3, 3, which)
    found = RangeFinder().solve(meter, np.random.default_rng(1)).matrix.dense()
    assert np.linalg.norm(found - W) < 1e-8 * np.linalg.norm(W)
    assert np.linalg.matrix_rank(found, tol=1e-6) == 3


def test_columns_read_one_head_of_two() -> None:
    meter, W = _meter(6, 2, 6, 1)
    basis = np.linalg.qr(np.random.default_rng(2).standard_normal((6, 6)))[0]
    found = Columns(lambda d, rng: basis).solve(meter, np.random.default_rng(0)).matrix.dense()
    assert np.linalg.norm(found - W) < 1e-7 * np.linalg.norm(W)
