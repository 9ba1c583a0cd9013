"""Both ways through a ReLU network, with both solvers: what they measure, and what a measurement costs."""

from __future__ import annotations

import numpy as np
import pytest

from unsoftmax import FunctionOracle, Ledger, Transformer, random_transformer
from unsoftmax.meters import ConeMeter, Meter, antisymmetric_meter
from unsoftmax.meters.transformer.linear_piece import choose_piece
from unsoftmax.outcomes import OutsideClass, Unresolved
from unsoftmax.solvers import Columns, RangeFinder


def _ledger(model: Transformer) -> Ledger:
    return Ledger(FunctionOracle(model), width=model.width)


def _meter(kind: str, ledger: Ledger, model: Transformer) -> Meter:
    rng = np.random.default_rng(1)
    return (
        ConeMeter(ledger, model.one_row.folds, rng)
        if kind == "cone"
        else antisymmetric_meter(ledger, model.one_row.folds, rng)
    )


@pytest.mark.parametrize("kind", ["cone", "antisymmetric"])
def test_columns_of_the_paper(kind: str) -> None:
    model = random_transformer(6, 9, seed=1, scale=0.5)
    W = Columns().solve(_meter(kind, _ledger(model), model), np.random.default_rng(2)).matrix.dense()
    assert np.linalg.norm(W - model.W) < 1e-8 * np.linalg.norm(model.W)


@pytest.mark.parametrize("kind", ["cone", "antisymmetric"])
@pytest.mark.parametrize("r", [2, 10])
def test_range_finder_at_its_price(kind: str, r: int) -> None:
    d = 10
    model = random_transformer(d, 8, r, seed=2)
    ledger = _ledger(model)
    meter = _meter(kind, ledger, model)
    before = ledger.bill.total
    W = RangeFinder().solve(meter, np.random.default_rng(3)).matrix
    assert np.linalg.norm(W.dense() - model.W) < 1e-9 * np.linalg.norm(model.W)
    price = 1 if kind == "cone" else 2
    measurements = r * (2 * d - r)
    assert price * measurements <= ledger.bill.total - before <= price * (measurements + d + 4 * r + 40)


@pytest.mark.parametrize("biases", [False, True])
def test_projections_onto_a_subspace_that_the_gradient_does_not_see(biases: bool) -> None:
    model = random_transformer(7, 6, seed=3, biases=biases)
    meter = ConeMeter(_ledger(model), model.one_row.folds, np.random.default_rng(4))
    slope = meter.piece.gradient / np.linalg.norm(meter.piece.gradient)
    basis = np.linalg.qr(np.column_stack([slope, np.random.default_rng(5).standard_normal((7, 3))]))[0][:, 1:]
    B = np.linalg.qr(np.random.default_rng(6).standard_normal((7, 2)))[0]
    assert np.allclose(meter.project(basis, B), basis.T @ model.W @ B, atol=1e-9 * np.linalg.norm(model.W))


@pytest.mark.parametrize("residual", [0.0, 1.0, 0.25, -0.5])
def test_the_skip_connection_is_told_by_a_pair(residual: float) -> None:
    model = random_transformer(5, 6, seed=4, biases=True, residual=residual)
    assert ConeMeter(_ledger(model), model.one_row.folds, np.random.default_rng(1)).residual == pytest.approx(
        residual, abs=1e-9
    )


def test_a_piece_is_linear_as_far_as_it_says() -> None:
    folds = random_transformer(6, 20, seed=5, biases=True).network.folds
    piece = choose_piece(folds, 3.0, np.random.default_rng(1))
    directions = np.linalg.qr(np.random.default_rng(2).standard_normal((6, 6)))[0]
    for part in (-0.99, 0.5, 0.99):
        rows = piece.centre + part * piece.room(directions)[:, None] * directions
        assert np.allclose(folds(rows), piece.value + (rows - piece.centre) @ piece.gradient, atol=1e-10)


def test_refusals() -> None:
    biased = random_transformer(4, 5, seed=1, biases=True)
    with pytest.raises(Unresolved, match="biases"):
        antisymmetric_meter(_ledger(biased), biased.one_row.folds, np.random.default_rng(0))
    last = Ledger(FunctionOracle(lambda X: biased.network(X[:, -1])), width=4)
    with pytest.raises(OutsideClass, match="add up to"):
        ConeMeter(last, biased.one_row.folds, np.random.default_rng(0))
