"""Low-rank score tables from single entries: few of them, the right rank, nothing guessed."""

from __future__ import annotations

import numpy as np
import pytest

import unsoftmax
from tests.meters.test_token_pairs import meter_of
from unsoftmax.outcomes import Unresolved
from unsoftmax.solvers.score_table import CrossApproximation, CrossOptions
from unsoftmax.solvers.score_table.weighted_fits import WeightedFits


@pytest.mark.parametrize(
    ("vocabulary", "rank", "scale", "seed", "factor", "error"),
    [
        (30, 0, 1.0, 0, 1.0, 1e-12),
        (30, 1, 1.0, 0, 1.5, 1e-12),
        (100, 3, 0.01, 1, 1.1, 1e-10),
        (200, 8, 1.0, 2, 1.03, 1e-11),
        (200, 8, 1.0, 3, 1.03, 1e-11),
        (400, 20, 1.0, 4, 1.03, 1e-11),
        (300, 8, 3.0, 5, 1.25, 1e-9),
        (300, 8, 5.0, 6, 1.7, 1e-8),
        (12, 11, 1.0, 7, 2.0, 1e-11),
        (10, 30, 1.0, 8, 2.5, 1e-11),
    ],
)
def test_tables_of_any_rank(
    vocabulary: int, rank: int, scale: float, seed: int, factor: float, error: float
) -> None:
    model = unsoftmax.random_token_heads(vocabulary, rank, scale=scale, seed=seed)
    meter, ledger = meter_of(model)
    table = CrossApproximation().solve(meter, np.random.default_rng(seed))
    found = unsoftmax.TokenHeads([unsoftmax.TokenHead(table.keys, table.queries, meter.values)])
    assert table.resolved
    assert table.keys.shape[1] == min(rank, vocabulary - 1)
    probes = 30  # 6 candidates, each read on 3 tokens and on one row, and third tokens
    assert ledger.bill.total <= factor * model.parameters + probes
    ids = np.random.default_rng(seed + 1).integers(0, vocabulary, (500, 9))
    assert np.abs(found(ids) - model(ids)).max() < error * max(meter.spread, 1.0)


def test_a_rank_that_is_not_allowed_is_reported() -> None:
    meter, _ = meter_of(unsoftmax.random_token_heads(80, 6, seed=1))
    table = CrossApproximation(CrossOptions(most=4)).solve(meter, np.random.default_rng(0))
    assert not table.resolved


def test_scores_beyond_float64_are_not_guessed() -> None:
    meter, _ = meter_of(unsoftmax.random_token_heads(80, 6, scale=300.0, seed=1))
    with pytest.raises(Unresolved, match="scores are so strong"):
        CrossApproximation().solve(meter, np.random.default_rng(0))


def test_the_same_seed_asks_the_same_queries() -> None:
    tables = []
    for _ in range(2):
        meter, ledger = meter_of(unsoftmax.random_token_heads(90, 5, scale=4.0, seed=1))
        tables.append(
            (CrossApproximation().solve(meter, np.random.default_rng(3)).queries, ledger.bill.total)
        )
    assert np.array_equal(tables[0][0], tables[1][0])
    assert tables[0][1] == tables[1][1]


def test_weighted_fits_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    design, errors = rng.standard_normal((3, 7, 4)), rng.uniform(0.1, 2.0, (3, 7))
    targets = rng.standard_normal((3, 7))
    errors[1, 2] = np.inf
    fits = WeightedFits.of(design, targets, errors, prior=1e8)
    for place in range(3):
        weights = 1.0 / errors[place]
        expected = np.linalg.lstsq(design[place] * weights[:, None], targets[place] * weights, rcond=None)[0]
        np.testing.assert_allclose(fits.solutions[place], expected, rtol=1e-6)
        covariance = np.linalg.inv((design[place] * weights[:, None] ** 2).T @ design[place])
        directions = rng.standard_normal((5, 4))
        found = fits.part(np.arange(3) == place).deviations(directions[None])[0]
        expected_deviations = np.sqrt(np.einsum("kr,rs,ks->k", directions, covariance, directions))
        np.testing.assert_allclose(found, expected_deviations, rtol=1e-6)
